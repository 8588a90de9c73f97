"""The newest solvency report of each marketplace that was looked at: remembered, as SSH remembers a computer's key.

So whoever looks twice notices a marketplace that presents two versions of its history, or signs with another key.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, Field

from billing.proofs.solvency import SolvencyBroken, check_links, commitment_of, read_report
from jobs.client.settings import settings_path, write_private
from jobs.client.state_files import load_state
from jobs.client.transport import Transport

LINK_PAGES_MAX: Final = 20  # 2,000 reports back to the one seen before
SERVERS_MAX: Final = 1000


class _Seen(BaseModel):
    """The newest report of a marketplace that was looked at."""

    number: int
    commitment: str
    server_public_key: str


class _File(BaseModel):
    servers: dict[str, _Seen] = Field(default_factory=dict)


def compare_with_seen(transport: Transport, document: dict[str, Any], *, is_newest: bool) -> str:
    """That a report, already checked by itself, goes on where the one seen before was; then remember it.

    What could not be looked at, in words, or nothing. Raises SolvencyBroken where the two do not fit.
    """
    file, body, key = load_state(_path(), _File), document["body"], document["server_public_key"]
    seen, number, remark = file.servers.get(transport.server), body["number"], ""
    if seen is not None:
        if key != seen.server_public_key:
            raise SolvencyBroken(
                f"it is signed by the key {key}; until now it was {seen.server_public_key}. Ask why, by another way; to"
                f" go on, remove the marketplace from {_path()}"
            )
        if number < seen.number and is_newest:
            raise SolvencyBroken(f"you saw report {seen.number}, and now {number} is presented as the newest")
        if number == seen.number:
            _require_same(seen, body)
        if number > seen.number and not _is_linked(transport, body, seen):
            remark = f"There are too many reports since {seen.number}, which you saw: not all were followed."
        if number < seen.number:
            remark = f"You saw report {seen.number}: whether this older one leads there was not looked at."
    has_room = seen is not None or len(file.servers) < SERVERS_MAX
    if has_room and (seen is None or number > seen.number):
        file.servers[transport.server] = _Seen(number=number, commitment=commitment_of(body), server_public_key=key)
        write_private(_path(), file.model_dump_json(indent=2))
    return remark


def _is_linked(transport: Transport, newest: dict[str, Any], seen: _Seen) -> bool:
    """Whether the reports between were followed, each naming the one before it."""
    later = [newest]
    for body in _before(transport, newest["number"]):
        if body["number"] == seen.number:
            _require_same(seen, body)
            check_links(seen.commitment, reversed(later))
            return True
        later.append(body)
    return False


def _require_same(seen: _Seen, body: dict[str, Any]) -> None:
    if commitment_of(body) != seen.commitment:
        raise SolvencyBroken(
            f"report {seen.number} was {seen.commitment} when you saw it, and is {commitment_of(body)} now. There are"
            " two versions of the history: keep both."
        )


def _before(transport: Transport, number: int) -> Iterator[dict[str, Any]]:
    """The reports before a number, newest first, each once its signature was checked."""
    before: int | None = number
    for _ in range(LINK_PAGES_MAX):
        page = reports_of(transport.get("/solvency/reports", before=before))
        for document in page["results"]:
            read_report(document)
            yield document["body"]
        before = page.get("next_before")
        if before is None:
            raise SolvencyBroken("the report that you saw before is gone")


def reports_of(page: Any) -> dict[str, Any]:
    """A page of reports, of which nothing but its form was looked at; raises SolvencyBroken for anything else."""
    found = page if isinstance(page, dict) else {}
    if not isinstance(found.get("results"), list) or not isinstance(found.get("next_before"), int | None):
        raise SolvencyBroken("what came is no page of reports")
    return found


def _path() -> Path:
    return settings_path().with_name("solvency.json")

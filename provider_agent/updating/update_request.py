"""The agent's side of updates: the version it should have, its request to the updater, the outcome it reports.

An update request is a small file. The updater takes it for a claim: it may start an update that the marketplace signed,
and no other.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from provider_agent.config import DataFolder
from provider_agent.facts import agent_version
from provider_agent.packaging.prefix import Prefix, Record, own_prefix, read_claim
from provider_agent.protocol import VERSION_PATTERN, Rollback, UpdateFacts, UpdateOrder
from provider_agent.system.atomic import write_atomically

KEY_CHARACTERS: Final = 16

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class UpdateRequest:
    """A version that a node wants. `now`: the provider requests it, even if it was rolled back, once per `key`."""

    data: Path
    version: str
    now: bool = False
    key: str = ""


def read_update_request(folder: DataFolder) -> UpdateRequest | None:
    """None where there is none, or one that cannot be read."""
    found = read_claim(folder.update_request)
    version, key = found.get("version"), found.get("key")
    if not isinstance(version, str) or not re.fullmatch(VERSION_PATTERN, version):
        return None
    used_key = key[:KEY_CHARACTERS] if isinstance(key, str) else ""
    return UpdateRequest(folder.root, version, found.get("now") is True, used_key)


def write_update_request(folder: DataFolder, version: str, *, now: bool = False) -> None:
    """Ask the updater; repeating it changes nothing, but `now` asks anew each time."""
    if now or read_update_request(folder) != UpdateRequest(folder.root, version):
        key = secrets.token_hex(KEY_CHARACTERS // 2) if now else ""
        request = {"version": version, "now": now, "key": key}
        write_atomically(folder.update_request, json.dumps(request).encode(), mode=0o644)


def clear_update_request(folder: DataFolder) -> None:
    """Nothing is wanted: an update that was not switched to yet stops."""
    folder.update_request.unlink(missing_ok=True)


def is_held(folder: DataFolder) -> bool:
    """Whether the provider updates this node by hand, as the configuration says now: it may change while all runs."""
    return read_claim(folder.config).get("updates") == "manual"


class Updates:
    """What the agent remembers of the newest order."""

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder
        self.wanted = ""

    def accept(self, order: UpdateOrder | None, *, is_checking: bool) -> None:
        """Request the version of the newest sync answer, but none while a check runs: a restart would end the check."""
        self.wanted = order.version if order is not None else ""
        if (prefix := own_prefix()) is None:
            return
        try:
            self._ask(prefix, is_checking)
        except OSError as error:
            log.error("The request for an update could not be written: %s", error)

    def _ask(self, prefix: Prefix, is_checking: bool) -> None:
        asked = read_update_request(self._folder)
        if (
            asked is not None
            and asked.now
            and asked.version != agent_version()
            and not has_failed(prefix.record(), asked)
        ):
            return  # the provider's own
        wants = "" if is_checking else self.wanted
        if wants and (is_held(self._folder) or wants in prefix.record().bad):
            wants = ""
        if wants and wants != agent_version():
            if asked is None or asked.version != wants:
                log.info("An update to %s is asked for.", wants)
            write_update_request(self._folder, wants)
        elif asked is not None:
            clear_update_request(self._folder)


def has_failed(record: Record, request: UpdateRequest) -> bool:
    """Whether this very request was rolled back already: asked for once, a release is tried once."""
    why = record.bad.get(request.version)
    return why is not None and (not request.now or why.get("key") == request.key)


def update_facts(folder: DataFolder) -> UpdateFacts:
    """Whether this node updates itself, and the newest rollback, for the marketplace to see."""
    prefix = own_prefix()
    if prefix is None:
        return UpdateFacts()
    return UpdateFacts(mode="manual" if is_held(folder) else "auto", rolled_back=newest_rollback(prefix))


def newest_rollback(prefix: Prefix) -> Rollback | None:
    """The one that the record got last (a clock may have jumped since); one that cannot be read is none."""
    for version, why in reversed(prefix.record().bad.items()):
        with contextlib.suppress(ValidationError, TypeError):
            return Rollback.model_validate({**why, "version": version})
    return None


def update_state(prefix: Prefix | None) -> dict[str, Any]:
    """What `status` shows of updates: the newest outcome, the newest rollback, a trial, what is in an update's way."""
    if prefix is None:
        return {"last_update": None, "last_rollback": None, "trial": None, "problem": None}
    record = prefix.record()
    rollback = newest_rollback(prefix)
    return {
        "last_update": record.last or None,
        "last_rollback": rollback.model_dump(mode="json") if rollback else None,
        "trial": record.trial.version if record.trial else None,
        "problem": record.problem or None,
    }

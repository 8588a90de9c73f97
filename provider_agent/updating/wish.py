"""The agent's side: what it was told to be, what it asks of the updater, and what it tells of the outcome.

A wish is a small file. The updater takes it for a claim: it may start an update that the marketplace signed, and no
other.
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

from provider_agent.atomic import write_atomically
from provider_agent.config import DataFolder
from provider_agent.facts import agent_version
from provider_agent.protocol import VERSION_PATTERN, Rollback, UpdateFacts, UpdateOrder
from provider_agent.updating.prefix import Prefix, Record, own_prefix, read_claim

KEY_CHARACTERS: Final = 16

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wish:
    """A version that a node wants; `now`: the provider said so, also of one that was rolled back here, once a `key`."""

    data: Path
    version: str
    now: bool = False
    key: str = ""


def read_wish(folder: DataFolder) -> Wish | None:
    """None where there is none, or one that cannot be read."""
    found = read_claim(folder.update_wish)
    version, key = found.get("version"), found.get("key")
    if not isinstance(version, str) or not re.fullmatch(VERSION_PATTERN, version):
        return None
    return Wish(folder.root, version, found.get("now") is True, key[:KEY_CHARACTERS] if isinstance(key, str) else "")


def write_wish(folder: DataFolder, version: str, *, now: bool = False) -> None:
    """Ask the updater; repeating it changes nothing, but `now` asks anew each time."""
    if now or read_wish(folder) != Wish(folder.root, version):
        key = secrets.token_hex(KEY_CHARACTERS // 2) if now else ""
        wish = {"version": version, "now": now, "key": key}
        write_atomically(folder.update_wish, json.dumps(wish).encode(), mode=0o644)


def clear_wish(folder: DataFolder) -> None:
    """Nothing is wanted: an update that was not switched to yet stops."""
    folder.update_wish.unlink(missing_ok=True)


def is_held(folder: DataFolder) -> bool:
    """Whether the provider updates this node by hand, as the configuration says now: it may change while all runs."""
    return read_claim(folder.config).get("updates") == "manual"


class Updates:
    """What the agent remembers of the newest order."""

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder
        self.wanted = ""

    def hear(self, order: UpdateOrder | None, *, is_checking: bool) -> None:
        """What the newest sync said. While a check runs nothing is asked for: a restart would break it off."""
        self.wanted = order.version if order is not None else ""
        if (prefix := own_prefix()) is None:
            return
        try:
            self._ask(prefix, is_checking)
        except OSError as error:
            log.error("The wish for an update could not be written: %s", error)

    def _ask(self, prefix: Prefix, is_checking: bool) -> None:
        asked = read_wish(self._folder)
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
            write_wish(self._folder, wants)
        elif asked is not None:
            clear_wish(self._folder)


def has_failed(record: Record, wish: Wish) -> bool:
    """Whether this very wish was rolled back already: asked for once, a release is tried once."""
    why = record.bad.get(wish.version)
    return why is not None and (not wish.now or why.get("key") == wish.key)


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

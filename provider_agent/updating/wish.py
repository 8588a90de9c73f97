"""The agent's side: what it was told to be, what it asks of the updater, and what it tells of the outcome.

A wish is a small file. The updater takes it for a claim: it may start an update that the marketplace signed, and no
other.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from provider_agent.atomic import write_atomically
from provider_agent.config import AgentConfig, DataFolder
from provider_agent.facts import agent_version
from provider_agent.protocol import VERSION_PATTERN, Rollback, UpdateFacts, UpdateOrder
from provider_agent.updating.prefix import Prefix, own_prefix, read_claim

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wish:
    """A version that a node wants; `now`: the provider said so, also of one that was rolled back here."""

    data: Path
    version: str
    now: bool = False


def read_wish(folder: DataFolder) -> Wish | None:
    """None where there is none, or one that cannot be read."""
    found = read_claim(folder.update_wish)
    version = found.get("version")
    if not isinstance(version, str) or not re.fullmatch(VERSION_PATTERN, version):
        return None
    return Wish(folder.root, version, found.get("now") is True)


def write_wish(folder: DataFolder, version: str, *, now: bool = False) -> None:
    """Ask the updater; repeating it changes nothing."""
    if read_wish(folder) != Wish(folder.root, version, now):
        write_atomically(folder.update_wish, json.dumps({"version": version, "now": now}).encode(), mode=0o644)


def clear_wish(folder: DataFolder) -> None:
    """Nothing is wanted: an update that was not switched to yet stops."""
    folder.update_wish.unlink(missing_ok=True)


class Updates:
    """What the agent remembers of the newest order."""

    def __init__(self, folder: DataFolder, config: AgentConfig) -> None:
        self._folder = folder
        self._is_automatic = config.updates == "auto"
        self.wanted = ""

    def hear(self, order: UpdateOrder | None, *, is_checking: bool) -> None:
        """What the newest sync said. While a check runs nothing is asked for: a restart would break it off."""
        self.wanted = order.version if order is not None else ""
        if own_prefix() is None:
            return
        try:
            self._ask(is_checking)
        except OSError as error:
            log.error("The wish for an update could not be written: %s", error)

    def _ask(self, is_checking: bool) -> None:
        asked = read_wish(self._folder)
        if asked is not None and asked.now and asked.version != agent_version():
            return  # the provider's own
        wants = self.wanted if self._is_automatic and not is_checking else ""
        if wants and wants != agent_version():
            if asked is None or asked.version != wants:
                log.info("An update to %s is asked for.", wants)
            write_wish(self._folder, wants)
        elif asked is not None:
            clear_wish(self._folder)


def update_facts(config_updates: str) -> UpdateFacts:
    """Whether this node updates itself, and the newest rollback, for the marketplace to see."""
    prefix = own_prefix()
    if prefix is None:
        return UpdateFacts()
    return UpdateFacts(mode="manual" if config_updates == "manual" else "auto", rolled_back=newest_rollback(prefix))


def newest_rollback(prefix: Prefix) -> Rollback | None:
    """The newest that the record has; one that cannot be read is none."""
    found: list[tuple[datetime, Rollback]] = []
    for version, why in prefix.record().bad.items():
        try:
            rollback = Rollback.model_validate({**why, "version": version})
        except (ValidationError, TypeError):
            continue
        found.append((rollback.at, rollback))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def update_state(prefix: Prefix | None) -> dict[str, Any]:
    """What `status` shows of updates: the newest outcome, the newest rollback, a trial that goes on."""
    if prefix is None:
        return {"last_update": None, "last_rollback": None, "trial": None}
    record = prefix.record()
    rollback = newest_rollback(prefix)
    return {
        "last_update": record.last or None,
        "last_rollback": rollback.model_dump(mode="json") if rollback else None,
        "trial": record.trial.version if record.trial else None,
    }

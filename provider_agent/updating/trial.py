"""Whether the release that was switched to works: each agent must sync with it, or it is rolled back.

Time counts only while the marketplace answers the updater itself, which is the old release's code: as long as nobody
could check in, silence says nothing about the new one. An agent that does not stay up needs no marketplace to be bad.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from provider_agent.config import DataFolder
from provider_agent.errors import AgentError, Refused
from provider_agent.packaging.prefix import Prefix, Record, Trial, read_claim
from provider_agent.packaging.service import is_kept, is_running, restart_service
from provider_agent.updating.reviving import ended_with

POLL_SECONDS: Final = 1.0
DOWN_SECONDS_MAX: Final = 20.0  # an agent may be between two starts for so long, no longer
AWAY_SECONDS_MAX: Final = 600.0  # the marketplace does not answer: judged at the updater's next start
PROBE_SECONDS: Final = 5.0

Verdict = Literal["good", "bad", "open"]
Probe = Callable[[], bool]


@dataclass(frozen=True)
class Judgement:
    """What the trial came to, and why."""

    verdict: Verdict
    reason: str = ""


def restart_agents(prefix: Prefix, folders: list[str]) -> str:
    """Start every agent anew with what `current` names; returns why one did not start, else nothing."""
    failed = ""  # the others are tried all the same: after a rollback each counts
    for name in folders:
        try:
            restart_service(DataFolder(Path(name)), prefix.program)
        except (AgentError, OSError) as error:
            failed = failed or str(error)
    return failed


def judge(prefix: Prefix, record: Record, trial: Trial, *, seconds_max: float, is_reachable: Probe) -> Judgement:
    """Wait until every agent of the trial has checked in, or cannot any more; what was counted is saved as it goes."""
    down = dict.fromkeys(trial.nodes, 0.0)
    away, probed_at, reachable = 0.0, float("-inf"), False
    before = time.monotonic()
    while True:
        nodes = [name for name in trial.nodes if is_kept(DataFolder(Path(name)))]  # not those stopped meanwhile
        if not nodes:
            return Judgement("open", "no agent of this installation runs as a service")
        missing = [name for name in nodes if not has_checked_in(Path(name), trial.release)]
        if not missing:
            return Judgement("good")
        now = time.monotonic()
        passed, before = now - before, now
        for name in nodes:
            down[name] = 0.0 if is_running(DataFolder(Path(name))) else down[name] + passed
            if down[name] > DOWN_SECONDS_MAX and not reachable and was_refused(Path(name)):
                return Judgement("open", f"something answers in the marketplace's place ({name})")
            if down[name] > DOWN_SECONDS_MAX:
                return Judgement("bad", f"its agent did not stay up ({name})")
        was_reachable = reachable  # time counts only between two answers
        if now - probed_at >= PROBE_SECONDS:
            reachable, probed_at = is_reachable(), now
            before = time.monotonic()  # nor does that of the question
            with contextlib.suppress(OSError):  # a full disk: the verdict must come all the same
                prefix.save(record)
        if was_reachable and reachable:
            trial.counted_seconds += passed
            away = 0.0
        else:
            away += passed
        if trial.counted_seconds >= seconds_max:
            return Judgement("bad", f"it did not check in within {seconds_max:.0f} s ({missing[0]})")
        if away >= AWAY_SECONDS_MAX:
            return Judgement("open", "the marketplace does not answer")
        time.sleep(POLL_SECONDS)


def was_refused(data: Path) -> bool:
    """Whether the agent ended because it was refused. While the marketplace itself is not there, that was another's
    doing: a firewall that answers 403 to all would make every node roll back a good release."""
    return ended_with(data) == str(Refused.exit_code)


def has_checked_in(data: Path, release: str) -> bool:
    """Whether the agent of this release, running now, was answered by the marketplace. It is the agent's own claim:
    who lies here keeps a release that nobody else has."""
    status = read_claim(data / "status.json")
    return status.get("release") == release and bool(status.get("contact_at")) and is_running(DataFolder(data))

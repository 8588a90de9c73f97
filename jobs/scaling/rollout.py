"""How a new version of an endpoint takes over from the old one, and how it is rolled back.

    starting -> live -> retired;   starting | live -> rolled_back

    blue_green   the new version gets as many replicas as the old one has ready, then all requests
    canary       the new version gets `shares` one after the other, each for `step_seconds`, then all requests

Meanwhile, and for another `step_seconds`, the old one keeps its replicas, so that a rollback takes no start.

A version is given a share only while it has a ready replica, unless none has. The newest version is compared with the
one that it follows: beyond doubt more failures than `errors_max` allows, or beyond doubt slower, and it is rolled back.
"Beyond doubt" is one in two thousand, since it is decided at every tick and small samples must not flap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from jobs.scaling.spreading import ERRORS_ALONE, wilson_low
from jobs.spec.kinds.serve import Rollout

WHOLE: Final = 100
STARTS_FAILED_MAX: Final = 3  # of a version that never had a ready replica
STARTING_SECONDS_MAX: Final = 3600.0  # and it is paid for all the while, beside the old one
SAMPLES_MIN: Final = 20  # answers of each version without which nothing is compared
STEP_SERVED_MIN: Final = 10  # answers of the new version without which a step lasts longer
STEP_TIMES_MAX: Final = 3.0  # but not longer than so many steps: an endpoint without requests is deployed, too
DOUBT_Z: Final = 3.3  # one-sided one in two thousand
SLOWER_TIMES: Final = 1.5  # geometric mean of the time to the first token, over the old version's
WHY_CHARACTERS_MAX: Final = 200

State = Literal["starting", "live", "retired", "rolled_back"]


@dataclass(frozen=True, slots=True)
class VersionView:
    """One version that has not ended, and what came of its requests since the newest one was deployed."""

    number: int
    state: State
    share: int
    ready: int = 0  # replicas
    age_seconds: float = 0.0
    step_seconds: float = 0.0  # since its share was changed last
    starts_failed: int = 0
    served: int = 0
    failed: int = 0  # of them, by the engine's or the network's fault
    first_tokens: int = 0  # answers whose time to the first token is known
    first_token_log_mean: float = 0.0  # of ln(milliseconds)
    first_token_log_sd: float = 0.0


@dataclass(frozen=True, slots=True)
class VersionPlan:
    """What becomes of one version."""

    number: int
    state: State
    share: int
    desired: int  # replicas


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of all; the shares add up to 100 wherever a version is left."""

    versions: tuple[VersionPlan, ...]
    why: str  # one sentence for people; empty: nothing changes


def decide(
    policy: Rollout, desired: int, versions: Sequence[VersionView], *, is_rollback_requested: bool = False
) -> Plan:
    """Shares, states and replicas of every version. `desired` replicas are what the endpoint's load takes.

    `is_rollback_requested`: its owner wants the version before the newest again; possible while that one has not ended.
    """
    active = sorted((each for each in versions if each.state in {"starting", "live"}), key=lambda each: each.number)
    if not active:
        return Plan((), "")
    new = active[-1]
    old = max(active[:-1], key=lambda each: (each.share, each.ready > 0, each.number), default=None)
    if old is None:
        words = f"Version {new.number} answers." if new.ready and new.state == "starting" else ""
        return Plan((_plan(new, WHOLE, desired),), words)
    passed_over = [
        VersionPlan(each.number, "retired" if each.state == "live" else "rolled_back", 0, 0)
        for each in active
        if each is not new and each is not old
    ]
    bad = "its owner rolled it back" if is_rollback_requested else worse(policy, new, old)
    found, why = _between(policy, new, old, desired, bad)
    return Plan(tuple(sorted([*passed_over, *found], key=lambda each: each.number)), why[:WHY_CHARACTERS_MAX])


def worse(policy: Rollout, new: VersionView, old: VersionView) -> str:
    """Why the new version should be rolled back; empty: nothing speaks against it beyond doubt."""
    if new.state == "starting":
        if new.starts_failed >= STARTS_FAILED_MAX and not new.ready:
            return f"{new.starts_failed} of its replicas failed before they were ready"
        if new.age_seconds > STARTING_SECONDS_MAX:
            many = "too few of its replicas were" if new.ready else "none of its replicas was"
            return f"{many} ready after {new.age_seconds / 60:.0f} min"
    if new.served >= SAMPLES_MIN and fails_more(policy.errors_max / WHOLE, new, old):
        return f"{new.failed} of {new.served} requests failed, of version {old.number} {old.failed} of {old.served}"
    if min(new.first_tokens, old.first_tokens) >= SAMPLES_MIN and is_slower(new, old):
        before, after = math.exp(old.first_token_log_mean), math.exp(new.first_token_log_mean)
        return f"its first token takes {after:.0f} ms, that of version {old.number} {before:.0f} ms"
    return ""


def fails_more(margin: float, new: VersionView, old: VersionView) -> bool:
    """Whether the new version's share of failures is beyond the old one's by more than `margin`, beyond doubt.

    Agresti and Caffo's interval of a difference (The American Statistician 54, 2000): one success and one failure are
    added to each, so that a sample without failures is not taken for certainty. Where the old one has answered too
    few, the new one is worse only if most of its requests fail, beyond doubt.
    """
    if old.served < SAMPLES_MIN:
        return wilson_low(new.failed, new.served, DOUBT_Z) > max(ERRORS_ALONE, margin)
    counts = [(min(each.failed, each.served) + 1, each.served + 2) for each in (new, old)]
    (new_share, new_count), (old_share, old_count) = ((failed / count, count) for failed, count in counts)
    error = math.sqrt(new_share * (1 - new_share) / new_count + old_share * (1 - old_share) / old_count)
    return new_share - old_share - margin > DOUBT_Z * error


def is_slower(new: VersionView, old: VersionView) -> bool:
    """Whether its first token takes `SLOWER_TIMES` as long, beyond doubt (Welch, on the logarithms)."""
    error = math.sqrt(
        new.first_token_log_sd**2 / new.first_tokens + old.first_token_log_sd**2 / old.first_tokens + 1e-12
    )
    return new.first_token_log_mean - old.first_token_log_mean - math.log(SLOWER_TIMES) > DOUBT_Z * error


def replicas_of(share: int, desired: int) -> int:
    """How many replicas a version with this share takes: at least one with any share, unless the endpoint sleeps."""
    return min(max(math.ceil(desired * share / WHOLE), int(share > 0)), desired)


def _between(
    policy: Rollout, new: VersionView, old: VersionView, desired: int, bad: str
) -> tuple[list[VersionPlan], str]:
    """What becomes of the two; the old one keeps what the load takes until the new one has proved itself."""
    if bad and (old.ready or not new.ready):
        rolled_back = VersionPlan(new.number, "rolled_back", 0, 0)
        return [rolled_back, _plan(old, WHOLE, desired)], f"Version {new.number} is rolled back: {bad}."
    if bad:
        words = f"Version {new.number} is rolled back once version {old.number} is ready again: {bad}."
        return [_plan(new, WHOLE, desired), _plan(old, 0, max(desired, 1))], words
    if new.share == WHOLE:
        return _prove(policy, new, old, desired)
    if new.ready and not old.ready:  # nobody else answers: that comes before caution
        return _give(new, old, WHOLE, desired)
    return (_blue_green if policy.strategy == "blue_green" else _canary)(policy, new, old, desired)


def _blue_green(policy: Rollout, new: VersionView, old: VersionView, desired: int) -> tuple[list[VersionPlan], str]:
    wanted = max(desired, 1)  # also of an endpoint that sleeps: what was never ready takes nothing over
    if new.ready >= max(min(old.ready, wanted), 1):
        return _give(new, old, WHOLE, desired)
    return [_plan(new, 0, wanted), _plan(old, WHOLE, desired)], ""


def _canary(policy: Rollout, new: VersionView, old: VersionView, desired: int) -> tuple[list[VersionPlan], str]:
    wanted = max(desired, 1)
    following = next((share for share in policy.shares if share > new.share), WHOLE)
    if not new.ready:
        return _without(new, old, replicas_of(following, wanted), desired)
    is_enough = new.served >= STEP_SERVED_MIN or new.step_seconds >= STEP_TIMES_MAX * policy.step_seconds
    is_due = new.share == 0 or (new.step_seconds >= policy.step_seconds and is_enough)
    if is_due and new.ready >= replicas_of(following, wanted):
        return _give(new, old, following, desired)
    grown = replicas_of(following if is_due else new.share, wanted)
    return [_plan(new, new.share, grown), _plan(old, WHOLE - new.share, desired)], ""


def _prove(policy: Rollout, new: VersionView, old: VersionView, desired: int) -> tuple[list[VersionPlan], str]:
    """The new version has everything; the old one's replicas stay for a while, for a rollback."""
    if old.ready and not new.ready:
        return _without(new, old, max(desired, 1), desired)
    if new.step_seconds < policy.step_seconds:
        return [_plan(new, WHOLE, desired), _plan(old, 0, desired)], ""
    return [_plan(new, WHOLE, desired), VersionPlan(old.number, "retired", 0, 0)], f"Version {old.number} is retired."


def _give(new: VersionView, old: VersionView, share: int, desired: int) -> tuple[list[VersionPlan], str]:
    words = f"Version {new.number} answers {share} % of the requests."
    return [_plan(new, share, replicas_of(share, desired)), _plan(old, WHOLE - share, desired)], words


def _without(new: VersionView, old: VersionView, wanted: int, desired: int) -> tuple[list[VersionPlan], str]:
    """The new version has no ready replica now: the old one answers, and the new one gets so many."""
    words = f"Version {new.number} has no ready replica: version {old.number} answers." if new.share else ""
    return [_plan(new, 0, wanted), _plan(old, WHOLE, desired)], words


def _plan(version: VersionView, share: int, desired: int) -> VersionPlan:
    """It lives from its first share on that a ready replica answers."""
    return VersionPlan(version.number, "live" if share and version.ready else version.state, share, desired)

"""Which replicas start and which stop for a desired number, without a moment of too few.

Replicas that start already count, so a slow start causes no second one. One that fails, or whose start takes far
longer than starts do, is replaced before it goes. Some go at a time, and no ready one before as many others are ready.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from jobs.scaling.autoscaling import EndpointView, ReplicaView
from jobs.spec.kinds.serve import ServeSection

STARTS_MAX: Final = 10  # a tick
DRAINS_SHARE: Final = 10  # one in so many replicas may drain at once, at least one
SURGE_MIN: Final = 1  # replicas beyond `max`, where one must be replaced and `max` is reached
LATE_TIMES: Final = 3.0  # a start that takes so many cold starts is not waited for any more
LOST_SECONDS: Final = 15.0  # nor is one that was ready and that no gateway has reached for so long
LOST_SHARE: Final = 3  # one in so many is replaced for that, at least one


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What to do now."""

    start: int = 0
    start_on_demand: int = 0  # besides: only on nodes that promise to stay, or not at all
    drain: tuple[UUID, ...] = ()
    why: str = ""


def plan_steps(
    desired: int, policy: ServeSection, view: EndpointView, leaving: Sequence[UUID], *, has_on_demand: bool = True
) -> StepPlan:
    """What to do now about the replicas of `view`; `leaving` is the order in which they stop.

    Of the failing and the late, as many go as are ready instead of them; until then others are started beside them,
    one at a time beyond `max` where `max` is reached: a moment of two is cheaper than a moment of none.
    `has_on_demand`: a node that promises to stay is available; without one nothing is started for that minimum.
    While a version takes over, `view` has one version's replicas, and `desired` is that version's.
    """
    live = [replica for replica in view.replicas if replica.state != "draining"]
    unsound = to_replace(live, view.cold_start_seconds)
    sound = [replica for replica in live if replica.id not in unsound]
    ready = sum(replica.state == "ready" for replica in sound)
    start = _starts(desired, policy, live=len(live), sound=len(sound))
    on_demand = sum(replica.is_on_demand for replica in sound)
    lacks_floor = on_demand + start < min(policy.scale.on_demand_min, desired)
    surge = int(has_on_demand and lacks_floor and start == 0 and len(live) <= desired)
    gone = max(ready + len(unsound) - desired, 0)
    drain = [pk for pk in leaving if pk in unsound][:gone]
    draining = len(view.replicas) - len(live)
    drain += _surplus(desired, policy.scale.on_demand_min, sound, leaving, draining=draining)
    return StepPlan(start, surge, tuple(drain), _step_words(start, surge, drain, unsound))


def to_replace(live: Sequence[ReplicaView], cold_start_seconds: float) -> set[UUID]:
    """The failing and the late. Of those that no gateway reaches any more, a share at most, the longest lost first:
    where all are lost at once it is the gateway, and as many new ones would be lost, too."""
    late = [replica for replica in live if is_late(replica, cold_start_seconds)]
    lost = sorted((replica for replica in late if replica.was_ready), key=lambda replica: -replica.seconds)
    spared = {replica.id for replica in lost[max(len(live) // LOST_SHARE, 1) :]}
    return {replica.id for replica in live if replica.is_failing or (replica in late and replica.id not in spared)}


def is_late(replica: ReplicaView, cold_start_seconds: float) -> bool:
    """Whether it is not ready for so long that another is tried beside it."""
    patience = LOST_SECONDS if replica.was_ready else LATE_TIMES * cold_start_seconds
    return replica.state == "starting" and replica.seconds > patience


def _starts(desired: int, policy: ServeSection, *, live: int, sound: int) -> int:
    """As many as sound ones are missing, within what may be there while unsound ones are replaced."""
    unsound = live - sound
    room = max(policy.replicas.max - desired, SURGE_MIN)
    total_max = desired + min(unsound, room)
    return min(max(min(desired - sound, total_max - live), 0), STARTS_MAX)


def _surplus(
    desired: int, floor: int, sound: Sequence[ReplicaView], leaving: Sequence[UUID], *, draining: int
) -> list[UUID]:
    """Who goes because there are more than wanted: some at a time, no ready one before as many others are ready, and
    none of the `floor` on nodes that promise to stay."""
    if desired == 0:
        return [pk for pk in leaving if any(replica.id == pk for replica in sound)]
    at_once = max(len(sound) // DRAINS_SHARE, 1) - draining
    surplus = min(len(sound) - desired, at_once)
    ready_surplus = sum(replica.state == "ready" for replica in sound) - desired
    on_demand_surplus = sum(replica.is_on_demand for replica in sound) - min(floor, desired)
    known = {replica.id: replica for replica in sound}
    going: list[UUID] = []
    for replica in (known[pk] for pk in leaving if pk in known):
        is_ready = replica.state == "ready"
        if len(going) >= surplus:
            break
        if (is_ready and ready_surplus <= 0) or (replica.is_on_demand and on_demand_surplus <= 0):
            continue
        ready_surplus, on_demand_surplus = ready_surplus - is_ready, on_demand_surplus - replica.is_on_demand
        going.append(replica.id)
    return going


def _step_words(start: int, surge: int, drain: Collection[UUID], unsound: Collection[UUID]) -> str:
    words = [
        f"{start} started" if start else "",
        f"{surge} started where nodes promise to stay" if surge else "",
        f"{len(drain)} drained" if drain else "",
        f"{len(unsound)} to be replaced" if unsound else "",
    ]
    return ", ".join(filter(None, words))

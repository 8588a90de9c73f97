"""One day of an endpoint, event by event: requests come, wait, are answered; replicas start, break, drain.

Everything that is decided is decided by the real functions of `jobs.serving`; what is simulated is the world around
them: when requests come and how long one takes, how long a start takes, which node breaks and when. All ways of sizing
see the same requests, the same nodes and the same breaks.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from jobs.scaling import forecast, spreading
from jobs.scaling.autoscaling import EndpointView, History, ReplicaView, decide, minutes_needed
from jobs.scaling.cold_start import PastStart, StartPlan, estimate
from jobs.scaling.step_plan import plan_steps
from jobs.spec.kinds.serve import ServeSection

DAY_SECONDS = 86_400
TICK_SECONDS = 5.0  # the marketplace's is shorter
PATIENCE_SECONDS = 300.0  # then a request is refused
NODES, PROVIDERS = 24, 8
BREAKS_PER_DAY = (0.2, 2.0)  # of a node, by its kind
BACK_SECONDS = 3600.0  # until a node that broke is there again
START_MEDIAN_SECONDS = {True: 45.0, False: 110.0}  # by whether the node has the weights
START_SD = 0.35  # of the logarithm
BEGIN = datetime(2026, 11, 24, tzinfo=UTC)  # a Tuesday
PLAN = StartPlan("docker", "vllm", 16_000, is_cached=True, node_class="simulated")


@dataclass
class Node:
    """Where one replica fits."""

    candidate: spreading.Candidate
    breaks_at: list[float]
    down_until: float = -1.0
    broke_at: float = -math.inf
    is_taken: bool = False
    has_weights: bool = False


@dataclass
class Simulated:
    """One replica."""

    id: UUID
    node: Node
    started_at: float
    ready_at: float
    requests: set[int] = field(default_factory=set)
    is_draining: bool = False
    served: int = 0


@dataclass
class Day:
    """What came of it."""

    waits: list[float] = field(default_factory=list)
    refused: int = 0
    replica_seconds: float = 0.0
    usd_micros: float = 0.0
    starts: int = 0
    broken: int = 0
    retried: int = 0
    turns: int = 0  # times that it grew after it had shrunk, or shrank after it had grown
    most: int = 0


Sizing = Callable[[datetime, EndpointView, History], int]


def nodes_of(seed: int) -> list[Node]:
    """The fleet, and when each of its nodes breaks on this day."""
    chance = random.Random(seed)
    fleet = []
    for number in range(1, NODES + 1):
        stays = number % 3 == 0
        rate = BREAKS_PER_DAY[0 if stays else 1]
        breaks = sorted(chance.uniform(0, DAY_SECONDS) for _ in range(_poisson(chance, rate)))
        candidate = spreading.Candidate(
            UUID(int=number),
            UUID(int=1000 + number % PROVIDERS),
            usd_micros_per_hour=int((1_500_000 if stays else 800_000) * chance.uniform(0.8, 1.2)),
            tokens_per_second=1000.0,
            failures=0 if stays else 4,
            successes=40,
            open_seconds=math.inf if stays else 8 * 3600.0,
        )
        fleet.append(Node(candidate, breaks))
    # One provider's nodes all break at once: what spreading is for.
    outage = chance.uniform(9, 17) * 3600
    for node in fleet:
        if node.candidate.provider_id.int == 1001:
            node.breaks_at = sorted([*node.breaks_at, outage])
    return fleet


def _poisson(chance: random.Random, mean: float) -> int:
    limit, count, product = math.exp(-mean), 0, chance.random()
    while product > limit:
        count, product = count + 1, product * chance.random()
    return count


class Simulation:
    """`requests` are (second, how long one takes), in order. `before` are the minutes of the days before."""

    def __init__(
        self,
        policy: ServeSection,
        requests: Sequence[tuple[float, float]],
        before: Sequence[forecast.Minute],
        sizing: Sizing | None,
        seed: int,
    ) -> None:
        self.policy, self.requests, self.sizing = policy, requests, sizing
        self.fleet, self.chance = nodes_of(seed), random.Random(seed + 1)
        self.requirements = spreading.Requirements(policy.spread, policy.scale.on_demand_min, policy.scale.in_flight)
        self.replicas: dict[UUID, Simulated] = {}
        self.queue: deque[int] = deque()
        self.first_tried: dict[int, float] = {}
        self.endings: list[tuple[float, int, UUID]] = []
        self.minutes = {row.minute: row for row in before}
        self.begin_minute = int(BEGIN.timestamp()) // 60
        self.past: list[PastStart] = []
        self.start = estimate(PLAN, self.past)
        self.foreseen: forecast.Forecast | None = None
        self.arrived = self.served = 0
        self.wait_max = 0.0
        self.asked_at = -math.inf
        self.direction = 0
        self.day = Day()

    def run(self) -> Day:
        """The whole day."""
        position = 0
        for tick in range(int(DAY_SECONDS / TICK_SECONDS)):
            now = tick * TICK_SECONDS
            self._world(now)
            self._decide(now)
            position = self._until(now + TICK_SECONDS, position)
        self.day.refused += len(self.queue)
        for replica in list(self.replicas.values()):
            self._end(replica, DAY_SECONDS)
        return self.day

    def _until(self, end: float, position: int) -> int:
        """Arrivals, endings and replicas that become ready before `end`, in the order of time."""
        ready = sorted(r.ready_at for r in self.replicas.values() if end - TICK_SECONDS < r.ready_at <= end)
        while True:
            comes = self.requests[position][0] if position < len(self.requests) else math.inf
            ends = self.endings[0][0] if self.endings else math.inf
            now = min(comes, ends, ready[0] if ready else math.inf)
            if now >= end:
                return position
            if now == comes:
                self.arrived, self.asked_at = self.arrived + 1, now
                self.queue.append(position)
                position += 1
            elif now == ends:
                _, request, pk = heapq.heappop(self.endings)
                replica = self.replicas.get(pk)
                if replica is None or request not in replica.requests:
                    continue  # its replica broke: it was asked again elsewhere
                replica.requests.discard(request)
                replica.served, self.served = replica.served + 1, self.served + 1
                if replica.is_draining and not replica.requests:
                    self._end(replica, now)
            else:
                ready.pop(0)
            self._dispatch(now)

    def _dispatch(self, now: float) -> None:
        """Who waits goes to whoever has the least, and whoever waited for too long is refused."""
        while self.queue and now - self.requests[self.queue[0]][0] > PATIENCE_SECONDS:
            self.queue.popleft()
            self.day.refused += 1
        if not self.queue:
            return
        able = [r for r in self.replicas.values() if r.ready_at <= now and not r.is_draining]
        while self.queue and able:
            best = min(able, key=lambda replica: len(replica.requests))
            if len(best.requests) >= self.policy.scale.in_flight:
                return
            request = self.queue.popleft()
            came, takes = self.requests[request]
            best.requests.add(request)
            heapq.heappush(self.endings, (now + takes, request, best.id))
            self.wait_max = max(self.wait_max, now - came)
            if request not in self.first_tried:
                self.first_tried[request] = now
                self.day.waits.append(now - came)

    def _world(self, now: float) -> None:
        """Nodes break; what they had in work is asked again, first of all."""
        for node in self.fleet:
            while node.breaks_at and node.breaks_at[0] <= now:
                node.breaks_at.pop(0)
                node.down_until, node.broke_at = now + BACK_SECONDS, now
                for replica in [r for r in self.replicas.values() if r.node is node]:
                    self.day.broken += 1
                    self.day.retried += len(replica.requests)
                    self.queue.extendleft(sorted(replica.requests, reverse=True))
                    self._end(replica, now)
        for replica in self.replicas.values():
            if now - TICK_SECONDS < replica.ready_at <= now:
                self.past.insert(0, PastStart(PLAN, replica.ready_at - replica.started_at))
                self.start = estimate(PLAN, self.past)

    def _end(self, replica: Simulated, now: float) -> None:
        del self.replicas[replica.id]
        replica.node.is_taken = False
        self.day.replica_seconds += now - replica.started_at
        self.day.usd_micros += (now - replica.started_at) / 3600 * replica.node.candidate.usd_micros_per_hour

    def _decide(self, second: float) -> None:
        """One tick, as the marketplace's: look, decide, record, do."""
        now = BEGIN + timedelta(seconds=second)
        view = self._view(second)
        at = self.begin_minute + int(second) // 60
        if second % 60 == 0:
            self._foresee(at)
        recent = [self.minutes[m] for m in range(at - minutes_needed(), at + 1) if m in self.minutes]
        history = History(recent, self.foreseen)
        found = decide(now, self.policy, view, history)
        desired = found.desired if self.sizing is None else self.sizing(now, view, history)
        self.minutes[at] = forecast.record(
            self.minutes.get(at, forecast.Minute(at)),
            load=found.load,
            in_flight=view.in_flight,
            arrived=self.arrived,
            served=self.served,
            need=found.need,
            desired=desired,
        )
        self.arrived = self.served = 0
        self._count(recent[-1].desired if recent else 0, desired)
        live = [r for r in self.replicas.values() if not r.is_draining]
        steps = plan_steps(desired, self.policy, view, self._leaving(live) if len(live) > desired else ())
        for pk in steps.drain:
            self._drain(self.replicas[pk], second)
        self._start(steps.start, second, only_on_demand=False)
        self._start(steps.start_on_demand, second, only_on_demand=True)
        self._dispatch(second)

    def _view(self, now: float) -> EndpointView:
        oldest = now - self.requests[self.queue[0]][0] if self.queue else 0.0
        wait, self.wait_max = max(self.wait_max, oldest), 0.0
        ready = any(r.ready_at <= now and not r.is_draining for r in self.replicas.values())
        return EndpointView(
            [
                ReplicaView(
                    r.id,
                    "draining" if r.is_draining else "ready" if r.ready_at <= now else "starting",
                    now - (r.ready_at if r.ready_at <= now else r.started_at),
                    is_on_demand=r.node.candidate.is_on_demand,
                )
                for r in self.replicas.values()
            ],
            in_flight=sum(len(r.requests) for r in self.replicas.values()),
            queued=len(self.queue),
            queue_seconds=wait,
            is_wanted=bool(self.queue) and not ready,
            idle_seconds=now - self.asked_at if self.asked_at > -math.inf else None,
            cold_start_seconds=self.start.surely_seconds,
        )

    def _foresee(self, at: int) -> None:
        if self.policy.scale.forecast and self.sizing is None:
            horizon = forecast.horizon_of(self.start.surely_seconds)
            wanted = forecast.ranges(at, horizon)
            rows = [self.minutes[m] for first, last in wanted for m in range(first, last + 1) if m in self.minutes]
            self.foreseen = forecast.predict(at, horizon, rows)

    def _count(self, before: int, after: int) -> None:
        self.day.most = max(self.day.most, after)
        if after != before:
            direction = 1 if after > before else -1
            self.day.turns += direction != self.direction and self.direction != 0
            self.direction = direction

    def _placed(self, live: Sequence[Simulated]) -> list[spreading.Placed]:
        return [
            spreading.Placed(
                r.id,
                r.node.candidate.node_id,
                r.node.candidate.provider_id,
                is_on_demand=r.node.candidate.is_on_demand,
                usd_micros_per_token=r.node.candidate.usd_micros_per_token,
                served_lately=r.served,
            )
            for r in live
        ]

    def _leaving(self, live: Sequence[Simulated]) -> list[UUID]:
        return spreading.leaving_order(self._placed(live), self.requirements)

    def _drain(self, replica: Simulated, now: float) -> None:
        replica.is_draining = True
        if not replica.requests:
            self._end(replica, now)

    def _start(self, count: int, now: float, *, only_on_demand: bool) -> None:
        if not count:
            return
        free = {node.candidate.node_id: node for node in self.fleet if not node.is_taken and node.down_until <= now}
        live = [r for r in self.replicas.values() if not r.is_draining]
        least = self.requirements.on_demand_min
        requirements = spreading.Requirements(self.policy.spread, least, only_on_demand=only_on_demand)
        candidates = [node.candidate for node in free.values()]
        for candidate in spreading.choose(candidates, self._placed(live), requirements, count):
            node = free[candidate.node_id]
            median = START_MEDIAN_SECONDS[node.has_weights]
            takes = median * math.exp(self.chance.gauss(0, START_SD))
            node.is_taken = node.has_weights = True
            pk = UUID(int=self.day.starts + 1)
            self.replicas[pk] = Simulated(pk, node, now, now + takes)
            self.day.starts += 1

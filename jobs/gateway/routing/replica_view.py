"""What this gateway has measured of each replica: its speed, its load, and whether it is healthy.

A replica is put aside after FAILURES_MAX failures in a row, or when its first tokens come far later than its peers'
(median + SLOW_MADS x MAD). It comes back by one real token (a probe, first after PROBE_SECONDS, then ever more seldom):
a tunnel that is there proves nothing about the engine behind it. A replica without requests is probed now and then.

    good --failures, slow--> aside --a real token--> good
"""

from __future__ import annotations

import asyncio
import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from jobs.gateway.engines.tokens import Count
from jobs.gateway.engines.upstream import Announced
from jobs.gateway.messages import ReplicaLoad

FAILURES_MAX = 3  # in a row
SAMPLES_MAX = 64  # newest first tokens and durations that are kept
SAMPLES_MIN = 8  # before a replica is called slow
PEERS_MIN = 3  # ready replicas without which nobody is slow against the others
SLOW_MADS = 6.0
SLOW_SECONDS_MIN = 0.25  # above the median at the least
ASIDE_SHARE_MAX = 1 / 3  # of the ready replicas of an endpoint that may be put aside for being slow
PROBE_SECONDS = 1.0
PROBE_SECONDS_MAX = 60.0
IDLE_SECONDS = 30.0  # without a good sign: it is probed
WEIGHT = 0.2  # of the newest value in a mean
SECONDS_ASSUMED = 1.0  # that a request takes where nothing was measured


@dataclass
class Recent:
    """What is reported to the marketplace at the next sync."""

    served: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    rates: list[float] = field(default_factory=list)  # tokens a second of streams


class ReplicaView:
    """One replica, from its announcement to its withdrawal."""

    def __init__(self, announced: Announced, now: float) -> None:
        self.announced = announced
        self.in_flight = 0
        self.failures = 0
        self.why = ""  # it was put aside; empty: it was not
        self.seconds: float | None = None  # a request takes
        self.first_tokens: deque[float] = deque(maxlen=SAMPLES_MAX)
        self.durations: deque[float] = deque(maxlen=SAMPLES_MAX)
        self.recent = Recent()
        self.good_at = now  # the runtime had a real token before it reported ready
        self.probe_at = now + IDLE_SECONDS
        self.is_probed = False  # right now
        self.silent_tries: set[asyncio.Timeout] = set()  # tries of whole answers: nothing arrives before the end
        self._pause = PROBE_SECONDS

    @property
    def is_good(self) -> bool:
        """Its newest signs are."""
        return not self.why

    def note_first_token(self, seconds: float) -> None:
        """It began to answer."""
        self.first_tokens.append(seconds)

    def note_served(self, now: float, seconds: float, count: Count, *, stream_seconds: float | None = None) -> None:
        """It answered rightly to the end; `stream_seconds`: from the first token to the last."""
        self.failures, self.good_at = 0, now
        self.note_alive(now)
        self.durations.append(seconds)
        self.seconds = seconds if self.seconds is None else self.seconds + WEIGHT * (seconds - self.seconds)
        self.recent.served += 1
        self.note_tokens(count)
        if stream_seconds and count.output > 1 and len(self.recent.rates) < SAMPLES_MAX:
            self.recent.rates.append((count.output - 1) / stream_seconds)

    def note_alive(self, now: float) -> None:
        """A piece of a stream came. The probe of one that was put aside stays due: what it began before brings it no
        new requests, and may take minutes."""
        if not self.why:
            self.probe_at = now + IDLE_SECONDS

    def note_tokens(self, count: Count) -> None:
        """It worked, whatever came of it."""
        self.recent.input_tokens += count.input
        self.recent.output_tokens += count.output

    def note_failed(self, now: float, why: str) -> None:
        """It broke, answered rubbish, or not at all."""
        self.recent.failed += 1
        self.failures += 1
        if self.failures >= FAILURES_MAX and not self.why:
            self.put_aside(now, f"{self.failures} failures in a row, the last: {why}"[:200])

    def put_aside(self, now: float, why: str) -> None:
        """It gets no requests until a probe has brought a real token."""
        if not self.why:
            self._pause = PROBE_SECONDS
            self.probe_at = now + self._pause
        self.why = why

    def readmit(self, now: float) -> None:
        """A real token came."""
        if self.why:
            self.first_tokens.clear()
        self.failures, self.why, self.good_at = 0, "", now
        self.probe_at, self._pause = now + IDLE_SECONDS, PROBE_SECONDS

    def note_probe_failed(self, now: float, why: str) -> None:
        """None came: probe again, later each time."""
        if not self.why and self.in_flight:
            self.probe_at = now + self._pause
            self.note_failed(now, f"no token when asked for one: {why}")  # it may be busy with what it has
            if self.why:
                self._give_up_silent_tries()
            return
        self.recent.failed += 1
        if not self.why:
            self.put_aside(now, f"no token when asked for one: {why}"[:200])
            return
        self._pause = min(PROBE_SECONDS_MAX, 2 * self._pause)
        self.probe_at = now + self._pause

    def _give_up_silent_tries(self) -> None:
        """A request at a dead engine need not wait for its deadline: it is tried elsewhere."""
        for scope in self.silent_tries:
            scope.reschedule(0)

    def first_token_p95(self) -> float | None:
        """Seconds in which nineteen of twenty first tokens came."""
        if len(self.first_tokens) < SAMPLES_MIN:
            return None
        return sorted(self.first_tokens)[int(0.95 * (len(self.first_tokens) - 1))]

    def load(self, lease_id: UUID) -> ReplicaLoad:
        """For the marketplace; the counts since the last sync start again at 0."""
        recent, self.recent = self.recent, Recent()
        firsts = self.first_tokens
        return ReplicaLoad(
            lease_id=lease_id,
            is_ready=self.is_good,
            in_flight=self.in_flight,
            capabilities=sorted(self.announced.capabilities),
            context=self.announced.context,
            engine=self.announced.engine,
            served=recent.served,
            failed=recent.failed,
            input_tokens=recent.input_tokens,
            output_tokens=recent.output_tokens,
            first_token_ms_p50=round(1000 * statistics.median(firsts), 3) if firsts else None,
            tokens_per_second=round(statistics.fmean(recent.rates), 3) if recent.rates else None,
            why=self.why,
        )


def slow_ones(views: Sequence[ReplicaView]) -> list[tuple[ReplicaView, str]]:
    """Replicas of one endpoint whose first tokens come far later than their peers', slowest first, and why."""
    good = [view for view in views if view.is_good]
    if len(good) < PEERS_MIN:
        return []
    medians = {id(view): statistics.median(view.first_tokens) for view in good if len(view.first_tokens) >= SAMPLES_MIN}
    if len(medians) < PEERS_MIN:
        return []
    middle = statistics.median(medians.values())
    spread = statistics.median(abs(value - middle) for value in medians.values())
    bound = middle + max(SLOW_MADS * spread, SLOW_SECONDS_MIN)
    slow = sorted((view for view in good if medians.get(id(view), 0.0) > bound), key=lambda view: -medians[id(view)])
    allowed = int(ASIDE_SHARE_MAX * len(views)) - (len(views) - len(good))
    return [
        (view, f"first tokens after {medians[id(view)]:.2f} s, its peers' after {middle:.2f} s")
        for view in slow[: max(0, allowed)]
    ]


def assumed_seconds(views: Iterable[ReplicaView]) -> float:
    """The time of a request on a replica without measurements: as on the others."""
    known = sorted(view.seconds for view in views if view.seconds is not None)
    return known[len(known) // 2] if known else SECONDS_ASSUMED

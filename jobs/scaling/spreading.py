"""On which node a replica goes, which replica goes first, and which one is failing or slow against its peers.

A place is the cheaper the fewer micro-USD a token costs there, not an hour: price / (tokens per second x chance to
hold). Before price come, in this order: nodes that failed this endpoint lately are last; while fewer than the required
nodes promise to stay, those come first; nodes too slow for the target are later; and nobody gets a second
replica while another of the same kind has none (`spread`).

There are no offers that may be interrupted. A node promises to stay if its offer and its declared hours leave it there
for `STAY_SECONDS`, and its history does not contradict it.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal
from uuid import UUID

from jobs.matching.score import SECONDS_PER_HOUR, TRAINING_USE, failure_chance

STAY_SECONDS: Final = 24 * 3600
STAY_FAILURE_CHANCE_MAX: Final = 0.05  # the assumption for a node without a history
FAILED_LATELY_SECONDS: Final = 3600
ESTIMATE_KEEPS: Final = 0.5  # of a computed bound, a real engine reaches about so much
BYTES_PER_PARAMETER: Final = 2
FLOPS_PER_PARAMETER: Final = 2  # a token costs a multiplication and an addition for each
SAMPLES_MIN: Final = 20  # requests without which nobody is judged
MADS_MAX: Final = 5.0
MAD_TO_SD: Final = 1.4826
SLOW_TIMES: Final = 2.0  # and so many times its peers' median at least
ERRORS_MIN: Final = 0.05
ERRORS_TIMES: Final = 3.0  # of its peers' share
ERRORS_ALONE: Final = 0.5  # where there are no peers to compare with
OUTLIERS_SHARE: Final = 3  # one in so many replicas at most, at least one
CONFIDENT_Z: Final = 2.33  # one-sided 99 %

Spread = Literal["none", "node", "provider"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node where a replica fits, as the matcher found."""

    node_id: UUID
    provider_id: UUID
    usd_micros_per_hour: int  # of all the devices that a replica takes
    tokens_per_second: float  # of all streams in sum: measured there or on its class, else `tokens_bound`
    region: str = ""
    failures: int = 0
    successes: int = 0
    open_seconds: float = float("inf")  # until it closes by its declared hours
    seconds_max: float = float("inf")  # of its offer
    failed_here_seconds: float | None = None  # since a replica of this endpoint failed there
    has_weights: bool = False

    @property
    def is_on_demand(self) -> bool:
        """It promises to stay."""
        return promises_to_stay(self.open_seconds, self.seconds_max, self.failures, self.successes)

    @property
    def usd_micros_per_token(self) -> float:
        """What a token is expected to cost there."""
        holds = 1 - failure_chance(self.failures, self.successes)
        return self.usd_micros_per_hour / SECONDS_PER_HOUR / max(self.tokens_per_second, 1e-9) / holds


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a replica is, and what speaks for keeping it."""

    id: UUID
    node_id: UUID
    provider_id: UUID
    is_ready: bool = True
    is_on_demand: bool = False
    is_failing: bool = False
    is_node_leaving: bool = False  # it drains, or its hours end soon
    usd_micros_per_token: float = 0.0
    served_lately: int = 0  # a warm cache is worth more than a cold one


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a place must be."""

    spread: Spread = "provider"
    on_demand_min: int = 0
    streams: int = 8  # of one replica at once
    tokens_per_second_min: float = 0.0  # of one stream
    only_on_demand: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """What a replica did in the last minutes. None: not measured."""

    id: UUID
    node_class: str = ""  # only equal ones are compared for speed: a slow node may be a cheap one
    served: int = 0
    failed: int = 0
    first_token_ms: float | None = None
    tokens_per_second: float | None = None  # of one stream


@dataclass(frozen=True, slots=True)
class Outlier:
    """A replica to be replaced, and why, for people."""

    id: UUID
    why: str
    weight: float  # how far out; the worst are replaced first


def promises_to_stay(open_seconds: float, seconds_max: float, failures: int, successes: int) -> bool:
    """Whether a node counts for the minimum `on_demand_min`."""
    is_long = min(open_seconds, seconds_max) >= STAY_SECONDS
    return is_long and failure_chance(failures, successes) <= STAY_FAILURE_CHANCE_MAX


def tokens_bound(
    *, weights_bytes: float, streams: int, memory_bytes_per_second: float, flops_per_second: float, kind: str = "gpu"
) -> float:
    """Tokens per second of all streams where nothing was measured yet: reading the weights, or computing, is the bound.

    One pass over the weights gives each stream a token (arXiv:2211.05102, section 2).
    """
    reading = streams * memory_bytes_per_second / weights_bytes
    parameters = weights_bytes / BYTES_PER_PARAMETER
    computing = flops_per_second * TRAINING_USE.get(kind, 1.0) / (FLOPS_PER_PARAMETER * parameters)
    return ESTIMATE_KEEPS * min(reading, computing)


def choose(
    candidates: Sequence[Candidate], placed: Sequence[Placed], requirements: Requirements, count: int
) -> list[Candidate]:
    """The nodes of the next `count` replicas, in order; each node once, since only the matcher knows what is left."""
    chosen: list[Candidate] = []
    there = list(placed)
    left = list(candidates)
    for _ in range(min(count, len(candidates))):
        ranked = rank(left, there, requirements)
        if not ranked:
            break
        best = ranked[0]
        chosen.append(best)
        left.remove(best)
        there.append(Placed(best.node_id, best.node_id, best.provider_id, is_on_demand=best.is_on_demand))
    return chosen


def rank(candidates: Sequence[Candidate], placed: Sequence[Placed], requirements: Requirements) -> list[Candidate]:
    """Best first for one more replica."""
    nodes, providers = _domains(placed)
    lacks_floor = sum(each.is_on_demand for each in placed) < requirements.on_demand_min

    def key(candidate: Candidate) -> tuple[object, ...]:
        failed = candidate.failed_here_seconds
        return (
            failed is not None and failed < FAILED_LATELY_SECONDS,
            lacks_floor and not candidate.is_on_demand,
            candidate.tokens_per_second < requirements.tokens_per_second_min * requirements.streams,
            providers[candidate.provider_id] if requirements.spread == "provider" else 0,
            nodes[candidate.node_id] if requirements.spread != "none" else 0,
            candidate.usd_micros_per_token,
            not candidate.has_weights,
            candidate.node_id.int,
        )

    return sorted((each for each in candidates if each.is_on_demand or not requirements.only_on_demand), key=key)


def leaving_order(placed: Sequence[Placed], requirements: Requirements) -> list[UUID]:
    """Who goes first, were they to go one after the other: each departure changes who is spread best."""
    left, order = list(placed), []
    for _ in range(len(placed)):
        nodes, providers = _domains(left)
        spare = sum(each.is_on_demand for each in left) - requirements.on_demand_min

        def key(each: Placed, spare: int = spare, nodes: Counts = nodes, providers: Counts = providers) -> Key:
            return (
                each.is_failing,
                each.is_node_leaving,
                not (each.is_on_demand and spare <= 0),
                not each.is_ready,
                providers[each.provider_id] if requirements.spread == "provider" else 0,
                nodes[each.node_id] if requirements.spread != "none" else 0,
                each.usd_micros_per_token,
                -each.served_lately,
                each.id.int,
            )

        first = max(left, key=key)
        left.remove(first)
        order.append(first.id)
    return order


def outliers(samples: Sequence[Sample]) -> list[Outlier]:
    """Who fails or is slow against its peers, worst first; never more than a share, for then it is not the replica."""
    judged = [each for each in samples if each.served >= SAMPLES_MIN]
    found: dict[UUID, Outlier] = {}
    for sample in judged:
        peers = [each for each in judged if each.node_class == sample.node_class]
        reasons = [
            _errors(sample, [each for each in judged if each.id != sample.id]),
            _slow(sample, peers, "first_token_ms"),
            _slow(sample, peers, "tokens_per_second"),
        ]
        worst = max((each for each in reasons if each is not None), key=lambda each: each.weight, default=None)
        if worst is not None:
            found[sample.id] = worst
    most = max(len(samples) // OUTLIERS_SHARE, 1)
    return sorted(found.values(), key=lambda each: (-each.weight, each.id.int))[:most]


Counts = Counter[UUID]
Key = tuple[bool, bool, bool, bool, int, int, float, int, int]


def _domains(placed: Sequence[Placed]) -> tuple[Counts, Counts]:
    return Counter(each.node_id for each in placed), Counter(each.provider_id for each in placed)


def _errors(sample: Sample, others: Sequence[Sample]) -> Outlier | None:
    """Its share of failed requests is, beyond chance, several times that of most others."""
    usual = statistics.median(each.failed / each.served for each in others) if others else 0.0
    limit = max(ERRORS_MIN, ERRORS_TIMES * usual) if others else ERRORS_ALONE
    surely = wilson_low(sample.failed, sample.served)
    if surely <= limit:
        return None
    return Outlier(sample.id, f"{sample.failed} of {sample.served} requests failed", 1000 * surely)


def _slow(
    sample: Sample, peers: Sequence[Sample], name: Literal["first_token_ms", "tokens_per_second"]
) -> Outlier | None:
    """It takes, per token or until the first, far longer than its peers do. With two replicas, neither is an outlier:
    which one is slow cannot be decided, and neither is beyond twice their median."""
    times = {each.id: _time(each, name) for each in peers}
    known = [time for time in times.values() if time is not None]
    own = times[sample.id]
    if own is None:
        return None
    median = statistics.median(known)
    spread = MAD_TO_SD * statistics.median(abs(time - median) for time in known)
    if own <= max(median + MADS_MAX * spread, SLOW_TIMES * median):
        return None
    what = "until the first token" if name == "first_token_ms" else "a token"
    return Outlier(sample.id, f"{own:.0f} ms {what}, its peers {median:.0f} ms", own / max(median, 1e-9))


def _time(sample: Sample, name: Literal["first_token_ms", "tokens_per_second"]) -> float | None:
    """Milliseconds."""
    if name == "first_token_ms":
        return sample.first_token_ms
    return 1000 / sample.tokens_per_second if sample.tokens_per_second else None


def wilson_low(failed: int, served: int, z: float = CONFIDENT_Z) -> float:
    """The share that is surely reached: the lower end of Wilson's interval (JASA 22, 1927)."""
    if served == 0:
        return 0.0
    failed = min(failed, served)
    share, part = failed / served, z * z / served
    middle = share + part / 2
    return max((middle - z * math.sqrt((share * (1 - share) + part / 4) / served)) / (1 + part), 0.0)

"""How long a replica takes from its lease until it is ready: quantiles, from past starts and what is known before any.

The logarithm of a start over what is assumed of it is taken as normal. What is assumed counts as `PRIOR_STARTS` starts,
so the first start of an endpoint has an estimate, and after some the assumption no longer matters:

    assumed   executor + engine + weights / fetch (where they are not there yet) + weights / load
    mean, sd  of ln(took / assumed) over past starts, weighted by their similarity, with the prior's among them

A start that still goes on counts as soon as it has taken longer than the estimate's median: else the slowest would be
unknown until they are over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from jobs.matching.score import startup_seconds

STARTS_MAX: Final = 50  # the newest that are looked at
SECONDS_MIN: Final = 1.0
SECONDS_MAX: Final = 7200.0
PRIOR_STARTS: Final = 2.0
PRIOR_SD: Final = 0.7  # of the logarithm: two in three first starts take between half and twice what is assumed
OTHER_NODES: Final = 0.3  # weight of a start of this endpoint on another class of node
OTHER_ENDPOINT: Final = 0.2  # of another endpoint on this class of node
OTHER_CACHE: Final = 0.5  # besides, where one had the weights and the other had not
FETCH_MIB_PER_SECOND: Final = 50.0
LOAD_MIB_PER_SECOND: Final = 400.0
# From the program's start to a first token, but for the weights: imports, compiling, capturing graphs.
ENGINE_SECONDS: Final = {"vllm": 60.0, "transformers": 15.0, "souk": 8.0, "embed": 8.0}
ENGINE_SECONDS_UNKNOWN: Final = 30.0
LIKELY: Final = 0.5
SURELY: Final = 0.9


@dataclass(frozen=True, slots=True)
class StartPlan:
    """A start that may happen, as far as it decides how long it takes."""

    executor: str
    engine: str
    weights_mib: float
    is_cached: bool  # the node has these weights, by their digest
    node_class: str  # devices' model and executor: nodes of one class take equally long to start
    fetch_mib_per_second: float = FETCH_MIB_PER_SECOND

    @property
    def assumed_seconds(self) -> float:
        """What it takes, before anything was seen."""
        fetch = 0.0 if self.is_cached else self.weights_mib / self.fetch_mib_per_second
        engine = ENGINE_SECONDS.get(self.engine, ENGINE_SECONDS_UNKNOWN)
        return startup_seconds(self.executor) + engine + fetch + self.weights_mib / LOAD_MIB_PER_SECOND


@dataclass(frozen=True, slots=True)
class PastStart:
    """One that was, or that still goes on."""

    plan: StartPlan
    seconds: float
    is_over: bool = True  # it was ready then; failed starts are left out: they carry no information
    is_same_endpoint: bool = True


@dataclass(frozen=True, slots=True)
class ColdStart:
    """Seconds from lease to ready, as a distribution."""

    log_mean: float
    log_sd: float
    starts: float  # past ones that it stands on, in whole similar ones

    def quantile(self, chance: float) -> float:
        """It takes no longer than this with that chance."""
        return _bounded(NormalDist(self.log_mean, self.log_sd).inv_cdf(chance))

    @property
    def likely_seconds(self) -> float:
        """For an estimate that people see."""
        return self.quantile(LIKELY)

    @property
    def surely_seconds(self) -> float:
        """For what must be there in time."""
        return self.quantile(SURELY)

    def remaining(self, passed: float, chance: float = LIKELY) -> float:
        """How much longer one takes that has started so many seconds ago: the longer it took, the longer it will."""
        normal = NormalDist(self.log_mean, self.log_sd)
        left = 1 - normal.cdf(math.log(max(passed, SECONDS_MIN)))
        if left < 1e-6:
            return min(passed, SECONDS_MAX)  # far beyond anything seen: as long again
        return max(_bounded(normal.inv_cdf(1 - left * (1 - chance))) - passed, SECONDS_MIN)


def estimate(plan: StartPlan, past: Sequence[PastStart]) -> ColdStart:
    """How long this start takes; `past` newest first."""
    assumed = math.log(plan.assumed_seconds)
    finished = [start for start in past[:STARTS_MAX] if start.is_over]
    found = _fit(plan, finished, assumed)
    late = [start for start in past[:STARTS_MAX] if not start.is_over and start.seconds > found.likely_seconds]
    return _fit(plan, [*finished, *late], assumed) if late else found


def soonest(starting_seconds: Sequence[float], start: ColdStart, *, is_one_due: bool = True) -> float | None:
    """When the first replica is likely ready: of those that start since so long, or of one that starts now.

    For Retry-After, and for the message to a request that waits. None: nothing starts and nothing is due.
    """
    waits = [start.remaining(passed) for passed in starting_seconds]
    if not waits and is_one_due:
        waits = [start.likely_seconds]
    return min(waits, default=None)


def _fit(plan: StartPlan, past: Sequence[PastStart], assumed: float) -> ColdStart:
    ratios = [math.log(max(start.seconds, SECONDS_MIN) / start.plan.assumed_seconds) for start in past]
    weights = [_likeness(plan, start) for start in past]
    total = sum(weights)
    mean = sum(w * x for w, x in zip(weights, ratios, strict=True)) / (PRIOR_STARTS + total)
    squares = sum(w * (x - mean) ** 2 for w, x in zip(weights, ratios, strict=True))
    variance = (PRIOR_STARTS * (PRIOR_SD**2 + mean**2) + squares) / (PRIOR_STARTS + total)
    return ColdStart(assumed + mean, math.sqrt(variance * (1 + 1 / (PRIOR_STARTS + total))), total)


def _likeness(plan: StartPlan, start: PastStart) -> float:
    is_same_class = start.plan.node_class == plan.node_class
    if start.is_same_endpoint:
        weight = 1.0 if is_same_class else OTHER_NODES
    else:
        weight = OTHER_ENDPOINT if is_same_class else 0.0
    return weight if start.plan.is_cached == plan.is_cached else weight * OTHER_CACHE


def _bounded(log_seconds: float) -> float:
    return min(max(math.exp(min(log_seconds, 20.0)), SECONDS_MIN), SECONDS_MAX)

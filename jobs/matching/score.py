"""The score of a place is its expected cost to complete: cheapest means the whole job, not the hour.

    seconds = start-up + work / throughput + rework
    cost    = price x devices x seconds

    throughput  measured FLOP/s of the devices together x their use of it in training x scaling efficiency
    rework      chance that an attempt breaks x (half a checkpoint interval + another start-up)

Where a job declares no work, nodes are compared by price per unit of throughput.

The constants are assumptions, stated openly: they move every node's figure by the same, so they change what a quote
expects more than whom it chooses. Start-up is counted as if it were paid, though the meter waits for the
first healthy signal: the expectation errs on the customer's side.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from jobs.matching.demand import Demand

SECONDS_PER_HOUR = 3600
EXAFLOP = 1e18

# Share of the measured matrix-product throughput that training reaches. GPU: 38-43 % were reported for Llama 3 on H100
# (arXiv:2407.21783, table 4), 46 % for PaLM (arXiv:2204.02311, table 3). CPU: small models are bound by memory.
TRAINING_USE = {"gpu": 0.40, "cpu": 0.30}
# Throughput kept at each doubling of the devices, inside a node and between nodes.
DOUBLING_KEEPS_IN_NODE = 0.95
DOUBLING_KEEPS_BETWEEN_NODES = 0.85
# From the lease to the first step: fetch, unpack, import, compile; a container's image comes on top.
STARTUP_SECONDS = {"process": 15.0, "docker": 60.0}
STARTUP_SECONDS_UNKNOWN = 60.0
# The assumption for a node without a history: one broken attempt in twenty.
PRIOR_FAILURES = 1
PRIOR_ATTEMPTS = 20


class PlacementSlot(NamedTuple):
    """A node where the demand fits, and which of its groups of devices. `row` is its position in the snapshot."""

    row: int
    group: int
    flops_per_device: float  # in the type that the demand computes in


class Estimate(NamedTuple):
    """What completing a job on some slots is expected to take; None where the job declares no work."""

    flops_per_second: float
    work_seconds: float | None
    startup_seconds: float
    rework_seconds: float
    expected_seconds: float | None
    expected_usd_micros: int | None
    usd_micros_per_exaflop: float

    @property
    def rank(self) -> tuple[float, float]:
        """Smaller is better; comparable between estimates of one demand."""
        if self.expected_usd_micros is None or self.expected_seconds is None:
            return self.usd_micros_per_exaflop, -self.flops_per_second
        return self.expected_usd_micros, self.expected_seconds


def failure_chance(failures: int, successes: int) -> float:
    """How likely an attempt on this node breaks by its fault, from what happened there and a prior; between 0 and 1."""
    return (failures + PRIOR_FAILURES) / (failures + successes + PRIOR_ATTEMPTS)


def scaling_efficiency(devices_per_node: int, nodes: int) -> float:
    """Part of the devices' summed throughput that is left when they train together."""
    kept_in_node = DOUBLING_KEEPS_IN_NODE ** math.log2(devices_per_node)
    return float(kept_in_node * DOUBLING_KEEPS_BETWEEN_NODES ** math.log2(nodes))


def startup_seconds(executor: str) -> float:
    """From the lease to the first step on a node with this executor."""
    return STARTUP_SECONDS.get(executor, STARTUP_SECONDS_UNKNOWN)


def estimate(
    demand: Demand,
    *,
    kind: str,
    flops_per_device: float,
    price_usd_micros_sum: int,
    startup: float,
    break_chance: float,
) -> Estimate:
    """The score: the cost to complete `demand` on nodes whose prices per device add up to `price_usd_micros_sum`.

    `flops_per_device` is that of the slowest device: in a gang every step waits for it.
    """
    throughput = flops_per_device * devices_worth(demand, kind)
    rate = price_usd_micros_sum * demand.devices  # of all devices, per hour
    per_exaflop = rate / SECONDS_PER_HOUR / throughput * EXAFLOP
    if demand.work_flops is None:
        return Estimate(throughput, None, startup, 0.0, None, None, per_exaflop)
    work = demand.work_flops / throughput
    rework = rework_seconds(demand, work, startup, break_chance)
    seconds = startup + work + rework
    return Estimate(throughput, work, startup, rework, seconds, cost_of(rate, seconds), per_exaflop)


def devices_worth(demand: Demand, kind: str) -> float:
    """How many devices' measured throughput the job gets from all of its devices together."""
    use = TRAINING_USE.get(kind, 1.0) * scaling_efficiency(demand.devices, demand.nodes)
    return demand.devices * demand.nodes * use


def rework_seconds(demand: Demand, work: float, startup: float, break_chance: float) -> float:
    """Seconds that are expected to be worked twice, or spent starting again."""
    return break_chance * (checkpoint_interval(demand, work) / 2 + startup)


def checkpoint_interval(demand: Demand, work_seconds: float) -> float:
    """Seconds of work that a broken attempt may lose at most: all of it where nothing is saved before the end."""
    interval = work_seconds
    if demand.checkpoint_seconds:
        interval = min(interval, demand.checkpoint_seconds)
    if demand.checkpoint_share:
        interval = min(interval, demand.checkpoint_share * work_seconds)
    return interval


def cost_of(rate_usd_micros_per_hour: int, seconds: float) -> int:
    """Micro-USD of `seconds` at a rate, rounded up: an expectation never flatters."""
    return math.ceil(rate_usd_micros_per_hour * seconds / SECONDS_PER_HOUR)

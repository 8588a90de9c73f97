"""Whether more nodes are worth it for a gang that trains: what is left may cost a little more, and has to end sooner.

    fewest, now   what is left, on the fewest nodes that the job may have, and on those that it has; no start-up
    grown         what the newest checkpoint leaves, on all of them together, with a start-up: so what the gang has done
                  since then is done again

A gang grows where what its growths have cost before, beside the training, and `grown` are together at most
GROWTH_COST_MAX times the lesser of `fewest` and `now`. So all growths of a job together cost at most that much more
than the fewest nodes would have, by the formulas of score.py. At equal prices it is about twice the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from jobs.matching.demand import Demand
from jobs.matching.score import Estimate, cost_of, estimate

GROWTH_COST_MAX: Final = 1.25


class GangNode(NamedTuple):
    """One node of a gang, as the score knows it."""

    price_usd_micros: int  # per device and hour: of its lease, of one that joins of its offer
    flops_per_device: float
    startup_seconds: float
    break_chance: float


class Left(NamedTuple):
    """What a training has still to do."""

    work_flops: float  # from its newest checkpoint on
    redo_seconds: float  # since that was taken
    fewest: int  # nodes that the job may have
    growth_usd_micros: int  # what growths before have cost beside the training


class Growth(NamedTuple):
    """A growth that is worth it."""

    expected_usd_micros: int  # of all that is left, this growth with it
    expected_seconds: float
    once_usd_micros: int  # of that the start, and what is done again


def growth_of(
    demand: Demand, kind: str, now: Sequence[GangNode], more: Sequence[GangNode], left: Left
) -> Growth | None:
    """What it takes to complete a training on `now` and `more` together; None where that is not worth it.

    `demand` is that of the job, `kind` its devices'; `now` by rank.
    """
    throughput = throughput_of(demand, kind, now)
    rest = left.work_flops - throughput * left.redo_seconds
    if rest <= 0:
        return None
    present = _estimate(demand, kind, now, rest, startup=0.0)
    fewest = _estimate(demand, kind, now[: left.fewest], rest, startup=0.0)
    startup = max(node.startup_seconds for node in [*now, *more])
    grown = _estimate(demand, kind, [*now, *more], left.work_flops, startup=startup)
    costs = [each.expected_usd_micros or 0 for each in (present, fewest, grown)]
    if left.growth_usd_micros + costs[2] > GROWTH_COST_MAX * min(costs[:2]):
        return None
    if (grown.expected_seconds or 0) >= (present.expected_seconds or 0):
        return None
    again = throughput * left.redo_seconds / grown.flops_per_second
    rate = sum(node.price_usd_micros for node in [*now, *more]) * demand.devices
    return Growth(costs[2], grown.expected_seconds or 0, cost_of(rate, startup + again))


def throughput_of(demand: Demand, kind: str, nodes: Sequence[GangNode]) -> float:
    """FLOP/s that a training is reckoned to get from these nodes together."""
    return _estimate(demand, kind, nodes, 1.0, startup=0.0).flops_per_second


def _estimate(demand: Demand, kind: str, nodes: Sequence[GangNode], work_flops: float, *, startup: float) -> Estimate:
    return estimate(
        replace(demand, nodes=len(nodes), work_flops=work_flops),
        kind=kind,
        flops_per_device=min(node.flops_per_device for node in nodes),
        price_usd_micros_sum=sum(node.price_usd_micros for node in nodes),
        startup=startup,
        break_chance=1 - math.prod(1 - node.break_chance for node in nodes),
    )

"""From a plan to the terms of a quote: what is expected, and what it may never exceed.

cap       budget.max_total: the hold, and the most that the job is ever charged
ceiling   budget.max_per_gpu_hour, else CEILING_MULTIPLE times the chosen price, or the price of reference where that is
          higher (matching/reference.py); placing never pays more per device
binding   the job is placed, also after it lost a node, only where price <= ceiling and completing what is left is
          expected to cost at most what is left of the cap
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.matching.demand_from_spec import demand_of
from jobs.spec.model import Spec
from jobs.wire import Candidate, Plan

__all__ = ["CEILING_MULTIPLE", "Terms", "chosen_of", "demand_of", "terms_of"]

# Where the file names no price: high enough for another node when the chosen one is lost, and no surprise either.
CEILING_MULTIPLE = 3


@dataclass(frozen=True, slots=True)
class Terms:
    """What a quote promises; None expected where the job declares no work."""

    price_ceiling_usd_micros: int
    cap_usd_micros: int
    expected_usd_micros: int | None
    expected_seconds: float | None


def terms_of(spec: Spec, plan: Plan, reference_usd_micros: int | None = None) -> Terms | None:
    """The terms on which `spec` is quoted by `plan`, or None when it fits nowhere.

    `reference_usd_micros`: what other providers ask for, per device and hour. The chosen candidate keeps the terms: its
    price is at most the ceiling and its expected total at most the cap.
    """
    chosen = chosen_of(plan)
    if chosen is None:
        return None
    ceiling = spec.budget.max_per_gpu_hour_usd_micros
    if ceiling is None:
        ceiling = max(CEILING_MULTIPLE * chosen.price_usd_micros_per_device_hour, reference_usd_micros or 0)
    return Terms(
        price_ceiling_usd_micros=ceiling,
        cap_usd_micros=spec.budget.max_total_usd_micros,
        expected_usd_micros=chosen.expected_usd_micros,
        expected_seconds=chosen.expected_seconds,
    )


def chosen_of(plan: Plan) -> Candidate | None:
    """The candidate that the job would go to."""
    return next((candidate for candidate in plan.candidates if candidate.is_chosen), None)

"""A job's prices of its token as the public API shows them, and what of them it waits for."""

from __future__ import annotations

from jobs.models import Job, PriceHalt, PriceLock
from jobs.payment.terms import USD
from jobs.placing.requotes import due_after
from jobs.pricing.price_locks import price_of
from jobs.wire import JobPriceView, PriceChangeView

PRICES_MAX = 1000  # of one job; there is one at most for each attempt, and for each confirmation by its customer


def list_prices(job: Job) -> list[JobPriceView]:
    """Its quote's, then every one that took its place; none of a job in dollars."""
    if job.asset_code == USD:
        return []
    quoted = job.quote.payment
    first = JobPriceView(
        usd_micros_per_token=quoted.usd_micros_per_token,
        source=quoted.source,
        observed_at=quoted.observed_at,
        locked_at=job.quote.created_at,
        reason="quoted",
    )
    return [first, *(_show_lock(lock) for lock in PriceLock.objects.filter(job=job).order_by("number")[:PRICES_MAX])]


def list_changes(job: Job) -> list[JobPriceView] | None:
    """The same for a bill; None where the quote's price counted from end to end."""
    prices = list_prices(job)
    return prices if len(prices) > 1 else None


def show_change(job: Job) -> PriceChangeView | None:
    """What the job waits for, where that is a price."""
    halt = None if job.asset_code == USD else PriceHalt.objects.filter(job=job).first()
    if halt is None:
        return None
    price, asked = price_of(job), halt.usd_micros_per_token
    return PriceChangeView(
        asset=price.payment.asset,
        asset_scale=price.payment.scale,
        locked_usd_micros_per_token=price.payment.usd_micros_per_token,
        usd_micros_per_token=asked,
        source=halt.source,
        observed_at=halt.observed_at,
        cap_units=price.units_due(job.cap_usd_micros),
        cap_units_after=due_after(job, price, int(asked)) if asked else None,
        can_confirm=asked is not None and not job.is_escrow,
        since=halt.created_at,
    )


def _show_lock(lock: PriceLock) -> JobPriceView:
    return JobPriceView(
        usd_micros_per_token=int(lock.usd_micros_per_token),
        source=lock.source,
        observed_at=lock.observed_at,
        locked_at=lock.created_at,
        reason=lock.reason,
        attempts_before=lock.attempts_before,
        charged_usd_micros=lock.charged_usd_micros,
        charged_units=int(lock.charged_units),
    )

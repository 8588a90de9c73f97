"""At which price of its token a job is paid now, and each of its leases was: its quote's, or what took its place."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Min

from jobs.models import Job, Lease, PriceLock
from jobs.payment.price_rules import PriceReason, units_due
from jobs.payment.terms import USD, Payment
from jobs.pricing.costs import charged_of


@dataclass(frozen=True)
class JobPrice:
    """The price that counts for a job; `agreed`: the lowest, in micro-USD a token, that its customer confirmed."""

    payment: Payment
    locked_at: datetime
    agreed: int
    lock: PriceLock | None = None  # None: the quote's

    def units_due(self, cap_usd_micros: int) -> int:
        """Base units that a hold for this cap has, to the unit."""
        if self.lock is None:
            return units_due(self.payment, cap_usd_micros)
        return units_due(
            self.payment,
            cap_usd_micros,
            charged_usd_micros=self.lock.charged_usd_micros,
            charged_units=int(self.lock.charged_units),
        )


def price_of(job: Job) -> JobPrice:
    """The price that counts now; for dollars, and for a job that was never priced anew, it is the quote's."""
    quote = job.quote
    quoted = quote.payment
    lock = None if quoted.is_usd else PriceLock.objects.filter(job=job).order_by("-number").first()
    if lock is None:
        return JobPrice(quoted, quote.created_at, quoted.usd_micros_per_token)
    confirmed = PriceLock.objects.filter(job=job, reason=PriceReason.CONFIRMED)
    lowest = confirmed.aggregate(lowest=Min("usd_micros_per_token"))["lowest"]
    agreed = min(quoted.usd_micros_per_token, int(lowest)) if lowest else quoted.usd_micros_per_token
    return JobPrice(lock.payment_in(quoted.asset, quoted.scale), lock.created_at, agreed, lock)


def payment_of(lease: Lease) -> Payment:
    """The price at which a lease was made."""
    if lease.price_lock is None:
        return lease.attempt.job.quote.payment
    return lease.price_lock.payment_in(lease.asset.code, lease.asset.scale)


def spent_usd_micros(job: Job) -> int | None:
    """What a job that was priced anew was charged, each lease at its price; None: it has one price from end to end."""
    if job.asset_code == USD or not PriceLock.objects.filter(job=job).exists():
        return None
    return charged_of(job).usd_micros

"""The money of a serving job: a prepaid window is held and refilled, its leases are settled each day.

    require_window   submit: could a prepaid window be held? a 402 has the missing amount
    open_window      placing: hold the prepaid window, at most what is left of the cap
    lease_cap        placing: what one more lease may cost; the sum of all leases never exceeds the cap
    bounded_ms       a lease ends: never less than was settled for it already, never more than is set aside
    settle_part      each day: what each lease has earned so far, by its newest receipt and the gateways' reports
    settle_rest      the end: the rest, but for what two counts disagree about

The hold is what has been used and not settled yet, and one prepaid window ahead. A lease's cap is frozen in its
assignment and may exceed the window: the marketplace stops leases in time when the window cannot be refilled
(`jobs/serving/prepaid_windows.py`). If one stops late nevertheless, the customer pays no more than is held; the rest is
not charged, and an alert has the amount that the provider lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db.models import Sum

from billing.charging import holds, promotions, settlement
from billing.charging.settlement import LeaseCharge, charged_before
from billing.models import Settlement
from billing.notices import alerts
from jobs.endpoints.amounts import (
    cap_units,
    earned_units,
    held_units,
    leases_of,
    replicas_of,
    rest_of_cap,
    settled_units,
    unsettled_units,
    window_of,
    window_units,
)
from jobs.endpoints.usage_statements import alert_contested, compare, is_contested
from jobs.errors import JobsError
from jobs.models import Job, Lease, Quote
from jobs.payment.terms import Payment
from jobs.pricing.funds import spendable_units
from jobs.pricing.price_locks import price_of
from jobs.spec import Spec, from_wire
from jobs.states import LeaseState
from marketplace.accounts.models import Organisation
from provider_agent.protocol import charge, payable_ms

SECONDS_PER_HOUR: Final = 3600
LEASE_SECONDS_MIN: Final = 600  # one that could not last so long is not begun
LEASE_PARTS: Final = 5  # nor one for less than this part of the cap, where that pays for minutes only
MS_PER_HOUR: Final = 3_600_000
OVERRUN_ALERT: Final = "serve_overrun"


class NotEnoughForWindow(JobsError):
    message = (
        "The balance does not cover {hours} h of this endpoint, {window}: {missing} is missing. Deposit it, "
        "or lower replicas.max or budget.max_per_gpu_hour."
    )
    code = "not_enough_money"
    status = 402

    def __init__(self, payment: Payment, *, missing_units: int, window_units: int, cap_usd_micros: int) -> None:
        super().__init__(
            asset=payment.asset,
            hours=f"{settings.SOUK_SERVE_WINDOW_HOURS:g}",
            window=payment.show(window_units),
            missing=payment.show(missing_units),
            missing_units=str(missing_units),
            missing_usd_micros=payment.usd_micros(missing_units),
            window_usd_micros=payment.usd_micros(window_units),
            cap_usd_micros=cap_usd_micros,
        )


def require_window(organisation: Organisation, quote: Quote, spec: Spec) -> None:
    """Raise NotEnoughForWindow where the window could not be set aside now."""
    window = window_of(spec, replicas_of(spec), quote.price_ceiling_usd_micros, quote.payment)
    units = min(window, quote.payment.units_up(quote.cap_usd_micros))
    _require(organisation.pk, quote, units, cap_usd_micros=quote.cap_usd_micros)


def quoted_window(quote: Quote, spec: Spec) -> int:
    """What is set aside at a time for an endpoint of this quote, in micro-USD; at most its cap."""
    window = window_of(spec, replicas_of(spec), quote.price_ceiling_usd_micros, quote.payment)
    return quote.payment.usd_micros(min(window, quote.payment.units_up(quote.cap_usd_micros)))


def open_window(job: Job) -> int:
    """The window is set aside for a locked job; a repeat changes nothing. What is held now, in what pays.

    Raises InsufficientFunds, AccountFrozen; AlreadySettled of a job that has ended.
    """
    held = held_units(job)
    if held:
        return held
    amount = min(window_units(job), rest_of_cap(job))
    if amount <= 0:
        return 0
    promotions.draw(job.organisation_id, job.pk, amount, asset_id=job.quote.asset_id)
    placed = holds.place_hold(owner_id=job.organisation_id, job_id=job.pk, amount=amount, asset_id=job.quote.asset_id)
    return int(placed.amount)


def resume_window(job: Job) -> int:
    """Set aside what the window lacks, for a locked job that somebody resumes. Raises NotEnoughForWindow."""
    lacking = max(0, min(unsettled_units(job) + window_units(job), rest_of_cap(job)) - held_units(job))
    _require(job.organisation_id, job.quote, lacking, cap_usd_micros=job.cap_usd_micros)
    return extend_window(job, lacking)


def extend_window(job: Job, units: int) -> int:
    """Set aside so much more for a locked job, first of given credit. Raises InsufficientFunds, AccountFrozen."""
    if units <= 0:
        return held_units(job)
    if not held_units(job):
        return open_window(job)
    promotions.draw(job.organisation_id, job.pk, units, asset_id=job.quote.asset_id)
    return int(holds.extend_hold(job.pk, amount=units).amount)


def lease_cap(job: Job, rate_usd_micros: int, *, replicas_max: int) -> int:
    """What one more lease of a locked job may cost in all, in micro-USD: its part of what is left of the cap.

    0 where nothing is left. Whatever is promised to live leases is spoken for, so that their sum is within the cap.
    """
    live = list(Lease.objects.live().filter(attempt__job=job).values_list("cap_usd_micros", flat=True))
    ended = Lease.objects.filter(attempt__job=job, state=LeaseState.ENDED).aggregate(sum=Sum("charge_usd_micros"))
    left = job.cap_usd_micros - int(ended["sum"] or 0) - sum(live)
    return max(0, left // max(1, replicas_max - len(live))) if rate_usd_micros else max(0, left)


def has_window(job: Job) -> bool:
    """Whether a locked job may have another lease: something is set aside beyond what was used, within the cap."""
    return has_budget(job) and held_units(job) - unsettled_units(job) > _least(job)


def has_budget(job: Job) -> bool:
    """Whether what is left of a locked job's cap, and promised to no lease, pays for another lease."""
    return lease_cap(job, job.price_ceiling_usd_micros, replicas_max=1) > _least(job)


def bounded_ms(lease: Lease, billable_ms: int) -> int:
    """For how long a lease that ends is charged: at least what was settled of it, at most what is set aside pays for.

    In the transaction that ends it, under its job's lock.
    """
    job, rate = lease.attempt.job, int(lease.rate_units_per_hour)
    if not rate:
        return billable_ms
    before = charged_before(job.pk)
    own = before.get(lease.pk, 0)
    others = sum(
        max(0, int(other.charge_units or 0) - before.get(other.pk, 0))
        for other in leases_of(job)
        if other.pk != lease.pk and other.state == LeaseState.ENDED
    )
    rest = max(0, held_units(job) - others)
    settled_ms, payable = -(-own * MS_PER_HOUR // rate), payable_ms(rate, min(own + rest, int(lease.cap_units)))
    bounded = max(settled_ms, min(billable_ms, payable))
    if bounded < min(billable_ms, payable_ms(rate, int(lease.cap_units))):
        _alert_overrun(lease, charge(rate, billable_ms) - charge(rate, bounded))
    return bounded


def settle_part(job: Job) -> Settlement | None:
    """Settle what the leases of a locked job have earned so far; None where that is nothing.

    Leases whose counts of tokens differ are settled at the end, and an alert names them.
    """
    before = charged_before(job.pk)
    due = {lease: earned_units(lease) - before.get(lease.pk, 0) for lease in leases_of(job)}
    due = {lease: units for lease, units in due.items() if units > 0 and not is_contested(lease)}
    charges = _within(held_units(job), _charges(due, before))
    if not charges:
        return None
    return settlement.settle_part(job_id=job.pk, charges=charges, fee_bps=fee_bps(job.pk))


def final_charges(job: Job) -> list[LeaseCharge]:
    """What its leases, all ended, are charged for at the job's end: each for what was not settled before."""
    before = charged_before(job.pk)
    due = {lease: int(lease.charge_units or 0) - before.get(lease.pk, 0) for lease in leases_of(job)}
    return _within(held_units(job), _charges({lease: units for lease, units in due.items() if units > 0}, before))


def settle_rest(job: Job) -> Settlement | None:
    """Settle what is left of a locked job at its end; None where nothing is set aside."""
    if not holds.is_open(job.pk):
        return None
    promotions.lock_job(job.pk)
    settled = settlement.settle_job(job_id=job.pk, charges=final_charges(job), fee_bps=fee_bps(job.pk))
    promotions.return_unused(job.pk, spent=settled_units(job))
    keep_contested(settled, job)
    return settled


def keep_contested(settled: Settlement, job: Job) -> int:
    """Keep the pay of leases whose counts do not match from being released; how many. After the final settlement."""
    count = 0
    paid = set(settled.shares.filter(released_at=None).values_list("lease_id", flat=True))
    for lease in leases_of(job):
        if lease.pk in paid and (differs := compare(lease).differs):
            alert_contested(lease, differs)
            count += settled.shares.filter(lease_id=lease.pk, released_at=None).update(is_disputed=True)
    return count


def fee_bps(job_id: UUID) -> int:
    """That of the job's first settlement, for all of them: so the fees of one lease are rounded down once."""
    first = Settlement.objects.filter(job_id=job_id).order_by("created_at").values_list("fee_bps", flat=True).first()
    return int(settings.SOUK_FEE_BPS if first is None else first)


def _least(job: Job) -> int:
    """What another lease is not begun for less than."""
    rate = job.price_ceiling_usd_micros * from_wire(job.spec).resources.gpus
    needed = price_of(job).payment.units_up(rate * LEASE_SECONDS_MIN // SECONDS_PER_HOUR)
    return min(needed, cap_units(job) // LEASE_PARTS)


def _require(organisation_id: UUID, quote: Quote, units: int, *, cap_usd_micros: int) -> None:
    missing = units - spendable_units(organisation_id, quote.asset_id)
    if units and missing > 0:
        raise NotEnoughForWindow(
            quote.payment, missing_units=missing, window_units=units, cap_usd_micros=cap_usd_micros
        )


def _charges(due: Mapping[Lease, int], before: Mapping[UUID, int]) -> list[LeaseCharge]:
    return [
        LeaseCharge(lease.pk, lease.node.provider.organisation_id, units, before=before.get(lease.pk, 0))
        for lease, units in due.items()
    ]


def _within(held: int, charges: list[LeaseCharge]) -> list[LeaseCharge]:
    """As far as what is held goes: the leases' own bounds keep them within, and this is the last line."""
    kept = []
    for each in charges:
        amount = min(each.amount, held)
        held -= amount
        if amount < each.amount:
            message = f"Lease {each.lease_id} is due {each.amount - amount} base units more than was set aside."
            alerts.raise_once(f"{OVERRUN_ALERT}/{each.lease_id}", kind=OVERRUN_ALERT, message=message)
        if amount:
            kept.append(LeaseCharge(each.lease_id, each.provider_id, amount, each.before))
    return kept


def _alert_overrun(lease: Lease, units: int) -> None:
    message = (
        f"Lease {lease.pk} was used for {units} base units more than was set aside for its job: the customer is not"
        " charged for it. The provider is owed it where the marketplace stopped the lease too late."
    )
    alerts.raise_once(f"{OVERRUN_ALERT}/{lease.pk}", kind=OVERRUN_ALERT, subject=lease.pk, message=message)

"""The bill of a job: a line a lease, with the receipts that prove it and the reason where less is charged."""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from uuid import UUID

from billing.models import Hold, Settlement, UsageReceipt
from billing.states import HoldState
from billing.states.chain import EscrowHoldState
from jobs.bills.price_views import list_changes
from jobs.endpoints.usage_statements import compare
from jobs.escrow import holding, views
from jobs.kinds.registry import kind_of
from jobs.leases.leasing import GRACE_MS, is_paid_by_contract
from jobs.models import Job, Lease, Replica
from jobs.payment.terms import Payment
from jobs.pricing.costs import NO_CLAIM, Claim, Cost, cost_of
from jobs.pricing.price_locks import payment_of, price_of
from jobs.states import JOB_ENDS, LeaseState
from jobs.wire import BillLine, BillView, JobPriceView, PriceView
from jobs.wire.bill import ServedCounts
from provider_agent.protocol import REASONS, Billable, Fault, Outcome, Reason, SignedReceipt, charge

MS_PER_SECOND = 1000
_OUTCOMES: dict[str, Outcome] = {reason.value: outcome for reason, outcome in REASONS.items()}
_BLAME = {
    Fault.PROVIDER.value: ", the provider's fault",
    Fault.NETWORK.value: ", the network's fault",
    Fault.PLATFORM.value: ", the marketplace's fault",
}


def make_bill(job: Job) -> BillView:
    """What a job costs, adding up to the charged amount to the micro-dollar; final once it has ended and is settled."""
    leases = list(
        Lease.objects.filter(attempt__job=job)
        .select_related("attempt__job__quote__asset", "node", "asset", "price_lock")
        .order_by("attempt__number", "node_rank", "reserved_at")
    )
    receipts = receipts_of([lease.id for lease in leases])
    parts = list(Settlement.objects.filter(job_id=job.id).order_by("created_at"))
    settlement = next((each for each in parts if each.is_final), None)
    hold = Hold.objects.filter(job_id=job.id).order_by("-created_at").first()
    prices = list_changes(job)
    lines = [BillLine(**line_of(lease, receipts[lease.id]), price=_price_of(lease, prices)) for lease in leases]
    payment = price_of(job).payment
    total, held = sum(line.charge_units for line in lines), int(hold.amount) if hold else 0
    if kind_of(job).is_settled_in_parts and not job.is_escrow:
        return _bill_of_parts(job, lines, payment, parts, hold)
    if job.is_escrow:
        return _bill_of_contract(job, lines, payment).model_copy(update={"prices": prices})
    return BillView(
        job_id=job.id,
        state=job.state,
        is_final=job.state in JOB_ENDS and (hold is None or settlement is not None),
        lines=lines,
        total_usd_micros=sum(line.charge_usd_micros for line in lines),
        fee_usd_micros=payment.usd_micros(int(settlement.fee)) if settlement else 0,
        hold_usd_micros=payment.usd_micros(held),
        released_usd_micros=payment.usd_micros(int(settlement.refunded)) if settlement else 0,
        settlement=_show_settlement(settlement, payment) if settlement else None,
        asset=payment.asset,
        asset_scale=payment.scale,
        price=show_price(payment),
        prices=prices,
        cap_usd_micros=job.cap_usd_micros,
        total_units=total,
        fee_units=int(settlement.fee) if settlement else 0,
        hold_units=held,
        released_units=int(settlement.refunded) if settlement else 0,
        fee_bps=settlement.fee_bps if settlement else None,
    )


def _bill_of_parts(
    job: Job, lines: list[BillLine], payment: Payment, parts: list[Settlement], hold: Hold | None
) -> BillView:
    """The bill of a serving job, which is settled day by day: what was held and charged is that of all parts together.

    The hold is a window that moves on, so it is no promise of the cap's, and the bill names none.
    """
    is_open = hold is not None and hold.state == HoldState.OPEN
    final = next((each for each in parts if each.is_final), None)
    charged, fee = sum(int(each.charged) for each in parts), sum(int(each.fee) for each in parts)
    released = int(final.refunded) if final else 0
    held = charged + (int(hold.amount) if hold and is_open else released)
    whole = _show_parts(final, charged=charged, fee=fee, payment=payment) if final else None
    return BillView(
        job_id=job.id,
        state=job.state,
        is_final=job.state in JOB_ENDS and not is_open,
        lines=lines,
        total_usd_micros=sum(line.charge_usd_micros for line in lines),
        fee_usd_micros=payment.usd_micros(fee),
        hold_usd_micros=payment.usd_micros(held),
        released_usd_micros=payment.usd_micros(released),
        settlement=whole,
        parts=[_show_settlement(each, payment) for each in parts],
        asset=payment.asset,
        asset_scale=payment.scale,
        price=show_price(payment),
        total_units=sum(line.charge_units for line in lines),
        fee_units=fee,
        hold_units=held,
        released_units=released,
        fee_bps=parts[0].fee_bps if parts else None,
    )


def _show_parts(final: Settlement, *, charged: int, fee: int, payment: Payment) -> dict[str, str | int]:
    """All parts as if they had been one settlement, which the last one made final."""
    refunded = int(final.refunded)
    amounts = {
        "held": charged + refunded,
        "charged": charged,
        "fee": fee,
        "paid": charged - fee,
        "refunded": refunded,
    }
    return {**_show_settlement(final, payment), **_show_amounts(amounts, payment)}


def _bill_of_contract(job: Job, lines: list[BillLine], payment: Payment) -> BillView:
    """The bill of a job in escrow mode: lines as always, their sum, and the hold by the contract's events.

    It is final once the hold is closed and the contract took what the lines charge.
    """
    hold, view = holding.hold_of(job.id), views.show_hold(job.id)
    held, released = views.money_of(hold)
    total = sum(line.charge_units for line in lines)
    fee = sum(lease.fee_units for lease in view.leases) if view else 0
    is_over = hold is None or hold.state in {EscrowHoldState.CLOSED, EscrowHoldState.FAILED}
    return BillView(
        job_id=job.id,
        state=job.state,
        is_final=job.state in JOB_ENDS and is_over and held - total == released,
        lines=lines,
        total_usd_micros=sum(line.charge_usd_micros for line in lines),
        fee_usd_micros=payment.usd_micros(fee),
        hold_usd_micros=payment.usd_micros(held),
        released_usd_micros=payment.usd_micros(released),
        asset=payment.asset,
        asset_scale=payment.scale,
        price=show_price(payment),
        cap_usd_micros=job.cap_usd_micros,
        total_units=total,
        fee_units=fee,
        hold_units=held,
        released_units=released,
        escrow=view,
    )


def receipts_of(lease_ids: list[UUID]) -> defaultdict[UUID, list[SignedReceipt]]:
    """Every accepted receipt of each lease, in the order of its chain."""
    found: defaultdict[UUID, list[SignedReceipt]] = defaultdict(list)
    for row in UsageReceipt.objects.filter(lease_id__in=lease_ids).order_by("lease_id", "seq"):
        found[row.lease_id].append(row.as_signed())
    return found


def line_of(lease: Lease, receipts: list[SignedReceipt]) -> dict[str, Any]:
    """The fields of one lease's line."""
    newest = receipts[-1].receipt if receipts else None
    claim = Claim(newest.billable_ms, newest.cumulative_amount) if newest else NO_CLAIM
    cost = cost_of(lease, claim)
    claimed_usd_micros = min(charge(lease.rate_usd_micros_per_hour, claim.billable_ms), lease.cap_usd_micros)
    return {
        "attempt": lease.attempt.number,
        "lease_id": lease.id,
        "node_name": lease.node.name,
        "receipt_address": lease.node.receipt_address,
        "devices": lease.device_count,
        "rate_usd_micros_per_hour": lease.rate_usd_micros_per_hour,
        "receipts": receipts,
        "claimed_ms": claim.billable_ms,
        "observed_ms": lease.observed_ms,
        "billable_ms": cost.billable_ms,
        "claimed_usd_micros": claimed_usd_micros,
        "charge_usd_micros": cost.charge_usd_micros,
        "refunded_usd_micros": claimed_usd_micros - cost.charge_usd_micros,
        "payment": lease.payment_terms,
        "rate_units_per_hour": lease.rate_units_per_hour,
        "cap_units": lease.cap_units,
        "claimed_units": claim.units,
        "charge_units": cost.charge_units,
        "refunded_units": claim.units - cost.charge_units,
        "is_ended": lease.state == LeaseState.ENDED,
        "charged_seq": lease.charged_seq,
        "checkpoint_ms": lease.checkpoint_ms,
        "unpaid_ms": _unpaid_ms(lease, receipts),
        "reason": lease.end_reason,
        "fault": _fault_of(lease),
        "explanation": explain(lease, claim, cost),
        "counts": _counts_of(lease),
    }


def _unpaid_ms(lease: Lease, receipts: list[SignedReceipt]) -> int:
    """Of what it signed by the receipt that counts, what is not paid by the loss of another node of its gang."""
    if not lease.unpaid or not receipts or lease.charged_seq == 0:
        return 0
    signed = receipts[(lease.charged_seq or len(receipts)) - 1].receipt.billable_ms
    due = min(signed, lease.observed_ms + GRACE_MS)
    if lease.checkpoint_ms is not None:
        due = min(due, lease.checkpoint_ms)
    return due - lease.paid_of(due)


def _fault_of(lease: Lease) -> str:
    if lease.replaced_at is None:
        return lease.attempt.fault
    return REASONS[Reason(lease.end_reason)].fault.value


def _counts_of(lease: Lease) -> ServedCounts | None:
    """Of a serving lease, what the gateways counted and what its agent signed that it counted."""
    if not Replica.objects.filter(attempt_id=lease.attempt_id).exists():
        return None
    both = compare(lease)
    ours, theirs = both.gateways, both.agent
    return ServedCounts(
        requests=ours.requests,
        input_tokens=ours.input_tokens,
        output_tokens=ours.output_tokens,
        agent_requests=theirs.requests if theirs else None,
        agent_input_tokens=theirs.input_tokens if theirs else None,
        agent_output_tokens=theirs.output_tokens if theirs else None,
        agent_seq=theirs.seq if theirs else None,
        agent_signature=theirs.signature if theirs else "",
        differs=both.differs,
    )


def explain(lease: Lease, claim: Claim, cost: Cost) -> str:
    """Why a line charges what it does, in a sentence; never empty where less is charged than the node claimed."""
    if lease.state != LeaseState.ENDED:
        return "Not ended yet: charged so far is what the node signed and the marketplace saw."
    if cost.charge_units >= claim.units:
        return "" if claim.units else "Nothing was used."
    if is_paid_by_contract(lease) and lease.charged_seq:
        return _explain_receipt(lease, claim, cost)
    if cost.charge_units < charge(lease.rate_units_per_hour, cost.billable_ms):
        return "The job's cap was reached; what the node did beyond it is not charged."
    return _explain_ending(lease, claim, cost)


def _explain_ending(lease: Lease, claim: Claim, cost: Cost) -> str:
    outcome = _OUTCOMES.get(lease.end_reason)
    rule = outcome.billable if outcome else Billable.OBSERVED
    what = f"({lease.end_reason}){_BLAME.get(_fault_of(lease), '')}"
    if rule == Billable.NOTHING:
        return f"It never did what was rented {what}: nothing is charged."
    if lease.unpaid:
        until = " up to the last complete checkpoint" if rule == Billable.CHECKPOINT else ""
        return (
            f"It ended {what}. Of the {_seconds(claim.billable_ms)} that the node claims{until}, what it did again and "
            f"its waiting for another node of the gang are not charged: charged is {_seconds(cost.billable_ms)}."
        )
    if rule == Billable.CHECKPOINT:
        lost_ms = claim.billable_ms - cost.billable_ms
        return kind_of(lease.attempt.job).explain_broken(what, cost.billable_ms, lost_ms)
    return (
        f"The node claims {_seconds(claim.billable_ms)}, the marketplace saw {_seconds(lease.observed_ms)}: "
        f"charged is {_seconds(cost.billable_ms)}."
    )


def _explain_receipt(lease: Lease, claim: Claim, cost: Cost) -> str:
    """A contract pays receipts and no part of one."""
    rule = f"({lease.attempt.reason}){_BLAME.get(lease.attempt.fault, '')}"
    return (
        f"It ended {rule}: charged is the newest receipt that is within what is due, number {lease.charged_seq} with "
        f"{_seconds(cost.billable_ms)}; the {_seconds(claim.billable_ms - cost.billable_ms)} after it are refunded."
    )


def show_price(payment: Payment) -> PriceView | None:
    """What a token cost; dollars have no price."""
    if payment.is_usd:
        return None
    return PriceView(
        usd_micros_per_token=payment.usd_micros_per_token, source=payment.source, observed_at=payment.observed_at
    )


def _price_of(lease: Lease, prices: list[JobPriceView] | None) -> PriceView | None:
    """A lease's own, where the job had several."""
    return show_price(payment_of(lease)) if prices else None


def _show_settlement(settlement: Settlement, payment: Payment) -> dict[str, str | int]:
    amounts = {name: int(getattr(settlement, name)) for name in ("held", "charged", "fee", "paid", "refunded")}
    return {
        "settlement_id": str(settlement.id),
        **_show_amounts(amounts, payment),
        "fee_bps": settlement.fee_bps,
        "settled_at": settlement.created_at.isoformat(),
        "challenge_until": settlement.challenge_until.isoformat(),
    }


def _show_amounts(amounts: dict[str, int], payment: Payment) -> dict[str, str | int]:
    return {
        **{f"{name}_usd_micros": payment.usd_micros(units) for name, units in amounts.items()},
        **{f"{name}_units": str(units) for name, units in amounts.items()},
    }


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / MS_PER_SECOND:.1f} s"

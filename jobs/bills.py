"""The bill of a job: a line a lease, with the receipts that prove it and the reason where less is charged."""

from __future__ import annotations

from collections import defaultdict
from uuid import UUID

from billing.models import Hold, Settlement, UsageReceipt
from jobs.costs import NO_CLAIM, Claim, Cost, cost_of
from jobs.models import Job, Lease
from jobs.states import JOB_ENDS, LeaseState
from jobs.wire import BillLine, BillView
from provider_agent.protocol import REASONS, Billable, Fault, Outcome, SignedReceipt, charge

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
        .select_related("attempt", "node")
        .order_by("attempt__number", "node_rank")
    )
    receipts = _receipts_of([lease.id for lease in leases])
    lines = [_line(lease, receipts[lease.id]) for lease in leases]
    settlement = Settlement.objects.filter(job_id=job.id).first()
    hold = Hold.objects.filter(job_id=job.id).order_by("-created_at").first()
    return BillView(
        job_id=job.id,
        state=job.state,
        is_final=job.state in JOB_ENDS and (hold is None or settlement is not None),
        lines=lines,
        total_usd_micros=sum(line.charge_usd_micros for line in lines),
        fee_usd_micros=int(settlement.fee) if settlement else 0,
        hold_usd_micros=int(hold.amount) if hold else 0,
        released_usd_micros=int(settlement.refunded) if settlement else 0,
        settlement=_show_settlement(settlement) if settlement else None,
    )


def _receipts_of(lease_ids: list[UUID]) -> defaultdict[UUID, list[SignedReceipt]]:
    """Every accepted receipt of each lease, in the order of its chain."""
    found: defaultdict[UUID, list[SignedReceipt]] = defaultdict(list)
    for row in UsageReceipt.objects.filter(lease_id__in=lease_ids).order_by("lease_id", "seq"):
        found[row.lease_id].append(row.as_signed())
    return found


def _line(lease: Lease, receipts: list[SignedReceipt]) -> BillLine:
    newest = receipts[-1].receipt if receipts else None
    claim = Claim(newest.billable_ms, newest.cumulative_amount) if newest else NO_CLAIM
    cost = cost_of(lease, claim)
    return BillLine(
        attempt=lease.attempt.number,
        lease_id=lease.id,
        node_name=lease.node.name,
        receipt_address=lease.node.receipt_address,
        devices=lease.device_count,
        rate_usd_micros_per_hour=lease.rate_usd_micros_per_hour,
        receipts=receipts,
        claimed_ms=claim.billable_ms,
        observed_ms=lease.observed_ms,
        billable_ms=cost.billable_ms,
        claimed_usd_micros=claim.usd_micros,
        charge_usd_micros=cost.charge_usd_micros,
        refunded_usd_micros=claim.usd_micros - cost.charge_usd_micros,
        reason=lease.attempt.reason,
        fault=lease.attempt.fault,
        explanation=explain(lease, claim, cost),
    )


def explain(lease: Lease, claim: Claim, cost: Cost) -> str:
    """Why a line charges what it does, in a sentence; never empty where less is charged than the node claimed."""
    if lease.state != LeaseState.ENDED:
        return "Not ended yet: charged so far is what the node signed and the marketplace saw."
    if cost.charge_usd_micros >= claim.usd_micros:
        return "" if claim.usd_micros else "Nothing was used."
    if cost.charge_usd_micros < charge(lease.rate_usd_micros_per_hour, cost.billable_ms):
        return "The job's cap was reached; what the node did beyond it is not charged."
    return _explain_ending(lease, claim, cost)


def _explain_ending(lease: Lease, claim: Claim, cost: Cost) -> str:
    outcome = _OUTCOMES.get(lease.attempt.reason)
    rule = outcome.billable if outcome else Billable.OBSERVED
    what = f"({lease.attempt.reason}){_BLAME.get(lease.attempt.fault, '')}"
    if rule == Billable.NOTHING:
        return f"It never did what was rented {what}: nothing is charged."
    if rule == Billable.CHECKPOINT and cost.billable_ms:
        lost = _seconds(claim.billable_ms - cost.billable_ms)
        return (
            f"It broke {what}: charged up to the last complete checkpoint, {_seconds(cost.billable_ms)} in; "
            f"the {lost} since then are refunded."
        )
    if rule == Billable.CHECKPOINT:
        return f"It broke {what} before any checkpoint was complete: nothing is charged."
    return (
        f"The node claims {_seconds(claim.billable_ms)}, the marketplace saw {_seconds(lease.observed_ms)}: "
        f"charged is {_seconds(cost.billable_ms)}."
    )


def _show_settlement(settlement: Settlement) -> dict[str, str | int]:
    return {
        "settlement_id": str(settlement.id),
        "held_usd_micros": int(settlement.held),
        "charged_usd_micros": int(settlement.charged),
        "fee_bps": settlement.fee_bps,
        "fee_usd_micros": int(settlement.fee),
        "paid_usd_micros": int(settlement.paid),
        "refunded_usd_micros": int(settlement.refunded),
        "settled_at": settlement.created_at.isoformat(),
        "challenge_until": settlement.challenge_until.isoformat(),
    }


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / MS_PER_SECOND:.1f} s"

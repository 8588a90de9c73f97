"""What the public API shows of a job that a contract pays, all of it from the chain's final events."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from uuid import UUID

from billing.chain.transactions.planning import outcome_of
from billing.models import EscrowHold, EscrowLease
from billing.states.chain import EscrowHoldState
from jobs.escrow import holding
from jobs.wire import EscrowLeaseView, EscrowView


def show_hold(job_id: UUID) -> EscrowView | None:
    """The job's hold, with what its leases were settled for; None where it has none."""
    held = holding.hold_of(job_id)
    if held is None:
        return None
    amount, settled = int(held.amount), int(held.settled)
    return EscrowView(
        state=held.state,
        reason=held.reason if held.state == EscrowHoldState.FAILED else "",
        wallet=held.customer,
        chain_id=held.contract.chain_id,
        contract=held.contract.address,
        held_units=amount,
        settled_units=settled,
        refunded_units=amount - settled if held.state == EscrowHoldState.CLOSED else 0,
        deadline=datetime.fromtimestamp(held.deadline, UTC),
        transaction_hash=outcome_of(held.transaction).hash if held.transaction else "",
        leases=[show_lease(lease) for lease in EscrowLease.objects.filter(hold=held).order_by("pk")],
    )


def show_lease(lease: EscrowLease) -> EscrowLeaseView:
    """What one lease was settled for."""
    return EscrowLeaseView(
        lease_id=lease.id,
        provider=lease.provider,
        settled_units=settled_of(lease),
        pending_units=int(lease.pending),
        paid_units=int(lease.paid),
        fee_units=int(lease.fee),
        refunded_units=int(lease.refunded),
        release_at=lease.release_at,
        is_challenged=lease.is_challenged,
    )


def settled_of(lease: EscrowLease) -> int:
    """All that left the hold for it."""
    return sum(int(part) for part in (lease.pending, lease.paid, lease.fee, lease.refunded))


def settled_leases(lease_ids: Collection[UUID]) -> dict[UUID, EscrowLease]:
    """Of these leases those that the contract has settled."""
    return {lease.pk: lease for lease in EscrowLease.objects.filter(pk__in=lease_ids)}


def money_of(held: EscrowHold | None) -> tuple[int, int]:
    """(held, given back) of a hold, in base units; nothing of one that is not in the contract."""
    if held is None or held.state not in {EscrowHoldState.OPEN, EscrowHoldState.CLOSED}:
        return 0, 0
    is_closed = held.state == EscrowHoldState.CLOSED
    return int(held.amount), int(held.amount) - int(held.settled) if is_closed else 0

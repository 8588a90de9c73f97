"""What the contract's events about holds and leases do to the books.

A hold belongs to its customer: another wallet's hold, or lease, of the same id is another row, and in nobody's way.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from billing.account_kinds import AccountKind
from billing.chain import escrow
from billing.chain.displacing import own_id, word_id
from billing.chain.events.booking import Booking, id_of
from billing.chain.wallets import wallet_owner
from billing.models import ChainTransaction, EscrowClaim, EscrowHold, EscrowLease
from billing.notices import alerts
from billing.states.chain import EscrowHoldState
from billing.transfer_codes import TransferCode
from marketplace.foundation.states import advance, record_birth


def hold_opened(booking: Booking) -> None:
    arguments = booking.arguments
    terms: dict[str, Any] = {
        "contract_id": booking.contract.pk,
        "customer": arguments["customer"],
        "amount": booking.amount(),
        "rate_ceiling_per_hour": int(arguments["rateCeilingPerHour"]),
        "parallel_leases": int(arguments["parallelLeases"]),
        "providers_root": arguments["providersRoot"],
        "deadline": int(arguments["deadline"]),
    }
    hold = _find_hold(booking)
    if hold is None:  # opened by the customer itself
        hold = EscrowHold.objects.create(id=_free_hold_id(booking), **terms)
        record_birth(hold, data={"customer": hold.customer})
    if all(getattr(hold, name) == value for name, value in terms.items()):
        advance(hold, EscrowHoldState.OPEN, reason="final_on_chain")
    elif hold.state == EscrowHoldState.FAILED:  # given up before: what is on the chain is booked all the same
        EscrowHold.objects.filter(pk=hold.pk).update(**terms)
    else:
        # The wallet signed other terms for the job too: what is on the chain is booked, and the job gets nothing of it.
        advance(hold, EscrowHoldState.FAILED, reason="opened_on_other_terms", **terms)
    held = booking.account(AccountKind.WALLET_HELD, wallet_owner(arguments["customer"]), hold.pk)
    booking.move(booking.wallet(arguments["customer"]), held, booking.amount(), TransferCode.WALLET_HOLD, hold.pk)


def lease_settled(booking: Booking) -> None:
    arguments = booking.arguments
    if int(arguments["seq"]) > escrow.SEQ_MAX:
        raise booking.refuse(
            f"its receipt {arguments['seq']} is beyond {escrow.SEQ_MAX}, the last that is counted here"
        )
    hold = _hold(booking)
    release_at = datetime.fromtimestamp(int(arguments["releaseAt"]), UTC)
    lease, _ = EscrowLease.objects.select_for_update().get_or_create(
        pk=_lease_id(booking, hold),
        defaults={"hold": hold, "provider": arguments["provider"], "seq": 0, "release_at": release_at},
    )
    # A challenge is open: what a later receipt adds joins it. What was due had its own LeaseFinalized before this.
    lease.seq, lease.release_at = int(arguments["seq"]), release_at
    lease.pending += booking.amount()
    lease.save()
    hold.settled += booking.amount()
    hold.save(update_fields=["settled"])
    held = booking.account(AccountKind.WALLET_HELD, wallet_owner(hold.customer), hold.pk)
    pending = booking.wallet(arguments["provider"], AccountKind.WALLET_PENDING)
    booking.move(held, pending, booking.amount(), TransferCode.WALLET_SETTLED, hold.pk)


def lease_challenged(booking: Booking) -> None:
    lease = _lease(booking)
    lease.is_challenged = True
    lease.save(update_fields=["is_challenged"])
    alerts.raise_once(
        f"chain:challenge:{lease.pk}",
        kind="chain_challenge",
        subject=lease.pk,
        message=f"The customer challenged lease {lease.pk} on the chain; the arbiter decides.",
    )


def lease_released(booking: Booking) -> None:
    """LeaseFinalized and DisputeResolved: all that waited is divided."""
    lease = _lease(booking)
    paid, fee = booking.amount("paid"), booking.amount("fee")
    refunded = int(booking.arguments.get("refunded", 0))
    if paid + fee + refunded != lease.pending:
        raise booking.refuse(f"{paid} + {fee} + {refunded} is not the {lease.pending} that waits")
    pending = booking.wallet(lease.provider, AccountKind.WALLET_PENDING)
    job_id = lease.hold_id
    booking.move(pending, booking.wallet(lease.provider), paid, TransferCode.WALLET_RELEASED, job_id)
    booking.move(pending, booking.wallet(booking.contract.fee_recipient), fee, TransferCode.PLATFORM_FEE, job_id)
    booking.move(pending, booking.wallet(lease.hold.customer), refunded, TransferCode.WALLET_REFUND, job_id)
    lease.pending, lease.is_challenged = 0, False
    lease.paid, lease.fee, lease.refunded = lease.paid + paid, lease.fee + fee, lease.refunded + refunded
    lease.save()
    alerts.close(f"chain:challenge:{lease.pk}")


def hold_closing(booking: Booking) -> None:
    """The settler's word that the job is over; one that is not ours is a sign that its key is stolen.

    Also where the job has ended: its claims may still be on their way, and nothing is sent with a key that is used
    elsewhere, so that they would come too late.
    """
    hold = _hold(booking)
    hold.closes_at = datetime.fromtimestamp(int(booking.arguments["closesAt"]), UTC)
    hold.save(update_fields=["closes_at"])
    if not _is_closed_by_us(booking, hold):
        alerts.raise_once(
            f"chain:closing:{hold.pk}",
            kind="chain_closing",
            severity=alerts.Severity.CRITICAL,
            subject=hold.pk,
            message=f"The hold of job {hold.pk} is being closed, and not by us: the settler's key may be stolen. Take"
            f" its role away with `souk chain revoke-role {booking.contract.asset.code} settler ADDRESS`, and before"
            f" {hold.closes_at:%F %T} UTC `{_reopening(booking, hold)}` as the arbiter or the pauser.",
        )


def _is_closed_by_us(booking: Booking, hold: EscrowHold) -> bool:
    """Whether our close, or a replacement of it by higher fees, caused the event."""
    ours = hold.closing
    if ours is None:
        return False
    same = ChainTransaction.objects.filter(signer=ours.signer, chain_id=ours.chain_id, nonce=ours.nonce)
    return same.filter(hash=booking.event.tx_hash).exists()


def _reopening(booking: Booking, hold: EscrowHold) -> str:
    job_id = id_of(booking.arguments["jobId"])
    is_ours = hold.pk == job_id
    more = "" if is_ours else f" --code {booking.contract.asset.code} --customer {hold.customer}"
    return f"souk chain reopen-hold {job_id}{more}"


def hold_reopened(booking: Booking) -> None:
    hold = _hold(booking)
    hold.closes_at = None
    hold.save(update_fields=["closes_at"])
    alerts.close(f"chain:closing:{hold.pk}")


def hold_closed(booking: Booking) -> None:
    hold = _hold(booking)
    held = booking.account(AccountKind.WALLET_HELD, wallet_owner(hold.customer), hold.pk)
    refunded = booking.amount("refunded")
    if hold.settled + refunded != hold.amount:
        raise booking.refuse(f"{hold.settled} settled and {refunded} refunded are not the {hold.amount} held")
    booking.move(held, booking.wallet(hold.customer), refunded, TransferCode.WALLET_REFUND, hold.pk)
    if hold.state == EscrowHoldState.OPEN:
        advance(hold, EscrowHoldState.CLOSED, reason="expired" if booking.arguments["expired"] else "closed")


def _find_hold(booking: Booking) -> EscrowHold | None:
    """The row of this customer's hold in this contract, whichever id it has."""
    job_id = word_id(booking.arguments["jobId"])
    rows = EscrowHold.objects.select_for_update().filter(contract=booking.contract)
    mine = rows.filter(customer__iexact=booking.arguments["customer"])
    return mine.filter(pk__in=[job_id, _own_id(job_id, booking)]).first()


def _free_hold_id(booking: Booking) -> UUID:
    """The job's; where another wallet or contract has that, an id of its own, or a stranger could end that one."""
    job_id = word_id(booking.arguments["jobId"])
    return _own_id(job_id, booking) if EscrowHold.objects.filter(pk=job_id).exists() else job_id


def _lease_id(booking: Booking, hold: EscrowHold) -> UUID:
    """The lease's; where another hold has settled, or claims, under that, an id of its own."""
    lease_id = word_id(booking.arguments["leaseId"])
    claims = EscrowClaim.objects.filter(lease_id=lease_id)
    is_claimed = claims.exclude(hold=hold).exists() and not claims.filter(hold=hold).exists()
    is_elsewhere = is_claimed or EscrowLease.objects.filter(pk=lease_id).exclude(hold=hold).exists()
    return _own_id(lease_id, booking) if is_elsewhere else lease_id


def _own_id(word: UUID, booking: Booking) -> UUID:
    return own_id(word, booking.contract.address, booking.arguments["customer"])


def _hold(booking: Booking) -> EscrowHold:
    hold = _find_hold(booking)
    if hold is None:
        raise booking.refuse("no hold of this customer for this job is known")
    return hold


def _lease(booking: Booking) -> EscrowLease:
    hold = _hold(booking)
    lease = EscrowLease.objects.select_for_update().filter(pk=_lease_id(booking, hold), hold=hold).first()
    if lease is None:
        raise booking.refuse("nothing was settled for this lease")
    return lease

"""What each event of the escrow contract does to the books: one table, name -> verb.

    event             from                        to
    CreditsBought     chain_escrow                customer_available (the organisation named by the buyer)
    Deposited         chain_escrow                wallet_available
    Withdrawn         wallet_available            chain_escrow
    HoldOpened        wallet_available            wallet_held (one a job)
    LeaseSettled      wallet_held                 wallet_pending (the provider's wallet)
    LeaseFinalized    wallet_pending              wallet_available (provider; fee recipient)
    DisputeResolved   wallet_pending              wallet_available (provider; fee recipient; customer)
    HoldClosed        wallet_held                 wallet_available
    Claimed           payout_clearing             chain_escrow (of every provider whose payouts were claimed)
    Staked            chain_escrow                wallet_stake
    Unstaked          wallet_stake                chain_escrow
    Slashed           wallet_stake                slash_pool
    Compensated       slash_pool                  wallet_available
    the others        nothing moves: rows follow, or nothing does

So the ledger's chain_escrow is, with its sign turned, what the contract owes in all. Every transfer carries the event's
reference, and an event is booked in the transaction that marks it so.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from billing.account_kinds import AccountKind
from billing.chain import escrow, stakes
from billing.chain.errors import EventUnbooked
from billing.chain.events import hold_effects, role_effects
from billing.chain.events.booking import Booking, id_of
from billing.chain.payment_rail import ChainPayments
from billing.chain.wallets import credit_owner, is_organisation
from billing.models import ChainEvent, EscrowContract, PayoutEntry, PayoutRoot
from billing.notices import alerts
from billing.rails import crediting
from billing.states.chain import RootState
from billing.transfer_codes import TransferCode
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.foundation.states import advance

ENTRIES_PER_CLAIM_MAX: Final = 100_000

Verb = Callable[[Booking], None]


def book(event: ChainEvent) -> None:
    """Book what the event reports, in the caller's transaction; raises EventUnbooked, InsufficientFunds."""
    contract = EscrowContract.objects.filter(chain_id=event.block.chain_id, address=event.contract).first()
    if contract is None:
        raise EventUnbooked(event=str(event), why=f"the contract {event.contract} is not ours")
    verb = EFFECTS.get(event.name)
    if verb is not None:
        booking = Booking(event, contract)
        verb(booking)
        booking.post()


def _credits_bought(booking: Booking) -> None:
    account = booking.arguments["account"]
    owner = credit_owner(account)
    rail = ChainPayments()
    crediting.credit(rail, rail.receipt_of((booking.event, booking.contract)))
    if not is_organisation(account) or not Organisation.objects.filter(pk=owner).exists():
        # One alert a contract: a cent buys a base unit of credit for an invented account.
        alerts.raise_once(
            f"chain:credits:{booking.contract.pk}",
            kind="chain_credits",
            subject=owner,
            message="Credit was bought for accounts that are no organisation here. The money is booked to those owners;"
            f" move it by a correction. The newest: {booking.arguments['payer']} bought {booking.amount()} base units"
            f" for {account} ({booking.event.reference}).",
        )


def _deposited(booking: Booking) -> None:
    beneficiary = booking.wallet(booking.arguments["beneficiary"])
    booking.move(booking.escrow(), beneficiary, booking.amount(), TransferCode.WALLET_DEPOSIT)


def _withdrawn(booking: Booking) -> None:
    account = booking.wallet(booking.arguments["account"])
    booking.move(account, booking.escrow(), booking.amount(), TransferCode.WALLET_WITHDRAWAL)


def _root_proposed(booking: Booking) -> None:
    arguments = booking.arguments
    active_at = datetime.fromtimestamp(int(arguments["activeAt"]), UTC)
    row = PayoutRoot.objects.filter(contract=booking.contract, root=arguments["root"], state=RootState.PLANNED).first()
    if row is None or row.total != int(arguments["total"]):
        alerts.raise_once(
            f"chain:root:{arguments['root']}",
            kind="chain_root",
            severity=alerts.Severity.CRITICAL,
            subject=arguments["root"],
            message=f"A root of {arguments['total']} was proposed that is not ours: the publisher's key may be stolen."
            f" Veto it before {active_at:%F %T} UTC.",
        )
        return
    advance(row, RootState.PROPOSED, active_at=active_at)


def _root_vetoed(booking: Booking) -> None:
    row = PayoutRoot.objects.filter(
        contract=booking.contract, root=booking.arguments["root"], state=RootState.PROPOSED
    ).first()
    if row is not None:
        advance(row, RootState.VETOED, reason="vetoed")
    alerts.close(f"chain:root:{booking.arguments['root']}")


def _claimed(booking: Booking) -> None:
    """Payouts are claimed whole, in the order in which the roots added them up."""
    cumulative = booking.amount("cumulative")
    before = cumulative - booking.amount()
    entries = list(
        PayoutEntry.objects.select_for_update()
        .filter(
            contract=booking.contract,
            wallet=booking.arguments["account"],
            cumulative__gt=before,
            cumulative__lte=cumulative,
        )
        .order_by("provider_id", "pk")[:ENTRIES_PER_CLAIM_MAX]
    )
    if sum(entry.amount for entry in entries) != booking.amount():
        raise booking.refuse("it is not the sum of payouts that a root of ours promised")
    escrow = booking.escrow()
    for provider_id, mine in groupby(entries, key=lambda entry: entry.provider_id):
        clearing = booking.account(AccountKind.PAYOUT_CLEARING, provider_id)
        booking.move(clearing, escrow, sum(entry.amount for entry in mine), TransferCode.PAYOUT)
    PayoutEntry.objects.filter(pk__in=[entry.pk for entry in entries]).update(claimed_at=clock.now())


def _staked(booking: Booking) -> None:
    stake = booking.wallet(booking.arguments["provider"], AccountKind.WALLET_STAKE)
    booking.move(booking.escrow(), stake, booking.amount(), TransferCode.STAKE)


def _unstaked(booking: Booking) -> None:
    stake = booking.wallet(booking.arguments["provider"], AccountKind.WALLET_STAKE)
    booking.move(stake, booking.escrow(), booking.amount(), TransferCode.UNSTAKE)


def _slashed(booking: Booking) -> None:
    stake = booking.wallet(booking.arguments["provider"], AccountKind.WALLET_STAKE)
    booking.move(stake, booking.account(AccountKind.SLASH_POOL), booking.amount(), TransferCode.SLASH)
    arguments = booking.arguments
    stakes.note_slashed(booking.contract, id_of(arguments["offenceId"]), arguments["provider"], booking.amount())


def _compensated(booking: Booking) -> None:
    customer = booking.wallet(booking.arguments["customer"])
    booking.move(booking.account(AccountKind.SLASH_POOL), customer, booking.amount(), TransferCode.COMPENSATION)
    stakes.note_compensated(booking.contract, id_of(booking.arguments["offenceId"]), booking.amount())


def _receipt_key_noted(booking: Booking) -> None:
    arguments = booking.arguments
    not_after = int(arguments.get("notAfter", 0))  # ReceiptKeyRevoked has none
    escrow.note_receipt_key(
        booking.contract, provider=arguments["provider"], receipt_key=arguments["receiptKey"], not_after=not_after
    )


EFFECTS: Final[dict[str, Verb]] = {
    "CreditsBought": _credits_bought,
    "Deposited": _deposited,
    "Withdrawn": _withdrawn,
    "HoldOpened": hold_effects.hold_opened,
    "LeaseSettled": hold_effects.lease_settled,
    "LeaseChallenged": hold_effects.lease_challenged,
    "LeaseFinalized": hold_effects.lease_released,
    "DisputeResolved": hold_effects.lease_released,
    "HoldClosing": hold_effects.hold_closing,
    "HoldReopened": hold_effects.hold_reopened,
    "HoldClosed": hold_effects.hold_closed,
    "ReceiptKeyRegistered": _receipt_key_noted,
    "ReceiptKeyRevoked": _receipt_key_noted,
    "RootProposed": _root_proposed,
    "RootVetoed": _root_vetoed,
    "RoleProposed": role_effects.role_proposed,
    "RoleVetoed": role_effects.role_vetoed,
    "RoleGranted": role_effects.role_granted,
    "RoleRevoked": role_effects.role_revoked,
    "DefaultAdminTransferScheduled": role_effects.admin_scheduled,
    "DefaultAdminTransferCanceled": role_effects.admin_canceled,
    "Claimed": _claimed,
    "Staked": _staked,
    "Unstaked": _unstaked,
    "Slashed": _slashed,
    "Compensated": _compensated,
}

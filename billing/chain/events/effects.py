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
from typing import Any, Final
from uuid import UUID, uuid5

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.chain import escrow, stakes
from billing.chain.errors import EventUnbooked
from billing.chain.payment_rail import ChainPayments
from billing.chain.wallets import credit_owner, is_organisation, wallet_owner
from billing.models import ChainEvent, EscrowContract, EscrowHold, EscrowLease, PayoutEntry, PayoutRoot
from billing.models.ledger import Account
from billing.notices import alerts
from billing.rails import crediting
from billing.states.chain import EscrowHoldState, RootState
from billing.transfer_codes import TransferCode
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.foundation.states import advance, record_birth

ENTRIES_PER_CLAIM_MAX: Final = 100_000

Verb = Callable[["Booking"], None]


class Booking:
    """One event, its contract, and the transfers that it causes."""

    def __init__(self, event: ChainEvent, contract: EscrowContract) -> None:
        self.event, self.contract, self.arguments = event, contract, event.arguments
        self._transfers: list[ledger.NewTransfer] = []

    def amount(self, name: str = "amount") -> int:
        return int(self.arguments[name])

    def account(self, kind: AccountKind, owner: UUID | None = None, job: UUID | None = None) -> Account:
        [found] = open_accounts([AccountName(kind, owner, job, self.contract.asset_id)])
        return found

    def escrow(self) -> Account:
        return self.account(AccountKind.CHAIN_ESCROW)

    def wallet(self, address: str, kind: AccountKind = AccountKind.WALLET_AVAILABLE) -> Account:
        return self.account(kind, wallet_owner(address))

    def move(self, debit: Account, credit: Account, amount: int, code: TransferCode, job: UUID | None = None) -> None:
        """Nothing for an amount of nothing: the contract may refund 0."""
        if amount:
            self._transfers.append(
                ledger.NewTransfer(debit, credit, amount, code, job_id=job, external_ref=self.event.reference)
            )

    def post(self) -> None:
        ledger.post(self._transfers)

    def refuse(self, why: str) -> EventUnbooked:
        return EventUnbooked(event=str(self.event), why=why)


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


def id_of(word: str) -> UUID:
    """The id in 32 bytes: ours are left-padded UUIDs; for anything else an id that follows from it."""
    return credit_owner(word)


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


def _hold_opened(booking: Booking) -> None:
    arguments = booking.arguments
    job_id = _hold_id(booking)
    terms: dict[str, Any] = {
        "contract_id": booking.contract.pk,
        "customer": arguments["customer"],
        "amount": booking.amount(),
        "rate_ceiling_per_hour": int(arguments["rateCeilingPerHour"]),
        "providers_root": arguments["providersRoot"],
        "deadline": int(arguments["deadline"]),
    }
    hold = EscrowHold.objects.select_for_update().filter(pk=job_id).first()
    if hold is None:  # opened by the customer itself
        hold = EscrowHold.objects.create(id=job_id, **terms)
        record_birth(hold, data={"customer": hold.customer})
    if all(getattr(hold, name) == value for name, value in terms.items()):
        advance(hold, EscrowHoldState.OPEN, reason="final_on_chain")
    elif hold.state == EscrowHoldState.FAILED:  # given up before: what is on the chain is booked all the same
        EscrowHold.objects.filter(pk=hold.pk).update(**terms)
    else:
        # Another wallet used the job's id first: what is on the chain is booked, and the job gets nothing from it.
        advance(hold, EscrowHoldState.FAILED, reason="opened_on_other_terms", **terms)
    held = booking.account(AccountKind.WALLET_HELD, wallet_owner(arguments["customer"]), job_id)
    booking.move(booking.wallet(arguments["customer"]), held, booking.amount(), TransferCode.WALLET_HOLD, job_id)


def _lease_settled(booking: Booking) -> None:
    arguments = booking.arguments
    if int(arguments["seq"]) > escrow.SEQ_MAX:
        raise booking.refuse(
            f"its receipt {arguments['seq']} is beyond {escrow.SEQ_MAX}, the last that is counted here"
        )
    hold = _hold(booking)
    release_at = datetime.fromtimestamp(int(arguments["releaseAt"]), UTC)
    lease, _ = EscrowLease.objects.select_for_update().get_or_create(
        pk=_lease_id(booking),
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


def _lease_challenged(booking: Booking) -> None:
    lease = _lease(booking)
    lease.is_challenged = True
    lease.save(update_fields=["is_challenged"])
    alerts.raise_once(
        f"chain:challenge:{lease.pk}",
        kind="chain_challenge",
        subject=lease.pk,
        message=f"The customer challenged lease {lease.pk} on the chain; the arbiter decides.",
    )


def _lease_released(booking: Booking) -> None:
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


def _hold_closed(booking: Booking) -> None:
    hold = _hold(booking)
    held = booking.account(AccountKind.WALLET_HELD, wallet_owner(hold.customer), hold.pk)
    refunded = booking.amount("refunded")
    if hold.settled + refunded != hold.amount:
        raise booking.refuse(f"{hold.settled} settled and {refunded} refunded are not the {hold.amount} held")
    booking.move(held, booking.wallet(hold.customer), refunded, TransferCode.WALLET_REFUND, hold.pk)
    if hold.state == EscrowHoldState.OPEN:
        advance(hold, EscrowHoldState.CLOSED, reason="expired" if booking.arguments["expired"] else "closed")


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


def _hold_id(booking: Booking) -> UUID:
    """The job's; of a job whose hold is in another contract an id of its own, or a stranger could end that one."""
    job_id = id_of(booking.arguments["jobId"])
    is_elsewhere = EscrowHold.objects.filter(pk=job_id).exclude(contract=booking.contract).exists()
    return uuid5(job_id, booking.contract.address) if is_elsewhere else job_id


def _lease_id(booking: Booking) -> UUID:
    """The lease's; of one whose id was settled in another contract before, an id of its own."""
    lease_id = id_of(booking.arguments["leaseId"])
    is_elsewhere = EscrowLease.objects.filter(pk=lease_id).exclude(hold__contract=booking.contract).exists()
    return uuid5(lease_id, booking.contract.address) if is_elsewhere else lease_id


def _hold(booking: Booking) -> EscrowHold:
    hold = EscrowHold.objects.select_for_update().filter(pk=_hold_id(booking)).first()
    if hold is None or hold.contract_id != booking.contract.pk:
        raise booking.refuse("no hold of this job is known")
    return hold


def _lease(booking: Booking) -> EscrowLease:
    lease = EscrowLease.objects.select_for_update().filter(pk=_lease_id(booking)).first()
    if lease is None:
        raise booking.refuse("nothing was settled for this lease")
    return lease


EFFECTS: Final[dict[str, Verb]] = {
    "CreditsBought": _credits_bought,
    "Deposited": _deposited,
    "Withdrawn": _withdrawn,
    "HoldOpened": _hold_opened,
    "LeaseSettled": _lease_settled,
    "LeaseChallenged": _lease_challenged,
    "LeaseFinalized": _lease_released,
    "DisputeResolved": _lease_released,
    "HoldClosed": _hold_closed,
    "ReceiptKeyRegistered": _receipt_key_noted,
    "ReceiptKeyRevoked": _receipt_key_noted,
    "RootProposed": _root_proposed,
    "RootVetoed": _root_vetoed,
    "Claimed": _claimed,
    "Staked": _staked,
    "Unstaked": _unstaked,
    "Slashed": _slashed,
    "Compensated": _compensated,
}

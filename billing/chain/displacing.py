"""A job keeps its id in our books, whoever opened a hold of the same id in the contract first.

In the contract holds are their customers'. Here the row of a job's hold has the job's id; a stranger who opened one of
that id before the job's own was known gets an id of its own, with the money that is booked for it.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID, uuid5

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.chain.wallets import credit_owner, is_organisation, wallet_owner
from billing.models import EscrowClaim, EscrowContract, EscrowHold, EscrowLease
from billing.models.ledger import Account
from billing.states.chain import EscrowHoldState
from billing.transfer_codes import TransferCode
from marketplace.foundation.states import advance, record_birth

OWN_VERSION: Final = 5  # of UUIDs that follow from others
PATHS: Final = {
    EscrowHoldState.REQUESTED: (),
    EscrowHoldState.OPEN: (EscrowHoldState.OPEN,),
    EscrowHoldState.CLOSED: (EscrowHoldState.OPEN, EscrowHoldState.CLOSED),
    EscrowHoldState.FAILED: (EscrowHoldState.FAILED,),
}


def word_id(word: str) -> UUID:
    """The id of a hold or a lease in the contract's 32 bytes.

    Ours are random (version 4). Where the bytes are what `own_id` could make, somebody chose them to have the row of
    another customer: they get an id that nobody can choose.
    """
    found = credit_owner(word)
    return uuid5(found, word) if is_organisation(word) and found.version == OWN_VERSION else found


def own_id(word: UUID, contract: str, customer: str) -> UUID:
    """The id of a row whose word another customer's, or another contract's, row has already."""
    return uuid5(word, f"{contract} {customer}")


def make_room(job_id: UUID, contract: EscrowContract, customer: str) -> None:
    """Give a stranger's hold of this id another id, in the caller's transaction; one of ours stays.

    Where the job's customer opened theirs after the stranger's, that has the job's id from now on.
    """
    rows = EscrowHold.objects.select_for_update(of=("self",)).select_related("contract")
    found = rows.filter(pk=job_id).first()
    if found is not None:
        is_mine = found.contract_id == contract.pk and found.customer.lower() == customer.lower()
        if is_mine or found.transaction_id is not None:
            return
        _move(found, own_id(job_id, found.contract.address, found.customer))
    mine = rows.filter(pk=own_id(job_id, contract.address, customer), contract=contract, customer=customer).first()
    if mine is not None:
        _move(mine, job_id)


def make_room_for_lease(lease_id: UUID, hold: EscrowHold) -> None:
    """The same of a lease that this hold is to pay: a stolen settler's key can use its id first, for another hold."""
    rows = EscrowLease.objects.select_for_update(of=("self",)).select_related("hold__contract")
    taken = rows.filter(pk=lease_id).exclude(hold=hold).first()
    if taken is not None and not EscrowClaim.objects.filter(lease_id=lease_id, hold=taken.hold_id).exists():
        new_id = own_id(lease_id, taken.hold.contract.address, taken.hold.customer)
        EscrowLease.objects.filter(pk=lease_id).update(id=new_id)


def _move(hold: EscrowHold, new_id: UUID) -> None:
    old_id = hold.pk
    moved = _copy_of(old_id, new_id)
    EscrowLease.objects.filter(hold=old_id).update(hold=moved)
    hold.delete()
    mine, others = (_held(moved, job) for job in (new_id, old_id))
    amount = others.credits_posted - others.debits_posted - others.debits_pending
    if amount > 0:
        ledger.post([ledger.NewTransfer(others, mine, amount, TransferCode.WALLET_HOLD, job_id=new_id)])


def _copy_of(job_id: UUID, new_id: UUID) -> EscrowHold:
    """The same row under another id, which came to its state as every row does."""
    moved = EscrowHold.objects.get(pk=job_id)
    state, reason = moved.state, moved.reason
    moved.pk, moved.state, moved.reason = new_id, EscrowHoldState.REQUESTED, ""
    moved.save(force_insert=True)
    record_birth(moved, data={"customer": moved.customer, "before": str(job_id)})
    for step in PATHS[EscrowHoldState(state)]:
        advance(moved, step, reason=reason)
    return moved


def _held(hold: EscrowHold, job_id: UUID) -> Account:
    owner = wallet_owner(hold.customer)
    [found] = open_accounts([AccountName(AccountKind.WALLET_HELD, owner, job_id, hold.contract.asset_id)])
    return found

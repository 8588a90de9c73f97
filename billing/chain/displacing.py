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
from billing.chain.wallets import wallet_owner
from billing.models import EscrowContract, EscrowHold, EscrowLease
from billing.models.ledger import Account
from billing.states.chain import EscrowHoldState
from billing.transfer_codes import TransferCode
from marketplace.foundation.states import advance, record_birth

PATHS: Final = {
    EscrowHoldState.REQUESTED: (),
    EscrowHoldState.OPEN: (EscrowHoldState.OPEN,),
    EscrowHoldState.CLOSED: (EscrowHoldState.OPEN, EscrowHoldState.CLOSED),
    EscrowHoldState.FAILED: (EscrowHoldState.FAILED,),
}


def own_id(word: UUID, contract: str, customer: str) -> UUID:
    """The id of a row whose word another customer's, or another contract's, row has already."""
    return uuid5(word, f"{contract} {customer}")


def make_room(job_id: UUID, contract: EscrowContract, customer: str) -> None:
    """Give a stranger's hold of this id another id, in the caller's transaction; one of ours stays."""
    rows = EscrowHold.objects.select_for_update(of=("self",)).select_related("contract")
    found = rows.filter(pk=job_id, transaction=None).first()
    if found is None or (found.contract_id == contract.pk and found.customer.lower() == customer.lower()):
        return
    moved = _copy_of(job_id, own_id(job_id, found.contract.address, found.customer))
    EscrowLease.objects.filter(hold=found).update(hold=moved)
    found.delete()
    mine, others = (_held(moved, job) for job in (moved.pk, job_id))
    amount = others.credits_posted - others.debits_posted - others.debits_pending
    if amount > 0:
        ledger.post([ledger.NewTransfer(others, mine, amount, TransferCode.WALLET_HOLD, job_id=moved.pk)])


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

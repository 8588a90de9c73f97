"""One event of the escrow contract on its way into the books: its arguments, and the transfers that it causes."""

from __future__ import annotations

from uuid import UUID

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.chain.errors import EventUnbooked
from billing.chain.wallets import credit_owner, wallet_owner
from billing.models import ChainEvent, ChainTransaction, EscrowContract
from billing.models.ledger import Account
from billing.transfer_codes import TransferCode


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

    def is_ours(self) -> bool:
        """Whether a transaction of ours caused it; else somebody else did, with whichever key."""
        return ChainTransaction.objects.filter(chain_id=self.contract.chain_id, hash=self.event.tx_hash).exists()

    def post(self) -> None:
        ledger.post(self._transfers)

    def refuse(self, why: str) -> EventUnbooked:
        return EventUnbooked(event=str(self.event), why=why)


def id_of(word: str) -> UUID:
    """The id in 32 bytes: ours are left-padded UUIDs; for anything else an id that follows from it."""
    return credit_owner(word)

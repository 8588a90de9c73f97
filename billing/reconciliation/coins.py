"""The coins of our keys against the books, exactly, at one final block.

    the books have of a key   what was paid in for it - the gas of its transactions up to the block
    the chain has             its balance at the block

More outside: somebody put coins there, which only the operator has a reason to. It is booked as paid in, with block and
address. Less outside: gas does not explain it, so somebody else signs with the key; that is a difference that stops
payouts. A correction of one is a transfer of chain_hot_wallet whose reference ends in the key's address.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.db.models import Sum

from billing.account_kinds import AccountKind
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.chain.contract import registry
from billing.chain.reading.client import ChainClient, client_of
from billing.chain.transactions import planning
from billing.models import Account, ChainTransaction, Difference, Position, Signer, Transfer
from billing.reconciliation.comparing import Comparison, one_moment
from billing.states.chain import TransactionState
from marketplace.foundation.models import Event

RAIL: Final = "chain"
EVENT_KIND: Final = "chain_hot_wallet"
CLOSED: Final = [TransactionState.FINAL, TransactionState.REVERTED]
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}$")


@dataclass
class Book:
    """What is written about one key, up to one block."""

    paid_in: int = 0
    gas: int = 0
    first_at: datetime | None = None  # when coins were first booked for it, as they were in the newest block then
    has_sent: bool = False  # and a transaction of its is closed

    @property
    def expected(self) -> int:
        return self.paid_in - self.gas


def compare_coins(chain_id: int) -> Comparison:
    """Hold every key's coins on the chain against the books, and book what was paid in. Raises ChainError."""
    with planning.lock(f"coins:{chain_id}") as is_mine:  # two at once would book it twice
        return _compare(client_of(chain_id)) if is_mine else Comparison()


def _compare(client: ChainClient) -> Comparison:
    chain_id, block = client.config.chain_id, client.final()
    at = datetime.fromtimestamp(client.header(block).timestamp, UTC)
    asset_id = registry.register_coin(chain_id).pk
    [account] = open_accounts([AccountName(AccountKind.CHAIN_HOT_WALLET, asset_id=asset_id)])
    books = _books(client, account, block)
    found = Comparison()
    total = Position(rail=RAIL, kind=account.kind, asset_id=asset_id, ledger=0, outside=0)
    for address, book in sorted(books.items()):
        # Until its first coins are booked nothing is known of it; booked later than the block they are not in it yet.
        if book.first_at > at if book.first_at else not book.has_sent:
            continue
        coins = client.coins(address, block)
        if coins > book.expected:
            _book_paid_in(account, chain_id, block, address, coins - book.expected)
        elif coins < book.expected:
            found.differences.append(
                Difference(
                    rail=RAIL,
                    kind=Difference.Kind.POSITION,
                    account_kind=account.kind,
                    asset_id=asset_id,
                    ref=f"coins:{chain_id}:{address}",  # no block: the next report finds the same one
                    ledger=book.expected,
                    outside=coins,
                )
            )
        total.ledger, total.outside = total.ledger + max(coins, book.expected), total.outside + coins
    if books:
        found.positions.append(total)
    return found


def _books(client: ChainClient, account: Account, block: int) -> dict[str, Book]:
    """By address; transactions that are mined and not closed yet count with the gas in their receipts."""
    chain_id = client.config.chain_id
    with one_moment():
        books = {one.address: Book() for one in Signer.objects.filter(chain_id=chain_id)}
        for address, amount, created_at in _paid_in(account):
            if address in books:
                book = books[address]
                book.paid_in += amount
                book.first_at = min(filter(None, [book.first_at, created_at]))
        mine = ChainTransaction.objects.filter(chain_id=chain_id)
        closed = mine.filter(state__in=CLOSED, block_number__lte=block)
        for address, gas in closed.values_list("signer").annotate(Sum("gas_cost")).order_by("signer"):
            if address in books:
                books[address].gas, books[address].has_sent = int(gas), True
        live = list(mine.filter(state__in=planning.SENT).exclude(hash="").values_list("signer", "hash"))
    for address, tx_hash in live:
        receipt = client.receipt(tx_hash)
        if receipt is not None and receipt.block_number <= block and address in books:
            books[address].gas += receipt.cost
    return books


def _paid_in(account: Account) -> list[tuple[str, int, datetime]]:
    """(address, amount, when) of every transfer of the account whose reference ends in an address; gas has none."""
    found: dict[str, list[tuple[str, int, datetime]]] = defaultdict(list)
    for side, sign in (("debit", 1), ("credit", -1)):
        rows = Transfer.objects.filter(**{side: account}).exclude(code="gas")
        for ref, amount, created_at in rows.values_list("external_ref", "amount", "created_at"):
            address = _ADDRESS.search(ref)
            if address is not None:
                found[side].append((address[0], sign * int(amount), created_at))
    return found["debit"] + found["credit"]


def _book_paid_in(account: Account, chain_id: int, block: int, address: str, amount: int) -> None:
    ref = f"coins:{chain_id}:{block}:{address}"
    planning.book_coins(chain_id, amount, ref=ref)
    Event.objects.create(
        subject_kind=EVENT_KIND,
        subject_id=account.pk,
        to_state="paid_in",
        reason="more_coins_than_booked",
        data={"reference": ref, "amount": str(amount)},
    )

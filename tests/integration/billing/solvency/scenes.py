"""Many who are owed something, and a marketplace that can lie."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

from billing.account_kinds import AccountKind
from billing.books import hash_chain, ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.models import SolvencyReport
from billing.proofs import solvency
from billing.proofs.solvency import AccountProof, Report, check_accounts, read_report
from billing.solvency import publishing
from billing.solvency.proving import prove
from billing.transfer_codes import TransferCode
from marketplace.foundation import signing
from provider_agent.protocol import export_bytes

Body = dict[str, Any]

PAGES_MAX = 20


def publish() -> SolvencyReport:
    """Seal what was posted, and what is owed."""
    hash_chain.chain_transfers()
    report = publishing.publish()
    assert report is not None
    return report


def fund_many(amounts: Sequence[int], *, jobs: bool = False) -> list[UUID]:
    """One account each, of its own owner, or one for each job of a single owner; the owners."""
    alone = uuid4()
    owners = [alone if jobs else uuid4() for _ in amounts]
    kind = AccountKind.WALLET_HELD if jobs else AccountKind.CUSTOMER_AVAILABLE
    names = [AccountName(kind, owner, uuid4() if jobs else None) for owner in owners]
    [cash, *accounts] = open_accounts([AccountName(AccountKind.OPERATOR_CASH), *names])
    ledger.post(
        [
            ledger.NewTransfer(cash, account, amount, TransferCode.CORRECTION)
            for account, amount in zip(accounts, amounts, strict=True)
        ]
    )
    return owners


def whole_proof(owner_id: UUID, number: int | None = None) -> tuple[Report, list[AccountProof]]:
    """What an owner receives, all pages of it."""
    accounts, page = [], 0
    for _ in range(PAGES_MAX):
        found = prove(owner_id, number=number, page=page)
        accounts += [AccountProof.model_validate(each) for each in found["accounts"]]
        if found["next"] is None:
            return read_report(found["report"]), accounts
        page = found["next"]
    raise AssertionError(f"more than {PAGES_MAX} pages")


def proven(owner_id: UUID, number: int | None = None) -> dict[tuple[str, str], int]:
    """What an owner convinces itself of."""
    report, accounts = whole_proof(owner_id, number)
    return check_accounts(report, accounts, owner_id)


def signed(body: Body) -> Body:
    """A report that the marketplace signs, with any content."""
    return {
        "format": solvency.FORMAT,
        "server_public_key": signing.server_public_key_hex(),
        "signature": signing.sign(export_bytes(solvency.FORMAT, body)),
        "body": body,
    }


def changed(body: Body, change: Callable[[Body], object]) -> Body:
    """A copy with something else in it."""
    other = copy.deepcopy(body)
    change(other)
    return other

"""A token, an organisation that has some, and a quote for it in dollars."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.books import deposits
from billing.books.chart_of_accounts import open_account
from billing.books.exchange import Quote
from billing.models import Asset
from billing.rails.registry import source_of
from tests.integration.billing.scenes import DOLLAR

TOKEN = 7


@pytest.fixture(autouse=True)
def token(db: None) -> None:
    open_account(AccountKind.OPERATOR_CASH)
    Asset.objects.create(id=TOKEN, code="TOK", scale=18, kind="erc20", chain_id=1, contract="0x" + "1" * 40)


def quote(**changes: Any) -> Quote:
    """Two dollars a token, to the cent."""
    fields: dict[str, Any] = {
        "id": str(uuid4()),
        "sold_asset_id": TOKEN,
        "bought_asset_id": 1,
        "numerator": 2 * DOLLAR,
        "denominator": 10**18,
        "step": 10_000,
    }
    return Quote(**(fields | changes))


def give_tokens(owner_id: UUID, amount: int) -> UUID:
    deposits.credit(owner_id, amount, reference=str(uuid4()), actor="test", source=source_of("chain"), asset_id=TOKEN)
    return owner_id

"""P13: two assets, one quote, and no value out of nothing."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import open_account
from billing.books.exchange import exchange
from billing.errors import AmountInvalid, InsufficientFunds, QuoteConflict
from billing.models import Transfer
from billing.transfer_codes import TransferCode
from tests.integration.billing.exchanging import TOKEN, give_tokens, quote, token  # noqa: F401 - a fixture
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, available, fund, race


def balance(kind: AccountKind, asset_id: int, owner_id: UUID | None = None) -> int:
    return ledger.balance(owner_id, kind, asset_id=asset_id)


def test_P13_tokens_become_dollars_at_the_quote_and_the_dust_is_rounding() -> None:
    alice = give_tokens(uuid4(), 10**18)
    exchange(owner_id=alice, sold=617_283_950_000_000_000, quote=quote())
    assert available(alice) == 1_230_000
    assert balance(AccountKind.CUSTOMER_AVAILABLE, TOKEN, alice) == 10**18 - 617_283_950_000_000_000
    assert balance(AccountKind.LIQUIDITY, TOKEN) == 617_283_950_000_000_000
    assert balance(AccountKind.LIQUIDITY, 1) == -1_234_567
    assert balance(AccountKind.ROUNDING, 1) == 4_567
    assert_ledger_is_true()


def test_P13_a_quote_is_used_once_and_a_repeat_returns_the_first() -> None:
    alice, mallory, used = give_tokens(uuid4(), 10**18), give_tokens(uuid4(), 10**18), quote()
    first = exchange(owner_id=alice, sold=10**17, quote=used)
    assert exchange(owner_id=alice, sold=10**17, quote=used) == first
    for owner_id, sold in ((alice, 10**16), (mallory, 10**17)):
        with pytest.raises(QuoteConflict):
            exchange(owner_id=owner_id, sold=sold, quote=used)
    assert (available(alice), available(mallory)) == (200_000, 0)


def test_P13_who_has_too_little_exchanges_nothing() -> None:
    alice = give_tokens(uuid4(), 10**17)
    with pytest.raises(InsufficientFunds):
        exchange(owner_id=alice, sold=10**18, quote=quote())
    assert (available(alice), balance(AccountKind.CUSTOMER_AVAILABLE, TOKEN, alice)) == (0, 10**17)


@pytest.mark.parametrize("sold", [0, -1, 1, 1.5, True, float("nan"), 2**300], ids=repr)
def test_P13_what_is_worth_nothing_or_is_no_amount_is_refused(sold: Any) -> None:
    with pytest.raises(AmountInvalid):
        exchange(owner_id=give_tokens(uuid4(), 10**18), sold=sold, quote=quote())


def test_P13_an_asset_is_not_exchanged_for_itself() -> None:
    with pytest.raises(AmountInvalid):
        exchange(owner_id=fund(uuid4()), sold=DOLLAR, quote=quote(sold_asset_id=1, numerator=2, denominator=1, step=1))


@pytest.mark.parametrize("wrong", ["one asset", "no quote", "two quotes", "no liquidity"])
def test_P13_the_database_refuses_an_exchange_that_is_none(wrong: str) -> None:
    alice, bob = give_tokens(fund(uuid4()), 100), uuid4()
    wallet = partial(open_account, AccountKind.CUSTOMER_AVAILABLE)
    liquidity = partial(open_account, AccountKind.LIQUIDITY)
    move = partial(ledger.NewTransfer, code=TransferCode.EXCHANGE)
    sell = move(wallet(alice, asset_id=TOKEN), liquidity(asset_id=TOKEN), 10, external_ref="q")
    group = {
        "one asset": [sell],
        "no quote": [
            move(sell.debit, sell.credit, 10, external_ref=""),
            move(liquidity(), wallet(alice), 5, external_ref=""),
        ],
        "two quotes": [sell, move(liquidity(), wallet(alice), 5, external_ref="another")],
        "no liquidity": [sell, move(wallet(alice), wallet(bob), 5, external_ref="q")],
    }[wrong]
    with pytest.raises(IntegrityError, match="exchange_is_of_two_assets"), transaction.atomic():
        ledger.post(group)
    assert not Transfer.objects.filter(code=TransferCode.EXCHANGE).exists()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sold=st.integers(1, 10**24),
    numerator=st.integers(1, 10**24),
    denominator=st.integers(1, 10**24),
    step=st.sampled_from([1, 100, 10_000]),
)
def test_P13_no_exchange_creates_value(sold: int, numerator: int, denominator: int, step: int) -> None:
    alice = give_tokens(uuid4(), sold)
    dust_before = balance(AccountKind.ROUNDING, 1)
    try:
        exchange(owner_id=alice, sold=sold, quote=quote(numerator=numerator, denominator=denominator, step=step))
    except AmountInvalid:
        assert sold * numerator < step * denominator
        return
    bought, dust = available(alice), balance(AccountKind.ROUNDING, 1) - dust_before
    assert bought % step == 0 and 0 <= dust < step
    assert (bought + dust) * denominator <= sold * numerator < (bought + dust + 1) * denominator
    assert set(ledger.trial_balance().values()) == {0}


@pytest.mark.django_db(transaction=True)
def test_P13_one_quote_used_by_two_at_once_is_used_once() -> None:
    used, owners = quote(), [give_tokens(uuid4(), 10**18) for _ in range(2)]
    outcomes = race([partial(exchange, owner_id=owner_id, sold=10**17, quote=used) for owner_id in owners])
    assert sum(isinstance(outcome, QuoteConflict) for outcome in outcomes) == 1, outcomes
    assert sorted(available(owner_id) for owner_id in owners) == [0, 200_000]
    assert_ledger_is_true()

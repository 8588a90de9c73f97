"""What a thief with cards tries, and what must not keep an honest payment out."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest
from pytest_django import Settings

from billing.account_kinds import AccountKind
from billing.books.chart_of_accounts import open_account
from billing.charging import holds
from billing.errors import InsufficientFunds
from billing.fiat import accounts
from billing.fiat.errors import TopUpLimitReached
from billing.models import Account, ConnectAccount, StripeEvent, TopUp
from billing.rails.stripe.client import StripeClient
from billing.rails.stripe.records import Connected, StripeRefused
from billing.states.fiat import TopUpState
from tests.fakes.stripe import FakeStripe
from tests.integration.billing.fiat import scenes
from tests.integration.billing.fiat.scenes import DOLLAR, available

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice(db: None) -> UUID:
    return uuid4()


def test_a_new_payers_small_top_ups_do_not_add_up_to_a_large_one_at_once(stripe: FakeStripe, alice: UUID) -> None:
    """200 dollars may be spent at once; who pays four times 150 has the rest a day later."""
    for _ in range(4):
        scenes.pay_in(stripe, alice, 150 * DOLLAR)
    assert available(alice) == 150 * DOLLAR
    with pytest.raises(InsufficientFunds):
        holds.place_hold(owner_id=alice, job_id=uuid4(), amount=151 * DOLLAR)
    scenes.assert_same_books(stripe)


def test_a_large_payment_to_a_frozen_balance_is_credited(stripe: FakeStripe, alice: UUID) -> None:
    first = scenes.pay_in(stripe, alice, 100 * DOLLAR)
    stripe.open_dispute(first.charge_id)
    scenes.receive_events(stripe)
    assert open_account(AccountKind.CUSTOMER_AVAILABLE, alice).is_frozen
    paid = scenes.pay_in(stripe, alice, 500 * DOLLAR)
    assert paid.state == TopUpState.SUCCEEDED
    assert StripeEvent.objects.filter(processed_at=None).count() == 0
    assert available(alice) == 485 * DOLLAR  # less the bank's fee, which was owed
    assert Account.objects.get(owner_id=alice, kind=AccountKind.CUSTOMER_AVAILABLE).is_frozen
    scenes.assert_same_books(stripe)


def test_who_is_refused_again_and_again_tries_no_more_cards_that_day(
    stripe: FakeStripe, alice: UUID, settings: Settings
) -> None:
    scenes.save_card(stripe, alice, "pm_card_chargeCustomerFail")
    for _ in range(10):
        scenes.ask(alice, 10 * DOLLAR, method=TopUp.Method.SAVED_CARD)
        scenes.call_due()
    assert TopUp.objects.filter(state=TopUpState.FAILED).count() == 10
    with pytest.raises(TopUpLimitReached, match="refused"):
        scenes.ask(alice, 10 * DOLLAR, method=TopUp.Method.SAVED_CARD)
    with pytest.raises(TopUpLimitReached, match="refused"):
        scenes.ask(alice, 10 * DOLLAR)
    scenes.ask(uuid4(), 10 * DOLLAR)  # nobody else is in their way


def test_a_provider_who_named_a_country_that_stripe_does_not_serve_may_name_another(stripe: FakeStripe) -> None:
    bob = uuid4()
    create = StripeClient.create_account

    def refuse(client: StripeClient, **fields: Any) -> Connected:
        if fields["country"] == "ZZ":
            raise StripeRefused("Country 'ZZ' is unknown.", code="country_unsupported")
        return create(client, **fields)

    with patch.object(StripeClient, "create_account", refuse):
        accounts.request_account(bob, country="ZZ")
        scenes.call_until_done()
        assert "ZZ" in ConnectAccount.objects.get().disabled_reason
        accounts.request_account(bob, country="DE")
        scenes.call_until_done()
        accounts.request_account(bob, country="FR")
        scenes.call_until_done()
    assert accounts.find(bob).country == "DE" and len(stripe.store.all("account")) == 1

"""Every status that Stripe has for a dispute ends somewhere; one that nobody knows is a person's to look at."""

from __future__ import annotations

from typing import get_args
from uuid import UUID

import pytest
import stripe as library

from billing.fiat.chargebacks import STATE_OF
from billing.models import Alert, CardDispute
from billing.rails.stripe.client import connect
from billing.states.fiat import DisputeState
from tests.fakes.stripe import FakeStripe
from tests.integration.billing.fiat import scenes
from tests.integration.billing.fiat.losing import FEE, loss
from tests.integration.billing.fiat.scenes import DOLLAR, available

pytestmark = pytest.mark.django_db


def open_dispute(stripe: FakeStripe, owner_id: UUID, *, is_inquiry: bool = False) -> str:
    top_up = scenes.pay_in(stripe, owner_id, 50 * DOLLAR)
    return str(stripe.open_dispute(top_up.charge_id, is_inquiry=is_inquiry)["id"])


def state_of(stripe: FakeStripe) -> tuple[str, bool]:
    """Our state, and whether it was closed."""
    scenes.receive_events(stripe)
    dispute = CardDispute.objects.get()
    scenes.assert_same_books(stripe)
    return dispute.state, dispute.closed_at is not None


def test_every_status_that_stripes_library_names_is_known() -> None:
    named = {text for one in get_args(library.Dispute.__annotations__["status"]) for text in get_args(one)}
    assert len(named) >= 10
    assert named == set(STATE_OF)


def test_a_dispute_that_was_prevented_before_money_moved_is_closed(stripe: FakeStripe, alice: UUID) -> None:
    made = open_dispute(stripe, alice, is_inquiry=True)
    assert state_of(stripe) == (DisputeState.INQUIRY, False)
    stripe.set_dispute_status(made, "prevented")
    assert state_of(stripe) == (DisputeState.CLOSED, True)
    assert (available(alice), loss()) == (50 * DOLLAR, 0)
    assert not Alert.objects.open().exists()


def test_a_dispute_that_was_prevented_by_giving_in_is_lost(stripe: FakeStripe, alice: UUID) -> None:
    made = open_dispute(stripe, alice)
    stripe.set_dispute_status(made, "prevented")
    assert state_of(stripe) == (DisputeState.LOST, True)
    assert (available(alice), loss()) == (0, FEE)


@pytest.mark.parametrize("status", ["appeal_needs_response", "appeal_under_review"])
@pytest.mark.parametrize("is_won", [True, False])
def test_an_appeal_changes_nothing_until_it_is_decided(
    stripe: FakeStripe, alice: UUID, status: str, is_won: bool
) -> None:
    made = open_dispute(stripe, alice)
    stripe.close_dispute(made, won=False)
    assert state_of(stripe) == (DisputeState.LOST, True)
    stripe.set_dispute_status(made, status)
    assert state_of(stripe) == (DisputeState.LOST, True)
    assert (available(alice), loss()) == (0, FEE)
    assert Alert.objects.open().filter(kind="card_dispute_status").exists() == (status == "appeal_needs_response")
    stripe.set_dispute_status(made, "under_review")  # as the fake decides only what is open
    stripe.close_dispute(made, won=is_won)
    assert state_of(stripe) == (DisputeState.WON if is_won else DisputeState.LOST, True)
    assert available(alice) == (50 * DOLLAR if is_won else 0)
    assert not Alert.objects.open().filter(kind__startswith="card_dispute").exists()


@pytest.mark.parametrize(("is_inquiry", "expected"), [(True, DisputeState.INQUIRY), (False, DisputeState.OPEN)])
def test_a_status_that_nobody_knows_is_alerted_and_decides_nothing(
    stripe: FakeStripe, alice: UUID, is_inquiry: bool, expected: str
) -> None:
    made = open_dispute(stripe, alice, is_inquiry=is_inquiry)
    stripe.set_dispute_status(made, "arbitrated_on_the_moon")
    assert state_of(stripe) == (expected, False)
    assert "arbitrated_on_the_moon" in Alert.objects.open().get(kind="card_dispute_status").message
    assert available(alice) == (50 * DOLLAR if is_inquiry else 0)
    stripe.set_dispute_status(made, "warning_under_review" if is_inquiry else "under_review")
    state_of(stripe)
    assert not Alert.objects.open().filter(kind="card_dispute_status").exists()


def test_an_inquiry_that_became_a_chargeback_and_was_lost_unseen_is_lost(stripe: FakeStripe, alice: UUID) -> None:
    """The inquiry was closed, and the next that we hear is the end."""
    made = open_dispute(stripe, alice, is_inquiry=True)
    stripe.close_dispute(made, won=False)
    assert state_of(stripe) == (DisputeState.CLOSED, True)
    _, found = stripe.store.find(made)
    booked = stripe.books.book("acct_platform0000000", "adjustment", -5000, "usd", source=made, fee=1500)
    found["balance_transactions"].append(dict(booked))
    stripe.set_dispute_status(made, "lost")
    assert connect().fetch_dispute(made).status == "lost"
    assert state_of(stripe) == (DisputeState.LOST, True)
    assert (available(alice), loss()) == (0, FEE)

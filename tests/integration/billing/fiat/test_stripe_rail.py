"""Payouts through Stripe: one transfer each, whatever happens; what the bank sends back comes back to us."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.books import deposits
from billing.books.chart_of_accounts import AccountName, open_account, open_accounts
from billing.books.ledger import NewTransfer, post
from billing.fiat import accounts, events
from billing.fiat.errors import CardsUnavailable, PayoutAccountMissing
from billing.models import ConnectAccount, Payout, StripeEvent
from billing.models.ledger import USD_ASSET_ID
from billing.money import MICROS_PER_CENT
from billing.rails.errors import RailError
from billing.rails.payouts import EVENT_STORED, Fate
from billing.rails.stripe.client import Key, connect
from billing.rails.stripe.payout_rail import StripePayouts
from billing.rails.stripe.records import Moved
from billing.transfer_codes import TransferCode, TransferMode
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage
from tests.fakes.stripe import FakeStripe, Fault
from tests.integration.billing.fiat import scenes
from tests.integration.billing.fiat.scenes import DOLLAR

pytestmark = pytest.mark.django_db


@pytest.fixture
def bob(stripe: FakeStripe, db: None) -> UUID:
    """Bob's account at Stripe is ready."""
    provider = uuid4()
    accounts.request_account(provider, country="US", email="bob@example.org")
    scenes.call_until_done()
    stripe.onboard(accounts.find(provider).stripe_id)
    scenes.receive_events(stripe)
    return provider


def reserve(provider: UUID, usd_micros: int = 20 * DOLLAR) -> Payout:
    """A payout whose money is set aside, as the payouts package leaves it to a rail."""
    deposits.credit(provider, usd_micros, reference=f"earned {uuid4()}", actor="test")
    customer, earned, clearing = open_accounts(
        [
            AccountName(AccountKind.CUSTOMER_AVAILABLE, provider),
            AccountName(AccountKind.PROVIDER_AVAILABLE, provider),
            AccountName(AccountKind.PAYOUT_CLEARING, provider),
        ]
    )
    post([NewTransfer(customer, earned, usd_micros, TransferCode.CORRECTION)])
    [pending] = post([NewTransfer(earned, clearing, usd_micros, TransferCode.PAYOUT, mode=TransferMode.PENDING)])
    account = ConnectAccount.objects.filter(owner_id=provider).first()
    return Payout.objects.create(
        provider_id=provider,
        rail="stripe",
        asset_id=USD_ASSET_ID,
        amount=usd_micros,
        destination=str(account.stripe_id) if account else "acct_1234567890",
        pending_transfer=pending,
    )


def submit(payout: Payout) -> tuple[Fate, str]:
    outcome = StripePayouts().submit([payout])[str(payout.pk)]
    return outcome.fate, outcome.message


def find(payout: Payout) -> Fate:
    return StripePayouts().find([payout])[str(payout.pk)].fate


def test_onboarding_is_what_stripe_says_it_is(stripe: FakeStripe, db: None) -> None:
    provider = uuid4()
    with pytest.raises(PayoutAccountMissing):
        accounts.open_onboarding(provider)
    accounts.request_account(provider, country="us")
    accounts.request_account(provider, country="us")
    scenes.call_until_done()
    account = accounts.find(provider)
    assert (account.country, account.is_submitted, account.is_payable) == ("US", False, False)
    assert accounts.refresh(account.stripe_id).requirements
    assert accounts.open_onboarding(provider).startswith("http")
    stripe.onboard(account.stripe_id)
    scenes.receive_events(stripe)
    account.refresh_from_db()
    assert (account.is_submitted, account.is_payable, account.requirements) == (True, True, [])
    stripe.restrict(account.stripe_id)
    assert accounts.refresh_oldest() == 1
    account.refresh_from_db()
    assert not account.is_payable and account.requirements == ["individual.verification.document"]


def test_a_payout_is_a_transfer_and_then_goes_to_the_bank(stripe: FakeStripe, bob: UUID) -> None:
    scenes.fund_platform(stripe)
    payout = reserve(bob)
    assert find(payout) == Fate.ABSENT
    assert submit(payout) == (Fate.CONFIRMED, "")
    [moved] = stripe.store.all("transfer")
    assert (moved["amount"], moved["transfer_group"], moved["destination"]) == (
        2000,
        str(payout.pk),
        payout.destination,
    )
    assert moved["metadata"]["outbox_id"] == str(payout.pk)
    [bank] = stripe.store.all("payout", payout.destination)
    assert (bank["amount"], bank["automatic"]) == (2000, False)
    assert find(payout) == Fate.CONFIRMED
    assert StripePayouts().find([payout])[str(payout.pk)].external_id == moved["id"]
    stripe.pay_payout(bank["id"])
    assert find(payout) == Fate.CONFIRMED


@pytest.mark.parametrize(
    "fault",
    [
        Fault.RESET_AFTER,
        Fault.RESET_BEFORE,
        Fault.ERROR_AFTER,
        Fault.ERROR_BEFORE,
        Fault.RATE_LIMITED,
        Fault.UNAVAILABLE,
    ],
)
@pytest.mark.parametrize("path", ["/v1/transfers", "/v1/payouts"])
def test_a_provider_is_paid_once_whatever_happens_to_the_answer(
    stripe: FakeStripe, bob: UUID, fault: Fault, path: str
) -> None:
    scenes.fund_platform(stripe)
    payout = reserve(bob)
    stripe.script(fault, path, times=2)
    for _ in range(4):
        try:
            fate, _ = submit(payout)
        except RailError:
            continue
    assert fate == Fate.CONFIRMED
    assert stripe.effects(payout.pk, kind="transfer") == 1
    assert stripe.effects(payout.pk, kind="payout") == 1


def test_a_payout_is_found_by_its_group_a_day_later(stripe: FakeStripe, bob: UUID) -> None:
    scenes.fund_platform(stripe)
    payout = reserve(bob)
    stripe.script(Fault.RESET_AFTER, "/v1/transfers")
    with pytest.raises(RailError):
        submit(payout)
    stripe.clock.advance(30 * 3600)
    assert submit(payout)[0] == Fate.CONFIRMED
    assert len(stripe.store.all("transfer")) == 1


def test_while_the_platforms_balance_is_short_payouts_wait(stripe: FakeStripe, bob: UUID) -> None:
    payout = reserve(bob)
    with pytest.raises(RailError, match="short"):
        submit(payout)
    assert find(payout) == Fate.ABSENT
    scenes.fund_platform(stripe)
    assert submit(payout)[0] == Fate.CONFIRMED


def test_what_the_bank_sends_back_comes_back_to_us(stripe: FakeStripe, bob: UUID) -> None:
    scenes.fund_platform(stripe)
    before = stripe.balance["usd"]
    payout = reserve(bob)
    submit(payout)
    [bank] = stripe.store.all("payout", payout.destination)
    stripe.fail_payout(bank["id"], "account_closed")
    outcome = StripePayouts().find([payout])[str(payout.pk)]
    assert outcome.fate == Fate.RETURNED and outcome.message and outcome.external_id.startswith("trr_")
    assert StripePayouts().find([payout])[str(payout.pk)] == outcome
    assert stripe.balance["usd"] == before


def test_an_account_that_is_not_ready_is_not_paid_and_says_why(stripe: FakeStripe, bob: UUID) -> None:
    scenes.fund_platform(stripe)
    stripe.restrict(accounts.find(bob).stripe_id)
    scenes.receive_events(stripe)
    assert submit(reserve(bob)) == (
        Fate.FAILED,
        "Stripe does not pay this account yet: individual.verification.document.",
    )
    assert stripe.store.all("transfer") == []


def test_nobody_is_paid_to_somebody_elses_account(stripe: FakeStripe, bob: UUID) -> None:
    payout = reserve(uuid4())
    payout.destination = str(accounts.find(bob).stripe_id)
    fate, message = submit(payout)
    assert fate == Fate.FAILED and "not this provider's" in message


@pytest.mark.parametrize(
    "destination", ["", "bob", "acct_", "acct_nobody1234", "DE89370400440532013000", "acct_<script>"]
)
def test_a_destination_that_cannot_be_is_refused(stripe: FakeStripe, bob: UUID, destination: str) -> None:
    with pytest.raises(ValueError, match="payout account"):
        StripePayouts().check_destination(destination)
    ours = accounts.find(bob).stripe_id
    assert StripePayouts().check_destination(f" {ours} ") == ours


def test_one_payout_that_fails_does_not_stop_the_others(stripe: FakeStripe, bob: UUID) -> None:
    scenes.fund_platform(stripe)
    first, second = reserve(bob), reserve(uuid4())
    fates = {key: outcome.fate for key, outcome in StripePayouts().submit([second, first]).items()}
    assert fates == {str(first.pk): Fate.CONFIRMED, str(second.pk): Fate.FAILED}


def test_positions_and_movements_are_stripes_own(stripe: FakeStripe, bob: UUID, alice: UUID) -> None:
    since = clock.now() - timedelta(days=1)
    scenes.fund_platform(stripe)
    top_up = scenes.pay_in(stripe, alice)
    payout = reserve(bob)
    submit(payout)
    rail = StripePayouts()
    moved = list(rail.movements(since))
    assert rail.positions() == {(AccountKind.STRIPE_BALANCE, USD_ASSET_ID): sum(one.amount for one in moved)}
    assert rail.positions() == {(AccountKind.STRIPE_BALANCE, USD_ASSET_ID): scenes.stripe_has(stripe)}
    assert len({one.ref for one in moved}) == len(moved)
    assert rail.find([payout])[str(payout.pk)].external_id in {one.ref for one in moved}
    booked = set(open_account(AccountKind.STRIPE_BALANCE).debits.values_list("external_ref", flat=True))
    assert booked <= {one.ref for one in moved}
    assert top_up.fee in {-one.amount for one in moved if one.ref.endswith(":fee")}


@pytest.mark.parametrize("usd_micros", [20 * DOLLAR + 1, MICROS_PER_CENT - 1])
def test_stripe_is_never_asked_to_move_a_part_of_a_cent(stripe: FakeStripe, bob: UUID, usd_micros: int) -> None:
    scenes.fund_platform(stripe)
    assert submit(reserve(bob, usd_micros)) == (Fate.FAILED, "Stripe moves whole cents only.")
    assert stripe.store.all("transfer") == []


def test_a_transfer_that_stripe_refuses_fails_with_its_words(stripe: FakeStripe, bob: UUID) -> None:
    """The account was restricted, and the event that says so has not come yet."""
    scenes.fund_platform(stripe)
    payout = reserve(bob)
    stripe.restrict(payout.destination)
    fate, message = submit(payout)
    assert fate == Fate.FAILED
    assert "capabilities" in message
    assert stripe.store.all("transfer") == []


def cut_off_before_the_bank(stripe: FakeStripe, payout: Payout) -> Moved:
    """The transfer is made, and the payout to the bank is not; the transfer."""
    stripe.script(Fault.UNAVAILABLE, "/v1/payouts")
    with pytest.raises(RailError):
        submit(payout)
    moved = connect().find_transfer(str(payout.pk))
    assert moved is not None
    return moved


def reverse(moved: Moved, amount_cents: int) -> None:
    """The operator does so in Stripe's dashboard."""
    connect().reverse_transfer(
        moved.id, amount_cents=amount_cents, metadata={"outbox_id": "by hand"}, key=Key(f"by hand {amount_cents}")
    )


def test_what_a_chargeback_left_of_a_transfer_is_the_providers_to_move(stripe: FakeStripe, bob: UUID) -> None:
    scenes.fund_platform(stripe)
    payout = reserve(bob)
    reverse(cut_off_before_the_bank(stripe, payout), 500)
    assert find(payout) == Fate.CONFIRMED
    assert stripe.store.all("payout", payout.destination) == []


def test_what_was_reversed_whole_before_the_bank_is_not_sent_on(stripe: FakeStripe, bob: UUID) -> None:
    """What else lies in the account there is of other payouts."""
    scenes.fund_platform(stripe)
    payout = reserve(bob)
    moved = cut_off_before_the_bank(stripe, payout)
    reverse(moved, moved.amount_cents)
    connect().transfer(
        account_id=payout.destination,
        amount_cents=moved.amount_cents,
        group="another payout",
        metadata={"payout_id": "another"},
        key=Key("another payout"),
    )
    assert find(payout) == Fate.CONFIRMED
    assert stripe.store.all("payout", payout.destination) == []


def test_a_bank_payout_that_stripe_refuses_waits_in_the_providers_account(stripe: FakeStripe, bob: UUID) -> None:
    scenes.fund_platform(stripe)
    payout = reserve(bob)
    cut_off_before_the_bank(stripe, payout)
    stripe.restrict(payout.destination)
    assert find(payout) == Fate.CONFIRMED
    assert stripe.store.all("payout", payout.destination) == []
    stripe.onboard(payout.destination)
    stripe.clock.advance(25 * 3600)  # Stripe repeats its refusal from memory for a day
    assert find(payout) == Fate.CONFIRMED
    assert len(stripe.store.all("payout", payout.destination)) == 1


def test_a_transfer_that_was_reversed_by_hand_is_not_reversed_again(stripe: FakeStripe, bob: UUID) -> None:
    scenes.fund_platform(stripe)
    payout = reserve(bob)
    submit(payout)
    [bank] = stripe.store.all("payout", payout.destination)
    stripe.fail_payout(bank["id"])
    moved = connect().find_transfer(str(payout.pk))
    assert moved is not None
    reverse(moved, moved.amount_cents)
    assert find(payout) == Fate.CONFIRMED, "for a person to look at: nothing is returned twice"
    assert len(stripe.store.all("transfer_reversal")) == 1


def test_a_movement_whose_event_is_stored_and_not_processed_is_explained(stripe: FakeStripe, bob: UUID) -> None:
    rail = StripePayouts()
    assert rail.explain("ch_1") == ""
    event = StripeEvent.objects.create(
        event_id="evt_1", type="charge.succeeded", payload={"data": {"object": {"id": "ch_1"}}}, created=clock.now()
    )
    assert rail.explain("ch_1") == EVENT_STORED
    StripeEvent.objects.filter(pk=event.pk).update(processed_at=clock.now(), outcome=StripeEvent.Outcome.HANDLED)
    assert rail.explain("ch_1") == ""


def test_what_happens_inside_a_providers_account_is_its_own_business(stripe: FakeStripe, bob: UUID) -> None:
    scenes.fund_platform(stripe)
    submit(reserve(bob))
    scenes.receive_events(stripe)
    inside = StripeEvent.objects.exclude(account="").exclude(type__startswith="account.")
    assert {event.outcome for event in inside} == {"ignored"}
    assert events.process_due() == 0


def test_without_a_key_nobody_is_paid_through_stripe(db: None) -> None:
    with pytest.raises(CardsUnavailable, match="no key"):
        accounts.request_account(uuid4(), country="US")
    assert not OutboxMessage.objects.exists()
    with pytest.raises(RailError, match="SOUK_STRIPE_KEY"):
        StripePayouts()


def test_an_account_is_made_by_who_answers_for_what_and_not_by_a_type(stripe: FakeStripe, bob: UUID) -> None:
    made = stripe.get(accounts.find(bob).stripe_id or "")
    assert made["controller"] == {
        "fees": {"payer": "application"},
        "is_controller": True,
        "losses": {"payments": "application"},
        "requirement_collection": "stripe",
        "stripe_dashboard": {"type": "express"},
        "type": "application",
    }
    refused = stripe.handle("POST", "/v1/accounts", "type=express", key=stripe.secret_key)
    assert refused.status == 400

"""Pay is released within hours where the operator says so and the provider's record allows it, and else after a day."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from uuid import UUID, uuid4

import pytest
from pytest_django import Settings

from billing.account_kinds import AccountKind
from billing.charging import challenge_windows, holds, settlement
from billing.charging.settlement import LeaseCharge
from billing.contesting import disputes
from billing.errors import NothingToDispute
from billing.models import Account, CardDispute, Dispute, FraudWarning, Offence, Settlement, TopUp
from billing.notices import alerts
from billing.payouts.checks import check_challenge_windows
from jobs.bills import earnings
from marketplace.accounts.models import Membership, Organisation, Role, User
from marketplace.foundation import clock
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, fund, race

pytestmark = pytest.mark.django_db
HOURS = timedelta(hours=4)
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def policy(settings: Settings) -> None:
    settings.SOUK_FAST_RELEASE_SECONDS = HOURS.total_seconds()
    settings.SOUK_CHALLENGE_SECONDS = DAY.total_seconds()
    settings.SOUK_PROBATION_DAYS = 0


def settle(customer: UUID, *providers: UUID, amount: int = DOLLAR) -> Settlement:
    fund(customer, amount * len(providers))
    job_id = uuid4()
    holds.place_hold(owner_id=customer, job_id=job_id, amount=amount * len(providers))
    charges = [LeaseCharge(uuid4(), provider, amount) for provider in providers]
    return settlement.settle_job(job_id=job_id, charges=charges, fee_bps=1000)


def window(provider: UUID, settled: Settlement) -> timedelta:
    share = settled.shares.get(provider_id=provider)
    share.refresh_from_db()
    return share.challenge_until - settled.created_at


Record = Callable[..., None]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Record:
    """A record of settlements of a dollar each, made and released in the last days."""
    real = clock.now

    def record(
        provider: UUID,
        settlements: int = challenge_windows.SETTLEMENTS_MIN,
        customers: int = challenge_windows.CUSTOMERS_MIN,
        first: UUID | None = None,
        days: int = 3,
    ) -> None:
        monkeypatch.setattr(clock, "now", lambda: real() - days * DAY)
        owners = [first or uuid4(), *(uuid4() for _ in range(customers - 1))]
        for number in range(settlements):
            settle(owners[number % customers], provider)
        monkeypatch.setattr(clock, "now", lambda: real() - DAY)
        settlement.release_pending()
        monkeypatch.setattr(clock, "now", real)

    return record


def test_pay_of_a_proven_provider_is_spendable_within_hours_and_of_a_new_one_after_a_day(
    alice: UUID, bob: UUID, build: Record
) -> None:
    build(bob)
    carol = uuid4()
    settled = settle(alice, bob, carol)
    assert (window(bob, settled), window(carol, settled)) == (HOURS, DAY)
    assert settled.challenge_until - settled.created_at == HOURS  # the earliest, which the bill shows
    assert settlement.release_pending(settled.created_at + HOURS) == 1
    assert settled.shares.get(provider_id=bob).released_at is not None
    assert_ledger_is_true()


def test_without_the_operators_word_everybody_waits(alice: UUID, bob: UUID, build: Record, settings: Settings) -> None:
    build(bob)
    settings.SOUK_FAST_RELEASE_SECONDS = -1
    assert window(bob, settle(alice, bob)) == DAY


@pytest.mark.parametrize(
    ("settlements", "customers"),
    [(challenge_windows.SETTLEMENTS_MIN - 1, challenge_windows.CUSTOMERS_MIN), (challenge_windows.SETTLEMENTS_MIN, 4)],
)
def test_a_record_that_is_short_or_of_few_customers_is_none(
    alice: UUID, bob: UUID, build: Record, settlements: int, customers: int
) -> None:
    build(bob, settlements, customers)
    assert window(bob, settle(alice, bob)) == DAY


def test_what_is_older_than_the_record_does_not_count(alice: UUID, bob: UUID, build: Record) -> None:
    build(bob, days=challenge_windows.RECORD_DAYS + 1)
    assert window(bob, settle(alice, bob)) == DAY
    build(bob, days=challenge_windows.RECORD_DAYS - 1)
    assert window(bob, settle(alice, bob)) == HOURS


def test_who_was_its_own_customer_has_no_record(alice: UUID, bob: UUID, build: Record) -> None:
    build(bob, first=bob)
    assert window(bob, settle(alice, bob)) == DAY


def test_a_provider_on_probation_waits(alice: UUID, bob: UUID, build: Record, settings: Settings) -> None:
    build(bob)
    settings.SOUK_PROBATION_DAYS = 30
    assert window(bob, settle(alice, bob)) == DAY


def test_what_is_pending_is_no_record(alice: UUID, bob: UUID, build: Record) -> None:
    build(bob, challenge_windows.SETTLEMENTS_MIN - 1)
    settle(uuid4(), bob)
    assert window(bob, settle(alice, bob)) == DAY


def test_a_dispute_ends_it_until_it_is_closed_for_the_provider(alice: UUID, bob: UUID, build: Record) -> None:
    build(bob)
    settled = settle(alice, bob)
    lease_id = settled.shares.get().lease_id
    opened = disputes.open_dispute(customer_id=alice, lease_id=lease_id, text="Nothing ran.", actor="alice")
    assert window(bob, settle(alice, bob)) == DAY
    disputes.withdraw(opened.pk, customer_id=alice, actor="alice")
    assert window(bob, settle(alice, bob)) == HOURS


def test_a_fine_ends_it(alice: UUID, bob: UUID, build: Record) -> None:
    build(bob)
    Offence.objects.create(
        id=uuid4(), provider_id=bob, reason="lied", asset_id=1, penalty=DOLLAR, taken=0, compensated=0
    )
    assert window(bob, settle(alice, bob)) == DAY


def test_an_organisation_with_a_member_of_the_provider_is_no_customer(alice: UUID, bob: UUID, build: Record) -> None:
    sister, person = uuid4(), User.objects.create_user("bob@example.org")
    for owner in (bob, sister):
        organisation = Organisation.objects.create(id=owner, name="Bob's")
        Membership.objects.create(user=person, organisation=organisation, role=Role.OWNER)
    build(bob, first=sister)
    assert window(bob, settle(alice, bob)) == DAY


@pytest.mark.parametrize("is_disputed", [True, False])
def test_who_paid_by_a_card_that_was_not_theirs_is_no_customer(
    alice: UUID, bob: UUID, build: Record, is_disputed: bool
) -> None:
    carol = uuid4()
    build(bob, first=carol)
    top_up = TopUp.objects.create(owner_id=carol, amount=DOLLAR, method=TopUp.Method.CHECKOUT, actor="carol")
    if is_disputed:
        CardDispute.objects.create(stripe_id="dp_1", top_up=top_up, amount=DOLLAR)
        assert window(bob, settle(alice, bob)) == HOURS, "the bank only asks"
        CardDispute.objects.update(state="open")
    else:
        FraudWarning.objects.create(stripe_id="issfr_1", top_up=top_up)
    assert window(bob, settle(alice, bob)) == DAY


def test_pay_of_a_customer_whose_balance_is_frozen_waits(alice: UUID, bob: UUID, build: Record) -> None:
    build(bob)
    job_id = uuid4()
    holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    Account.objects.filter(owner_id=alice, kind=AccountKind.CUSTOMER_AVAILABLE).update(is_frozen=True)
    settled = settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), bob, DOLLAR)], fee_bps=1000)
    assert window(bob, settled) == DAY


def test_what_was_released_early_is_no_record_before_a_whole_window_is_over(
    alice: UUID, bob: UUID, build: Record
) -> None:
    build(bob)
    early = [settle(alice, bob) for _ in range(10)]  # all that a tenth of the record has room for
    assert settlement.release_pending(early[-1].created_at + HOURS) == 10
    assert window(bob, settle(alice, bob)) == DAY


def test_a_dispute_counts_from_its_decision(alice: UUID, bob: UUID, build: Record) -> None:
    build(bob)
    lease_id = settle(alice, bob).shares.get().lease_id
    opened = disputes.open_dispute(customer_id=alice, lease_id=lease_id, text="Nothing ran.", actor="alice")
    long_ago = clock.now() - timedelta(days=challenge_windows.RECORD_DAYS + 1)
    Dispute.objects.filter(pk=opened.pk).update(opened_at=long_ago)
    disputes.decide(opened.pk, to_customer=DOLLAR, to_provider=0, to_platform=0, text="So it is.", actor="olga")
    assert window(bob, settle(alice, bob)) == DAY


def test_a_complaint_after_a_short_window_ends_it_until_an_operator_has_looked(
    alice: UUID, bob: UUID, build: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(bob)
    settled = settle(alice, bob)
    lease_id = settled.shares.get().lease_id
    assert disputes.complain_late(customer_id=alice, lease_id=lease_id) is None, "it can still be disputed"
    for hours, is_noted in ((5, True), (25, False)):
        monkeypatch.setattr(clock, "now", lambda at=settled.created_at + timedelta(hours=hours): at)
        settlement.release_pending()
        assert disputes.complain_late(customer_id=uuid4(), lease_id=lease_id) is None
        noted = disputes.complain_late(customer_id=alice, lease_id=lease_id)
        assert (noted is not None) == is_noted
        if noted is not None:
            assert (noted.kind, noted.subject) == ("late_complaint", str(bob))
            assert window(bob, settle(uuid4(), bob)) == DAY
            alerts.close(noted.key)
        assert window(bob, settle(uuid4(), bob)) == HOURS
    assert_ledger_is_true()


def test_all_short_windows_together_stay_below_a_tenth_of_the_record(alice: UUID, bob: UUID, build: Record) -> None:
    build(bob)
    windows = [window(bob, settle(alice, bob)) for _ in range(12)]
    assert windows == [HOURS] * 10 + [DAY] * 2


def test_what_was_released_early_cannot_be_disputed_and_the_bill_said_so(alice: UUID, bob: UUID, build: Record) -> None:
    build(bob)
    settled = settle(alice, bob)
    settlement.release_pending(settled.challenge_until)
    with pytest.raises(NothingToDispute, match="window is over"):
        lease_id = settled.shares.get().lease_id
        disputes.open_dispute(customer_id=alice, lease_id=lease_id, text="Nothing ran.", actor="alice")


def test_earnings_of_a_lease_in_parts_are_all_there_when_its_longest_window_ends(
    alice: UUID, bob: UUID, build: Record, settings: Settings
) -> None:
    build(bob)
    lease_id, job_id = uuid4(), uuid4()
    holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    settings.SOUK_FAST_RELEASE_SECONDS = -1
    first = settlement.settle_part(job_id=job_id, charges=[LeaseCharge(lease_id, bob, 100)], fee_bps=1000)
    settings.SOUK_FAST_RELEASE_SECONDS = HOURS.total_seconds()
    last = settlement.settle_job(job_id=job_id, charges=[LeaseCharge(lease_id, bob, 100, 100)], fee_bps=1000)
    assert (window(bob, first), window(bob, last)) == (DAY, HOURS)
    shares = earnings._shares_of([lease_id])[lease_id]
    assert [share.settlement_id for share in shares] == [first.pk, last.pk]  # in the order in which they were settled


@pytest.mark.parametrize(
    ("fast", "usual", "ids"), [(-1, 0, []), (0, 0, []), (60, 60, []), (61, 60, ["souk.E045"]), (-2, 60, ["souk.E045"])]
)
def test_a_window_for_a_record_is_no_longer_than_the_usual_one(
    settings: Settings, fast: int, usual: int, ids: list[str]
) -> None:
    settings.SOUK_FAST_RELEASE_SECONDS, settings.SOUK_CHALLENGE_SECONDS = fast, usual
    assert [found.id for found in check_challenge_windows(None)] == ids


@pytest.mark.django_db(transaction=True)
def test_settlements_at_once_do_not_all_find_the_same_room(bob: UUID, build: Record) -> None:
    """Eight of two dollars each: a tenth of the record has room for five."""
    build(bob)
    customers = [uuid4() for _ in range(8)]
    found = race([partial(settle, customer, bob, amount=2 * DOLLAR) for customer in customers])
    settled = [each for each in found if isinstance(each, Settlement)]
    assert len(settled) == 8, found
    assert sorted(window(bob, each) for each in settled) == [HOURS] * 5 + [DAY] * 3
    assert clock.now() > settled[0].created_at

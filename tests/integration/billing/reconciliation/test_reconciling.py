"""The ledger against the outside: what agrees, what is explained, and what stops payouts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import transaction
from typer.testing import CliRunner

from billing import breaker, dispatch
from billing.account_kinds import AccountKind
from billing.books import deposits, ledger
from billing.books.chart_of_accounts import open_account
from billing.breaker import close_breaker, open_breaker
from billing.charging import holds
from billing.errors import PayoutsStopped
from billing.models import Asset, FakeMovement, Payout, PayoutBreaker, Reconciliation, StripeEvent
from billing.payouts import paying
from billing.payouts.running import run_payouts
from billing.rails.errors import RailError
from billing.rails.fake.payout_rail import FakePayouts
from billing.rails.payouts import Movement
from billing.rails.stripe.payout_rail import StripePayouts
from billing.reconciliation import comparing
from billing.reconciliation.reconciling import forget_old_reports, newest, reconcile
from billing.transfer_codes import TransferCode
from marketplace.config.commands.ledger import app
from marketplace.foundation import clock
from marketplace.foundation.errors import BadRequest, StateConflict
from marketplace.foundation.models import Event
from tests.integration.billing.payouts.scenes import choose, earn, paid_outside, send, spendable, states, usd
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, fund

pytestmark = pytest.mark.django_db
LONG_AGO = timedelta(hours=1)


@pytest.fixture
def paid(bob: UUID) -> Payout:
    """Bob was paid ten dollars, a while ago."""
    earn(bob)
    choose(bob, schedule="manual")
    paying.pay_now(bob, usd(), actor="bob")
    dispatch.dispatch_due()
    FakeMovement.objects.update(at=clock.now() - LONG_AGO)
    return Payout.objects.get()


def differences(report: Reconciliation) -> list[tuple[str, int, int, bool]]:
    rows = report.differences.order_by("pk")
    return [(row.kind, row.ledger, row.outside, bool(row.explanation)) for row in rows]


def test_books_that_agree_leave_a_clean_report(paid: Payout) -> None:
    report = reconcile(reason="by hand")
    assert (report.is_clean, differences(report)) == (True, [])
    [position] = report.positions.all()
    assert position.ledger == position.outside == 0
    assert newest() == report and not breaker.is_open()


def test_money_that_left_outside_and_not_inside_stops_payouts(paid: Payout) -> None:
    FakeMovement.objects.create(ref="theft", payout_id=uuid4(), asset_id=1, amount=-5, at=clock.now() - LONG_AGO)
    report = reconcile(reason="by hand")
    assert differences(report) == [("missing_inside", 0, -5, False)]
    assert breaker.is_open()
    assert PayoutBreaker.objects.get().reconciliation == report


def test_money_that_left_inside_and_not_outside_stops_payouts(paid: Payout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "YOUNG", timedelta(0))
    FakeMovement.objects.all().delete()
    assert differences(reconcile(reason="by hand")) == [("missing_outside", -10 * DOLLAR, 0, False)]
    assert breaker.is_open()


def test_what_arrived_days_late_is_no_difference(paid: Payout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "YOUNG", timedelta(0))
    FakeMovement.objects.update(at=clock.now() - timedelta(days=9))
    report = reconcile(reason="by hand")
    assert (differences(report), breaker.is_open()) == ([], False)


def test_another_amount_outside_is_never_explained(paid: Payout) -> None:
    FakeMovement.objects.update(amount=-10 * DOLLAR + 1, at=clock.now())
    assert differences(reconcile(reason="by hand")) == [("amount", -10 * DOLLAR, -10 * DOLLAR + 1, False)]
    assert breaker.is_open()


def test_two_errors_that_cancel_each_other_out_are_both_found(paid: Payout) -> None:
    for ref, amount in (("one", 5), ("two", -5)):
        FakeMovement.objects.create(ref=ref, payout_id=uuid4(), asset_id=1, amount=amount, at=clock.now() - LONG_AGO)
    report = reconcile(reason="by hand")
    assert report.positions.get().ledger == report.positions.get().outside
    assert report.unexplained == 2


def test_a_sum_that_is_wrong_without_any_movement_is_found(paid: Payout) -> None:
    FakeMovement.objects.create(
        ref="before the window", payout_id=uuid4(), asset_id=1, amount=-7, at=clock.now() - timedelta(days=30)
    )
    assert differences(reconcile(reason="by hand")) == [("position", 0, -7, False)]


def test_money_that_the_rail_does_not_report_is_missing_outside(bob: UUID) -> None:
    """The ledger claims points in the operator's hands, and the rail names no position in them."""
    Asset.objects.create(id=9, code="POINTS", scale=0, kind="fiat")
    cash = open_account(AccountKind.OPERATOR_CASH, asset_id=9)
    balance = open_account(AccountKind.CUSTOMER_AVAILABLE, bob, asset_id=9)
    ledger.post([ledger.NewTransfer(cash, balance, 7, TransferCode.DEPOSIT, external_ref="invented")])
    report = reconcile(reason="by hand")
    assert differences(report) == [("missing_outside", 7, 0, True)]  # explained while it is young
    assert (report.positions.get().ledger, report.positions.get().outside) == (7, 0)


def test_a_provider_of_a_rail_that_is_off_makes_no_run_look(bob: UUID, settings: Any) -> None:
    earn(bob)
    choose(bob)
    settings.SOUK_PAYOUT_RAILS = []
    assert run_payouts() == 0
    assert not Reconciliation.objects.exists()


def test_a_payout_under_way_and_a_young_movement_are_explained(bob: UUID) -> None:
    earn(bob)
    choose(bob, "fake:slow:bob", schedule="manual")
    paying.pay_now(bob, usd(), actor="bob")
    dispatch.dispatch_due()  # it left, and was not confirmed to us
    FakeMovement.objects.update(at=clock.now() - LONG_AGO)
    FakeMovement.objects.create(ref="new", payout_id=uuid4(), asset_id=1, amount=-5)
    report = reconcile(reason="by hand")
    assert sorted(differences(report)) == [
        ("missing_inside", 0, -10 * DOLLAR, True),
        ("missing_inside", 0, -5, True),
    ]
    assert report.is_clean and not breaker.is_open()


def test_an_event_that_waits_explains_its_movement_until_it_is_processed(
    paid: Payout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakePayouts, "explain", StripePayouts.explain)  # the fake rail has no events of its own
    FakeMovement.objects.create(ref="txn_1", payout_id=uuid4(), asset_id=1, amount=5, at=clock.now() - LONG_AGO)
    event = StripeEvent.objects.create(event_id="evt_1", type="x", created=clock.now(), payload={"id": "txn_1"})
    assert reconcile(reason="by hand").is_clean
    event.processed_at, event.outcome = clock.now(), StripeEvent.Outcome.IGNORED
    event.save()
    assert not reconcile(reason="by hand").is_clean


def test_a_transfer_with_its_reference_puts_a_difference_right(paid: Payout) -> None:
    FakeMovement.objects.create(ref="fee", payout_id=uuid4(), asset_id=1, amount=-5, at=clock.now() - LONG_AGO)
    assert not reconcile(reason="by hand").is_clean
    cash, expense = open_account(AccountKind.OPERATOR_CASH), open_account(AccountKind.ROUNDING)
    ledger.post([ledger.NewTransfer(expense, cash, 5, TransferCode.CORRECTION, external_ref="fee")])
    assert reconcile(reason="by hand").is_clean
    assert breaker.is_open()  # an operator closes it, nobody else


def test_while_payouts_are_stopped_none_leaves_and_all_else_goes_on(bob: UUID, alice: UUID) -> None:
    earn(bob)
    choose(bob)
    run_payouts()  # reserved, and not sent yet
    open_breaker("test")
    send()
    assert (states(bob), paid_outside(bob)) == (["reserved"], 0)
    with pytest.raises(PayoutsStopped):
        paying.pay_now(bob, usd(), actor="bob")
    earn(bob, DOLLAR)  # deposits, holds, settlements
    fund(alice)
    holds.place_hold(owner_id=alice, job_id=uuid4(), amount=1)
    assert spendable(bob) == DOLLAR
    close_breaker(PayoutBreaker.objects.get(), actor="operator", note="It was a test.")
    send()
    assert (states(bob), paid_outside(bob)) == (["confirmed"], 10 * DOLLAR)
    assert_ledger_is_true()


def test_a_run_looks_first_and_pays_nobody_when_something_is_wrong(bob: UUID) -> None:
    earn(bob)
    choose(bob)
    FakeMovement.objects.create(ref="theft", payout_id=uuid4(), asset_id=1, amount=-5, at=clock.now() - LONG_AGO)
    assert run_payouts() == 0
    assert (states(bob), breaker.is_open()) == ([], True)


def test_nothing_is_paid_through_a_rail_that_does_not_answer(bob: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    earn(bob)
    row = choose(bob)

    def away(rail: FakePayouts) -> Any:
        raise RailError("the bank sleeps")

    with monkeypatch.context() as patch:
        patch.setattr(FakePayouts, "positions", away)
        assert run_payouts() == 0
        report = newest()
        assert report is not None and report.unanswered == {"fake": "the bank sleeps"}
        assert not report.is_clean and not breaker.is_open()
    row.refresh_from_db()
    assert row.due_at < clock.now()  # still due
    assert run_payouts() == 1


def test_what_moves_while_we_look_is_no_difference(paid: Payout, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deposit arrives, outside and inside, after the sums were read and before the movements are."""
    movements = FakePayouts.movements

    def meanwhile(rail: FakePayouts, since: datetime) -> Iterator[Movement]:
        deposits.credit(uuid4(), DOLLAR, reference=str(uuid4()), actor="operator")
        return movements(rail, since)

    monkeypatch.setattr(FakePayouts, "movements", meanwhile)
    report = reconcile(reason="by hand")
    assert (report.is_clean, differences(report)) == (True, [])


def test_a_breaker_is_closed_once_and_only_with_a_note() -> None:
    row = open_breaker("test")
    assert open_breaker("another") == row
    with pytest.raises(BadRequest):
        close_breaker(row, actor="operator", note="  ")
    closed = close_breaker(row, actor="operator", note="Known.")
    assert (closed.state, closed.closed_by) == ("closed", "operator")
    with pytest.raises(StateConflict):
        close_breaker(row, actor="operator", note="Again.")
    events = Event.objects.filter(subject_id=row.pk).order_by("id").values_list("to_state", "actor")
    assert list(events) == [("open", "system"), ("closed", "operator")]


def test_clean_reports_are_forgotten_in_time_and_others_never(paid: Payout) -> None:
    clean = reconcile(reason="by hand")
    FakeMovement.objects.create(ref="theft", payout_id=uuid4(), asset_id=1, amount=-5, at=clock.now() - LONG_AGO)
    dirty = reconcile(reason="by hand")
    Reconciliation.objects.update(started_at=clock.now() - timedelta(days=500))
    forget_old_reports()
    assert set(Reconciliation.objects.values_list("pk", flat=True)) == {dirty.pk} != {clean.pk}


def test_the_command_prints_the_report_and_ends_with_its_status(paid: Payout) -> None:
    runner = CliRunner()
    result = runner.invoke(app, ["reconcile"])
    assert (result.exit_code, "Ledger and outside agree." in result.output) == (0, True), result.output
    FakeMovement.objects.create(ref="theft", payout_id=uuid4(), asset_id=1, amount=-5, at=clock.now() - LONG_AGO)
    result = runner.invoke(app, ["reconcile"])
    assert result.exit_code == 1 and "theft" in result.output and "Payouts are stopped" in result.output
    report = json.loads(runner.invoke(app, ["reconcile", "--json"]).output)
    assert (report["is_clean"], report["payouts_stopped"]) == (False, True)
    assert report["differences"][0]["outside"] == "-5"


def test_the_ledger_is_read_atone_moment(transactional_db: None) -> None:
    with comparing.one_moment(), transaction.atomic():
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            assert cursor.fetchone() == ("repeatable read",)

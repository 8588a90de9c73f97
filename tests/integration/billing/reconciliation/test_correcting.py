"""What reconciliation found and nothing books is booked by two people, once, and payouts go on for good."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import IntegrityError, InternalError, ProgrammingError, connection, transaction
from django.db.models import F

from billing import breaker
from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import open_account
from billing.errors import CorrectionRefused, InsufficientFunds
from billing.models import Alert, FakeMovement, LedgerCorrection, Reconciliation, StripeBooking, Transfer
from billing.rails.stripe import booking
from billing.rails.stripe.records import Booking
from billing.reconciliation import comparing, correcting
from billing.reconciliation.reconciling import reconcile
from billing.transfer_codes import TransferCode
from marketplace.accounts.models import Organisation, User
from marketplace.foundation import clock
from marketplace.foundation.models import Event
from tests.integration.billing.reconciliation.differences import WHY, move
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, available, race
from tests.people import PASSWORD

pytestmark = pytest.mark.django_db


def is_waited_for() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)")
        return bool(cursor.fetchone()[0])


def propose(by: User, ref: str = "txn_1", against: str = "chargeback_loss", **fields) -> LedgerCorrection:
    return correcting.propose(ref, against=against, why=WHY, by=by, **fields)


def test_whoever_became_an_operator_for_it_approves_nothing(olga: User, otto: User) -> None:
    move()
    reconcile(reason="by hand")
    accomplice = User.objects.create_superuser("mallory@example.org", PASSWORD)
    User.objects.filter(pk=accomplice.pk).update(staff_since=clock.now() - timedelta(days=30))
    accomplice.refresh_from_db()
    proposed = propose(olga)
    with pytest.raises(CorrectionRefused, match="too new"):
        correcting.approve(proposed.pk, by=accomplice)
    User.objects.filter(pk=otto.pk).update(second_factor_at=clock.now())  # of a colleague who had none
    otto.refresh_from_db()
    with pytest.raises(CorrectionRefused, match="same second factor"):
        correcting.approve(proposed.pk, by=otto)
    User.objects.filter(pk=otto.pk).update(is_staff=False)
    User.objects.filter(pk=otto.pk).update(is_staff=True, second_factor_at=None)
    with pytest.raises(CorrectionRefused, match="too new"):
        correcting.approve(proposed.pk, by=User.objects.get(pk=otto.pk))
    assert (LedgerCorrection.objects.get().state, Transfer.objects.count()) == ("proposed", 0)


def test_a_new_operator_is_an_alert_to_the_others(olga: User) -> None:
    correcting.watch()
    assert not Alert.objects.filter(kind="new_operator").exists()
    mallory = User.objects.create_superuser("mallory@example.org", PASSWORD)
    for _ in range(2):
        correcting.watch()
    alert = Alert.objects.get(kind="new_operator")
    assert ("mallory@example.org" in alert.message, alert.subject) == (True, str(mallory.pk))
    mallory.name = "M"
    mallory.save()  # with what it was read with: no moment
    mallory.refresh_from_db()
    assert mallory.staff_since is not None


@pytest.mark.parametrize("amount", [5 * DOLLAR, -5 * DOLLAR])
def test_a_difference_is_booked_by_two_and_payouts_go_on_for_good(olga: User, otto: User, amount: int) -> None:
    move(amount)
    reconcile(reason="by hand")
    assert breaker.is_open()
    proposed = propose(olga)
    assert (proposed.state, proposed.amount, Transfer.objects.count()) == ("proposed", amount, 0)
    assert "olga@example.org" in Alert.objects.open().get(kind="ledger_correction").message
    approved = correcting.approve(proposed.pk, by=otto)
    assert (approved.proposed_by, approved.decided_by) == ("olga@example.org", "otto@example.org")
    assert not Alert.objects.open().filter(kind="ledger_correction").exists()
    assert ledger.balance(None, AccountKind.CHARGEBACK_LOSS) == amount
    assert Transfer.objects.get().code == TransferCode.CORRECTION
    found = breaker.current()
    assert found is not None
    breaker.close_breaker(found, actor="olga", note=WHY)
    assert reconcile(reason="by hand").is_clean and not breaker.is_open()
    events = Event.objects.filter(subject_kind="ledger_correction").order_by("id")
    assert [(one.to_state, one.actor) for one in events] == [
        ("proposed", "olga@example.org"),
        ("approved", "otto@example.org"),
    ]
    assert_ledger_is_true()


def test_a_sum_without_a_movement_is_booked_and_is_no_difference_after(olga: User, otto: User) -> None:
    move(-7, age=timedelta(days=30))
    reconcile(reason="by hand")
    correcting.approve(propose(olga, ref="").pk, by=otto)
    for _ in range(2):
        assert reconcile(reason="by hand").is_clean
    assert_ledger_is_true()


def test_what_moved_before_the_window_is_booked_by_its_name(
    olga: User, otto: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    move()
    reconcile(reason="by hand")
    correcting.approve(propose(olga).pk, by=otto)
    FakeMovement.objects.update(at=clock.now() - timedelta(days=9))
    monkeypatch.setattr(comparing, "YOUNG", timedelta(0))
    assert reconcile(reason="by hand").is_clean


def test_nobody_approves_what_they_proposed(olga: User) -> None:
    move()
    reconcile(reason="by hand")
    proposed = propose(olga)
    with pytest.raises(CorrectionRefused, match="another operator"):
        correcting.approve(proposed.pk, by=olga)
    assert Transfer.objects.count() == 0
    row = LedgerCorrection.objects.filter(pk=proposed.pk)
    with pytest.raises(IntegrityError, match="correction_approved_by_another"), transaction.atomic():
        row.update(state="approved", decider_id=olga.pk, decided_at=clock.now())


def test_who_has_no_right_neither_proposes_nor_approves(olga: User) -> None:
    move()
    reconcile(reason="by hand")
    proposed = propose(olga)
    mallory = User.objects.create_user("mallory@example.org", PASSWORD)
    auditor = User.objects.create_user("auditor@example.org", PASSWORD, is_staff=True)
    gone = User.objects.create_superuser("gone@example.org", PASSWORD, is_active=False)
    for person in (mallory, auditor, gone):
        for verb in (propose, lambda by: correcting.approve(proposed.pk, by=by)):
            with pytest.raises(CorrectionRefused, match="may not"):
                verb(person)


def test_a_correction_is_decided_once_and_keeps_its_terms(olga: User, otto: User) -> None:
    move()
    reconcile(reason="by hand")
    proposed = propose(olga)
    with pytest.raises(CorrectionRefused, match="already"):
        propose(otto)
    for change in ({"amount": 1}, {"against": "operator_cash"}, {"owner_id": uuid4()}):
        with pytest.raises((InternalError, ProgrammingError, IntegrityError)), transaction.atomic():
            LedgerCorrection.objects.filter(pk=proposed.pk).update(**change)
    correcting.approve(proposed.pk, by=otto)
    for verb in (correcting.approve, correcting.reject):
        with pytest.raises(CorrectionRefused, match="before"):
            verb(proposed.pk, by=otto)
    assert Transfer.objects.count() == 1


def test_what_is_rejected_is_never_booked(olga: User, otto: User) -> None:
    move()
    reconcile(reason="by hand")
    proposed = propose(olga)
    assert correcting.reject(proposed.pk, by=otto).state == "rejected"
    with pytest.raises(CorrectionRefused, match="rejected"):
        correcting.approve(proposed.pk, by=otto)
    assert propose(olga).pk != proposed.pk
    assert Transfer.objects.count() == 0


def test_only_what_the_newest_reconciliation_found_is_booked(olga: User, otto: User) -> None:
    with pytest.raises(CorrectionRefused, match="reconcile"):
        propose(olga)
    move()
    reconcile(reason="by hand")
    with pytest.raises(CorrectionRefused, match="txn_2"):
        propose(olga, ref="txn_2")
    proposed = propose(olga)
    FakeMovement.objects.update(amount=6 * DOLLAR)
    reconcile(reason="by hand")
    with pytest.raises(CorrectionRefused, match="another one"):
        correcting.approve(proposed.pk, by=otto)
    Reconciliation.objects.update(started_at=clock.now() - timedelta(hours=3))
    with pytest.raises(CorrectionRefused, match="reconcile"):
        correcting.approve(proposed.pk, by=otto)


def test_what_was_booked_after_the_report_is_not_booked_twice(olga: User, otto: User) -> None:
    move()
    reconcile(reason="by hand")
    proposed = propose(olga)
    cash, mirror = open_account(AccountKind.ROUNDING), open_account(AccountKind.OPERATOR_CASH)
    ledger.post([ledger.NewTransfer(mirror, cash, 5 * DOLLAR, TransferCode.RAIL_MOVE, external_ref="txn_1")])
    with pytest.raises(CorrectionRefused, match="meanwhile"):
        correcting.approve(proposed.pk, by=otto)
    assert not StripeBooking.objects.exists()


def test_a_sum_is_not_booked_twice_by_one_report(olga: User, otto: User) -> None:
    move(-7, age=timedelta(days=30))
    reconcile(reason="by hand")
    first = propose(olga, ref="")
    correcting.approve(first.pk, by=otto)
    with pytest.raises(CorrectionRefused, match="reconcile"):
        propose(otto, ref="")
    assert Transfer.objects.count() == 1
    FakeMovement.objects.update(amount=-17)
    reconcile(reason="by hand")
    second = propose(otto, ref="")
    Reconciliation.objects.update(started_at=F("started_at") - timedelta(minutes=1))
    with pytest.raises(CorrectionRefused, match="reconcile"):
        correcting.approve(second.pk, by=olga)
    reconcile(reason="by hand")
    assert correcting.approve(second.pk, by=olga).amount == -10


@pytest.mark.django_db(transaction=True)
def test_a_report_begins_after_the_approvals_under_way_are_booked(olga: User, otto: User) -> None:
    move(-7, age=timedelta(days=30))
    reconcile(reason="by hand")
    proposed = propose(olga, ref="")
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            correcting.approve(proposed.pk, by=otto)
            other = pool.submit(race, [lambda: reconcile(reason="by hand")])
            while not is_waited_for():
                assert not other.done()
        [report] = other.result()
    assert isinstance(report, Reconciliation) and report.is_clean


def test_a_late_reversal_that_was_corrected_is_not_booked_again(olga: User, otto: User) -> None:
    move(ref="trr_1")
    reconcile(reason="by hand")
    correcting.approve(propose(olga, ref="trr_1").pk, by=otto)
    entry = Booking(
        id="txn_9",
        type="transfer_refund",
        source="trr_1",
        amount_cents=500,
        fee_cents=0,
        currency="usd",
        at=clock.now(),
    )
    assert not booking.take(entry, uuid4())
    assert booking.take(dataclasses.replace(entry, id="txn_10", source="trr_2"), uuid4())
    assert booking.take(dataclasses.replace(entry, id="txn_11", source="trr_2"), uuid4())


def test_an_owner_that_does_not_exist_is_refused(olga: User) -> None:
    move()
    reconcile(reason="by hand")
    with pytest.raises(CorrectionRefused, match="no organisation"):
        propose(olga, against="customer_available", owner_id=uuid4())
    assert not LedgerCorrection.objects.exists()


def test_a_fault_of_the_database_is_not_called_a_second_proposal(olga: User) -> None:
    move()
    report = reconcile(reason="by hand")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE billing_ledgercorrection ADD CONSTRAINT another CHECK (against <> 'rounding')")
    assert not report.is_clean
    with pytest.raises(IntegrityError, match="another"):
        propose(olga, against="rounding")


def test_what_a_reference_booked_is_looked_up_by_an_index() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    rows = Transfer.objects.order_by().filter(external_ref="txn_1", debit=uuid4())
    assert "transfer_by_reference" in rows.explain()


def test_an_event_that_comes_after_a_correction_finds_the_entry_booked(olga: User, otto: User) -> None:
    move()
    reconcile(reason="by hand")
    correcting.approve(propose(olga).pk, by=otto)
    assert StripeBooking.objects.filter(ref="txn_1").exists()


def test_a_correction_against_a_customer_takes_no_more_than_it_has(olga: User, otto: User, alice) -> None:
    move(-20 * DOLLAR)
    reconcile(reason="by hand")
    Organisation.objects.create(id=alice, name="Alice's")
    with pytest.raises(CorrectionRefused, match="owner"):
        propose(olga, against="customer_available")
    with pytest.raises(CorrectionRefused, match="owner"):
        propose(olga, owner_id=alice)
    with pytest.raises(CorrectionRefused, match="none of"):
        propose(olga, against="fee_revenue")
    proposed = propose(olga, against="customer_available", owner_id=alice)
    with pytest.raises(InsufficientFunds):
        correcting.approve(proposed.pk, by=otto)
    assert available(alice) == 10 * DOLLAR
    assert LedgerCorrection.objects.get().state == "proposed"

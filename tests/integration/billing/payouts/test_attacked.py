"""Payouts attacked: boundaries, calendars, contradictions, statements of any range, and files that do harm."""

from __future__ import annotations

import base64
import csv
import io
import zlib
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from billing import breaker
from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import open_account
from billing.contesting import disputes
from billing.models import Account, Alert, FakeMovement, Payout, PayoutSettings, SettlementShare
from billing.payouts import paying, rolling_reserve, statement_formats, submission
from billing.payouts.accrual import accrued
from billing.payouts.calendar import next_due
from billing.payouts.errors import StatementRefused
from billing.payouts.outcomes import apply_outcome
from billing.payouts.running import run_payouts
from billing.payouts.statement import Period, make_statement
from billing.payouts.statement_formats import safe_text, write_csv, write_json, write_pdf
from billing.rails.fake.payout_rail import FakePayouts
from billing.rails.payouts import Fate, Outcome
from billing.reconciliation.reconciling import reconcile
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock
from tests.integration.billing.payouts.adding_up import assert_adds_up, units
from tests.integration.billing.payouts.scenes import (
    CENT,
    choose,
    earn,
    make_due,
    send,
    spendable,
    states,
    usd,
)
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true

QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
moments = st.datetimes(datetime(2023, 1, 1), datetime(2029, 1, 1), timezones=st.just(UTC))


# --- calendars


@given(moments, st.integers(-14, 14), st.sampled_from(["daily", "weekly"]), st.integers(0, 23))
def test_a_date_is_always_ahead_at_its_hour_and_never_skipped(
    at: datetime, offset: int, schedule: str, hour: int
) -> None:
    """Leap days, ends of months and years, and whatever zone the caller's clock is in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "SOUK_PAYOUT_HOUR", hour)
        due = next_due(schedule, at.astimezone(timezone(timedelta(hours=offset))))
        again = next_due(schedule, due) if due else None
    assert due is not None and again is not None
    step = timedelta(days=7 if schedule == "weekly" else 1)
    assert timedelta(0) < due - at <= step and again - due == step
    assert (due.hour, due.minute, due.utcoffset()) == (hour, 0, timedelta(0))
    assert schedule == "daily" or due.weekday() == 0


def test_leap_days_and_ends_of_months_are_days_like_others() -> None:
    for at, due in {
        "2024-02-28T22:00": "2024-02-29T22:00",
        "2024-02-29T22:00": "2024-03-01T22:00",
        "2026-02-28T23:59": "2026-03-01T22:00",
        "2026-12-31T22:00": "2027-01-01T22:00",
        "2026-03-29T02:30": "2026-03-29T22:00",  # clocks go forward in Europe
        "2026-10-25T02:30": "2026-10-25T22:00",  # and back
    }.items():
        found = next_due("daily", datetime.fromisoformat(at).replace(tzinfo=UTC))
        assert found == datetime.fromisoformat(due).replace(tzinfo=UTC)


# --- boundaries


@pytest.mark.django_db
def test_the_minimum_is_reached_by_itself_and_not_by_a_unit_less(bob: UUID) -> None:
    for earned, minimum, paid in [
        (DOLLAR, DOLLAR, DOLLAR),
        (DOLLAR - 1, DOLLAR, 0),
        (DOLLAR + 1, DOLLAR + 1, 0),  # the rail moves whole cents: a dollar, which is below the minimum
        (DOLLAR + CENT, DOLLAR + 1, DOLLAR + CENT),
        (CENT, 0, CENT),
        (CENT - 1, 0, 0),
    ]:
        provider = uuid4()
        earn(provider, earned)
        choose(provider, minimum=minimum)
        run_payouts()
        assert sum(Payout.objects.filter(provider_id=provider).values_list("amount", flat=True)) == paid
        assert spendable(provider) == earned - paid


@pytest.mark.django_db
def test_probation_ends_on_the_day_and_with_the_settlement_that_end_it(bob: UUID, settings: Any) -> None:
    settings.SOUK_PROBATION_DAYS, settings.SOUK_PROBATION_SETTLEMENTS = 30, 3
    assert rolling_reserve.is_on_probation(bob)
    earn(bob, leases=2)
    first = min(share.settlement.created_at for share in SettlementShare.objects.select_related("settlement"))
    after = first + timedelta(days=30)
    assert rolling_reserve.is_on_probation(bob, after)  # two leases
    earn(bob)
    assert rolling_reserve.is_on_probation(bob, after - timedelta(microseconds=1))
    assert not rolling_reserve.is_on_probation(bob, after)
    settings.SOUK_PROBATION_SETTLEMENTS = 0
    assert rolling_reserve.is_on_probation(uuid4())  # who has earned nothing is new


@pytest.mark.django_db
def test_what_is_estimated_is_what_is_paid(settings: Any) -> None:
    settings.SOUK_RESERVE_BPS = 1000
    bob, alice = uuid4(), uuid4()
    earn(bob, 7 * DOLLAR)
    settings.SOUK_CHALLENGE_SECONDS = 3600
    earn(bob, 5 * DOLLAR)
    row = choose(bob)
    contested = SettlementShare.objects.get(provider_id=bob, paid=5 * DOLLAR)
    PayoutSettings.objects.filter(pk=row.pk).update(due_at=clock.now() + timedelta(hours=2))
    assert accrued(bob)[0].next_payout == 10_800_000
    disputes.open_dispute(
        customer_id=contested.settlement.owner_id, lease_id=contested.lease_id, text="No.", actor=str(alice)
    )
    assert accrued(bob)[0].next_payout == 6_300_000  # what is contested will not have ripened
    make_due(row)
    run_payouts()
    assert Payout.objects.get().amount == 6_300_000


# --- the outside contradicts itself


@pytest.mark.django_db
def test_what_arrives_after_it_had_failed_is_reported_and_stops_payouts(bob: UUID) -> None:
    """The rail gave it up, and paid after all: we pay again in good faith, and the books show that it was twice."""
    earn(bob)
    choose(bob, "fake:slow:bob", schedule="manual")
    payout = paying.pay_now(bob, usd(), actor="bob")
    send()
    apply_outcome(payout.pk, Outcome(Fate.FAILED, message="gone"))
    assert (states(bob), spendable(bob)) == (["failed"], 10 * DOLLAR)
    apply_outcome(payout.pk, Outcome(Fate.CONFIRMED, external_id=f"fake_{payout.pk}"))
    assert (states(bob), spendable(bob)) == (["failed"], 10 * DOLLAR)  # the books do not follow a second word
    assert Alert.objects.open().get(kind="payout_contradicted").severity == "critical"
    FakeMovement.objects.update(at=clock.now() - timedelta(hours=1))
    assert not reconcile(reason="by hand").is_clean
    assert breaker.is_open()
    choose(bob)
    assert run_payouts() == 0


@pytest.mark.django_db
def test_a_payout_that_comes_back_days_later_is_paid_again_once(bob: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    earn(bob)
    row = choose(bob)
    run_payouts()
    send()
    today = clock.now()
    monkeypatch.setattr(clock, "now", lambda: today + timedelta(days=9))
    earn(bob, 3 * DOLLAR)
    monkeypatch.setattr(
        FakePayouts, "find", lambda _, payouts: {str(p.pk): Outcome(Fate.RETURNED, "re_1", "closed") for p in payouts}
    )
    for _ in range(3):
        submission.follow_payouts()
    monkeypatch.undo()
    assert (states(bob), spendable(bob)) == (["returned"], 13 * DOLLAR)
    make_due(row)
    run_payouts()
    send()
    assert (states(bob), spendable(bob)) == (["returned", "confirmed"], 0)
    assert Payout.objects.get(state="confirmed").amount == 13 * DOLLAR
    assert_ledger_is_true()


@pytest.mark.django_db
def test_a_payout_that_came_back_after_probation_keeps_no_reserve_twice(bob: UUID, settings: Any) -> None:
    settings.SOUK_RESERVE_BPS = 1000
    earn(bob)
    row = choose(bob, "fake:returned:bob")
    run_payouts()
    send()
    Payout.objects.update(checked_at=clock.now() - submission.RETURNS_EVERY * 2)
    submission.follow_payouts()
    assert spendable(bob) == 9 * DOLLAR
    PayoutSettings.objects.filter(pk=row.pk).update(destination="fake:bob")
    make_due(row)
    run_payouts()
    assert Payout.objects.get(state="reserved").amount == 9 * DOLLAR


@pytest.mark.django_db
def test_what_a_chargeback_emptied_is_not_paid_and_what_comes_after_is(bob: UUID) -> None:
    earn(bob)
    row = choose(bob)
    taken = ledger.NewTransfer(
        open_account(AccountKind.PROVIDER_AVAILABLE, bob),
        open_account(AccountKind.CHARGEBACK_LOSS),
        10 * DOLLAR,
        TransferCode.CHARGEBACK_RECOVERY,
    )
    ledger.post([taken])
    assert run_payouts() == 0
    Account.objects.filter(owner_id=bob, kind=AccountKind.PROVIDER_AVAILABLE).update(is_frozen=True)
    earn(bob, DOLLAR)
    make_due(row)
    assert run_payouts() == 0
    Account.objects.update(is_frozen=False)
    make_due(row)
    assert run_payouts() == 1
    assert Payout.objects.get().amount == DOLLAR


# --- statements

events = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 5 * DOLLAR), st.sampled_from(["earn", "pay", "return", "fail"])),
    min_size=1,
    max_size=6,
)


@pytest.mark.django_db
@given(events, st.lists(st.integers(0, 40), max_size=3), st.sampled_from([0, 333]))
@hypothesis_settings(max_examples=8, deadline=None, suppress_health_check=QUIET)
def test_statements_of_any_ranges_join_to_the_last_unit(
    db: None, settings: Any, happened: list[tuple[int, int, str]], cuts: list[int], bps: int
) -> None:
    """However a stretch of days is cut, each part adds up, ends where the next begins, and all is what the whole is."""
    settings.SOUK_RESERVE_BPS = bps
    bob, start = uuid4(), datetime(2024, 2, 10, 12, tzinfo=UTC)  # over a leap day
    with pytest.MonkeyPatch.context() as patch:
        for day, amount, what in sorted(happened):
            patch.setattr(clock, "now", lambda day=day: start + timedelta(days=day))
            live(bob, amount, what)
    days = [start.date() + timedelta(days=day) for day in sorted({0, 41, *cuts})]
    parts = [Period.of_days(a, b - timedelta(days=1)) for a, b in pairwise(days)]
    tables = [rows_of(bob, part) for part in parts]
    ends = [0]
    for rows in filter(None, tables):
        assert units(rows[0]["balance"]) == ends[-1]
        ends.append(assert_adds_up(rows))
    whole = rows_of(bob, Period.of_days(days[0], days[-1]))
    lines = [row for rows in tables for row in rows[1:-1]]
    assert [row["change"] for row in lines] == [row["change"] for row in whole[1:-1]]
    held = sum(
        ledger.balance(bob, kind)
        for kind in (AccountKind.PROVIDER_PENDING, AccountKind.PROVIDER_AVAILABLE, AccountKind.PROVIDER_RESERVE)
    )
    assert ends[-1] == held == (assert_adds_up(whole) if whole else 0)


def live(bob: UUID, amount: int, what: str) -> None:
    """Something of a provider's life, at the present moment."""
    manner = {"return": "fake:returned:bob", "fail": "fake:refused:bob"}.get(what, "fake:bob")
    choose(bob, manner, schedule="manual")
    PayoutSettings.objects.filter(provider_id=bob).update(destination=manner)
    earn(bob, amount, fee_bps=777)
    if what == "earn" or spendable(bob) < 2 * CENT:
        return
    paying.pay_now(bob, usd(), actor="bob")
    send()
    Payout.objects.filter(provider_id=bob).update(checked_at=clock.now() - submission.RETURNS_EVERY * 2)
    submission.follow_payouts()


def rows_of(provider: UUID, period: Period) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(write_csv(make_statement(provider, period))))))


@pytest.mark.django_db
def test_a_month_of_ten_thousand_lines_is_a_paper_and_one_more_is_not(bob: UUID) -> None:
    cash, available = open_account(AccountKind.OPERATOR_CASH), open_account(AccountKind.PROVIDER_AVAILABLE, bob)

    def post(count: int) -> None:
        ledger.post([ledger.NewTransfer(cash, available, 1 + n, TransferCode.CORRECTION) for n in range(count)])

    most = statement_formats.PDF_LINES_MAX
    post(most)
    today = clock.now().date()
    period = Period.of_days(today, today)
    paper = write_pdf(make_statement(bob, period), period, name="Bob")
    pages = paper.count(b"/Type /Page\n")
    assert pages > 200 and len(paper) < 4_000_000
    text, total = text_of(paper), most * (most + 1) // 2
    assert text.count(b"(correction)") == most
    assert text.count(b"(closing balance)") == 1 and f"({total / 10**6:.6f})".encode() in text
    post(1)
    with pytest.raises(StatementRefused):
        write_pdf(make_statement(bob, period), period, name="Bob")
    with pytest.raises(StatementRefused):
        write_json(make_statement(bob, period), period)
    assert assert_adds_up(rows_of(bob, period)) == total + 1


def text_of(paper: bytes) -> bytes:
    """What all of its pages say."""
    streams = [part.split(b"~>")[0] for part in paper.split(b"stream\n")[1::2]]
    return b"".join(zlib.decompress(base64.a85decode(stream)) for stream in streams)


@given(st.one_of(st.text(max_size=20), st.text("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20 1", max_size=3)))
@hypothesis_settings(max_examples=60)
def test_no_cell_begins_as_a_formula_does_in_any_spreadsheet(text: str) -> None:
    cell = safe_text(text)
    assert cell.endswith(text)
    assert cell == "" or cell[0] not in "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"


def test_a_period_holds_its_last_day_and_not_the_next() -> None:
    first = date(2026, 1, 1)
    assert Period.of_days(first, date(2026, 2, 28)).until == datetime(2026, 3, 1, tzinfo=UTC)
    with pytest.raises(StatementRefused):
        Period.of_days(first, first + timedelta(days=800))

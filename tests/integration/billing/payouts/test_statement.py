"""A statement adds up to the unit, whichever way it is written."""

from __future__ import annotations

import csv
import io
from datetime import date, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from billing.account_kinds import AccountKind
from billing.books import deposits, ledger
from billing.books.chart_of_accounts import open_account
from billing.charging import holds, settlement
from billing.charging.settlement import LeaseCharge
from billing.models import Asset, Payout, SettlementShare, Transfer
from billing.payouts import paying, statement, statement_formats, submission
from billing.payouts.errors import StatementRefused
from billing.payouts.running import run_payouts
from billing.payouts.statement import Period, make_statement
from billing.payouts.statement_formats import decimal_text, safe_text, write_csv, write_json, write_pdf
from billing.rails.registry import source_of
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock
from tests.integration.billing.payouts.adding_up import assert_adds_up, units
from tests.integration.billing.payouts.scenes import CENT, choose, earn, kept, send, spendable, usd
from tests.integration.billing.scenes import DOLLAR

pytestmark = pytest.mark.django_db


def this_month() -> Period:
    today = clock.now().date()
    return Period.of_days(today - timedelta(days=30), today)


def read_csv(provider: UUID, period: Period | None = None) -> list[dict[str, str]]:
    text = "".join(write_csv(make_statement(provider, period or this_month())))
    return list(csv.DictReader(io.StringIO(text)))


def test_everything_that_happened_is_a_line_and_adds_up(bob: UUID, settings: Any) -> None:
    settings.SOUK_RESERVE_BPS = 1000
    job_id = earn(bob, 3 * DOLLAR + 333, leases=2, fee_bps=1000)
    choose(bob, schedule="manual")
    payout = paying.pay_now(bob, usd(), actor="bob")
    send()
    rows = read_csv(bob)
    balance = assert_adds_up(rows)
    fees = sum(units(row["fee"]) for row in rows)
    assert balance == spendable(bob) + kept(bob) == 2 * (3 * DOLLAR + 333) - fees - payout.amount
    assert [row["what"] for row in rows[1:-1]] == [
        "provider_pay",
        "provider_pay",
        "challenge_passed",
        "challenge_passed",
        "reserve_kept",
        "payout",
    ]
    pays = rows[1:3]
    leases = set(SettlementShare.objects.values_list("lease_id", flat=True))
    assert {UUID(pay["lease_id"]) for pay in pays} == leases
    assert {pay["job_id"] for pay in pays} == {str(job_id)}
    for pay in pays:
        assert units(pay["gross"]) - units(pay["fee"]) == units(pay["change_pending"])
    assert rows[-2]["payout_id"] == str(payout.pk)
    assert rows[-2]["external_id"] == f"fake_{payout.pk}"
    assert units(rows[-2]["change"]) == -payout.amount


def test_refused_and_returned_payouts_leave_the_balance_where_it_was(bob: UUID) -> None:
    earn(bob)
    choose(bob, "fake:returned:bob")
    run_payouts()
    send()
    Payout.objects.update(checked_at=clock.now() - submission.RETURNS_EVERY * 2)
    submission.follow_payouts()
    rows = read_csv(bob)
    assert assert_adds_up(rows) == 10 * DOLLAR
    assert [row["what"] for row in rows[-3:-1]] == ["payout", "payout_returned"]


def test_what_is_only_set_aside_is_not_on_it(bob: UUID) -> None:
    earn(bob)
    choose(bob, schedule="manual")
    paying.pay_now(bob, usd(), actor="bob")
    assert "payout" not in {row["what"] for row in read_csv(bob)}
    assert assert_adds_up(read_csv(bob)) == 10 * DOLLAR


def test_one_periods_closing_is_the_next_ones_opening(bob: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    today = clock.now()
    for days in (3, 2, 1):
        monkeypatch.setattr(clock, "now", lambda days=days: today - timedelta(days=days))
        earn(bob, days * DOLLAR)
    monkeypatch.setattr(clock, "now", lambda: today)
    first = Period.of_days((today - timedelta(days=9)).date(), (today - timedelta(days=2)).date())
    second = Period.of_days((today - timedelta(days=1)).date(), today.date())
    one, two = read_csv(bob, first), read_csv(bob, second)
    assert (assert_adds_up(one), assert_adds_up(two)) == (5 * DOLLAR, 6 * DOLLAR)
    assert two[0]["balance"] == one[-1]["balance"]
    before = Period.of_days(date(2020, 1, 1), date(2020, 1, 2))
    assert assert_adds_up(read_csv(bob, before)) == 0


def test_each_asset_has_a_section_of_its_own(bob: UUID, alice: UUID) -> None:
    token = Asset.objects.create(id=9, code="TOK", scale=18, kind="erc20", chain_id=1, contract="0x" + "1" * 40)
    earn(bob)
    job_id, amount = uuid4(), 2**200 + 1
    deposits.credit(alice, amount, reference="t", actor="x", source=source_of("chain"), asset_id=token.pk)
    holds.place_hold(owner_id=alice, job_id=job_id, amount=amount, asset_id=token.pk)
    settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), bob, amount)], fee_bps=250)
    rows = read_csv(bob)
    sections = [[row for row in rows if row["asset"] == code] for code in ("USD", "TOK")]
    assert len(sections[0]) + len(sections[1]) == len(rows)
    assert assert_adds_up(sections[0]) == 10 * DOLLAR
    assert assert_adds_up(sections[1], scale=18) == amount - amount * 250 // 10_000
    sections_json = write_json(make_statement(bob, this_month()), this_month())["sections"]
    assert [section["asset"] for section in sections_json] == ["USD", "TOK"]
    assert sections_json[1]["closing"]["total"] == str(amount - amount * 250 // 10_000)


def test_a_long_statement_comes_in_pieces_and_misses_nothing(bob: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement, "LINES_PER_FETCH", 3)
    monkeypatch.setattr(statement_formats, "CSV_LINES_PER_WRITE", 2)
    for _ in range(4):
        earn(bob, DOLLAR, leases=2)
    pieces = list(write_csv(make_statement(bob, this_month())))
    assert len(pieces) > 5
    rows = list(csv.DictReader(io.StringIO("".join(pieces))))
    assert (len(rows), assert_adds_up(rows)) == (2 + 16, 8 * DOLLAR)
    assert len({row["lease_id"] for row in rows if row["what"] == "provider_pay"}) == 8


def test_a_cell_that_a_spreadsheet_would_run_is_text(bob: UUID) -> None:
    for evil in ("=1+1", "+1", "-1", "@x", "\tx", "\rx"):
        assert safe_text(evil) == f"'{evil}"
    assert safe_text(None) == "" and safe_text("acct_1") == "acct_1"
    available, cash = open_account(AccountKind.PROVIDER_AVAILABLE, bob), open_account(AccountKind.OPERATOR_CASH)
    ledger.post(
        [ledger.NewTransfer(cash, available, 1, TransferCode.CORRECTION, external_ref='=HYPERLINK("http://m")')]
    )
    assert read_csv(bob)[1]["external_id"] == '\'=HYPERLINK("http://m")'


def test_the_paper_has_every_line_and_is_not_endless(bob: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        earn(bob, DOLLAR, leases=20)
    paper = write_pdf(make_statement(bob, this_month()), this_month(), name="Bob Ł <script>")
    assert paper.startswith(b"%PDF-") and paper.count(b"/Type /Page\n") >= 3
    empty = write_pdf([], this_month(), name="Nobody")
    assert empty.startswith(b"%PDF-")
    monkeypatch.setattr(statement_formats, "PDF_LINES_MAX", 10)
    monkeypatch.setattr(statement_formats, "JSON_LINES_MAX", 10)
    with pytest.raises(StatementRefused):
        write_pdf(make_statement(bob, this_month()), this_month(), name="Bob")
    with pytest.raises(StatementRefused):
        write_json(make_statement(bob, this_month()), this_month())


@pytest.mark.parametrize(
    ("first", "last"),
    [("2026-02-01", "2026-01-01"), ("2000-01-01", "2026-01-01"), ("2999-01-01", "2999-01-02")],
)
def test_a_period_that_makes_no_sense_is_refused(first: str, last: str) -> None:
    with pytest.raises(StatementRefused):
        Period.of_days(date.fromisoformat(first), date.fromisoformat(last))


@given(st.integers(-(2**256) + 1, 2**256 - 1), st.integers(0, 36))
def test_decimals_are_exact_both_ways(amount: int, scale: int) -> None:
    assert units(decimal_text(amount, scale), scale) == amount
    assert "e" not in decimal_text(amount, scale).lower()


@given(
    earned=st.lists(st.tuples(st.integers(1, 5 * DOLLAR), st.integers(1, 3)), min_size=1, max_size=5),
    manner=st.sampled_from(["fake:bob", "fake:refused:bob", "fake:returned:bob", "fake:slow:bob"]),
    fee_bps=st.integers(0, 10_000),
    bps=st.sampled_from([0, 777, 10_000]),
)
@hypothesis_settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_whatever_happened_the_file_adds_up_to_what_the_ledger_holds(
    db: None, settings: Any, earned: list[tuple[int, int]], manner: str, fee_bps: int, bps: int
) -> None:
    settings.SOUK_RESERVE_BPS = bps
    bob = uuid4()
    choose(bob, manner, schedule="manual")
    for amount, leases in earned:
        earn(bob, amount, leases=leases, fee_bps=fee_bps)
        if spendable(bob) > 2 * CENT and bps < 10_000:
            paying.pay_now(bob, usd(), actor="bob")
            send()
            Payout.objects.filter(provider_id=bob).update(checked_at=clock.now() - submission.RETURNS_EVERY * 2)
            submission.follow_payouts()
    if Transfer.objects.of(bob).exists():
        rows = read_csv(bob)
        assert assert_adds_up(rows) == spendable(bob) + kept(bob)

"""The commands that pay in and fetch statements, against the real API: what they print, write and refuse."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from billing import tasks
from billing.fiat import topups
from billing.models import Payout, TopUp
from billing.payouts import bank_legs
from billing.rails.payouts import BankReport
from billing.states import BankState
from billing.states.fiat import TopUpState
from jobs.client import cli
from jobs.client.commands import money, payouts
from marketplace.accounts import api_keys, organisations
from marketplace.accounts.models import Membership, User
from marketplace.accounts.scopes import Scope
from marketplace.foundation import clock
from marketplace.foundation.states import advance
from tests.fakes.stripe import FakeStripe, start_fake
from tests.integration.billing.fiat.scenes import call_due, receive_events
from tests.integration.billing.payouts.loopback import be_on_loopback
from tests.integration.billing.payouts.scenes import choose, earn, send
from tests.integration.billing.scenes import DOLLAR, available

Steps = list[Callable[[], object]]


@dataclass
class Shell:
    """The owner's terminal."""

    owner: Membership
    capsys: pytest.CaptureFixture[str]

    def run(self, *words: str) -> tuple[int, str, str]:
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main(list(words))
        out, err = self.capsys.readouterr()
        return int(left.value.code or 0), out, err


@pytest.fixture
def shell(
    transactional_db: None,
    live_server: Any,
    settings: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:
    be_on_loopback(settings)
    settings.SOUK_API_URL, settings.SOUK_FAKE_MONEY = live_server.url, True
    monkeypatch.setattr(tasks.dispatch_due, "delay", lambda: None)  # the outbox's tick comes when a test says so
    owner = organisations.create(User.objects.create_user("bob@example.org"), "Bob's")
    _, key = api_keys.issue(user=owner.user, organisation=owner.organisation, name="test", scopes=tuple(Scope))
    monkeypatch.setenv("SOUK_SERVER", live_server.url)
    monkeypatch.setenv("SOUK_API_KEY", key)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Shell(owner, capsys)


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """What happens elsewhere each time that the command waits; time passes quickly."""
    steps: Steps = []
    passed = [0.0]

    def sleep(seconds: float) -> None:
        passed[0] += 25 if steps else 900
        if steps:
            steps.pop(0)()

    monkeypatch.setattr(money, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: passed[0]))
    return steps


def pay_fake() -> None:
    topups.pay_fake(TopUp.objects.get().pk)


def end(state: TopUpState, message: str) -> Callable[[], object]:
    return lambda: advance(TopUp.objects.get(), state, reason="", message=message)


def test_a_top_up_prints_its_page_waits_and_says_what_arrived(shell: Shell, meanwhile: Steps) -> None:
    meanwhile += [lambda: None, pay_fake]
    status, out, err = shell.run("topup", "25.50")
    page = f"/api/v1/fake-card/{TopUp.objects.get().pk}"
    assert (status, "$25.50" in err and page in err) == (0, True)
    assert "$25.50 arrived" in out and "FAKE" in out
    assert available(shell.owner.organisation_id) == 25_500_000


def test_without_waiting_the_page_is_what_is_printed(shell: Shell, meanwhile: Steps) -> None:
    status, out, _ = shell.run("topup", "$25", "--no-wait")
    assert (status, out.strip()) == (0, TopUp.objects.get().checkout_url)
    status, out, _ = shell.run("topup", "25", "--no-wait", "--json")
    assert json.loads(out)["state"] == "open" and json.loads(out)["amount_usd_micros"] == "25000000"


def test_as_json_the_end_is_one_line_and_the_page_a_remark(shell: Shell, meanwhile: Steps) -> None:
    meanwhile.append(pay_fake)
    status, out, err = shell.run("topup", "25", "--json")
    assert (status, json.loads(out)["state"], json.loads(out)["is_fake"]) == (0, "succeeded", True)
    assert "/api/v1/fake-card/" in err


def test_a_payment_that_does_not_come_ends_with_its_cause(shell: Shell, meanwhile: Steps) -> None:
    meanwhile.append(end(TopUpState.FAILED, "The card was declined."))
    status, out, err = shell.run("topup", "25")
    assert (status, out) == (6, "") and "The card was declined." in err


def test_nobody_waits_for_ever(shell: Shell, meanwhile: Steps) -> None:
    status, _, err = shell.run("topup", "25")
    assert status == 6 and "Nothing was paid yet" in err


def test_an_amount_that_cannot_be_paid_is_refused_here(shell: Shell) -> None:
    for amount in ("0", "-5", "1.005", "2.0000000", "x", "1e3", "", "\u0662"):
        status, _, _ = shell.run("topup", "--", amount)
        assert (status, TopUp.objects.exists()) == (2, False), amount


def test_what_the_marketplace_refuses_is_printed_in_its_words(shell: Shell) -> None:
    status, out, _ = shell.run("topup", "1", "--json")
    assert status == 6 and json.loads(out)["error"]["code"] == "top_up_refused"


def test_with_stripe_the_page_is_waited_for(shell: Shell, meanwhile: Steps, settings: Any) -> None:
    with start_fake() as stripe:
        settings.SOUK_STRIPE_KEY, settings.SOUK_STRIPE_API_BASE = stripe.secret_key, stripe.url
        settings.SOUK_STRIPE_WEBHOOK_SECRETS = [stripe.webhook_secret]
        stripe.clock.advance(int(clock.now().timestamp()) - stripe.clock.now())
        meanwhile += [call_due, lambda: pay_on_page(stripe)]
        status, out, err = shell.run("topup", "25", "--json")
    assert (status, json.loads(out)["state"], json.loads(out)["is_fake"]) == (0, "succeeded", False), err
    assert TopUp.objects.get().checkout_url in err
    assert available(shell.owner.organisation_id) == 25 * DOLLAR


def pay_on_page(stripe: FakeStripe) -> None:
    stripe.pay_session(TopUp.objects.get().session_id)
    receive_events(stripe)


def test_only_a_page_that_a_browser_may_be_sent_to_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    import webbrowser

    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    good = ["https://checkout.stripe.com/c/1", "http://127.0.0.1:8000/api/v1/fake-card/1"]
    for url in [*good, "http://evil.example/", "file:///etc/passwd", "javascript:alert(1)", "--help", ""]:
        money._open_page(url)
    assert opened == good


def test_a_statement_goes_to_stdout_or_to_a_file_in_the_format_of_its_name(shell: Shell, tmp_path: Path) -> None:
    earn(shell.owner.organisation_id)
    status, out, _ = shell.run("provider", "statement")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (status, rows[0]["record"], rows[-1]["balance"]) == (0, "opening", "10.000000")
    status, out, _ = shell.run("provider", "statement", "--json")
    assert json.loads(out)["sections"][0]["closing"]["total"] == str(10 * DOLLAR)
    paper = tmp_path / "november.PDF"
    month = f"{clock.now():%Y-%m}"
    status, out, err = shell.run("provider", "statement", "--month", month, "--output", str(paper))
    assert (status, out, paper.read_bytes()[:5]) == (0, "", b"%PDF-") and "november.PDF" in err
    file = tmp_path / "all.txt"
    shell.run("provider", "statement", "--format", "csv", "-o", str(file))
    assert file.read_text().startswith("record,asset,")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.txt", "november.PDF"]


def test_a_statement_that_fails_leaves_the_old_file_and_nothing_half(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "old.csv"
    file.write_text("old")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOUK_API_KEY", "souk_nobody")
        status, _, err = shell.run("provider", "statement", "--output", str(file))
    assert (status, file.read_text()) == (4, "old"), err
    assert [path.name for path in tmp_path.iterdir()] == ["old.csv"]
    status, _, _ = shell.run("provider", "statement", "--output", str(tmp_path / "no" / "such" / "folder.csv"))
    assert status == 2


def test_what_makes_no_sense_is_refused_before_anything_is_asked(shell: Shell) -> None:
    months = [["--month", text] for text in ("2026-13", "2026", "0000-01", "2999-01", "2026-1", "x")]
    for words in (*months, ["--format", "xls"], ["--json", "--format", "pdf"]):
        assert shell.run("provider", "statement", *words)[0] == 2, words


def test_a_month_ends_when_the_calendar_says() -> None:
    ends = {"2024-02": 29, "2026-02": 28, "2000-02": 29, "2025-12": 31, "2026-04": 30}
    for month, last in ends.items():
        first, end_day = payouts._month(month)
        assert (first.day, end_day.day, f"{first:%Y-%m}", f"{end_day:%Y-%m}") == (1, last, month, month)


def test_a_waiting_change_of_destination_is_shown_with_the_way_back(shell: Shell) -> None:
    provider = shell.owner.organisation_id
    earn(provider)
    choose(provider, "fake:bob")
    assert "pay-to" not in shell.run("provider", "payouts")[2]
    row = choose(provider, "fake:mallory")
    status, out, err = shell.run("provider", "payouts", "--json")
    assert (status, json.loads(out)) == (0, [])
    assert f"{row.next_from:%Y-%m-%d %H:%M}" in err and "fake:mallory" in err
    assert "souk provider pay-to fake:bob --rail fake --asset USD" in err


def test_a_confirmed_payout_shows_how_far_it_came_on_its_way_to_the_bank(shell: Shell) -> None:
    provider = shell.owner.organisation_id
    earn(provider)
    choose(provider, "fake:bob", schedule="manual")
    shell.run("provider", "pay-out")
    send()
    payout = Payout.objects.get()
    status, out, err = shell.run("provider", "payouts")
    assert status == 0 and "confirmed" in out, err
    bank_legs.record(payout, BankReport(BankState.REFUSED, message="Your account has payouts disabled.", number=1))
    shown = " ".join(shell.run("provider", "payouts")[1].split())
    assert "not at your bank" in shown and "disabled" in shown
    [row] = json.loads(shell.run("provider", "payouts", "--json")[1])
    assert (row["state"], row["bank_state"]) == ("confirmed", "refused")
    bank_legs.record(payout, BankReport(BankState.PAID, "po_1"))
    assert "at your bank" in shell.run("provider", "payouts")[1]


def test_a_destination_without_a_wallet_needs_no_signature(shell: Shell) -> None:
    earn(shell.owner.organisation_id, 5 * DOLLAR)
    code, _, err = shell.run("provider", "pay-out")
    assert code == 6
    assert "souk provider pay-to" in err
    code, out, err = shell.run("provider", "pay-to", "fake:bob", "--rail", "fake")
    assert (code, err) == (0, ""), err
    assert "fake:bob" in out


def test_each_command_explains_itself_with_an_example(shell: Shell) -> None:
    for command in ("topup", "provider statement"):
        status, out, _ = shell.run(*command.split(), "--help")
        assert status == 0 and "Example" in out and "--json" in out and "--server" in out

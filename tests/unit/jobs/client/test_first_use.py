"""Without an account or a node the command shows the next step; every address is shown whole."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from jobs.client.sdk import Souk
from jobs.client.views.plan import plan_view
from jobs.spec import from_wire
from jobs.wire import AssetView, QuoteView
from tests.unit.jobs.client.conftest import Run
from tests.unit.jobs.client.fake_answers import NOW, fitting_plan

TOKEN = "0x" + "8f" * 20
CONTRACT = "0x" + "3C" * 20


def quote(**changes: Any) -> QuoteView:
    """A promise of two dollars' worth of a token."""
    body = {
        "quote_id": "0192f3c1-0000-4000-8000-000000000000",
        "spec_hash": "00",
        "plan": fitting_plan(),
        "price_ceiling_usd_micros": 500_000,
        "expected_usd_micros": 40_000,
        "expected_seconds": 300.0,
        "cap_usd_micros": 2_000_000,
        "expires_at": NOW.isoformat(),
        "signature": "s",
        "balance_usd_micros": 10_000_000,
    }
    return QuoteView.model_validate(body | changes)


def printed(view: Any, capsys: pytest.CaptureFixture[str]) -> str:
    Console(width=1_000, soft_wrap=True).print(view)
    return capsys.readouterr().out


@pytest.mark.parametrize("command", ["jobs", "balance", "provider nodes", "assets"])
def test_without_an_account_the_way_to_one_is_shown(run: Run, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOUK_API_KEY")
    ended = run(*command.split())
    assert ended.status == 4
    assert "souk login --server http://127.0.0.1" in ended.err and "souk signup --server http://127.0.0.1" in ended.err


def test_a_refused_key_shows_how_to_get_another(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOUK_API_KEY", "souk_test_mallory")
    ended = run("balance")
    assert (ended.status, "No valid key. `souk login` makes a new one." in ended.err) == (4, True)


def test_the_help_begins_with_signing_up(run: Run) -> None:
    assert "souk signup" in run("--help").out.split("Options")[0]


def test_without_a_node_the_way_to_one_is_shown(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Souk, "offers", lambda _: [])
    assert "souk provider add-node" in run("offers").out
    assert run("offers", "--json").json == []
    nothing = {"nodes_seen": 0, "candidates": [], "exclusions": [], "fixes": [], "work_flops": None}
    assert "souk provider add-node" in printed(plan_view(quote(quote_id=None, plan=nothing)), capsys)


def test_addresses_are_shown_whole_however_narrow_the_terminal_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    paid = {
        "usd_micros_per_token": "1000000",
        "price_source": "a feed, at length",
        "modes": ["credits", "escrow"],
    }
    dollars = {"code": "USD", "scale": 6, "chain_id": None, "usd_micros_per_token": None, "modes": ["usd"]}
    token = {"code": "TUSD", "scale": 6, "chain_id": 31337, "token": TOKEN, "contract": CONTRACT} | paid
    known = [AssetView.model_validate(body) for body in (dollars, token)]
    monkeypatch.setattr(Souk, "assets", lambda _: known)
    monkeypatch.setattr("jobs.client.output.console", lambda: Console(highlight=False, width=40))
    out = run("assets").out
    assert f"TUSD token: {TOKEN}\n" in out and f"TUSD escrow contract: {CONTRACT}\n" in out
    assert "USD token: 0x0" not in out and out.count("0x") == 2


def test_a_plan_promises_of_a_tokens_price_what_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    priced = {"asset": "TUSD", "asset_scale": 6, "usd_micros_per_token": "1000000", "price_source": "test"}
    priced |= {"price_observed_at": NOW.isoformat(), "cap_units": "2000000", "balance_units": "5000000"}
    out = printed(plan_view(quote(**priced)), capsys)
    assert "at most 2 TUSD. If the token has fallen when a node is found, more of it is held" in out
    assert "only with your word, or where the job file says on_price_change: requote" in out
    assert "whatever" not in out


def test_what_an_endpoint_costs_an_hour_is_shown_before_it_is_launched(capsys: pytest.CaptureFixture[str]) -> None:
    shown = quote(window_usd_micros=8_000_000, balance_usd_micros=5_000_000)
    chosen = next(each for each in shown.plan.candidates if each.is_chosen)
    dollars = chosen.price_usd_micros_per_device_hour * chosen.devices / 1_000_000
    serve = {"model": {"hub": "a/b"}, "replicas": {"min": 1, "max": 4}}
    job = {"kind": "serve", "name": "chat", "network": "public", "budget": {"max_total": "9.00"}, "serve": serve}
    out = printed(plan_view(shown, from_wire(job)), capsys)
    assert f"${dollars:.2f} to ${4 * dollars:.2f} an hour for 1 to 4 replicas" in out
    assert "$8.00 are set aside at a time" in out and "$3.00 are missing" in out


def test_payouts_before_the_first_say_what_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Souk, "payouts", lambda _, **__: [])
    monkeypatch.setattr(Souk, "payout_settings", lambda _: [])
    monkeypatch.setattr(Souk, "assets", lambda _: [])
    assert "Nothing was paid out yet. `souk provider pay-to` says" in run("provider", "payouts").out

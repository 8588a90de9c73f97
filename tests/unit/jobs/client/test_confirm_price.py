"""`souk confirm-price` confirms exactly the price that was shown, and none where none waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.jobs.client.conftest import Run
from tests.unit.jobs.client.fake_answers import NOW, a_job
from tests.unit.jobs.client.fake_server import FakeMarketplace


def waiting(**changes: Any) -> dict[str, Any]:
    """Alice's job, whose token fell from $2 to $1 while it waited."""
    change = {
        "asset": "TUSD",
        "asset_scale": 6,
        "locked_usd_micros_per_token": "2000000",
        "usd_micros_per_token": "1000000",
        "source": "test",
        "observed_at": NOW.isoformat(),
        "cap_units": "1000000",
        "cap_units_after": "2500000",
        "can_confirm": True,
        "since": NOW.isoformat(),
    }
    return a_job(waiting_for="your word on a price", asset="TUSD", price_change=change | changes)


@pytest.fixture
def confirmations(market: FakeMarketplace, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the marketplace received; the price that it waits for is gone then."""
    bodies: list[Any] = []
    post = market._post

    def answer(asked: Any, path: str) -> Any:
        if not path.endswith("/confirm-price"):
            return post(asked, path)
        bodies.append(asked.json)
        market.job |= {"waiting_for": "", "price_change": None}
        return market.job

    monkeypatch.setattr(market, "_post", answer)
    market.job = waiting()
    return bodies


def test_a_yes_names_the_price_that_was_shown(run: Run, market: FakeMarketplace, confirmations: list[Any]) -> None:
    ended = run("confirm-price", "tiny", "--yes")
    assert (ended.status, ended.out) == (0, "tiny is queued, and goes on at the new price\n")
    assert [int(body["usd_micros_per_token"]) for body in confirmations] == [1_000_000]


def test_it_is_read_by_machines(run: Run, market: FakeMarketplace, confirmations: list[Any]) -> None:
    ended = run("confirm-price", market.job_id, "--yes", "--json")
    assert (ended.status, ended.json["job_id"], ended.json["price_change"]) == (0, str(market.job_id), None)
    assert len(confirmations) == 1


def test_the_question_says_both_prices_and_what_more_is_held(
    run: Run, confirmations: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)

    def refuse(question: str) -> bool:
        questions.append(question)
        return False

    monkeypatch.setattr("typer.confirm", refuse)
    assert run("confirm-price", "tiny").status == 0
    assert questions == ["TUSD fell from $2.00 to $1.00: hold 1.5 TUSD more for the same dollars?"]
    assert confirmations == []


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_nobody_there_is_no_yes(run: Run, confirmations: list[Any], words: tuple[str, ...]) -> None:
    ended = run("confirm-price", "tiny", *words)
    assert (ended.status, "add --yes" in ended.out + ended.err, confirmations) == (2, True, [])


@pytest.mark.parametrize(
    "job",
    [a_job(), waiting(usd_micros_per_token=None, cap_units_after=None, can_confirm=False), waiting(can_confirm=False)],
    ids=["no price asked", "no price known", "a wallet's hold"],
)
def test_a_job_that_waits_for_no_confirmation_gets_none(
    run: Run, market: FakeMarketplace, confirmations: list[Any], job: dict[str, Any]
) -> None:
    market.job = job
    ended = run("confirm-price", "tiny", "--yes")
    assert (ended.status, "waits for no price confirmation" in ended.err, confirmations) == (2, True, [])
    assert job["waiting_for"] in ended.err

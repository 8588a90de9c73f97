"""How a call is made once and a list is read whole, whatever Stripe answers in between."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from billing.rails.stripe import calls
from billing.rails.stripe.calls import KEY_HOURS_MAX, KEYS_MAX, Key, StripeCalls
from billing.rails.stripe.records import Json, StripeRefused, StripeTooLong, StripeUnknown
from marketplace.foundation import clock

SINCE = datetime(2026, 11, 22, tzinfo=UTC)
NOW = int(SINCE.timestamp())


class Answers(StripeCalls):
    """Answers each call in turn by what it was given, and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, dict[str, Any], str]] = []

    def _call(self, method: str, path: str, params: Json, *, account: str = "", key: str = "") -> Any:
        self.asked.append((method, path, dict(params), key))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def make(self, *, find: Callable[[], str | None] | None = None, is_repeat: bool = False) -> str:
        return self._make(lambda key: str(self._post("/v1/things", {}, key=key)["id"]), Key("k", is_repeat), find=find)

    def keys(self) -> list[str]:
        return [key for _, _, _, key in self.asked]


class Ledger(StripeCalls):
    """A list of Stripe's, newest first, in pages of two rows."""

    def __init__(self, *created: int) -> None:
        self.rows = [{"id": f"row{n}", "created": at} for n, at in enumerate(created)][::-1]

    def _call(self, method: str, path: str, params: Json, *, account: str = "", key: str = "") -> Any:
        since = params["created"]
        rows = [row for row in self.rows if since["gte"] <= row["created"] < since.get("lt", row["created"] + 1)]
        if after := params.get("starting_after"):
            rows = rows[[row["id"] for row in rows].index(after) + 1 :]
        return {"data": rows[:2], "has_more": len(rows) > 2}

    def read(self) -> list[str]:
        return [row["id"] for part in self._list_since("/v1/events", SINCE) for row in part]


REPLAY = StripeUnknown("the stored answer is a 500", is_replay=True)
SHORT = StripeRefused("short", code="balance_insufficient", is_replay=True)
MADE = {"id": "thing_1"}


def test_a_first_call_is_made_without_looking() -> None:
    stripe = Answers(MADE)
    assert stripe.make(find=pytest.fail) == "thing_1"
    assert stripe.keys() == ["k"]


def test_a_repeated_call_takes_what_is_there_and_creates_nothing() -> None:
    stripe = Answers()
    assert stripe.make(find=lambda: "thing_0", is_repeat=True) == "thing_0"
    assert stripe.asked == []


def test_a_repeated_call_that_had_no_effect_is_made() -> None:
    assert Answers(MADE).make(find=lambda: None, is_repeat=True) == "thing_1"


@pytest.mark.parametrize("useless", [REPLAY, SHORT], ids=["a 500", "a balance that was short"])
def test_a_useless_stored_answer_is_followed_by_the_next_key(useless: Exception) -> None:
    stripe = Answers(useless, useless, MADE)
    assert stripe.make(find=lambda: None) == "thing_1"
    assert stripe.keys() == ["k", "k-2", "k-3"]


def test_a_call_that_cannot_be_looked_up_takes_the_next_key_too() -> None:
    stripe = Answers(REPLAY, MADE)
    assert stripe.make() == "thing_1"
    assert stripe.keys() == ["k", "k-2"]


def test_what_a_useless_answer_hid_is_found_and_not_made_again() -> None:
    stripe = Answers(REPLAY)
    assert stripe.make(find=lambda: "thing_0") == "thing_0"
    assert stripe.keys() == ["k"]


@pytest.mark.parametrize(
    "final",
    [
        StripeUnknown("no connection"),
        StripeRefused("short just now", code="balance_insufficient"),
        StripeRefused("no such card", code="resource_missing", is_replay=True),
    ],
)
def test_any_other_error_is_the_callers_at_once(final: Exception) -> None:
    stripe = Answers(final, MADE)
    with pytest.raises(type(final)):
        stripe.make(find=lambda: None)
    assert stripe.keys() == ["k"]


def test_so_many_useless_answers_are_an_unknown_outcome() -> None:
    stripe = Answers(*[REPLAY] * KEYS_MAX)
    with pytest.raises(StripeUnknown, match=f"each of {KEYS_MAX} tries"):
        stripe.make()


def test_the_last_useless_answer_is_looked_up_too() -> None:
    stripe = Answers(*[REPLAY] * KEYS_MAX)
    found = iter([*[None] * (KEYS_MAX - 1), "thing_9"])
    assert stripe.make(find=lambda: next(found)) == "thing_9"


def test_a_key_looks_first_after_one_attempt_or_a_day() -> None:
    now, old = clock.now(), clock.now() - timedelta(hours=KEY_HOURS_MAX, minutes=1)
    message = uuid4()
    assert Key.at(message, created_at=now, attempts=1) == Key(str(message))
    assert Key.at(message, created_at=now, attempts=2).is_repeat
    assert Key.at(message, created_at=old, attempts=1).is_repeat


def test_a_list_is_read_by_pages_until_there_are_no_more() -> None:
    pages = [{"data": [{"id": "a"}, {"id": "b"}], "has_more": True}, {"data": [{"id": "c"}], "has_more": False}]
    stripe = Answers(*pages)
    assert [row["id"] for row in stripe._list("/v1/things", {"kind": "x"})] == ["a", "b", "c"]
    assert [asked[2].get("starting_after") for asked in stripe.asked] == [None, "b"]


def test_an_empty_page_ends_a_list_that_claims_to_have_more() -> None:
    assert list(Answers({"data": [], "has_more": True})._list("/v1/things", {})) == []


def test_a_list_of_too_many_pages_is_refused_with_its_newest_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "PAGES_MAX", 2)
    page = {"data": [{"id": "a", "created": NOW}], "has_more": True}
    with pytest.raises(StripeTooLong) as caught:
        list(Answers(page, page)._list("/v1/things", {}))
    assert caught.value.newest == NOW


def test_what_carries_a_mark_is_found_among_rows_without_any() -> None:
    marked = {"id": "c", "metadata": {"outbox_id": "7"}}
    page = {"data": [{"id": "a", "metadata": None}, {"id": "b"}, marked], "has_more": False}
    assert Answers(page)._first("/v1/things", {}, "outbox_id", "7") == marked
    assert Answers(page)._first("/v1/things", {}, "outbox_id", "8") is None


def test_a_list_that_is_too_long_is_cut_by_time_and_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "PAGES_MAX", 2)
    rows = Ledger(*(NOW + second for second in (0, 0, 1, 5, 5, 5, 9, 40, 41, 41)))
    assert rows.read() == [f"row{n}" for n in range(10)]


def test_a_single_second_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "PAGES_MAX", 1)
    with pytest.raises(StripeTooLong):
        Ledger(NOW, NOW, NOW).read()


def test_a_list_of_too_many_parts_is_left_to_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "PAGES_MAX", 1)
    monkeypatch.setattr(calls, "LISTS_MAX", 5)
    with pytest.raises(StripeTooLong, match="the rest is for the next time"):
        Ledger(*(NOW + second for second in range(40))).read()

"""What the operators have to know of raises an alert where it happens, and closes it when it is over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from pytest_django import Settings

from billing import dispatch
from billing.breaker import close_breaker, open_breaker
from billing.dispatch import Hopeless
from billing.fiat import events, rules
from billing.models import Alert, AutoTopUp, StripeEvent
from billing.notices import alerts
from marketplace.foundation import clock, outbox
from marketplace.foundation.models import OutboxMessage

pytestmark = pytest.mark.django_db


def open_alerts(kind: str) -> list[Alert]:
    return list(Alert.objects.open().filter(kind=kind))


def test_a_breaker_raises_an_alert_while_it_is_open() -> None:
    row = open_breaker("stripe: 7 cents are missing")
    assert open_breaker("another") == row
    [alert] = open_alerts("payout_breaker")
    assert (alert.key, alert.severity, alert.subject) == ("payouts:breaker", "critical", str(row.pk))
    assert "7 cents are missing" in alert.message
    close_breaker(row, actor="operator", note="Known.")
    assert open_alerts("payout_breaker") == []
    open_breaker("again")
    assert len(open_alerts("payout_breaker")) == 1


@pytest.fixture
def failing() -> Iterator[list[Exception]]:
    """A kind of call that fails as a test orders."""
    errors: list[Exception] = []

    def fail(message: OutboxMessage) -> str:
        raise errors[-1]

    dispatch._handlers["test.failing"] = fail
    yield errors
    del dispatch._handlers["test.failing"]


def test_a_call_that_can_never_succeed_raises_one_alert_a_kind(failing: list[Exception]) -> None:
    failing.append(Hopeless("it names no card"))
    for number in range(2):
        outbox.enqueue("test.failing", f"test:{number}", {})
    dispatch.dispatch_due()
    [alert] = open_alerts("call_given_up")
    assert alert.noticed == 2 and "it names no card" in alert.message


def test_a_call_raises_an_alert_with_its_last_attempt_only(failing: list[Exception]) -> None:
    failing.append(OSError("nobody answers"))
    outbox.enqueue("test.failing", "test", {})
    for attempt in range(1, outbox.ATTEMPTS_MAX + 1):
        assert open_alerts("call_given_up") == []
        OutboxMessage.objects.update(next_at=clock.now())
        dispatch.dispatch_due()
        assert OutboxMessage.objects.get().attempts == attempt
    assert OutboxMessage.objects.get().state == "failed"
    assert len(open_alerts("call_given_up")) == 1


def test_a_mail_that_cannot_be_sent_is_not_reported_by_ever_more_mail(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise Hopeless("the mail server is gone")

    settings.SOUK_ALERT_EMAILS = ["operator@example.org"]
    monkeypatch.setattr(alerts, "send_mail", refuse)
    alerts.raise_once("test", kind="test", message="Look.")
    for _ in range(5):
        dispatch.dispatch_due()
    assert OutboxMessage.objects.count() == 2  # of the alert, and of the one about its mail
    assert len(open_alerts("call_given_up")) == 1


def test_a_paused_rule_raises_an_alert_until_its_owner_sets_it_again() -> None:
    owner_id = uuid4()
    fields = {"threshold": 1, "amount": 10_000_000, "monthly_max": 10_000_000, "is_enabled": True, "actor": "alice"}

    def set_rule() -> AutoTopUp:
        return rules.set_rule(owner_id, **fields, limits=(1, 10**9))

    set_rule()
    for _ in range(rules.FAILURES_MAX):
        assert open_alerts("auto_top_up_paused") == []
        rules.count_failure(owner_id, reason="card_declined")
    [alert] = open_alerts("auto_top_up_paused")
    assert alert.subject == str(owner_id) and "card_declined" in alert.message
    set_rule()
    assert open_alerts("auto_top_up_paused") == []


def test_an_event_that_was_given_up_raises_an_alert_until_it_is_tried_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise ValueError("nobody knows why")

    monkeypatch.setattr(events, "HANDLERS", {"test": fail})
    monkeypatch.setattr(events, "ATTEMPTS_MAX", 1)
    payload: dict[str, Any] = {"data": {"object": {}}}
    StripeEvent.objects.create(event_id="evt_1", type="test", created=clock.now(), payload=payload)
    events.process_due()
    [alert] = open_alerts("stripe_event")
    assert alert.subject == "evt_1" and "nobody knows why" in alert.message
    assert events.try_again(["evt_1"]) == 1
    assert open_alerts("stripe_event") == []

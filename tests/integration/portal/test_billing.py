"""/billing: Alice pays in with the fake card and sees every movement of her money, Mallory none of it."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client
from pytest_django import Settings

from billing import dispatch
from billing.models import TopUp, Transfer
from marketplace.accounts.models import Organisation, Role
from marketplace.accounts.scopes import ROLE_SCOPES, Scope
from marketplace.portal import visitors
from marketplace.portal.amounts import dollars
from tests import stage
from tests.integration.portal.chat.conftest import sign_in
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice(db: None) -> Organisation:
    return stage.organisation("alice", usd_micros=20 * DOLLAR)


@pytest.fixture
def browser(alice: Organisation) -> Client:
    return on_loopback(sign_in(alice))


def on_loopback(browser: Client) -> Client:
    """Where alone money may be pretended."""
    browser.defaults["SERVER_NAME"] = "127.0.0.1"
    return browser


@pytest.fixture(autouse=True)
def with_fake_cards(settings: Settings) -> None:
    settings.SOUK_FAKE_MONEY = True
    settings.SOUK_API_URL = "http://127.0.0.1:8000"
    settings.ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
    settings.SOUK_BIND = "127.0.0.1"


def text_of(browser: Client, path: str = "/billing") -> str:
    answer = browser.get(path)
    assert answer.status_code == 200, answer.content
    return html.unescape(answer.content.decode())


def test_the_balance_and_every_transfer_are_there_to_the_micro_dollar(browser: Client, alice: Organisation) -> None:
    stage.node()
    job, [lease] = stage.running_job(alice)
    stage.bill(lease, ms=1_234)
    stage.finish(lease)
    page = text_of(browser)
    mine = Transfer.objects.of(alice.pk)
    assert len(re.findall(r'<th scope="row">', page)) == mine.count() > 3
    for row in mine.filter(asset__code="USD"):
        assert dollars(int(row.amount)) in page or f"${int(row.amount) / DOLLAR:,.2f}" in page
    own = text_of(browser, f"/billing?job={job.pk}")
    assert len(re.findall(r'<th scope="row">', own)) == mine.filter(job_id=job.pk).count()


def test_paying_in_with_the_fake_card(browser: Client, alice: Organisation) -> None:
    answer = browser.post("/billing/top-ups", {"amount": "12.50"})
    top_up = TopUp.objects.get()
    assert answer.headers["Location"] == f"/billing/top-ups/{top_up.pk}"
    again = browser.post("/billing/top-ups", {"amount": "12.50"})
    assert again.headers["Location"] == answer.headers["Location"], "a button that is pressed twice"
    assert int(top_up.amount) == 12_500_000
    dispatch.dispatch_due()
    page = text_of(browser, f"/billing/top-ups/{top_up.pk}")
    [pay] = re.findall(r'href="([^"]*fake-card[^"]*)"', page)
    assert "FAKE" in page
    assert browser.post(re.sub(r"^https?://[^/]*", "", pay)).status_code == 302
    assert "it is in your balance" in text_of(browser, f"/billing/top-ups/{top_up.pk}/now")
    assert "$32.50" in text_of(browser)


@pytest.mark.parametrize("amount", ["", "x", "-5", "0", "1e9", "0.001", "99999999999999999999", "<script>"])
def test_what_is_no_amount_pays_nothing(browser: Client, amount: str) -> None:
    answer = browser.post("/billing/top-ups", {"amount": amount})
    assert 400 <= answer.status_code < 500
    assert b'role="alert"' in answer.content
    assert not TopUp.objects.exists()


def test_money_of_somebody_else_is_never_shown(browser: Client, alice: Organisation) -> None:
    browser.post("/billing/top-ups", {"amount": "5"})
    top_up = TopUp.objects.get()
    stranger = on_loopback(sign_in(stage.organisation("mallory")))
    assert "Nothing has moved yet." in text_of(stranger)
    for path in ("", "/now"):
        assert stranger.get(f"/billing/top-ups/{top_up.pk}{path}").status_code == 404
    stage.node()
    job = stage.submit(alice)
    assert "Nothing has moved yet." in text_of(stranger, f"/billing?job={job.pk}")


@pytest.mark.parametrize("query", ["job=x", "cursor=x"])
def test_a_question_without_an_answer_gets_a_sentence(browser: Client, query: str) -> None:
    answer = browser.get(f"/billing?{query}")
    assert answer.status_code == 400 and b'role="alert"' in answer.content


def test_who_may_only_look_pays_nothing(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "ROLE_SCOPES", {**ROLE_SCOPES, Role.OWNER: frozenset({Scope.BILLING_READ})})
    assert "Go to payment" not in text_of(browser)
    assert browser.post("/billing/top-ups", {"amount": "5"}).status_code == 403
    assert not TopUp.objects.exists()

"""/offers: what anybody sees of the market, as the API has it."""

from __future__ import annotations

import html

import pytest
from django.test import Client

from marketplace.accounts.models import Organisation
from marketplace.foundation.throttles import AnonThrottle
from marketplace.nodes.models import Offer, Provider
from tests import stage
from tests.integration.portal.chat.conftest import sign_in
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db

ATTACK = "<script>alert(1)</script>"


@pytest.fixture
def market(db: None) -> Organisation:
    alice = stage.organisation("alice", usd_micros=100 * DOLLAR)
    stage.node("first-node", price_usd_micros=3 * DOLLAR)
    stage.node("other-node", price_usd_micros=DOLLAR // 4, devices=4)
    return alice


def page_of(browser: Client, query: str = "") -> str:
    return html.unescape(browser.get(f"/offers?{query}").content.decode())


def test_anybody_sees_offers_by_price_and_what_is_free(client: Client, market: Organisation) -> None:
    stage.running_job(market)
    page = page_of(client)
    assert page.index("$0.25") < page.index("$3.00")
    assert "4 × NVIDIA H100" in page
    assert "2 of 4" in page
    assert ">first-node<" not in page, "a node's name is for who is signed in"
    assert page_of(client, "sort=newest").index("$0.25") < page_of(client, "sort=newest").index("$3.00")


def test_who_is_signed_in_sees_the_nodes_names(market: Organisation) -> None:
    page = page_of(sign_in(market))
    assert ">other-node</a>" in page
    assert "Sign out" in page


def test_filters_leave_out_what_is_not_asked_for(client: Client, market: Organisation) -> None:
    assert "Nothing like this" in page_of(client, "model=A100")
    assert "2 offers" in page_of(client, "model=h100&kind=gpu&memory_mib_min=&region=")
    assert "Nothing like this" in page_of(client, "region=mars")


@pytest.mark.parametrize(
    "query", ["kind=x", "memory_mib_min=much", f"sort={ATTACK}", "owner=1", "cursor=x", "region=" + "x" * 33]
)
def test_a_question_without_an_answer_gets_a_sentence(client: Client, market: Organisation, query: str) -> None:
    answer = client.get(f"/offers?{query}")
    assert answer.status_code == 400
    assert b'role="alert"' in answer.content
    assert ATTACK not in answer.content.decode()


def test_what_a_provider_wrote_is_text(client: Client, market: Organisation) -> None:
    Provider.objects.update(display_name=ATTACK)
    assert ATTACK not in client.get("/offers").content.decode()


def test_what_was_withdrawn_is_gone(client: Client, market: Organisation) -> None:
    Offer.objects.filter(price_usd_micros_per_device_hour=3 * DOLLAR).update(is_open=False)
    assert "1 offer." in page_of(client)
    assert "$3.00" not in page_of(client)


def test_who_asks_too_often_is_told_to_wait(
    client: Client, market: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnonThrottle, "THROTTLE_RATES", {"anon": "2/min"})
    assert [client.get("/offers").status_code for _ in range(3)] == [200, 200, 429]

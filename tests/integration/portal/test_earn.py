"""/earn: Bob adds a node and changes it in a browser; Mallory sees and changes none of it."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from marketplace.accounts.models import Organisation, Role
from marketplace.accounts.scopes import ROLE_SCOPES, Scope
from marketplace.foundation import clock
from marketplace.foundation.tokens import hash_token
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import EnrolmentToken, Node, Provider
from marketplace.portal import visitors
from tests import stage
from tests.integration.portal.chat.conftest import sign_in
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db

ATTACK = "<script>alert(1)</script>"


@pytest.fixture
def node(db: None) -> Node:
    return stage.node("bobs-node")


@pytest.fixture
def bob(node: Node) -> Client:
    return sign_in(node.provider.organisation)


def text_of(browser: Client, path: str = "/earn") -> str:
    answer = browser.get(path)
    assert answer.status_code == 200, answer.content
    return html.unescape(answer.content.decode())


def price_of(node: Node) -> int:
    return int(node.offers.get(is_open=True).price_usd_micros_per_device_hour)


def test_nodes_are_listed_with_what_they_earned(bob: Client, node: Node) -> None:
    alice = stage.organisation("alice", usd_micros=100 * DOLLAR)
    _, [lease] = stage.running_job(alice)
    stage.see_running(lease, seconds=100)
    stage.bill(lease, ms=90_000)
    stage.finish(lease)
    page = text_of(bob)
    assert "bobs-node" in page and "listed" in page and "$1.00" in page
    earned = stage.earned(node)
    assert earned > 0
    assert f"${earned / DOLLAR:.6f}".rstrip("0") in page
    assert "NVIDIA H100" in text_of(bob, f"/earn/nodes/{node.pk}")


def test_a_line_is_shown_once_and_its_steps_are_ticked_off(db: None) -> None:
    browser = sign_in(stage.organisation("carol"))
    assert "You rent out nothing yet." in text_of(browser)
    page = html.unescape(browser.post("/earn/nodes").content.decode())
    [text] = re.findall(r"soukn_[\w-]+", page)
    token = EnrolmentToken.objects.get()
    assert token.token_hash == hash_token(text)
    assert Provider.objects.get().display_name == "carol"
    path = f"/earn/joining/{token.pk}"
    assert text not in text_of(browser, path)
    assert text_of(browser, path).count(": done") == 0
    EnrolmentToken.objects.update(node=stage.node("new-node"), used_at=clock.now())
    joined = text_of(browser, path)
    assert joined.count(": done") == 3
    assert "hx-get" not in joined, "nothing more is asked for"


def test_a_line_that_was_not_used_in_time_says_so(bob: Client) -> None:
    bob.post("/earn/nodes")
    EnrolmentToken.objects.update(expires_at=clock.now() - timedelta(seconds=1))
    page = text_of(bob, f"/earn/joining/{EnrolmentToken.objects.get().pk}")
    assert "was not used in time" in page and "hx-get" not in page


def test_a_node_rests_and_works_again_however_often_it_is_asked(bob: Client, node: Node) -> None:
    for verb, is_drained in (("drain", True), ("drain", True), ("resume", False), ("resume", False)):
        assert bob.post(f"/earn/nodes/{node.pk}/{verb}").headers["Location"] == f"/earn/nodes/{node.pk}"
        node.refresh_from_db()
        assert (node.drain_requested_at is not None) == is_drained
        assert ("Take work again" in text_of(bob, f"/earn/nodes/{node.pk}")) == is_drained


@pytest.mark.parametrize("price", ["", "x", "-1", "0", "0.0000001", "1e9", "99999999"])
def test_what_is_no_price_changes_nothing(bob: Client, node: Node, price: str) -> None:
    refused = bob.post(f"/earn/nodes/{node.pk}/price", {"price": price})
    assert refused.status_code == 400 and b'role="alert"' in refused.content
    assert price_of(node) == DOLLAR


def test_a_price_is_changed(bob: Client, node: Node) -> None:
    assert bob.post(f"/earn/nodes/{node.pk}/price", {"price": "0.35"}).status_code == 302
    assert price_of(node) == 350_000
    assert "$0.35" in text_of(bob)


def test_a_node_of_somebody_else_is_not_there(bob: Client, node: Node) -> None:
    mallory = sign_in(stage.organisation("mallory"))
    bob.post("/earn/nodes")
    token = EnrolmentToken.objects.get()
    assert "bobs-node" not in text_of(mallory)
    assert mallory.get(f"/earn/nodes/{node.pk}").status_code == 404
    assert mallory.get(f"/earn/joining/{token.pk}").status_code == 404
    for verb in ("drain", "resume", "price"):
        assert mallory.post(f"/earn/nodes/{node.pk}/{verb}", {"price": "9"}).status_code == 404
    node.refresh_from_db()
    assert node.drain_requested_at is None and price_of(node) == DOLLAR


def test_who_may_only_look_changes_nothing(bob: Client, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "ROLE_SCOPES", {**ROLE_SCOPES, Role.OWNER: frozenset({Scope.PROVIDER_READ})})
    assert "Add a node" not in text_of(bob)
    assert "Change it" not in text_of(bob, f"/earn/nodes/{node.pk}")
    for path in ("/earn/nodes", f"/earn/nodes/{node.pk}/drain", f"/earn/nodes/{node.pk}/price"):
        assert bob.post(path, {"price": "9"}).status_code == 403
    assert not EnrolmentToken.objects.exists() and price_of(node) == DOLLAR


def test_what_an_agent_says_of_itself_is_text(bob: Client, node: Node) -> None:
    Node.objects.update(name=ATTACK[:60], agent_version="<b>1", drain_reason=ATTACK)
    node.devices.update(model=ATTACK)
    for path in ("/earn", f"/earn/nodes/{node.pk}"):
        assert ATTACK not in bob.get(path).content.decode()


def test_an_organisation_without_nodes_sees_no_other(node: Node) -> None:
    empty: Organisation = stage.organisation("empty")
    assert "bobs-node" not in text_of(sign_in(empty))


def test_the_list_takes_a_fixed_number_of_queries(bob: Client, node: Node) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            text_of(bob)
        return len(seen)

    few = queries()
    for number in range(4):
        Node.objects.filter(pk=stage.node(f"more-{number}").pk).update(provider=node.provider)
    assert "more-3" in text_of(bob)
    assert queries() == few < 40


def test_a_node_that_has_left_costs_the_list_nothing(bob: Client, node: Node) -> None:
    enrolment.retire(node)
    assert "retired" in text_of(bob) and "not listed" in text_of(bob)
    page = text_of(bob, f"/earn/nodes/{node.pk}")
    assert "Take nothing new" not in page and "Change the price" not in page


def test_what_customers_do_not_see_is_not_listed(bob: Client, node: Node) -> None:
    node.devices.update(is_healthy=False)
    assert "not listed" in text_of(bob)


def test_whoever_comes_back_to_the_line_finds_the_nodes(bob: Client) -> None:
    assert bob.get("/earn/nodes").headers["Location"] == "/earn"

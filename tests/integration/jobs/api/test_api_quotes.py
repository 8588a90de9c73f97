"""POST /api/v1/quotes: a promise that binds, or reasons that help."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from jobs.errors import QuoteExpired, QuoteForged, QuoteMismatch, QuoteNotFound
from jobs.models import Quote
from jobs.quoting import quotes
from jobs.spec import Spec, canonical
from jobs.wire import QuoteView
from marketplace.accounts.models import Organisation
from marketplace.foundation import signing
from marketplace.nodes.models import Node
from tests import stage
from tests.integration.jobs.api.api_clients import client_of, post, quoted
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def quote(alice: Organisation, bob: Node) -> Quote:
    view = quotes.make_quote(stage.spec_of(), alice)
    assert view.quote_id is not None
    return Quote.objects.get(pk=view.quote_id)


def verify(quote: Quote, organisation: Organisation, spec: Spec) -> Quote:
    with transaction.atomic():
        return quotes.verify_quote(quote.id, organisation=organisation, spec=spec)


def test_a_quote_holds_for_who_asked_for_it(alice: Organisation, quote: Quote) -> None:
    assert verify(quote, alice, stage.spec_of()) == quote


def test_a_quote_names_the_cheapest_place_its_cap_and_its_ceiling(alice: Organisation, bob: Node) -> None:
    stage.node("dearer", price_usd_micros=2 * DOLLAR)
    view = QuoteView.model_validate(quoted(client_of(alice)))
    assert [c.node_names for c in view.plan.candidates] == [["bobs-node"], ["dearer"]]
    assert view.plan.candidates[0].is_chosen
    assert view.cap_usd_micros == 2 * DOLLAR
    assert view.price_ceiling_usd_micros == 3 * DOLLAR
    assert view.expected_usd_micros == view.plan.candidates[0].expected_usd_micros
    assert view.balance_usd_micros == 50 * DOLLAR
    assert view.quote_id is not None


def test_a_quote_is_signed_by_the_marketplace_over_its_terms(quote: Quote) -> None:
    signing.server_key().public_key().verify(base64.b64decode(quote.signature), quotes.quote_bytes(quote))


def test_the_price_that_the_file_names_is_the_ceiling(alice: Organisation, bob: Node) -> None:
    view = quoted(client_of(alice), budget={"max_total": "2.00", "max_per_gpu_hour": "1.10"})
    assert view["price_ceiling_usd_micros"] == 1_100_000


def test_where_nothing_fits_there_is_no_quote_but_the_reasons_and_a_fix(alice: Organisation, bob: Node) -> None:
    view = quoted(client_of(alice), budget={"max_total": "2.00", "max_per_gpu_hour": "0.95"})
    assert view["quote_id"] is None
    assert view["signature"] is None
    assert view["plan"]["exclusions"] == [
        {"code": "price", "nodes": 1, "message": "1 above your price of $0.95 per device and hour"}
    ]
    assert view["plan"]["fixes"] == [
        {
            "field": "budget.max_per_gpu_hour",
            "value": "1.00",
            "nodes": 1,
            "message": "+$0.05 per GPU-hour adds 1 node",
        }
    ]
    assert not Quote.objects.exists()


def test_a_busy_market_quotes_what_the_job_would_wait_for(alice: Organisation, bob: Node) -> None:
    stage.place(stage.submit(alice))
    view = quoted(client_of(alice))
    assert view["quote_id"] is not None
    assert view["plan"]["candidates"][0]["is_free"] is False
    assert view["plan"]["exclusions"][0]["code"] == "busy"


def test_every_mistake_of_a_spec_is_named_at_once(alice: Organisation) -> None:
    spec = {**canonical(stage.spec_of()), "resources": {"gpus": 0, "modles": ["H100"]}}
    response = post(client_of(alice), "/quotes", {"spec": spec})
    assert response.status_code == 422
    assert response.json()["code"] == "bad_spec"
    assert {error["path"] for error in response.json()["details"]["errors"]} >= {
        "resources.gpus",
        "resources.modles",
    }


def test_an_unknown_field_beside_the_spec_is_refused(alice: Organisation) -> None:
    response = post(client_of(alice), "/quotes", {"spec": {}, "discount": 1})
    assert response.status_code == 400
    assert response.json()["code"] == "invalid_request"


def test_a_key_that_may_only_read_gets_no_quote(alice: Organisation, bob: Node) -> None:
    body = {"spec": canonical(stage.spec_of())}
    assert post(client_of(alice, ["jobs:read"]), "/quotes", body).status_code == 403


def test_a_repeated_request_with_one_key_makes_one_quote(alice: Organisation, bob: Node) -> None:
    client, body = client_of(alice), {"spec": canonical(stage.spec_of())}
    first, second = (post(client, "/quotes", body, key="same").json() for _ in range(2))
    assert first == second
    assert Quote.objects.count() == 1


def test_a_quote_holds_for_its_own_spec_only(alice: Organisation, quote: Quote) -> None:
    with pytest.raises(QuoteMismatch):
        verify(quote, alice, stage.spec_of(work={"steps": 101}))


def test_a_quote_holds_for_as_long_as_is_set_and_no_longer(alice: Organisation, bob: Node, settings: Any) -> None:
    settings.SOUK_QUOTE_SECONDS = 60
    lasts = timedelta(seconds=60)
    before = timezone.now()
    expires_at = QuoteView.model_validate(quoted(client_of(alice))).expires_at
    assert expires_at is not None
    assert before + lasts <= expires_at <= timezone.now() + lasts


def test_a_quote_expires(alice: Organisation, quote: Quote, monkeypatch: pytest.MonkeyPatch) -> None:
    late = timezone.now() + timedelta(hours=1)
    monkeypatch.setattr("marketplace.foundation.clock.now", lambda: late)
    with pytest.raises(QuoteExpired):
        verify(quote, alice, stage.spec_of())


def test_mallory_cannot_use_alices_quote(quote: Quote) -> None:
    with pytest.raises(QuoteNotFound):
        verify(quote, stage.organisation("mallory"), stage.spec_of())


def test_a_quote_that_was_changed_in_the_database_is_refused(alice: Organisation, quote: Quote) -> None:
    Quote.objects.filter(pk=quote.pk).update(cap_usd_micros=1)
    with pytest.raises(QuoteForged):
        verify(quote, alice, stage.spec_of())

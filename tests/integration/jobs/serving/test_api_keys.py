"""/api/v1/endpoint-keys and /api/v1/usage: Alice's keys are hers, and what was used is shown to both sides."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from jobs.endpoints import token_payments, usage
from jobs.models import EndpointKey
from jobs.wire.usage import EndpointKeyView, NewEndpointKeyView, UsageView
from marketplace.accounts.models import Organisation
from marketplace.accounts.scopes import Scope
from marketplace.foundation.tokens import hash_token
from tests import stage
from tests.integration.jobs.api.api_clients import API, client_of, post
from tests.integration.jobs.serving import scenes
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def carol(transactional_db: None) -> Organisation:
    return stage.organisation("carol", usd_micros=10 * DOLLAR)


def test_key_is_made_listed_and_revoked(alice: Organisation) -> None:
    client, idempotency = client_of(alice), str(uuid4())
    body = {"name": "program", "budget_usd_micros": DOLLAR, "budget_period": "month", "requests_per_minute": 5}
    made = NewEndpointKeyView.model_validate(post(client, "/endpoint-keys", body, key=idempotency).json())
    assert EndpointKey.objects.get(pk=made.id).key_hash == hash_token(made.key)
    again = post(client, "/endpoint-keys", body, key=idempotency).json()
    assert again["key"] == made.key and EndpointKey.objects.count() == 1
    [listed] = client.get(f"{API}/endpoint-keys").json()["results"]
    assert "key" not in listed and made.key not in str(listed)
    gone = EndpointKeyView.model_validate(client.delete(f"{API}/endpoint-keys/{made.id}").json())
    assert gone.revoked_at is not None
    assert (
        client.delete(f"{API}/endpoint-keys/{made.id}").json()["revoked_at"]
        == gone.model_dump(mode="json")["revoked_at"]
    )


def test_mallory_neither_sees_nor_revokes_alices_keys(alice: Organisation) -> None:
    key, mallory = scenes.key(alice), client_of(stage.organisation("mallory"))
    assert mallory.get(f"{API}/endpoint-keys").json()["results"] == []
    refused = mallory.delete(f"{API}/endpoint-keys/{key.pk}")
    assert (refused.status_code, refused.json()["code"]) == (404, "endpoint_key_not_found")
    key.refresh_from_db()
    assert key.revoked_at is None


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": ""},
        {"name": "x" * 121},
        {"name": "x", "budget_usd_micros": 0},
        {"name": "x", "endpoint_ids": ["no"]},
        {"name": "x", "endpoint_ids": []},
        {"name": "x", "expires_at": "2020-01-01T00:00:00Z"},
        {"name": "x", "expires_at": "2090-01-01T00:00:00"},
        {"name": "x", "scopes": []},
    ],
)
def test_wrong_requests_make_no_key(alice: Organisation, body: dict[str, Any]) -> None:
    assert post(client_of(alice), "/endpoint-keys", body).status_code == 400
    assert not EndpointKey.objects.exists()


def test_who_may_only_read_makes_no_key(alice: Organisation) -> None:
    client = client_of(alice, [Scope.JOBS_READ])
    assert post(client, "/endpoint-keys", {"name": "x"}).status_code == 403
    assert client.get(f"{API}/usage").status_code == 403


def test_usage_is_shown_by_group_and_to_both_sides(alice: Organisation, carol: Organisation) -> None:
    endpoint, gateway = scenes.endpoint(alice), scenes.gateway()
    keys = [scenes.key(carol), scenes.key(carol)]
    usage.ingest_usage(gateway, [scenes.row(seq, keys[seq % 2], endpoint) for seq in range(1, 4)])
    client = client_of(carol)
    due = UsageView.model_validate(client.get(f"{API}/usage").json())
    assert (due.due_usd_micros, due.paid_usd_micros, due.total.cost_usd_micros) == (9 * DOLLAR, 0, 9 * DOLLAR)
    token_payments.pay_due()
    for group, count in {"key": 2, "model": 1, "day": 1, "endpoint": 1}.items():
        view = UsageView.model_validate(client.get(f"{API}/usage?group={group}").json())
        assert len(view.lines) == count
        assert sum(line.cost_usd_micros for line in view.lines) == view.total.cost_usd_micros == view.paid_usd_micros
    owner = UsageView.model_validate(client_of(alice).get(f"{API}/usage?side=owner&group=model").json())
    assert (owner.total.requests, owner.paid_usd_micros, owner.lines[0].group) == (3, 8_100_000, "chat")
    assert UsageView.model_validate(client_of(alice).get(f"{API}/usage").json()).total.requests == 0


@pytest.mark.parametrize(
    "query",
    [
        "group=nothing",
        "from=2026-02-02&to=2026-01-01",
        "from=x",
        "side=owner&group=key",
        "to=9999-12-31&from=9999-12-31",  # has no day after it, nor the next any day before it
        "to=0001-01-01",
    ],
)
def test_wrong_questions_about_usage_are_refused(alice: Organisation, query: str) -> None:
    assert client_of(alice).get(f"{API}/usage?{query}").status_code == 400

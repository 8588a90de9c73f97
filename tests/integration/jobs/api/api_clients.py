"""Clients of the public API with real keys: Alice's, Mallory's, or one with less than all scopes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import uuid4

from rest_framework.test import APIClient

from jobs.spec import canonical
from marketplace.accounts import api_keys
from marketplace.accounts.models import Organisation, User
from marketplace.accounts.scopes import Scope
from tests import stage

API = "/api/v1"


def client_of(
    organisation: Organisation, scopes: Collection[str] = tuple(Scope), *, user: User | None = None
) -> APIClient:
    """A client with a new key of this member, else of the organisation's first."""
    user = user or organisation.members.first()
    assert user is not None
    _, plaintext = api_keys.issue(user=user, organisation=organisation, name="test", scopes=scopes)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {plaintext}")
    return client


def post(client: APIClient, path: str, body: Any = None, *, key: str | None = None) -> Any:
    """POST as JSON; `key` goes as the Idempotency-Key."""
    headers = {"Idempotency-Key": key} if key else {}
    return client.post(API + path, body if body is not None else {}, format="json", headers=headers)


def quoted(client: APIClient, **changes: Any) -> dict[str, Any]:
    """A quote for the usual spec, as the API answers it, with the spec that it is for."""
    spec = canonical(stage.spec_of(**changes))
    response = post(client, "/quotes", {"spec": spec})
    assert response.status_code == 200, response.content
    return {**response.json(), "spec": spec}


def submitted(client: APIClient, **changes: Any) -> dict[str, Any]:
    """A job, submitted with a fresh quote."""
    quote = quoted(client, **changes)
    body = {"spec": quote["spec"], "quote_id": quote["quote_id"]}
    response = post(client, "/jobs", body, key=str(uuid4()))
    assert response.status_code == 201, response.content
    return dict(response.json())

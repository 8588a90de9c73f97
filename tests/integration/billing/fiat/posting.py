"""Requests to the pages of cards, in the name of a customer."""

from __future__ import annotations

from uuid import uuid4

from rest_framework.test import APIClient


def post(client: APIClient, path: str, body: object = None, *, key: str = "", method: str = "post"):
    headers = {"Idempotency-Key": key or str(uuid4())}
    return getattr(client, method)(f"/api/v1/{path}", body if body is not None else {}, format="json", headers=headers)

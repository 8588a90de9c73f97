"""The address that gateways report to: for the holder of their token, and for bodies within a limit."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.test import Client
from pytest_django import Settings

from jobs.gateway.messages import SYNC_BODY_BYTES_MAX, GatewaySync, KeyQuestion
from jobs.models import Gateway
from marketplace.accounts.models import Organisation
from tests.integration.jobs.serving import scenes

pytestmark = pytest.mark.django_db(transaction=True)

SYNC, KEYS = "/internal/gateway/v1/sync", "/internal/gateway/v1/keys"
TOKEN = "gateways-token"


@pytest.fixture(autouse=True)
def token(settings: Settings) -> None:
    settings.SOUK_GATEWAY_TOKEN = TOKEN


def post(path: str, body: bytes, *, token: str | None = TOKEN) -> tuple[int, dict[str, object]]:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    answer = Client(headers=headers).post(path, body, content_type="application/json")
    return answer.status_code, answer.json()


def sync(**changes: object) -> bytes:
    given = {"gateway_id": uuid4(), "boot_id": uuid4(), "url": "ws://127.0.0.1:8003", "public_key": "ab" * 32}
    return GatewaySync.model_validate(given | changes).model_dump_json().encode()


def test_a_gateway_reports_and_gets_the_table_once() -> None:
    status, first = post(SYNC, sync())
    assert (status, Gateway.objects.count()) == (200, 1)
    assert first["table"] is not None
    status, again = post(SYNC, sync(known=first["version"]))
    assert (status, again["table"], again["version"]) == (200, None, first["version"])


@pytest.mark.parametrize("wrong", [None, "", "mallorys-token", f"{TOKEN} ", "gatewäys-token"])
def test_without_the_token_nothing_is_taken_in(wrong: str | None) -> None:
    status, answer = post(SYNC, sync(), token=wrong)
    assert (status, answer["code"]) == (401, "gateway_unknown")
    assert not Gateway.objects.exists()


def test_where_no_token_is_set_an_empty_one_opens_nothing(settings: Settings) -> None:
    settings.SOUK_GATEWAY_TOKEN = ""
    assert post(SYNC, sync(), token="")[0] == 401


def test_a_report_that_is_too_large_is_refused() -> None:
    status, answer = post(SYNC, b" " * (SYNC_BODY_BYTES_MAX + 1))
    assert (status, answer["code"]) == (413, "body_too_large")


def test_a_report_of_another_form_is_refused() -> None:
    status, answer = post(SYNC, b"{}")
    assert (status, answer["code"]) == (400, "invalid_request")
    assert not Gateway.objects.exists()


def test_a_report_cannot_be_fetched() -> None:
    assert Client(headers={"Authorization": f"Bearer {TOKEN}"}).get(SYNC).status_code == 405


def test_keys_that_nobody_holds_are_left_out(alice: Organisation) -> None:
    gateway = scenes.gateway()
    key = scenes.key(alice)
    question = KeyQuestion(gateway_id=gateway, key_hashes=[key.key_hash, "00" * 32])
    status, answer = post(KEYS, question.model_dump_json().encode())
    grants = answer["grants"]
    assert isinstance(grants, list)
    assert (status, [grant["key_id"] for grant in grants]) == (200, [str(key.pk)])

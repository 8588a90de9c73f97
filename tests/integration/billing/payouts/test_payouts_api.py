"""Providers see and steer their own payouts; nobody steers another's."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings
from rest_framework.test import APIClient

from billing.breaker import open_breaker
from billing.models import FakeMovement, Payout, PayoutBreaker
from marketplace.accounts import organisations
from marketplace.accounts.models import Membership, Role, User
from marketplace.foundation import clock
from tests.integration.billing.payouts.scenes import earn, send
from tests.integration.billing.scenes import DOLLAR
from tests.people import join, sign

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.integration.billing.urls")]
NOBODY = "00000000-0000-4000-8000-000000000000"
SETTINGS = {"rail": "fake", "destination": "fake:bob", "schedule": "manual"}


def found(name: str) -> Membership:
    return organisations.create(User.objects.create_user(f"{name}@example.org"), f"{name}'s")


def client_of(membership: Membership, scopes: list[str] | None = None) -> APIClient:
    client = sign(membership, scopes)
    client.defaults["SERVER_NAME"] = "localhost"
    return client


@pytest.fixture
def owner() -> Membership:
    return found("bob")


@pytest.fixture
def as_bob(owner: Membership) -> APIClient:
    return client_of(owner)


def pay(client: APIClient, key: str = "one") -> Any:
    return client.post("/api/v1/payouts", {}, format="json", headers={"Idempotency-Key": key})


# owner, billing, member, a key without scopes, nobody
MATRIX = [
    ("get", "payout-settings", "200 200 200 403 401"),
    ("put", "payout-settings", "400 400 403 403 401"),
    ("get", "payouts", "200 200 200 403 401"),
    ("post", "payouts", "400 400 403 403 401"),
    ("post", f"payouts/{NOBODY}/retry", "404 404 403 403 401"),
    ("get", "accrual", "200 200 200 403 401"),
    ("get", "statements", "400 400 400 403 401"),
    ("get", "solvency", "200 200 200 200 200"),
]


@pytest.mark.parametrize(("method", "path", "expected"), MATRIX)
def test_each_role_gets_what_the_table_says(owner: Membership, method: str, path: str, expected: str) -> None:
    members = [owner, join(owner, "dave", Role.BILLING), join(owner, "carol", Role.MEMBER)]
    callers = [*map(client_of, members), client_of(owner, []), APIClient(SERVER_NAME="localhost")]
    answers = [getattr(client, method)(f"/api/v1/{path}", {}, format="json") for client in callers]
    assert " ".join(str(answer.status_code) for answer in answers) == expected


def test_from_settings_to_a_payout_that_arrived(owner: Membership, as_bob: APIClient) -> None:
    earn(owner.organisation_id)
    chosen = as_bob.put("/api/v1/payout-settings", SETTINGS, format="json")
    assert (chosen.status_code, chosen.json()["minimum"]) == (200, "1000000")
    assert as_bob.get("/api/v1/payout-settings").json()["rails"] == ["fake"]
    first, again = pay(as_bob), pay(as_bob)
    assert (first.status_code, first.json()) == (201, again.json())
    assert again.headers["Idempotency-Replayed"] == "true"
    assert pay(as_bob, "two").json()["code"] == "payout_under_way"
    assert as_bob.get("/api/v1/accrual").json()[0]["on_its_way"] == str(10 * DOLLAR)
    send()
    [payout] = as_bob.get("/api/v1/payouts").json()["results"]
    assert (payout["state"], payout["amount"]) == ("confirmed", str(10 * DOLLAR))
    assert payout["external_id"] == f"fake_{payout['id']}"
    assert pay(as_bob, "three").json()["code"] == "nothing_to_pay"
    assert FakeMovement.objects.count() == 1


def test_a_payout_without_a_key_for_its_repetition_is_refused(as_bob: APIClient) -> None:
    answer = as_bob.post("/api/v1/payouts", {}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (400, "idempotency_key_refused")


def test_a_failure_is_shown_with_its_cause_and_tried_again_when_asked(owner: Membership, as_bob: APIClient) -> None:
    earn(owner.organisation_id)
    as_bob.put("/api/v1/payout-settings", SETTINGS | {"destination": "fake:refused:bob"}, format="json")
    pay(as_bob)
    send()
    [failed] = as_bob.get("/api/v1/payouts").json()["results"]
    assert failed["state"] == "failed" and "refuses" in failed["last_error"]
    again = as_bob.post(f"/api/v1/payouts/{failed['id']}/retry", {}, format="json")
    assert (again.status_code, again.json()["retry_of"]) == (201, failed["id"])


def test_mallory_sees_and_moves_nothing_of_bobs(owner: Membership, as_bob: APIClient) -> None:
    earn(owner.organisation_id)
    as_bob.put("/api/v1/payout-settings", SETTINGS, format="json")
    pay(as_bob)
    mallory = client_of(found("mallory"))
    assert mallory.get("/api/v1/payouts").json()["results"] == []
    assert mallory.get("/api/v1/payout-settings").json()["settings"] == []
    assert mallory.get("/api/v1/accrual").json() == []
    assert mallory.post(f"/api/v1/payouts/{Payout.objects.get().pk}/retry", {}, format="json").status_code == 404
    assert pay(mallory).json()["code"] == "payout_settings_missing"


@pytest.mark.parametrize(
    "change",
    [
        {"minimum": "-1"},
        {"minimum": "1.5"},
        {"minimum": "1 1"},
        {"minimum": str(2**256)},
        {"minimum": "1" * 79},
        {"destination": "x" * 201},
        {"schedule": "hourly"},
        {"rail": "stripe"},
        {"rail": "swift"},
        {"asset": "NOPE"},
        {"provider_id": NOBODY},
    ],
)
def test_settings_that_make_no_sense_are_refused(as_bob: APIClient, change: dict[str, str]) -> None:
    from billing.books.chart_of_accounts import open_usd

    open_usd()
    answer = as_bob.put("/api/v1/payout-settings", SETTINGS | change, format="json")
    assert answer.status_code in {400, 404} and set(answer.json()) == {"code", "message", "details"}


def test_while_payouts_are_stopped_the_answer_says_so(owner: Membership, as_bob: APIClient) -> None:
    earn(owner.organisation_id)
    as_bob.put("/api/v1/payout-settings", SETTINGS, format="json")
    open_breaker("test")
    answer = pay(as_bob)
    assert (answer.status_code, answer.json()["code"]) == (503, "payouts_stopped")


def test_accrual_says_what_comes_when(owner: Membership, as_bob: APIClient, settings: Settings) -> None:
    settings.SOUK_RESERVE_BPS = 1000
    earn(owner.organisation_id)
    settings.SOUK_CHALLENGE_SECONDS = 60
    earn(owner.organisation_id, 5 * DOLLAR)
    as_bob.put("/api/v1/payout-settings", SETTINGS | {"schedule": "weekly"}, format="json")
    [usd] = as_bob.get("/api/v1/accrual").json()
    assert (usd["pending"], usd["available"], usd["reserve"]) == (str(5 * DOLLAR), str(10 * DOLLAR), "0")
    assert (usd["next_payout"], usd["is_on_probation"]) == ("13500000", True)
    assert usd["next_payout_at"] > clock.now().isoformat()


def test_a_statement_comes_as_json_csv_and_pdf(owner: Membership, as_bob: APIClient) -> None:
    earn(owner.organisation_id)
    day = clock.now().date().isoformat()
    url = f"/api/v1/statements?from={day}&to={day}"
    assert as_bob.get(url).json()["sections"][0]["closing"]["total"] == str(10 * DOLLAR)
    answer = as_bob.get(url + "&format=csv")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8" and answer.streaming
    rows = list(csv.DictReader(io.StringIO(b"".join(answer).decode())))
    assert rows[-1]["balance"] == "10.000000"
    answer = as_bob.get(url + "&format=pdf")
    assert answer.content.startswith(b"%PDF-") and "attachment" in answer.headers["Content-Disposition"]
    assert as_bob.get(url + "&format=exe").status_code == 404
    mallory = client_of(found("mallory"))
    assert mallory.get(url).json()["sections"] == []


@pytest.mark.parametrize("query", ["", "?from=2026-01-01", "?from=x&to=y", "?from=2026-02-01&to=2026-01-01&format=csv"])
def test_a_period_that_makes_no_sense_is_refused_in_json(as_bob: APIClient, query: str) -> None:
    answer = as_bob.get(f"/api/v1/statements{query}")
    assert answer.status_code == 400 and b'"code"' in answer.content


def test_an_operator_closes_the_breaker_with_a_note_and_nobody_else_does(client: Client) -> None:
    row = open_breaker("test")
    url, data = "/admin/billing/payoutbreaker/", {"action": "close", "_selected_action": str(row.pk)}
    client.defaults["SERVER_NAME"] = "localhost"
    clerk = User.objects.create_user("clerk@example.org", is_staff=True)
    client.force_login(clerk)
    assert client.post(url, data | {"note": "mine"}).status_code == 403
    client.force_login(User.objects.create_superuser("operator@example.org"))
    page = client.post(url, data)
    assert page.status_code == 200 and b"why payouts may go on" in page.content
    row.refresh_from_db()
    assert row.state == "open"
    client.post(url, data | {"note": "   "})
    assert PayoutBreaker.objects.get().state == "open"
    client.post(url, data | {"note": "A test."})
    row.refresh_from_db()
    assert (row.state, row.note, row.closed_by) == ("closed", "A test.", "operator@example.org")

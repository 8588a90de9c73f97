"""Each endpoint of billing's API, read from its routes: who may, what is nobody's amount, whose ids lead nowhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from rest_framework.test import APIClient

from billing.charging import limits
from billing.contesting import disputes
from billing.models import Dispute, Invoice, PayoutSettings, SavedCard, SpendLimit, TopUp, Transfer
from billing.urls import urlpatterns
from marketplace.accounts.models import Membership, Organisation, Role, User
from marketplace.accounts.scopes import Scope
from marketplace.foundation import clock
from marketplace.foundation.models import IdempotencyKey
from tests.integration.billing.disputes import scenes as disputed
from tests.integration.billing.scenes import DOLLAR, fund
from tests.people import join, sign

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.integration.billing.urls")]

METHODS = ("get", "post", "put", "patch", "delete")
OPEN = {
    ("get", "solvency"),
    ("get", "solvency/reports"),
    ("get", "solvency/reports/<int:number>"),
    ("post", "stripe/webhook"),
}


def endpoints() -> Iterator[tuple[str, str]]:
    for pattern in urlpatterns:
        view: Any = pattern.callback
        methods = [name for name in METHODS if hasattr(getattr(view, "view_class", None), name)] or ["get"]
        yield from ((method, str(pattern.pattern)) for method in methods)


ENDPOINTS = sorted(set(endpoints()) - OPEN)


def member_of(name: str, role: str = Role.OWNER) -> Membership:
    user = User.objects.create_user(f"{name}@example.org")
    return Membership.objects.create(user=user, organisation=Organisation.objects.create(name=name), role=role)


def call(client: APIClient, method: str, route: str, body: object = None, *, key: str = "") -> Any:
    path = re.sub(r"<uuid:\w+>", str(uuid4()), route)
    headers = {"Idempotency-Key": key or str(uuid4())}
    return getattr(client, method)(f"/api/v1/{path}", body or {}, format="json", headers=headers)


@pytest.mark.parametrize(("method", "route"), ENDPOINTS)
def test_only_those_come_in_who_may(method: str, route: str) -> None:
    owner = member_of("alice")
    assert call(APIClient(), method, route).status_code == 401
    others = sorted(set(Scope) - {Scope.BILLING_READ, Scope.BILLING_WRITE})
    assert call(sign(owner, others), method, route).status_code == 403
    reader = call(sign(owner, [Scope.BILLING_READ]), method, route).status_code
    member = call(sign(join(owner, "carol", Role.MEMBER)), method, route).status_code
    assert (reader == 403) == (member == 403) == (method != "get"), (reader, member)
    assert not Transfer.objects.exists()


@pytest.fixture
def alices(db: None) -> dict[str, UUID]:
    """One of each thing that has an id, Alice's."""
    alice, bob = member_of("alice"), member_of("bob")
    owner = fund(alice.organisation_id)
    card = SavedCard.objects.create(owner_id=owner, stripe_id="pm_1", brand="v", last4="1", exp_month=1, exp_year=2)
    top_up = TopUp.objects.create(owner_id=owner, amount=DOLLAR, method="checkout", actor="a")
    share = disputed.settle(owner, bob.organisation_id)
    dispute = disputes.open_dispute(customer_id=owner, lease_id=share.lease_id, text="No.", actor="a")
    limit = limits.set_limit(owner, member_id=None, period="month", amount=DOLLAR, actor="a")
    month = clock.now().replace(day=1)
    counted = {"charged": 0, "refunded": 0, "total": 0, "tax_bps": 0, "tax": 0}
    invoice = Invoice.objects.create(year=2026, number=1, owner_id=owner, month=month.date(), asset_id=1, **counted)
    return {
        "card_id": card.pk,
        "top_up_id": top_up.pk,
        "dispute_id": dispute.pk,
        "limit_id": limit.pk,
        "invoice_id": invoice.pk,
        "lease_id": share.lease_id,
    }


@pytest.mark.parametrize(
    ("method", "route"),
    [endpoint for endpoint in ENDPOINTS if "<uuid" in endpoint[1] and "payout_id" not in endpoint[1]],
)
def test_an_id_of_somebody_else_leads_nowhere(alices: dict[str, UUID], method: str, route: str) -> None:
    mallory = sign(member_of("mallory"))
    path = re.sub(r"<uuid:(\w+)>", lambda match: str(alices[match[1]]), route)
    body = {"text": "I say so."} if route.endswith("answer") else {}
    answer = getattr(mallory, method)(f"/api/v1/{path}", body, format="json", headers={"Idempotency-Key": str(uuid4())})
    assert answer.status_code == 404 or (answer.status_code, answer.json()) == (200, [])
    assert Dispute.objects.get().state == "opened" and SpendLimit.objects.count() == 1
    assert SavedCard.objects.get().removed_at is None and not TopUp.objects.get().refunds.exists()


def test_nobody_contests_somebody_elses_lease(alices: dict[str, UUID]) -> None:
    body = {"lease_id": str(alices["lease_id"]), "text": "Mine."}
    assert call(sign(member_of("mallory")), "post", "disputes", body).status_code == 409


NO_AMOUNTS: list[Any] = [
    "-1", "+1", "1.5", "1e3", "1E3", "0x10", "1_000", "1,000", " 5", "5 ", "5\n", "", " ", "٥", "０", "１２３", "²",
    "NaN", "Infinity", "5" * 79, "9" * 5000, "5\x00", "\ud800",
    None, True, 5, 5.0, -5, 10**80, [], ["5"], {}, {"amount": "5"},
]  # fmt: skip
AMOUNTS = [
    ("post", "top-ups", {}, "amount_usd_micros"),
    ("post", "top-ups/<uuid:top_up_id>/refunds", {}, "amount_usd_micros"),
    *(
        (
            "put",
            "auto-top-up",
            dict.fromkeys(("threshold_usd_micros", "amount_usd_micros", "monthly_max_usd_micros"), "50000000"),
            field,
        )
        for field in ("threshold_usd_micros", "amount_usd_micros", "monthly_max_usd_micros")
    ),
    ("post", "spend-limits", {}, "amount_usd_micros"),
    ("put", "payout-settings", {"rail": "fake", "destination": "fake:bob"}, "minimum"),
]


@pytest.mark.parametrize(("method", "route", "body", "field"), AMOUNTS)
def test_what_is_no_amount_is_refused_at_every_endpoint(
    method: str, route: str, body: dict[str, str], field: str
) -> None:
    client = sign(member_of("alice"))
    taken = []
    for value in NO_AMOUNTS:
        answer = getattr(client, method)(
            f"/api/v1/{re.sub(r'<uuid:[a-z_]+>', str(uuid4()), route)}",
            json.dumps(body | {field: value}),
            content_type="application/json",
            headers={"Idempotency-Key": str(uuid4())},
        )
        if answer.status_code != 400:
            taken.append((value, answer.status_code))
    assert taken == []
    assert not SpendLimit.objects.exists() and not PayoutSettings.objects.exists() and not TopUp.objects.exists()


@pytest.mark.parametrize(
    "query",
    [
        "job=1",
        "job=%00",
        "job=' OR 1=1",
        "cursor=x",
        "cursor=%00",
        "page_size=1e3",
        "page_size=-1",
        "page_size=99999999",
    ],
)
@pytest.mark.parametrize("route", ["transfers", "deposits", "top-ups", "payouts", "disputes", "promotions"])
def test_odd_questions_have_an_answer(route: str, query: str) -> None:
    answer = sign(member_of("alice")).get(f"/api/v1/{route}?{query}")
    assert answer.status_code in {200, 400, 404}


def test_a_key_of_one_organisation_or_one_route_is_nothing_to_another() -> None:
    alice, mallory = sign(member_of("alice")), sign(member_of("mallory"))
    body = {"amount_usd_micros": "5"}
    first = call(alice, "post", "spend-limits", body, key="k")
    other = call(mallory, "post", "spend-limits", body, key="k")
    assert first.status_code == other.status_code == 201 and first.json()["id"] != other.json()["id"]
    assert call(alice, "post", "spend-limits", {"amount_usd_micros": "6"}, key="k").status_code == 409
    assert call(alice, "post", "promotions", body, key="k").status_code == 409
    assert call(alice, "post", "spend-limits?x=1", body, key="k").status_code == 409
    assert call(alice, "post", "spend-limits", body, key="k").json() == first.json()
    assert IdempotencyKey.objects.count() == 2


@pytest.mark.parametrize("extra", ["owner_id", "state", "is_fake", "tax_bps", "credited_at", "actor", "fee", "version"])
@pytest.mark.parametrize(
    ("method", "route", "body"),
    [
        ("post", "top-ups", {"amount_usd_micros": "50000000"}),
        ("post", "spend-limits", {"amount_usd_micros": "1"}),
        ("put", "billing-details", {"name": "A"}),
        ("post", "promotions", {"code": "A"}),
        ("put", "payout-settings", {"rail": "fake", "destination": "fake:bob"}),
    ],
)
def test_nobody_writes_a_field_that_is_not_theirs(method: str, route: str, body: dict[str, str], extra: str) -> None:
    assert call(sign(member_of("alice")), method, route, body | {extra: "1"}).status_code == 400


def test_the_admin_is_framed_by_nobody_and_acts_for_no_other_site() -> None:
    from django.test import Client

    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("op@example.org", "a long password"))
    assert client.get("/admin/billing/account/").headers["X-Frame-Options"] == "DENY"
    for page, action in (("account", "freeze"), ("topup", "refund"), ("payoutbreaker", "close"), ("alert", "close")):
        answer = client.post(f"/admin/billing/{page}/", {"action": action, "_selected_action": str(uuid4())})
        assert answer.status_code == 403
    decide = f"/admin/billing/dispute/{uuid4()}/decide/"
    assert client.post(decide, {"to_customer": "1"}).status_code == 403
    assert client.get(decide).status_code == 403

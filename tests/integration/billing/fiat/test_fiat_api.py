"""The endpoints: who may call, what is answered, and that no secret ever gets out."""

from __future__ import annotations

import logging
from uuid import uuid4

import pytest
from pytest_django import Settings
from rest_framework.test import APIClient

from billing.models import SavedCard, TopUp, Transfer
from marketplace.accounts.models import Membership, Organisation, Role, User
from tests.fakes.stripe import FakeStripe, Fault
from tests.integration.billing.fiat import scenes
from tests.integration.billing.fiat.posting import post
from tests.integration.billing.fiat.scenes import DOLLAR, available
from tests.people import join, sign

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.integration.billing.urls")]


@pytest.fixture
def owner(db: None) -> Membership:
    user = User.objects.create_user("alice@example.org")
    return Membership.objects.create(
        user=user, organisation=Organisation.objects.create(name="Alice & Co"), role=Role.OWNER
    )


@pytest.fixture
def client(owner: Membership) -> APIClient:
    return sign(owner)


def test_a_top_up_is_asked_for_then_polled_until_it_has_its_page(
    stripe: FakeStripe, client: APIClient, owner: Membership
) -> None:
    answer = post(client, "top-ups", {"amount_usd_micros": "50000000"})
    assert answer.status_code == 202
    assert answer.json()["state"] == "requested" and answer.json()["amount_usd_micros"] == "50000000"
    scenes.call_due()
    url = f"/api/v1/top-ups/{answer.json()['id']}"
    assert client.get(url).json()["checkout_url"].startswith("http")
    stripe.pay_session(TopUp.objects.get().session_id)
    scenes.receive_events(stripe)
    shown = client.get(url).json()
    assert shown["state"] == "succeeded" and shown["credited_at"]
    assert [one["id"] for one in client.get("/api/v1/top-ups").json()["results"]] == [shown["id"]]
    assert client.get("/api/v1/balance").json()["available_usd_micros"] == 50_000_000
    assert stripe.store.all("customer")[0]["name"] == "Alice & Co"


def test_a_top_up_can_name_its_rail(stripe: FakeStripe, client: APIClient) -> None:
    body = {"amount_usd_micros": "50000000"}
    assert post(client, "top-ups", body | {"rail": "stripe"}).status_code == 202
    refused = post(client, "top-ups", body | {"rail": "fake"})
    assert refused.json()["code"] == "cards_unavailable" and TopUp.objects.get().rail == "stripe"


def test_the_same_key_pays_in_once(stripe: FakeStripe, client: APIClient) -> None:
    body = {"amount_usd_micros": "50000000"}
    first, second = (post(client, "top-ups", body, key="k1") for _ in range(2))
    assert first.json() == second.json() and TopUp.objects.count() == 1
    assert post(client, "top-ups", {"amount_usd_micros": "60000000"}, key="k1").status_code == 409
    without = client.post("/api/v1/top-ups", body, format="json")
    assert (without.status_code, without.json()["code"]) == (400, "idempotency_key_refused")


@pytest.mark.parametrize(
    "amount",
    [
        "0",
        "-50000000",
        "50000000.0",
        "5e7",
        "",
        " 50000000",
        "50000001",
        "9" * 19,
        "9" * 400,
        50000000,
        5e7,
        None,
        True,
        [],
        {},
    ],
)
def test_an_amount_that_is_none_is_refused_and_nothing_is_written(
    stripe: FakeStripe, client: APIClient, amount: object
) -> None:
    answer = post(client, "top-ups", {"amount_usd_micros": amount})
    assert answer.status_code == 400, answer.json()
    assert not TopUp.objects.exists() and not Transfer.objects.exists()


@pytest.mark.parametrize(
    "extra", [{"currency": "eur"}, {"asset": "USDC"}, {"method": "automatic"}, {"method": "iban"}, {"card_id": "x"}]
)
def test_another_currency_or_way_is_refused(stripe: FakeStripe, client: APIClient, extra: dict[str, str]) -> None:
    answer = post(client, "top-ups", {"amount_usd_micros": "50000000"} | extra)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert not TopUp.objects.exists()


def test_cards_are_saved_listed_chosen_and_removed(stripe: FakeStripe, client: APIClient, owner: Membership) -> None:
    page = client.post("/api/v1/cards/setup", {}, format="json")
    assert page.status_code == 201 and page.json()["url"].startswith("http")
    for name in ("pm_card_visa", "pm_card_mastercard"):
        scenes.save_card(stripe, owner.organisation_id, name)
    first, second = client.get("/api/v1/cards").json()
    assert (first["last4"], first["is_default"], second["brand"]) == ("4242", True, "mastercard")
    assert client.post(f"/api/v1/cards/{second['id']}/default", {}, format="json").json()["is_default"]
    top_up = post(client, "top-ups", {"amount_usd_micros": "50000000", "method": "saved_card"}).json()
    assert top_up["card"] == second["id"]
    assert client.delete(f"/api/v1/cards/{second['id']}").status_code == 204
    assert client.delete(f"/api/v1/cards/{second['id']}").status_code == 404
    [left] = client.get("/api/v1/cards").json()
    assert (left["id"], left["is_default"]) == (first["id"], True)
    scenes.receive_events(stripe)
    assert SavedCard.objects.filter(removed_at=None).count() == 1


def test_a_refund_and_a_rule_by_the_api(stripe: FakeStripe, client: APIClient, owner: Membership) -> None:
    top_up = scenes.pay_in(stripe, owner.organisation_id)
    answer = post(client, f"top-ups/{top_up.pk}/refunds", {"amount_usd_micros": "20000000"})
    assert (answer.status_code, answer.json()["state"]) == (202, "requested")
    scenes.call_due()
    [refund] = client.get(f"/api/v1/top-ups/{top_up.pk}/refunds").json()
    assert refund["state"] == "succeeded" and available(owner.organisation_id) == 30 * DOLLAR
    rule = {"threshold_usd_micros": "5000000", "amount_usd_micros": "25000000", "monthly_max_usd_micros": "50000000"}
    assert client.get("/api/v1/auto-top-up").status_code == 404
    assert post(client, "auto-top-up", rule, method="put").json() == client.get("/api/v1/auto-top-up").json()


def test_a_payout_account_by_the_api(stripe: FakeStripe, client: APIClient, owner: Membership) -> None:
    assert client.get("/api/v1/payout-account").status_code == 404
    assert client.post("/api/v1/payout-account/onboarding", {}, format="json").status_code == 404
    assert post(client, "payout-account", {"country": "Utopia"}).status_code == 400
    assert post(client, "payout-account", {"country": "US"}).status_code == 202
    scenes.call_due()
    page = client.post("/api/v1/payout-account/onboarding", {}, format="json")
    assert page.status_code == 201
    shown = client.get("/api/v1/payout-account").json()
    assert shown["stripe_id"].startswith("acct_") and not shown["is_payable"]


def test_what_stripe_does_not_answer_has_a_name(stripe: FakeStripe, client: APIClient) -> None:
    stripe.script(Fault.UNAVAILABLE, "/v1/checkout/sessions")
    answer = client.post("/api/v1/cards/setup", {}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (503, "stripe_unreachable")


PATHS = [
    ("get", "top-ups"),
    ("post", "top-ups"),
    ("get", "top-ups/{id}"),
    ("post", "top-ups/{id}/refunds"),
    ("put", "auto-top-up"),
    ("get", "cards"),
    ("post", "cards/setup"),
    ("delete", "cards/{id}"),
    ("post", "cards/{id}/default"),
    ("post", "payout-account"),
    ("post", "payout-account/onboarding"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_money_moves_for_those_only_who_may_move_it(
    stripe: FakeStripe, owner: Membership, method: str, path: str
) -> None:
    url = path.format(id=uuid4())
    member = sign(join(owner, "carol", Role.MEMBER))
    assert post(APIClient(), url, method=method).status_code == 401
    is_reading = method == "get"
    assert (post(member, url, method=method).status_code == 403) == (not is_reading)


def test_nobody_sees_or_touches_what_is_anothers(stripe: FakeStripe, client: APIClient, owner: Membership) -> None:
    other = Membership.objects.create(
        user=User.objects.create_user("mallory@example.org"),
        organisation=Organisation.objects.create(name="Mallory"),
        role=Role.OWNER,
    )
    mallory = sign(other)
    card = scenes.save_card(stripe, owner.organisation_id)
    top_up = scenes.pay_in(stripe, owner.organisation_id)
    assert mallory.get("/api/v1/top-ups").json()["results"] == [] == mallory.get("/api/v1/cards").json()
    assert mallory.get(f"/api/v1/top-ups/{top_up.pk}").status_code == 404
    assert mallory.get(f"/api/v1/top-ups/{top_up.pk}/refunds").json() == []
    assert post(mallory, f"top-ups/{top_up.pk}/refunds").status_code == 404
    assert mallory.delete(f"/api/v1/cards/{card.pk}").status_code == 404
    body = {"amount_usd_micros": "50000000", "method": "saved_card", "card_id": str(card.pk)}
    assert post(mallory, "top-ups", body).status_code == 404
    assert available(owner.organisation_id) == 50 * DOLLAR


def test_without_a_key_the_answer_says_who_credits_balances(client: APIClient) -> None:
    answer = post(client, "top-ups", {"amount_usd_micros": "50000000"})
    assert (answer.status_code, answer.json()["code"]) == (503, "cards_unavailable")
    assert "operator" in answer.json()["message"]
    assert client.post("/api/v1/cards/setup", {}, format="json").status_code == 503


def test_no_secret_reaches_a_log_an_answer_or_a_row(
    stripe: FakeStripe, client: APIClient, owner: Membership, caplog: pytest.LogCaptureFixture, settings: Settings
) -> None:
    with caplog.at_level(logging.DEBUG):
        scenes.save_card(stripe, owner.organisation_id)
        scenes.pay_in(stripe, owner.organisation_id)
        settings.SOUK_STRIPE_KEY = "sk_test_wrongwrongwrong"
        answer = post(client, "top-ups", {"amount_usd_micros": "50000000"})
        scenes.call_due()
        page = client.post("/api/v1/cards/setup", {}, format="json")
    from marketplace.foundation.models import OutboxMessage

    output = caplog.text + answer.content.decode() + page.content.decode()
    output += " ".join(OutboxMessage.objects.values_list("last_error", flat=True))
    assert "does not accept SOUK_STRIPE_KEY" in output
    for secret in (stripe.secret_key, stripe.webhook_secret, "sk_test_wrongwrongwrong"):
        assert secret not in output


@pytest.fixture
def private(settings: Settings) -> Settings:
    settings.SOUK_FAKE_MONEY = True
    settings.SOUK_API_URL = "http://127.0.0.1:8000"
    settings.ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
    settings.SOUK_BIND = "127.0.0.1"
    return settings


@pytest.mark.urls("marketplace.config.urls")  # the page is the portal's
def test_on_loopback_a_card_may_be_pretended_and_is_marked_so(owner: Membership, private: Settings) -> None:
    client = sign(owner)
    client.defaults["SERVER_NAME"] = "localhost"
    top_up = post(client, "top-ups", {"amount_usd_micros": "500000000"}).json()
    assert top_up["is_fake"] and top_up["state"] == "open"
    path = top_up["checkout_url"].removeprefix(private.SOUK_API_URL)
    visitor = APIClient(SERVER_NAME="localhost")
    page = visitor.get(path)
    assert page.status_code == 200 and b"FAKE" in page.content and b"$500.00" in page.content
    assert available(owner.organisation_id) == 0
    for _ in range(2):
        assert visitor.post(path).status_code == 302
    assert available(owner.organisation_id) == 500 * DOLLAR
    assert b"Credited, as if" in visitor.get(path).content
    assert visitor.get(f"/api/v1/fake-card/{uuid4()}").status_code == 404


@pytest.mark.urls("marketplace.config.urls")  # the page is the portal's
def test_a_site_that_others_reach_pretends_nothing(owner: Membership, private: Settings) -> None:
    client = sign(owner)
    client.defaults["SERVER_NAME"] = "localhost"
    top_up = post(client, "top-ups", {"amount_usd_micros": "50000000"}).json()
    path = top_up["checkout_url"].removeprefix(private.SOUK_API_URL)
    private.SOUK_BIND = "0.0.0.0"
    answer = post(client, "top-ups", {"amount_usd_micros": "50000000"})
    assert (answer.status_code, answer.json()["code"]) == (503, "fake_money_refused")
    private.SOUK_FAKE_MONEY = False
    assert APIClient(SERVER_NAME="localhost").post(path).status_code == 404
    assert available(owner.organisation_id) == 0

"""Disputes, limits, credit and invoices through the API and the admin: each side sees its own, and no more."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.test import Client
from rest_framework.test import APIClient

from billing import invoices
from billing.charging import challenge_windows
from billing.contesting import disputes
from billing.models import Alert, BillingDetails, Dispute, PromoCode, PromotionGrant, SpendLimit
from marketplace.accounts.models import Membership, Organisation, Role, User
from marketplace.foundation import clock
from tests.integration.billing.disputes.scenes import CHARGED, earned, end, settle
from tests.integration.billing.scenes import DOLLAR, available, fund
from tests.people import join, sign

pytestmark = pytest.mark.django_db
HASH = "ab" * 32


def owner(name):
    user = User.objects.create_user(f"{name}@example.org")
    organisation = Organisation.objects.create(name=name)
    return Membership.objects.create(user=user, organisation=organisation, role=Role.OWNER)


@pytest.fixture
def people():
    alice, bob, mallory = owner("alice"), owner("bob"), owner("mallory")
    fund(alice.organisation_id)
    return alice, bob, mallory


@pytest.fixture
def share(people):
    alice, bob, _ = people
    return settle(alice.organisation_id, bob.organisation_id)


@pytest.fixture
def page():
    client = Client()
    client.force_login(User.objects.create_superuser("op@example.org", "correct horse battery"))
    return client


def open_by_api(client, share, **changes):
    body = {"lease_id": str(share.lease_id), "text": "It never ran.", "attachments": [{"name": "log", "sha256": HASH}]}
    return client.post("/api/v1/disputes", body | changes, format="json")


def test_both_sides_see_the_dispute_and_not_each_other(people, share):
    alice, bob, mallory = map(sign, people)
    made = open_by_api(alice, share)
    assert made.status_code == 201, made.json()
    dispute = made.json()
    assert (dispute["side"], dispute["state"], dispute["amount"]) == ("customer", "opened", str(CHARGED))
    url = f"/api/v1/disputes/{dispute['id']}"
    seen = bob.get(url).json()
    assert seen["side"] == "provider" and seen["attachments"] == [{"name": "log", "sha256": HASH}]
    assert str(people[0].organisation_id) not in str(seen) and "alice" not in str(seen)
    assert mallory.get(url).status_code == 404
    assert [len(client.get("/api/v1/disputes").json()["results"]) for client in (alice, bob, mallory)] == [1, 1, 0]
    for client, verb in ((mallory, "answer"), (alice, "answer"), (bob, "withdraw"), (mallory, "withdraw")):
        body = {"text": "x"} if verb == "answer" else {}
        assert client.post(f"{url}/{verb}", body, format="json").status_code == 404
    assert bob.post(f"{url}/answer", {"text": "It ran."}, format="json").json()["state"] == "answered"
    assert alice.post(f"{url}/withdraw", {}, format="json").json()["state"] == "withdrawn"
    assert alice.post(f"{url}/withdraw", {}, format="json").status_code == 409


@pytest.mark.parametrize("headers", [{}, {"HTTP_IDEMPOTENCY_KEY": "once"}])
def test_what_is_too_late_for_a_short_window_is_refused_and_noted(people, settings, monkeypatch, headers):
    settings.SOUK_FAST_RELEASE_SECONDS = 0
    monkeypatch.setattr(challenge_windows, "_proven", lambda job_id, paid, now, usual: set(paid))
    alice, bob, mallory = people
    body = {"lease_id": str(settle(alice.organisation_id, bob.organisation_id).lease_id), "text": "It never ran."}
    for person, count in ((mallory, 0), (alice, 1), (alice, 1)):
        answer = sign(person).post("/api/v1/disputes", body, format="json", **headers)
        assert (answer.status_code, answer.json()["code"]) == (409, "nothing_to_dispute")
        assert Alert.objects.open().filter(kind="late_complaint", subject=bob.organisation_id).count() == count


@pytest.mark.parametrize("changes", [{"text": ""}, {"lease_id": "x"}, {"attachments": [{"name": "a"}]}, {"more": 1}])
def test_a_dispute_that_says_nothing_is_refused(people, share, changes):
    assert open_by_api(sign(people[0]), share, **changes).status_code == 400
    assert not Dispute.objects.exists()


@pytest.mark.parametrize("path", ["disputes", "spend-limits", "promotions", "invoices", "billing-details"])
def test_who_may_read_and_who_may_write(people, path):
    alice = people[0]
    member, book = join(alice, "carol", "member"), join(alice, "dave", "billing")
    verb = "put" if path == "billing-details" else "post"
    assert APIClient().get(f"/api/v1/{path}").status_code == 401
    assert sign(alice, ["jobs:read"]).get(f"/api/v1/{path}").status_code == 403
    assert sign(member).get(f"/api/v1/{path}").status_code == 200
    if path != "invoices":
        assert getattr(sign(member), verb)(f"/api/v1/{path}", {}, format="json").status_code == 403
        assert getattr(sign(book), verb)(f"/api/v1/{path}", {}, format="json").status_code in {200, 400}


def test_limits_are_set_shown_and_lifted(people):
    alice, _, mallory = people
    carol = join(alice, "carol", "member")
    as_alice = sign(alice)
    body = {"member_id": str(carol.user_id), "amount_usd_micros": "5000000"}
    made = as_alice.post("/api/v1/spend-limits", body, format="json")
    assert made.status_code == 201
    assert made.json()["left_usd_micros"] == "5000000" and made.json()["reached_percents"] == []
    as_alice.post("/api/v1/spend-limits", {"amount_usd_micros": "9", "period": "job"}, format="json")
    assert len(as_alice.get("/api/v1/spend-limits").json()) == 2
    other = join(alice, "erin", "member")
    assert len(sign(other).get("/api/v1/spend-limits").json()) == 1  # not carol's
    url = f"/api/v1/spend-limits/{made.json()['id']}"
    assert sign(mallory).delete(url).status_code == 404
    assert as_alice.delete(url).status_code == 204
    for wrong in ("-1", "1.5", "1e3", str(2**256), ""):
        assert as_alice.post("/api/v1/spend-limits", {"amount_usd_micros": wrong}, format="json").status_code == 400
    stranger = {"member_id": str(mallory.user_id), "amount_usd_micros": "1"}
    assert as_alice.post("/api/v1/spend-limits", stranger, format="json").status_code == 404
    assert SpendLimit.objects.count() == 1


def test_a_code_is_redeemed_once_through_the_api(people):
    PromoCode.objects.create(code="HELLO", amount=DOLLAR, uses_max=9, valid_until=clock.now() + timedelta(days=1))
    as_alice = sign(people[0])
    assert as_alice.post("/api/v1/promotions", {"code": "hello"}, format="json").json()["left"] == str(DOLLAR)
    refused = as_alice.post("/api/v1/promotions", {"code": "hello"}, format="json")
    assert (refused.status_code, refused.json()["code"]) == (409, "promo_code_refused")


def test_invoices_are_ones_own_in_three_forms(people, share, monkeypatch):
    later = clock.now() + timedelta(days=40)
    monkeypatch.setattr(clock, "now", lambda: later)
    invoices.issue_due()
    as_alice, as_mallory = sign(people[0]), sign(people[2])
    [invoice] = as_alice.get("/api/v1/invoices").json()
    assert invoice["total"] == str(CHARGED)
    url = f"/api/v1/invoices/{invoice['id']}"
    assert as_alice.get(url).json() == invoice
    assert as_alice.get(f"{url}/pdf").content.startswith(b"%PDF-")
    assert str(CHARGED) in as_alice.get(f"{url}/csv").content.decode()
    for form in ("", "/pdf", "/csv"):
        assert as_mallory.get(url + form).status_code == 404


def test_a_customer_says_who_they_are_and_not_what_they_are_taxed(people):
    as_alice = sign(people[0])
    answer = as_alice.put("/api/v1/billing-details", {"name": "Alice GmbH", "country": "DE"}, format="json")
    assert answer.json()["name"] == "Alice GmbH"
    assert as_alice.put("/api/v1/billing-details", {"tax_bps": 0}, format="json").status_code == 400
    assert BillingDetails.objects.get().owner_id == people[0].organisation_id


def test_the_operator_decides_on_one_page(people, share, page):
    alice, bob, _ = people
    end(share, reason="node_silent")
    asked = {"customer_id": alice.organisation_id, "lease_id": share.lease_id, "text": "<b>Never</b> ran."}
    dispute = disputes.open_dispute(**asked, attachments=[{"name": "log", "sha256": HASH}], actor="alice")
    url = f"/admin/billing/dispute/{dispute.pk}"
    seen = page.get(f"{url}/change/").content.decode()
    for fact in ("node_silent", "&lt;b&gt;Never&lt;/b&gt; ran.", HASH, "5000 ms", "Decide", "$1.234567"):
        assert fact in seen
    page.post(f"{url}/decide/", {"to_customer": "9", "to_platform": "0", "text": "Too much."})
    page.post(f"{url}/decide/", {"to_customer": "x", "to_platform": "0", "text": "No amount."})
    assert Dispute.objects.get().state == "opened"
    assert page.get(f"{url}/decide/").status_code == 403
    page.post(f"{url}/decide/", {"to_customer": "1", "to_platform": "0.034567", "text": "Both."})
    decided = Dispute.objects.get()
    assert (decided.to_customer, decided.to_provider, decided.to_platform) == (1_000_000, 200_000, 34_567)
    assert decided.decided_by == "op@example.org"
    assert "Over since" in page.get(f"{url}/change/").content.decode()
    page.post(f"{url}/decide/", {"to_customer": "0", "to_platform": "0", "text": "Again."})
    assert earned(bob.organisation_id) == 200_000
    assert available(alice.organisation_id) == 10 * DOLLAR - CHARGED + DOLLAR


def test_who_may_only_look_cannot_decide(people, share):
    dispute = disputes.open_dispute(
        customer_id=people[0].organisation_id, lease_id=share.lease_id, text="No.", actor="alice"
    )
    client = Client()
    client.force_login(User.objects.create_user("auditor@example.org", is_staff=True))
    answer = client.post(f"/admin/billing/dispute/{dispute.pk}/decide/", {"to_customer": "1", "text": "x"})
    assert answer.status_code == 403
    assert Dispute.objects.get().state == "opened"


def test_the_operator_gives_credit_codes_and_limits(people, page):
    alice = people[0].organisation_id
    gift = {"organisation": alice, "dollars": "2.50", "days": "30", "reference": f"sorry {uuid4()}"}
    assert page.post("/admin/billing/promotiongrant/add/", gift).status_code == 302
    assert PromotionGrant.objects.get().left == 2_500_000
    code = {"code": "hi", "uses_max": "5", "uses_per_organisation_max": "1", "valid_days": "30", "dollars": "1"}
    code |= {"valid_until_0": "2030-01-01", "valid_until_1": "00:00:00"}
    assert page.post("/admin/billing/promocode/add/", code).status_code == 302
    chosen = {"action": "stop", "_selected_action": [str(PromoCode.objects.get(code="HI").pk)]}
    page.post("/admin/billing/promocode/", chosen)
    assert not PromoCode.objects.get().is_active
    limit = {"organisation": alice, "period": "month", "dollars": "100"}
    assert page.post("/admin/billing/spendlimit/add/", limit).status_code == 302
    assert SpendLimit.objects.get().amount == 100 * DOLLAR

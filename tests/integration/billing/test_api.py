"""An organisation sees its own money, and nobody else's."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import pytest
from rest_framework.test import APIClient

from billing import holds, settlement
from billing.settlement import LeaseCharge
from marketplace.accounts import api_keys
from marketplace.accounts.models import Membership, Organisation, Role, User
from tests.integration.billing.scenes import DOLLAR, fund

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.integration.billing.urls")]

NOTHING: dict[str, object] = {
    "available_usd_micros": 0,
    "held_usd_micros": 0,
    "provider_pending_usd_micros": 0,
    "provider_available_usd_micros": 0,
    "tokens": [],
}


def organisation_with_client(name: str, scopes: Sequence[str] = ("billing:read",)) -> tuple[Organisation, APIClient]:
    user = User.objects.create_user(f"{name}@example.org")
    organisation = Organisation.objects.create(name=name)
    Membership.objects.create(user=user, organisation=organisation, role=Role.OWNER)
    _, key = api_keys.issue(user=user, organisation=organisation, name="test", scopes=scopes)
    return organisation, APIClient(headers={"authorization": f"Bearer {key}"})


def test_balance_shows_both_sides_of_an_organisation() -> None:
    (alice, as_alice), (bob, as_bob) = organisation_with_client("alice"), organisation_with_client("bob")
    fund(alice.id)
    done, open_job = uuid4(), uuid4()
    for job_id in (done, open_job):
        holds.place_hold(owner_id=alice.id, job_id=job_id, amount=2 * DOLLAR)
    settlement.settle_job(job_id=done, charges=[LeaseCharge(uuid4(), bob.id, DOLLAR)], fee_bps=1000)
    assert as_alice.get("/api/v1/balance").json() == NOTHING | {
        "available_usd_micros": 7000000,
        "held_usd_micros": 2000000,
    }
    assert as_bob.get("/api/v1/balance").json() == NOTHING | {"provider_pending_usd_micros": 900000}


def test_an_organisation_without_money_has_zero_of_everything() -> None:
    _, as_alice = organisation_with_client("alice")
    assert as_alice.get("/api/v1/balance").json() == NOTHING


def test_transfers_are_ones_own_newest_first_and_say_what_changed() -> None:
    (alice, as_alice), (bob, as_bob) = organisation_with_client("alice"), organisation_with_client("bob")
    _, as_mallory = organisation_with_client("mallory")
    fund(alice.id)
    job_id = uuid4()
    holds.place_hold(owner_id=alice.id, job_id=job_id, amount=2 * DOLLAR)
    settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), bob.id, DOLLAR)], fee_bps=1000)

    seen = [(row["code"], row["change_usd_micros"]) for row in as_alice.get("/api/v1/transfers").json()["results"]]
    assert seen == [
        ("hold_rest", "0"),
        ("platform_fee", "-100000"),
        ("provider_pay", "-900000"),
        ("hold", "0"),
        ("deposit", "10000000"),
    ]
    [pay] = as_bob.get("/api/v1/transfers").json()["results"]
    assert (pay["code"], pay["change_usd_micros"], pay["job_id"]) == ("provider_pay", "900000", str(job_id))
    assert str(alice.id) not in str(pay)  # the provider does not learn who the customer is
    assert as_mallory.get("/api/v1/transfers").json()["results"] == []


def test_transfers_are_paged_by_cursor_and_none_is_missed() -> None:
    alice, as_alice = organisation_with_client("alice")
    for _ in range(5):
        fund(alice.id, DOLLAR)
    ids, url = [], "/api/v1/transfers?page_size=2"
    while url:
        page = as_alice.get(url).json()
        assert len(page["results"]) <= 2
        ids += [row["id"] for row in page["results"]]
        url = page["next"]
    assert len(ids) == len(set(ids)) == 5


@pytest.mark.parametrize("path", ["/api/v1/balance", "/api/v1/transfers"])
def test_money_is_shown_to_keys_with_its_scope_only(path: str) -> None:
    _, without_scope = organisation_with_client("alice", ["jobs:read"])
    assert without_scope.get(path).status_code == 403
    assert APIClient().get(path).status_code == 401


@pytest.mark.parametrize("path", ["/api/v1/balance", "/api/v1/transfers"])
@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_nothing_is_written_through_the_api(path: str, method: str) -> None:
    _, as_alice = organisation_with_client("alice")
    assert getattr(as_alice, method)(path, {}, format="json").status_code == 405

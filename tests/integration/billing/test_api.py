"""An organisation sees its own money, and nobody else's."""

from __future__ import annotations

import base64
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from rest_framework.test import APIClient

from billing.account_kinds import AccountKind
from billing.api.balance import SHOWN
from billing.books import deposits, ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.charging import holds, settlement
from billing.charging.settlement import LeaseCharge
from billing.models import Asset
from billing.rails.registry import source_of
from billing.transfer_codes import TransferCode, TransferMode
from tests.integration.billing.clients import organisation_with_client
from tests.integration.billing.scenes import DOLLAR, fund

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.integration.billing.urls")]

NO_DOLLARS = {"asset": "USD", "scale": 6} | dict.fromkeys(SHOWN, "0")
NOTHING = {
    "available_usd_micros": 0,
    "held_usd_micros": 0,
    "provider_pending_usd_micros": 0,
    "provider_available_usd_micros": 0,
    "assets": [NO_DOLLARS],
}


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
        "assets": [NO_DOLLARS | {"available": "7000000", "held": "2000000"}],
    }
    assert as_bob.get("/api/v1/balance").json() == NOTHING | {
        "provider_pending_usd_micros": 900000,
        "assets": [NO_DOLLARS | {"provider_pending": "900000"}],
    }


def test_every_asset_is_shown_in_its_own_units_and_what_leaves_is_on_its_way() -> None:
    alice, as_alice = organisation_with_client("alice")
    fund(alice.id)
    coin = Asset.objects.create(
        id=7, code="WETH", scale=18, kind=Asset.Kind.ERC20, chain_id=1, contract="0x" + "7" * 40
    )
    deposits.credit(alice.id, 3 * 10**18, reference="1", actor="chain", source=source_of("chain"), asset_id=coin.pk)
    kinds = [AccountKind.CUSTOMER_AVAILABLE, AccountKind.PROVIDER_AVAILABLE, AccountKind.PAYOUT_CLEARING]
    have, earned, leaving = open_accounts([AccountName(kind, alice.id, asset_id=coin.pk) for kind in kinds])
    ledger.post([ledger.NewTransfer(have, earned, 10**18, TransferCode.CORRECTION)])
    ledger.post([ledger.NewTransfer(earned, leaving, 10**17, TransferCode.PAYOUT, mode=TransferMode.PENDING)])
    dollars, coins = as_alice.get("/api/v1/balance").json()["assets"]
    assert dollars["available"] == "10000000"
    assert coins == NO_DOLLARS | {
        "asset": "WETH",
        "scale": 18,
        "available": str(2 * 10**18),
        "provider_available": str(9 * 10**17),
        "payout_clearing": str(10**17),
    }
    newest = as_alice.get("/api/v1/transfers").json()["results"][0]
    assert [newest[name] for name in ("asset", "amount", "mode", "change")] == ["WETH", str(10**17), "pending", "0"]


def test_a_jobs_own_transfers_can_be_asked_for() -> None:
    alice, as_alice = organisation_with_client("alice")
    fund(alice.id)
    one, other = uuid4(), uuid4()
    for job_id in (one, other):
        holds.place_hold(owner_id=alice.id, job_id=job_id, amount=DOLLAR)
    [hold] = as_alice.get(f"/api/v1/transfers?job={one}").json()["results"]
    assert (hold["job_id"], hold["code"]) == (str(one), "hold")
    refused = as_alice.get("/api/v1/transfers?job=everything")
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_request")


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

    seen = [(row["code"], row["change"]) for row in as_alice.get("/api/v1/transfers").json()["results"]]
    assert seen == [
        ("hold_rest", "0"),
        ("platform_fee", "-100000"),
        ("provider_pay", "-900000"),
        ("hold", "0"),
        ("deposit", "10000000"),
    ]
    [pay] = as_bob.get("/api/v1/transfers").json()["results"]
    assert (pay["code"], pay["change"], pay["job_id"]) == ("provider_pay", "900000", str(job_id))
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


@pytest.mark.parametrize("position", ["9" * 19, "-1", "1.0", "2026-01-01T00:00:00+00:00", "\u0665", ""])
def test_an_altered_cursor_of_transfers_is_refused(position: str) -> None:
    _, as_alice = organisation_with_client("alice")
    cursor = base64.b64encode(urlencode({"p": position}).encode()).decode()
    assert as_alice.get("/api/v1/transfers", {"cursor": cursor}).status_code == 400


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

"""What is owed and what is there, for everybody to see, without a word about anybody."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.cache import cache
from django.test import Client
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from redis.exceptions import RedisError

from billing.account_kinds import AccountKind
from billing.books import hash_chain
from billing.breaker import open_breaker
from billing.charging import holds, settlement
from billing.charging.settlement import LeaseCharge
from billing.models import DailyRoot, FakeMovement, Payout, Transfer
from billing.payouts import paying, submission
from billing.reconciliation.reconciling import reconcile
from billing.solvency import totals
from billing.solvency.totals import CUSTOMERS, MIRRORS, PROVIDERS, cached_solvency
from marketplace.foundation import clock
from tests.integration.billing.payouts.scenes import choose, earn, send, spendable, usd
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, fund, past_the_triggers

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_cached(fake_rail: None) -> None:
    cache.clear()


def dollars() -> dict[str, Any]:
    [usd_row] = [one for one in totals.solvency()["assets"] if one["asset"] == "USD"]
    return dict(usd_row)


def test_what_is_owed_and_the_fee_are_what_is_held(alice: UUID, bob: UUID) -> None:
    job_id = uuid4()
    holds.place_hold(owner_id=alice, job_id=job_id, amount=4 * DOLLAR)
    settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), bob, 2 * DOLLAR)], fee_bps=1000)
    one = dollars()
    assert (one["owed_to_customers"], one["owed_to_providers"]) == (str(8 * DOLLAR), str(1_800_000))
    assert (one["own"], one["held"]) == ({"fee_revenue": "200000"}, str(10 * DOLLAR))
    assert one["is_balanced"] and one["is_covered"]
    assert one["mirrors"] == [
        {"kind": "operator_cash", "ledger": str(10 * DOLLAR), "outside": None, "outside_at": None}
    ]
    reconcile(reason="by hand")
    assert dollars()["mirrors"][0]["outside"] == str(10 * DOLLAR)


def test_a_hole_is_seen(alice: UUID) -> None:
    with past_the_triggers("billing_account") as cursor:
        cursor.execute("UPDATE billing_account SET credits_posted = credits_posted + 7 WHERE owner_id = %s", [alice])
    one = dollars()
    assert (one["is_balanced"], one["is_covered"]) == (False, False)


def test_every_kind_of_account_is_on_one_side() -> None:
    """A new kind that is nobody's would be taken for the platform's own: this is the list of those that are."""
    own = set(AccountKind) - CUSTOMERS - PROVIDERS - MIRRORS - {AccountKind.DISPUTED}
    assert own == {
        AccountKind.FEE_REVENUE,
        AccountKind.STRIPE_FEE_EXPENSE,
        AccountKind.GAS_EXPENSE,
        AccountKind.CHARGEBACK_LOSS,
        AccountKind.PROMO_EXPENSE,
        AccountKind.ROUNDING,
        AccountKind.SLASH_POOL,
        AccountKind.INSURANCE_POOL,
        AccountKind.LIQUIDITY,
    }


def test_anybody_may_ask_and_learns_of_nobody(alice: UUID, bob: UUID, client: Client) -> None:
    earn(bob)
    choose(bob, schedule="manual")
    paying.pay_now(bob, usd(), actor="bob@example.org")
    send()
    hash_chain.chain_transfers()
    reconcile(reason="by hand")
    for path in ("/api/v1/solvency", "/solvency"):
        text = client.get(path, SERVER_NAME="localhost").content.decode()
        for secret in (str(alice), str(bob), "bob", "example.org", str(Payout.objects.get().pk)):
            assert secret not in text, (path, secret)


def test_it_names_the_newest_root_and_the_head_of_the_chain(alice: UUID, client: Client) -> None:
    hash_chain.chain_transfers()
    head = Transfer.objects.order_by("-seq").first()
    assert head is not None
    yesterday = (clock.now() - timedelta(days=1)).date()
    DailyRoot.objects.create(day=yesterday, first_seq=1, last_seq=head.seq, transfers=1, root="ab" * 32)
    report = totals.solvency()
    assert report["hash_chain_head"] == {"seq": head.seq, "hash": head.hash}
    assert report["daily_root"]["root"] == "ab" * 32
    text = client.get("/solvency", SERVER_NAME="localhost").content.decode()
    assert head.hash in text and "ab" * 32 in text and str(yesterday) in text
    assert "Everything that is owed is there." in text and "$10.00" in text


def test_the_page_of_an_empty_marketplace_is_no_error(db: None, client: Client) -> None:
    page = client.get("/solvency", SERVER_NAME="localhost")
    assert page.status_code == 200 and "Nothing was ever paid in." in page.content.decode()
    assert re.findall(r"(?:src|href)=[\"'](?!#|/|data:)([^\"']*)", page.content.decode()) == []


def test_stopped_payouts_are_shown_as_stopped(client: Client, db: None) -> None:
    open_breaker("test")
    assert client.get("/api/v1/solvency", SERVER_NAME="localhost").json()["payouts_stopped"] is True
    assert "Payouts are stopped" in client.get("/solvency", SERVER_NAME="localhost").content.decode()


def test_it_is_added_up_once_a_minute_however_many_ask(alice: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cached_solvency()
    fund(alice)
    assert cached_solvency() == first
    cache.delete("solvency")
    cache.add("solvency.lock", 1, 30)  # somebody is adding up
    assert cached_solvency() == first
    cache.delete("solvency.lock")
    assert cached_solvency()["assets"][0]["held"] == str(20 * DOLLAR)
    json.dumps(first)

    def away(*args: Any) -> Any:
        raise RedisError("gone")

    monkeypatch.setattr(cache, "get", away)
    fund(alice)
    assert cached_solvency()["assets"][0]["held"] == str(30 * DOLLAR)


@given(
    earned=st.lists(st.integers(1, 5 * DOLLAR), min_size=1, max_size=6),
    manners=st.lists(
        st.sampled_from(["fake:bob", "fake:refused:bob", "fake:returned:bob", "fake:slow:bob"]), min_size=1, max_size=4
    ),
    asked=st.lists(st.booleans(), min_size=6, max_size=6),
)
@hypothesis_settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_p20_and_p21_whatever_is_earned_and_however_it_is_paid(
    db: None, earned: list[int], manners: list[str], asked: list[bool]
) -> None:
    """The outside is the mirror, to the unit; no payout exceeds what was there; a failed one returns exactly itself."""
    providers = {manner: uuid4() for manner in manners}
    for manner, provider in providers.items():
        choose(provider, manner, schedule="manual")
    for amount, has_time in zip(earned, asked, strict=False):
        for provider in providers.values():
            earn(provider, amount)
            before = spendable(provider)
            if before >= 10_000 and not Payout.objects.filter(provider_id=provider, state="submitted").exists():
                payout = paying.pay_now(provider, usd(), actor="bob")
                assert 0 < payout.amount <= before
                assert spendable(provider) == before - payout.amount
                send()
                payout.refresh_from_db()
                if payout.state == "failed":
                    assert spendable(provider) == before
        if has_time:
            Payout.objects.update(checked_at=clock.now() - submission.RETURNS_EVERY * 2)
            submission.follow_payouts()
    report = reconcile(reason="by hand")
    assert report.is_clean
    position, under_way = report.positions.get(), Payout.objects.filter(state="submitted")
    sent = -sum(FakeMovement.objects.filter(payout_id__in=under_way.values("pk")).values_list("amount", flat=True))
    assert position.ledger == position.outside + sent
    one = dollars()
    assert one["is_balanced"] and one["is_covered"]
    assert_ledger_is_true()

"""Whatever the market, the nodes and Alice do: the hold covers, nothing is lost, and nobody has a free option."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

from django.db import connection, transaction
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from billing.account_kinds import AccountKind
from billing.errors import BillingError
from jobs import lifecycle
from jobs.errors import JobsError
from jobs.models import Job, Lease, PriceHalt, PriceLock
from jobs.payment.price_rules import is_near
from jobs.placing import placement, requotes
from jobs.states import JOB_ENDS
from marketplace.accounts.models import Organisation
from provider_agent.protocol import Reason
from tests import stage
from tests.integration.billing.scenes import assert_ledger_is_true
from tests.integration.jobs.requotes import scenes
from tests.integration.jobs.requotes.scenes import ASKS, FUNDS, REQUOTES, START, has, tick
from tests.stage import DOLLAR

FEW = hypothesis_settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
BPS = 200
ticks = st.tuples(st.just("tick"), st.integers(-9_000, 30_000))
runs = st.tuples(st.just("run"), st.integers(0, 1_500_000))
others = st.tuples(st.sampled_from(["place", "place", "confirm", "raise", "finish", "cancel"]), st.just(0))


@FEW
@given(steps=st.lists(ticks | runs | others, min_size=4, max_size=16), allowed=st.booleans())
def test_P8_P9_P14_with_prices_that_move(
    db: None, settings: object, steps: list[tuple[str, int]], allowed: bool
) -> None:
    settings.SOUK_TOKEN_PRICE_SECONDS = 0  # type: ignore[attr-defined]
    settings.SOUK_PRICE_JUMP_BPS_MAX = 10**6  # type: ignore[attr-defined]
    with transaction.atomic():
        scenes.weth()
        alice, market = scenes.alice(), START
        scenes.node("bobs-node")
        job = scenes.waiting(alice, **(REQUOTES if allowed else ASKS))
        for step, number in [("place", 0), *steps]:
            market = START * (10_000 + number) // 10_000 if step == "tick" else market
            before = set(Lease.objects.values_list("pk", flat=True))
            do(step, number, job, market)
            check_new_leases(job, before, market, allowed=allowed)
            check_money(alice, job)
        lifecycle_end(job)
        check_money(alice, job)
        assert has(alice, AccountKind.JOB_HOLD) == 0 and not PriceHalt.objects.exists()
        assert_ledger_is_true()
        transaction.set_rollback(True)


def do(step: str, number: int, job: Job, market: int) -> None:
    lease = Lease.objects.live().select_related("attempt__job", "node").first()
    job.refresh_from_db()
    if step == "tick":
        tick(market)
    elif step == "place":
        placement.place_batch()
    elif step == "run" and lease is not None:
        ms = min(number, int(lease.cap_units) * 3_600_000 // int(lease.rate_units_per_hour))
        scenes.run(lease, ms=ms)
    elif step == "finish" and lease is not None:
        stage.finish(lease)
    elif step == "confirm":
        halt = PriceHalt.objects.filter(job=job).exclude(usd_micros_per_token=None).first()
        if halt is not None:
            with suppress(JobsError, BillingError):
                requotes.confirm(job.pk, usd_micros_per_token=int(halt.usd_micros_per_token), actor="alice")
    elif step == "raise":
        with suppress(JobsError):
            lifecycle.resume(job.pk, cap_usd_micros=job.cap_usd_micros + DOLLAR, actor="alice")
    elif step == "cancel" and job.state not in JOB_ENDS:
        lifecycle.cancel(job.pk, actor="alice")


def lifecycle_end(job: Job) -> None:
    job.refresh_from_db()
    if job.state not in JOB_ENDS:
        lifecycle.cancel(job.pk, actor="alice")
    for lease in Lease.objects.live().select_related("attempt__job", "node"):
        stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)


def check_new_leases(job: Job, before: set[UUID], market: int, *, allowed: bool) -> None:
    """No lease is above the market by more than the band, nor, unallowed, below what Alice has agreed to."""
    confirmed = PriceLock.objects.filter(job=job, reason="confirmed").values_list("usd_micros_per_token", flat=True)
    agreed = min([START, *map(int, confirmed)])
    for lease in Lease.objects.exclude(pk__in=before).select_related("price_lock"):
        price = int(lease.price_lock.usd_micros_per_token) if lease.price_lock else START
        assert price <= market or is_near(market, price, BPS)
        assert allowed or price >= agreed


def check_money(alice: Organisation, job: Job) -> None:
    with connection.cursor() as cursor:  # what the database checks at every commit
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
    scenes.assert_covered(job)
    job.refresh_from_db()
    charged = 0
    if job.state in JOB_ENDS:
        charged = sum(int(lease.charge_units or 0) for lease in Lease.objects.filter(attempt__job=job))
    assert has(alice) + has(alice, AccountKind.JOB_HOLD) + charged == FUNDS

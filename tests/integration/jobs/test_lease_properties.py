"""What a lease rests on: P14, money set aside no later than it; P15, one live lease a device, fences that rise."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.charging import holds
from billing.models import Hold
from jobs import lifecycle
from jobs.errors import NotEnoughMoney
from jobs.models import Job, Lease, LeaseDevice
from jobs.placing import placement
from marketplace.accounts.models import Organisation
from provider_agent.protocol import AttemptState
from tests import stage
from tests.integration.jobs.placements import placement_for
from tests.integration.racing import race
from tests.stage import DOLLAR

FEW = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_covered() -> None:
    """P14: for every live lease there is an open hold of its job, as old as the lease or older, that covers it."""
    for lease in Lease.objects.live().select_related("attempt"):
        hold = Hold.objects.open().get(job_id=lease.attempt.job_id)
        same = Lease.objects.live().filter(attempt__job_id=lease.attempt.job_id)
        assert hold.created_at <= lease.reserved_at, "P14: the lease is older than the money"
        assert sum(int(each.cap_units) for each in same) <= hold.amount, "P14: the hold does not cover the leases"


def assert_exclusive() -> None:
    """P15: no device has two live leases, and of one device the newer lease has the higher fence."""
    live = list(LeaseDevice.objects.filter(is_live=True).values_list("device_id", flat=True))
    assert len(live) == len(set(live)), "P15"
    for device in set(LeaseDevice.objects.values_list("device_id", flat=True)):
        rows = LeaseDevice.objects.filter(device_id=device).order_by("lease__reserved_at")
        fences = list(rows.values_list("lease__fence", flat=True))
        assert fences == sorted(set(fences)), "P15: a fence did not rise"


@FEW
@given(steps=st.lists(st.sampled_from(["submit", "place", "finish", "cancel", "lose money"]), min_size=2, max_size=10))
def test_P14_P15_whatever_is_placed_and_ended_leases_are_covered_and_exclusive(db: None, steps: list[str]) -> None:
    with transaction.atomic():
        alice = stage.organisation("alice", usd_micros=5 * DOLLAR)
        for name in ("one", "two"):
            stage.node(name)
        for step in ["submit", *steps]:
            do(step, alice)
            assert_covered()
            assert_exclusive()
        transaction.set_rollback(True)


def do(step: str, alice: Organisation) -> None:
    live = list(Lease.objects.live().order_by("reserved_at")[:1])
    if step == "submit" and Job.objects.count() < 4:
        with suppress(NotEnoughMoney):
            stage.submit(alice)
    elif step == "place":
        placement.place_batch()
    elif step == "finish" and live:
        stage.send_report(live[0], AttemptState.RUNNING)
        stage.see_running(live[0], seconds=60)
        stage.finish(live[0])
    elif step == "cancel":
        job = Job.objects.exclude(state__in=["completed", "failed", "cancelled"]).first()
        if job is not None:
            lifecycle.cancel(job.id, actor="alice")
    elif step == "lose money":
        other = Job.objects.filter(state="queued").first()
        if other is not None:  # something else is bought with what is left
            has = ledger.balance(alice.id, AccountKind.CUSTOMER_AVAILABLE)
            if has > DOLLAR:
                holds.place_hold(owner_id=alice.id, job_id=uuid4(), amount=has - DOLLAR // 2)


@pytest.mark.django_db(transaction=True)
def test_P14_of_two_jobs_that_race_for_money_for_one_only_one_gets_a_lease() -> None:
    alice = stage.organisation("alice", usd_micros=3 * DOLLAR)  # each may cost two
    for name in ("one", "two"):
        stage.node(name)
    jobs = [stage.submit(alice), stage.submit(alice)]
    slots = [(job.id, placement_for(job)) for job in jobs]
    race(*[lambda job_id=job_id, slot=slot: placement.place_job(job_id, slot) for job_id, slot in slots])
    assert Lease.objects.live().values("attempt__job").distinct().count() == 1
    assert Hold.objects.open().count() == 1
    assert_covered()


@pytest.mark.django_db
def test_P14_a_hold_of_a_job_with_a_lease_is_not_let_go_by_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hold and the lease are one transaction: dying between them leaves neither."""
    alice = stage.organisation("alice", usd_micros=5 * DOLLAR)
    stage.node()
    job = stage.submit(alice)

    def die(*_: object) -> None:
        raise RuntimeError("the process is gone")

    monkeypatch.setattr(placement, "reserve_slot", die)
    slot = placement_for(job)
    with pytest.raises(RuntimeError):
        placement.place_job(job.id, slot)
    assert not Lease.objects.exists()
    assert not Hold.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_P15_the_database_refuses_a_second_live_lease_of_a_device() -> None:
    alice = stage.organisation("alice", usd_micros=20 * DOLLAR)
    stage.node("one")
    stage.node("two")
    first, second = stage.submit(alice), stage.submit(alice)
    (one,) = stage.place(first)
    second.refresh_from_db()
    (two,) = Lease.objects.live().exclude(pk=one.pk)
    device = LeaseDevice.objects.filter(lease=one).first()
    assert device is not None
    with pytest.raises(IntegrityError, match="one_live_lease_per_device"), transaction.atomic():
        LeaseDevice.objects.create(lease=two, device=device.device)
    with pytest.raises(IntegrityError, match="fence"), transaction.atomic():
        Lease.objects.filter(pk=two.pk).update(fence=one.fence)


@pytest.mark.django_db(transaction=True)
def test_P15_of_eight_who_race_for_one_node_one_wins_and_the_next_fence_is_higher() -> None:
    alice = stage.organisation("alice", usd_micros=40 * DOLLAR)
    stage.node("the-last")
    jobs = [stage.submit(alice) for _ in range(8)]
    slots = [(job.id, placement_for(job)) for job in jobs]
    won = race(*[lambda job_id=job_id, slot=slot: placement.place_job(job_id, slot) for job_id, slot in slots])
    assert sorted(won, key=str) == [False] * 7 + [True]
    (lease,) = Lease.objects.live().select_related("node", "attempt")
    stage.send_report(lease, AttemptState.RUNNING)
    stage.see_running(lease, seconds=60)
    stage.finish(lease)
    placement.place_batch()
    (newer,) = Lease.objects.live()
    assert newer.fence > lease.fence
    assert_exclusive()
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_value FROM jobs_lease_fence")
        assert cursor.fetchone()[0] >= newer.fence
    assert newer.reserved_at - lease.reserved_at > timedelta(0)

"""A lease's fence, its deadline and its price, each at its edges."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError

from billing.charging import metering
from jobs.errors import AssetTooCoarse, DeviceTaken, LeaseNotFound, LeaseOver, StaleFence
from jobs.leases import fencing, leasing
from jobs.leases.leasing import LeasePrice
from jobs.models import Attempt, Job, Lease, LeaseDevice
from jobs.states import LeaseState
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.foundation.models import Event
from marketplace.nodes.models import Node
from provider_agent.protocol import BEAT_SECONDS_LEASED, ZERO_ADDRESS, Billable, Reason, charge
from tests import stage
from tests.row_states import put_in_state
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)

BEAT_MS = BEAT_SECONDS_LEASED * 1000


@pytest.fixture
def running(alice: Organisation, bob: Node) -> tuple[Job, Lease]:
    """A job that the server has seen run for ten minutes."""
    job, (lease,) = stage.running_job(alice)
    stage.see_running(lease, seconds=600)
    return job, fresh(lease)


def fresh(lease: Lease) -> Lease:
    return Lease.objects.select_related("attempt__job__quote", "node", "offer").get(pk=lease.pk)


def price_of(lease: Lease, **changes: Any) -> LeasePrice:
    """What it was reserved at, with changes."""
    price = LeasePrice(
        price_usd_micros=lease.price_usd_micros_per_device_hour,
        cap_usd_micros=lease.cap_usd_micros,
        asset=lease.asset,
        rate_units_per_hour=int(lease.rate_units_per_hour),
        cap_units=int(lease.cap_units),
    )
    return replace(price, **changes)


def reserve_beside(lease: Lease, node: Node, **changes: Any) -> Lease:
    """Another attempt's lease of all devices of a node, at the price of `lease`."""
    attempt = Attempt.objects.create(job=lease.attempt.job, number=9, slot=9)
    price = price_of(lease, **changes)
    return leasing.reserve(attempt, node.offers.get(), list(node.devices.all()), node_rank=0, price=price)


# -- fences


def test_a_lease_is_found_by_its_own_node_alone(running: tuple[Job, Lease]) -> None:
    _, lease = running
    assert fencing.require_lease(lease.node, lease.pk) == lease
    for node, lease_id in ((stage.node("other"), lease.pk), (lease.node, uuid4())):
        with pytest.raises(LeaseNotFound):
            fencing.require_lease(node, lease_id)


def test_a_fence_is_right_or_stale_whether_older_or_newer(running: tuple[Job, Lease]) -> None:
    _, lease = running
    Lease.objects.filter(pk=lease.pk).update(fence=10**9)
    lease = fresh(lease)
    assert fencing.has_fence(lease, int(str(lease.fence)))
    assert fencing.require_live(lease.pk, fence=lease.fence) == lease
    for fence in (lease.fence - 1, lease.fence + 1):
        assert not fencing.has_fence(lease, fence)
        with pytest.raises(StaleFence):
            fencing.require_live(lease.pk, fence=fence)


def test_what_has_ended_is_over_for_who_has_its_fence(running: tuple[Job, Lease]) -> None:
    _, lease = running
    leasing.end_lease(lease, Billable.NOTHING, reason="internal")
    with pytest.raises(LeaseOver):
        fencing.require_live(lease.pk, fence=lease.fence)
    with pytest.raises(StaleFence):
        fencing.require_live(lease.pk, fence=lease.fence + 1)


# -- reserving


def test_a_lease_is_kept_as_it_was_priced(running: tuple[Job, Lease]) -> None:
    _, lease = running
    before = clock.now()
    node = stage.node("other")
    found = fresh(
        reserve_beside(
            lease, node, price_usd_micros=3 * DOLLAR, rate_units_per_hour=6 * DOLLAR, cap_usd_micros=7, cap_units=7
        )
    )
    assert (found.price_usd_micros_per_device_hour, found.rate_usd_micros_per_hour) == (3 * DOLLAR, 6 * DOLLAR)
    assert (found.cap_usd_micros, found.cap_units, found.device_count, found.node) == (7, 7, 2, node)
    assert (found.state, found.payment, found.price_lock) == ("reserved", {}, None)
    seconds = timedelta(seconds=leasing.LEASE_SECONDS)
    assert before + seconds <= found.lease_until <= clock.now() + seconds
    assert found.fence > lease.fence
    (birth,) = Event.objects.filter(subject_kind="lease", subject_id=found.pk)
    assert birth.data == {"node": str(node.pk), "fence": found.fence}


def test_a_device_that_another_lease_has_is_taken(running: tuple[Job, Lease]) -> None:
    _, lease = running
    with pytest.raises(DeviceTaken):
        reserve_beside(lease, lease.node)
    assert Lease.objects.count() == 1


def test_another_fault_of_a_reservation_is_no_taken_device(
    running: tuple[Job, Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, lease = running
    monkeypatch.setattr(leasing, "_next_fence", lambda: lease.fence)
    with pytest.raises(IntegrityError, match="fence"):
        reserve_beside(lease, stage.node("other"))


def test_a_rate_of_nothing_is_refused_but_for_a_price_of_nothing(running: tuple[Job, Lease]) -> None:
    _, lease = running
    node = stage.node("other")
    with pytest.raises(AssetTooCoarse) as refused:
        reserve_beside(lease, node, rate_units_per_hour=0)
    assert refused.value.details == {"asset": "USD", "rate": 0}
    Attempt.objects.filter(number=9).delete()
    free = reserve_beside(lease, node, rate_units_per_hour=0, price_usd_micros=0)
    assert free.rate_units_per_hour == 0


def test_only_what_lives_is_extended(running: tuple[Job, Lease]) -> None:
    _, lease = running
    ended = reserve_beside(lease, stage.node("other"))
    leasing.end_lease(fresh(ended), Billable.NOTHING, reason="internal")
    now = clock.now() + timedelta(hours=1)
    assert leasing.extend([lease.pk, ended.pk], now=now) == 1
    assert fresh(lease).lease_until == now + timedelta(seconds=leasing.LEASE_SECONDS)
    assert fresh(ended).lease_until < now


# -- what is paid


@pytest.mark.parametrize("behind_ms", [0, BEAT_MS, 3 * BEAT_MS], ids=["as seen", "a beat ahead", "more"])
def test_a_meter_may_be_one_beat_ahead_of_what_was_seen(running: tuple[Job, Lease], behind_ms: int) -> None:
    _, lease = running
    stage.bill(lease, ms=600_000)
    stage.see_running(lease, seconds=(600_000 - behind_ms) / 1000)
    lease = fresh(lease)
    assert leasing.read_meter(lease, Billable.OBSERVED) == (min(600_000, lease.observed_ms + BEAT_MS), 1, None)
    assert lease.observed_ms == 600_000 - behind_ms


def test_each_rule_reads_its_own_part_of_the_meter(running: tuple[Job, Lease]) -> None:
    job, lease = running
    for rule, saved in ((Billable.OBSERVED, None), (Billable.CHECKPOINT, 0), (Billable.NOTHING, None)):
        assert leasing.read_meter(fresh(lease), rule) == (0, 0, saved)
    stage.bill(lease, ms=400_000)
    assert leasing.read_meter(fresh(lease), Billable.CHECKPOINT) == (0, 1, 0)
    for saved_ms, paid_ms in ((300_000, 300_000), (500_000, 400_000)):
        stage.checkpoint(job, lease, step=saved_ms // 1000, ms=saved_ms)
        assert leasing.read_meter(fresh(lease), Billable.CHECKPOINT) == (paid_ms, 1, saved_ms)
    assert leasing.read_meter(fresh(lease), Billable.OBSERVED) == (400_000, 1, None)
    assert leasing.read_meter(fresh(lease), Billable.NOTHING) == (0, 1, None)


def test_a_contract_pays_whole_receipts(running: tuple[Job, Lease], monkeypatch: pytest.MonkeyPatch) -> None:
    job, lease = running
    stage.bill(lease, ms=200_000)
    stage.bill(lease, ms=400_000)
    monkeypatch.setattr(leasing, "is_paid_by_contract", lambda lease: True)
    assert leasing.read_meter(fresh(lease), Billable.OBSERVED) == (400_000, 2, None)
    stage.checkpoint(job, lease, step=30, ms=300_000)
    assert leasing.read_meter(fresh(lease), Billable.CHECKPOINT) == (200_000, 1, 300_000)
    stage.checkpoint(job, lease, step=31, ms=199_999)
    assert leasing.read_meter(fresh(lease), Billable.CHECKPOINT) == (0, 0, 199_999)


@pytest.mark.parametrize(
    ("wallet", "is_paid"),
    [(None, False), ("".join(ZERO_ADDRESS), False), ("0x" + "ab" * 20, True)],
    ids=["none", "zero", "one"],
)
def test_a_contract_pays_where_the_receipts_name_a_wallet(
    running: tuple[Job, Lease], monkeypatch: pytest.MonkeyPatch, wallet: str | None, is_paid: bool
) -> None:
    class Terms:
        customer = wallet

    _, lease = running
    monkeypatch.setattr(Lease, "payment_terms", Terms() if wallet else None)
    assert leasing.is_paid_by_contract(lease) == is_paid


def test_an_ended_lease_frees_its_devices_at_the_price_that_was_frozen(running: tuple[Job, Lease]) -> None:
    _, lease = running
    stage.bill(lease, ms=500_000)
    ended = fresh(leasing.end_lease(fresh(lease), Billable.OBSERVED, reason="completed"))
    paid = charge(2 * DOLLAR, 500_000)
    assert ended.state == LeaseState.ENDED
    assert (ended.billable_ms, ended.charge_usd_micros, ended.charge_units) == (500_000, paid, paid)
    assert (ended.charged_seq, ended.checkpoint_ms) == (1, None)
    assert not LeaseDevice.objects.filter(lease=lease, is_live=True).exists()
    event = Event.objects.get(subject_kind="lease", subject_id=lease.pk, to_state="ended")
    assert event.reason == "completed"
    assert event.data == {"billable_ms": 500_000, "charge_usd_micros": paid, "charge_units": str(paid)}


def test_no_lease_costs_more_than_its_cap_in_either_money(running: tuple[Job, Lease]) -> None:
    _, lease = running
    stage.bill(lease, ms=500_000)
    Lease.objects.filter(pk=lease.pk).update(cap_usd_micros=5, cap_units=5)
    ended = leasing.end_lease(fresh(lease), Billable.OBSERVED, reason="completed")
    assert (ended.charge_usd_micros, ended.charge_units) == (5, 5)


# -- charging again


@pytest.fixture
def lost(running: tuple[Job, Lease]) -> Lease:
    """It vanished after 500 s, with checkpoints taken 100 s and 400 s in."""
    job, lease = running
    stage.bill(lease, ms=500_000)
    for ms in (100_000, 400_000):
        stage.checkpoint(job, lease, step=ms // 100_000, ms=ms)
    stage.finish(lease, Reason.EXECUTOR_FAILED)
    lost = fresh(lease)
    assert (lost.billable_ms, lost.checkpoint_ms) == (400_000, 400_000)
    return lost


def test_what_a_condemned_checkpoint_paid_for_is_paid_no_more(lost: Lease) -> None:
    assert leasing.recharge(lost) == 0  # it is as it was
    lost.attempt.artifacts.filter(step=4).update(condemned_at=clock.now())
    assert leasing.recharge(fresh(lost)) == charge(2 * DOLLAR, 400_000) - charge(2 * DOLLAR, 100_000)
    again = fresh(lost)
    assert (again.billable_ms, again.checkpoint_ms) == (100_000, 100_000)
    assert again.charge_usd_micros == again.charge_units == charge(2 * DOLLAR, 100_000)


def test_charging_again_makes_nothing_dearer_and_keeps_to_the_caps(lost: Lease) -> None:
    caps = dict.fromkeys(["cap_usd_micros", "cap_units", "charge_usd_micros", "charge_units"], 5)
    Lease.objects.filter(pk=lost.pk).update(billable_ms=100_000, **caps)
    assert leasing.recharge(fresh(lost)) == 0
    again = fresh(lost)
    assert (again.billable_ms, again.charge_usd_micros, again.charge_units) == (100_000, 5, 5)


def test_charging_again_what_was_free_leaves_it_free(lost: Lease) -> None:
    free = dict.fromkeys(["billable_ms", "charge_usd_micros", "charge_units"], 0)
    Lease.objects.filter(pk=lost.pk).update(**free)
    assert leasing.recharge(fresh(lost)) == 0
    again = fresh(lost)
    assert (again.billable_ms, again.charge_usd_micros, again.charge_units) == (0, 0, 0)


@pytest.mark.parametrize(
    "case", ["its job ended", "a contract pays it", "what it saved is no matter", "it is free", "active", "reserved"]
)
def test_everything_else_stays_as_it_was_charged(lost: Lease, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lost.attempt.artifacts.update(condemned_at=clock.now())
    if case == "its job ended":
        put_in_state(Job.objects.filter(pk=lost.attempt.job_id), "failed")
    if case == "a contract pays it":
        monkeypatch.setattr(leasing, "is_paid_by_contract", lambda lease: True)
    if case == "what it saved is no matter":
        Attempt.objects.filter(pk=lost.attempt_id).update(reason="exit_nonzero")
    if case == "it is free":  # such an end is never paid
        Attempt.objects.filter(pk=lost.attempt_id).update(reason="input_unavailable")
    lease = fresh(lost)
    if case in set(LeaseState):
        lease.state = LeaseState(case)
    before = lease.charge_units
    assert leasing.recharge(lease) == 0
    assert fresh(lost).charge_units == before
    assert metering.newest(lost.pk).billable_ms == 500_000

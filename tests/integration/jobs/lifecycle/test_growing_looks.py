"""What a look at gangs that grow costs, whom it looks at first, and for whom nodes that wait to join make way."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs import sweeps
from jobs.leases import joining as joins
from jobs.matching.reservations import Reservations
from jobs.models import Attempt, Job, Lease
from jobs.placing import growing, growing_looks, placement
from jobs.running.preparing import PREPARE_SECONDS_MAX
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, Reason
from tests import stage
from tests.integration.jobs.lifecycle.growing_rows import (
    PRICE,
    RANGE,
    be_ready,
    grow,
    joining,
    members,
    rack,
    train,
)
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)

TOO_LARGE = {"gpus": 8, "kind": "any"}  # no node here has so many
SIZES = [(2, 1), (4, 4)]  # (nodes of a gang, that wait to join it)


@pytest.fixture
def alice():
    return stage.organisation("alice", usd_micros=50 * DOLLAR)


def gang(alice, name, *, nodes=2, free=1, price=PRICE):
    """A gang that has trained for 100 s, and so many nodes more in its fabric."""
    rack(nodes, name=name)
    job, _ = train(alice, resources=RANGE | {"nodes": f"{nodes}..{2 * nodes}"})
    rack(free, name=name, price=price)
    return job


def inviting_gang(alice, name, *, nodes=2, joiners=1):
    job = gang(alice, name, nodes=nodes, free=joiners)
    assert grow() == 1
    assert len(joining(job)) == joiners
    return job


def wait_for(resources=TOO_LARGE, *, priority=50):
    """A job of another organisation that is not placed now."""
    organisation = stage.organisation(f"carol-{Job.objects.count()}", usd_micros=50 * DOLLAR)
    job = stage.submit(organisation, stage.spec_of())
    spec = job.spec | {"resources": job.spec["resources"] | resources}
    Job.objects.filter(pk=job.pk).update(priority=priority, spec=spec)
    return job


def queries_of_look(*, changed=0):
    """What one look asks the database."""
    with CaptureQueriesContext(connection) as asked:
        assert grow() == changed
    return [query["sql"] for query in asked]


def snapshots_in(queries):
    """How often the fleet was read."""
    return sum("jobs_leasedevice" in sql and "is_live" in sql and sql.startswith("SELECT") for sql in queries)


def be_old(job, **age):
    Lease.objects.joining().filter(attempt__job=job).update(reserved_at=timezone.now() - timedelta(**age))


# What a look costs.


def test_nodes_that_still_load_cost_a_look_three_queries_however_many_wait(alice, django_assert_max_num_queries):
    for name, (nodes, joiners) in zip("abc", [*SIZES, (2, 2)], strict=True):
        inviting_gang(alice, name, nodes=nodes, joiners=joiners)
        with django_assert_max_num_queries(3):  # who waits to join, which jobs wait, which gangs may grow
            assert grow() == 0


@pytest.mark.parametrize(("nodes", "joiners"), SIZES)
def test_to_wait_for_a_checkpoint_costs_the_same_whatever_the_gangs_size(alice, nodes, joiners):
    job = inviting_gang(alice, "rack", nodes=nodes, joiners=joiners)
    be_ready(joining(job))
    for lease in members(job):
        stage.see_running(lease, seconds=400)
    asked = queries_of_look()
    assert len(asked) <= 11
    assert not any("FOR UPDATE" in sql for sql in asked), "the job is not locked for that"
    assert snapshots_in(asked) == 0


def test_gangs_without_a_free_node_near_them_cost_nothing_each(alice):
    gang(alice, "first", free=0)
    one = queries_of_look()
    for name, nodes in [("second", 2), ("third", 4)]:
        gang(alice, name, nodes=nodes, free=0)
    rack(1, name="elsewhere")
    assert len(queries_of_look()) == len(one) <= 12


def test_what_is_not_worth_it_costs_the_same_whatever_the_gangs_size(alice):
    """Its free nodes are too dear; it is reckoned for one more, two more, and so on."""
    counts = []
    for name, (nodes, _) in zip("ab", SIZES, strict=True):
        job = gang(alice, name, nodes=nodes, free=1, price=10 * PRICE)
        counts.append(len(queries_of_look()))
        Attempt.objects.filter(job=job).update(grown_at=timezone.now())
    assert counts[1] - counts[0] <= 6, "the first is only asked whether it has rested"


def test_the_fleet_is_read_once_a_look(alice):
    for name in "abc":
        gang(alice, name, free=1, price=10 * PRICE)
    wait_for(priority=80)
    assert snapshots_in(queries_of_look()) == 1


def test_what_waits_is_read_once_for_gangs_of_all_priorities(alice):
    jobs = [gang(alice, name, price=10 * PRICE) for name in "ab"]
    wait_for(priority=80)
    one = queries_of_look()
    Job.objects.filter(pk=jobs[1].pk).update(priority=20)
    assert len(queries_of_look()) == len(one)


def test_two_gangs_do_not_invite_the_same_node_in_one_look(alice, caplog):
    caplog.set_level("INFO")
    rack(4)
    for _ in range(2):
        train(alice)
    rack(1)
    assert grow() == 1
    assert Lease.objects.joining().count() == 1
    assert "did not grow" not in caplog.text


def test_who_joins_is_found_by_an_index():
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        plan = Lease.objects.joining().order_by("reserved_at")[:10].explain()
    assert "lease_joining_since" in plan


# Who is looked at.


def test_who_waits_longest_is_looked_at_first(alice, monkeypatch):
    """However short a look is, nobody waits in vain for its turn."""
    jobs = sorted((inviting_gang(alice, name) for name in "abc"), key=lambda job: stage.newest_attempt(job).pk)
    for minutes, job in zip((31, 41, 51), jobs, strict=True):
        be_old(job, minutes=minutes)
    monkeypatch.setattr(growing, "LOOK_SECONDS_MAX", 0)
    for job in reversed(jobs):
        assert joining(job)
        assert grow() == 1
        assert not joining(job)


def test_gangs_that_only_wait_keep_no_others_from_their_turn(alice, monkeypatch):
    still_loading, ready = inviting_gang(alice, "a"), inviting_gang(alice, "b")
    be_old(still_loading, minutes=20)
    be_ready(joining(ready))
    monkeypatch.setattr(growing, "LOOK_SECONDS_MAX", 0)
    assert grow() == 1
    assert len(members(ready)) == 3


def test_no_more_nodes_are_invited_than_a_look_sees(alice, monkeypatch):
    inviting_gang(alice, "a")
    other = gang(alice, "b")
    monkeypatch.setattr(growing, "JOINERS_MAX", 1)
    assert grow() == 0
    monkeypatch.setattr(growing, "JOINERS_MAX", 2)
    assert grow() == 1
    assert joining(other)


def test_gangs_that_may_invite_take_turns(alice, monkeypatch):
    jobs = [gang(alice, name) for name in "ab"]
    monkeypatch.setattr(growing, "INVITES_MAX", 1)
    assert (grow(), Lease.objects.joining().count()) == (1, 1)
    assert (grow(), [len(joining(job)) for job in jobs]) == (1, [1, 1])


def test_who_waited_in_vain_for_very_long_is_free_without_a_mark(alice):
    """The sweep ends it where no look does, and it is not its node that did not start."""
    job = inviting_gang(alice, "rack", joiners=2)
    leases = joining(job)
    be_ready(leases)
    long_ago = timezone.now() - timedelta(seconds=PREPARE_SECONDS_MAX + 1)
    Lease.objects.filter(pk=leases[0].pk).update(active_at=long_ago)
    sweeps.sweep_leases()
    assert not joining(job)
    for lease in leases:
        lease.refresh_from_db()
        assert (lease.state, lease.end_reason, lease.charge_units) == ("ended", Reason.NOT_JOINED, 0)
        assert Node.objects.get(pk=lease.node_id).failures == 0
    attempt = stage.newest_attempt(job)
    assert (attempt.state, attempt.generation) == ("running", 0)
    assert [lease.stop_reason for lease in members(job)] == ["", ""]


def test_a_node_that_joined_is_not_given_up_by_the_sweep(alice):
    job = inviting_gang(alice, "rack")
    (third,) = joining(job)
    be_ready([third])
    assert grow() == 1
    assert sweeps._give_up_growths(timezone.now() + timedelta(days=1)) == 0
    assert third in members(job)


# For whom they make way.


@pytest.mark.parametrize("is_ready", [False, True])
@pytest.mark.parametrize(("priority", "makes_way"), [(50, True), (80, True), (20, False)])
def test_a_job_that_comes_after_the_invitation_has_the_node(alice, priority, makes_way, is_ready):
    job = inviting_gang(alice, "rack")
    (third,) = joining(job)
    if is_ready:
        be_ready([third])
        for lease in members(job):
            stage.see_running(lease, seconds=400)  # the next checkpoint is waited for
    waits = wait_for({"gpus": 2}, priority=priority)
    assert placement.place_waiting() == 0
    assert grow() == makes_way
    assert bool(joining(job)) != makes_way
    assert placement.place_waiting() == makes_way
    assert [lease.node_id for lease in Lease.objects.filter(attempt__job=waits)] == [third.node_id] * makes_way
    assert Node.objects.get(pk=third.node_id).failures == 0
    assert stage.newest_attempt(job).state == AttemptState.RUNNING


def test_a_job_that_could_not_use_the_node_changes_nothing(alice):
    job = inviting_gang(alice, "rack")
    wait_for(TOO_LARGE, priority=80)
    assert grow() == 0
    be_ready(joining(job))
    assert grow() == 1
    assert len(members(job)) == 3


@pytest.mark.parametrize(("most", "is_grown"), [(2, True), (1, False)])
def test_nothing_grows_while_more_jobs_wait_than_are_looked_at(alice, monkeypatch, most, is_grown):
    gang(alice, "rack")
    for _ in range(2):
        wait_for(priority=80)
    monkeypatch.setattr(growing_looks, "WAITING_MAX", most)
    assert grow() == is_grown


def test_a_waiting_job_that_cannot_be_read_keeps_no_gang_from_growing(alice):
    gang(alice, "rack")
    broken = wait_for(priority=80)
    Job.objects.filter(pk=broken.pk).update(spec=broken.spec | {"resources": "many"})
    assert growing.grow(Reservations()) == 1


# Two at once.


@pytest.mark.parametrize("is_reversed", [False, True])
def test_giving_up_writes_nodes_in_their_order(alice, is_reversed):
    """So two jobs that give up the same nodes never wait for each other, whatever rank each has given them."""
    job = inviting_gang(alice, "rack", joiners=2)
    leases = sorted(joining(job), key=lambda lease: lease.node_id)
    failed = {"reported_state": AttemptState.FAILED.value, "reported_reason": Reason.EXECUTOR_FAILED.value}
    for rank, lease in enumerate(sorted(leases, key=lambda lease: lease.node_id, reverse=is_reversed)):
        Lease.objects.filter(pk=lease.pk).update(node_rank=10 + rank, **failed)
    with CaptureQueriesContext(connection) as asked, transaction.atomic():
        assert joins.give_up(stage.newest_attempt(job)) == 2
    written = [query["sql"] for query in asked if query["sql"].startswith('UPDATE "nodes_node"')]
    found = [[lease.node_id for lease in leases if lease.node_id.hex in sql] for sql in written]
    assert found == [[lease.node_id] for lease in leases]

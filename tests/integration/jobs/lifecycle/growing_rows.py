"""Rows of a training of two to four nodes that grows: its rack, its gang, and what the agents of who joins report."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from jobs.matching.reservations import Reservations
from jobs.models import Attempt, Lease
from jobs.placing import growing
from jobs.placing.growing_gangs import FEATURE
from jobs.running import generations
from jobs.running.assignments import desired_state
from marketplace.nodes.models import Node
from provider_agent.protocol import Assignment, AttemptState
from tests import stage
from tests.integration.jobs.lifecycle.gang_rows import follow, report_of, resumed, save
from tests.stage import DOLLAR

PRICE = DOLLAR // 10
SLOW = 1e8  # FLOP/s of a device: a hundred steps take hours
RANGE = {"gpus": 2, "nodes": "2..4", "kind": "any"}


def rack(count, *, name="rack", price=PRICE, flops=SLOW, features=(generations.FEATURE, FEATURE)):
    """Equal nodes of Bob that reach each other; their agents know gangs of other sizes."""
    from marketplace.accounts.models import Organisation

    bob = Organisation.objects.filter(name="bob").first() or stage.organisation("bob")
    first = Node.objects.count()
    nodes = [
        stage.node(f"{name}-{first + i}", fabric=name, provider=bob, price_usd_micros=price, flops=flops)
        for i in range(count)
    ]
    for node in nodes:
        node.facts |= {"runtime_features": list(features)}
        node.save(update_fields=["facts"])
    return nodes


def train(alice, *, resources=RANGE, **changes):
    """A training on two nodes that has run for 100 s, with a checkpoint of step 10 at 90 s."""
    job, leases = stage.running_job(alice, resources=resources, **changes)
    for lease in leases:
        stage.see_running(lease, seconds=100)
        stage.bill(lease, ms=100_000)
    follow(leases, follows_sizes=True)
    save(job, leases, step=10, ms=90_000)
    return job, leases


def grow():
    """One look at what may grow; how many gangs changed."""
    return growing.grow(Reservations())


def joining(job):
    found = Lease.objects.joining().filter(attempt__job=job).select_related("node", "attempt")
    return list(found.order_by("node_rank"))


def members(job):
    found = stage.newest_attempt(job).leases.members()
    return list(found.select_related("node", "attempt__job").order_by("node_rank"))


def be_ready(leases):
    """The programs of who joins have loaded, and wait."""
    for lease in leases:
        stage.send_report(lease, AttemptState.PREPARING, follows_generations=True, follows_sizes=True)


def grown(alice, count=1, **changes):
    """A gang that has grown by so many nodes, which run: (job, its leases by rank)."""
    job, _ = train(alice, **changes)
    assert grow() == 1
    be_ready(joining(job))
    assert grow() == 1
    for lease in members(job):
        stage.send_report(lease, AttemptState.RUNNING, follows_generations=True, follows_sizes=True, generation=1)
    resumed(members(job)[0], 10)
    assert len(members(job)) == 2 + count
    return job, members(job)


def rest(job):
    """As if its last growth was long ago."""
    Attempt.objects.filter(job=job).update(grown_at=timezone.now() - timedelta(hours=1))


def assignment_of(lease, reports=()):
    """What the node of a lease is ordered to run, where its agent reports these leases."""
    found = desired_state(Node.objects.get(pk=lease.node_id), list(reports))[1]
    (desired,) = [each for each in found if each.lease_id == lease.pk]
    return Assignment.model_validate_json(desired.assignment.payload) if desired.assignment else None


def known(lease, generation=0):
    """The report of an agent that has the assignment of this generation."""
    return [report_of(Lease.objects.get(pk=lease.pk), generation=generation)]

"""What broke a gang first names its end, not what was reported first: who loses a peer dies of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs.models import Job, Lease
from jobs.placing import placement
from jobs.running import lost_nodes, reports
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, Reason
from tests import stage

pytestmark = pytest.mark.django_db(transaction=True)

ABORTED = 128 + 6
MINUTES_10 = 600


def running_gang(alice: Organisation, **changes: Any) -> tuple[Job, Lease, Lease]:
    """Two of Bob's nodes that have run for ten minutes and have receipts for it."""
    bob = stage.organisation("bob")
    for name in ("first", "second"):
        stage.node(name, fabric="rack", provider=bob)
    job, leases = stage.running_job(alice, resources={"gpus": 2, "nodes": 2, "kind": "any"}, **changes)
    for lease in leases:
        stage.see_running(lease, seconds=MINUTES_10)
        stage.bill(lease, ms=MINUTES_10 * 1000)
    first, second = leases
    return job, first, second


def fall_silent(lease: Lease) -> None:
    """It was last seen 18 s ago."""
    seen = timezone.now() - timedelta(seconds=18)
    Lease.objects.filter(pk=lease.pk).update(observed_until=seen)
    Node.objects.filter(pk=lease.node_id).update(last_seen_at=seen)


def charges(*leases: Lease) -> list[int | None]:
    return [Lease.objects.get(pk=each.pk).charge_usd_micros for each in leases]


def failures(*leases: Lease) -> list[int]:
    return [Node.objects.get(pk=each.node_id).failures for each in leases]


@pytest.mark.parametrize("reason", [Reason.EXIT_NONZERO, Reason.PROCESS_VANISHED])
def test_a_peer_that_aborts_before_the_lost_node_is_missed_is_not_the_cause(alice, reason: Reason) -> None:
    job, lost, peer = running_gang(alice)
    fall_silent(lost)
    stage.finish(peer, reason, exit_code=ABORTED, message="the program was ended by the signal SIGABRT")
    assert lost_nodes.sweep_silent_nodes() == 1
    job.refresh_from_db()
    attempt = stage.newest_attempt(job)
    assert (job.state, attempt.reason, attempt.fault) == ("recovering", "node_silent", "provider")
    assert (charges(lost, peer), failures(lost, peer)) == ([0, 0], [1, 0])


def test_an_own_command_that_dies_of_a_lost_peer_is_not_the_customers_fault(alice) -> None:
    job, lost, peer = running_gang(alice, **stage.OWN_COMMAND)
    fall_silent(lost)
    stage.finish(peer, Reason.EXIT_NONZERO, exit_code=1, message="RuntimeError: connection closed by peer")
    lost_nodes.sweep_silent_nodes()
    assert (stage.newest_attempt(job).reason, charges(lost, peer)) == ("node_silent", [0, 0])


def test_of_two_that_vanished_the_one_that_aborted_lost_its_peer(alice) -> None:
    job, rebooted, peer = running_gang(alice)
    stage.finish(peer, Reason.PROCESS_VANISHED, exit_code=ABORTED)
    reports.lose(rebooted.pk, Reason.PROCESS_VANISHED, "The node's agent no longer knows this lease.")
    attempt = stage.newest_attempt(job)
    assert (attempt.reason, attempt.message) == ("process_vanished", "The node's agent no longer knows this lease.")
    assert failures(rebooted, peer) == [1, 0]
    assert placement.request_of(Job.objects.get(pk=job.pk)).demand.avoid == {rebooted.node_id}


def test_an_own_command_that_fails_by_itself_on_both_nodes_is_the_customers(alice) -> None:
    job, first, second = running_gang(alice, **stage.OWN_COMMAND)
    stage.finish(first, Reason.EXIT_NONZERO, exit_code=1, message="ValueError")
    stage.finish(second, Reason.GANG_BROKEN)
    job.refresh_from_db()
    assert (job.state, stage.newest_attempt(job).fault) == ("failed", "customer")
    assert all(charges(first, second))


def test_a_node_that_falls_silent_long_after_a_program_failed_did_not_cause_it(alice) -> None:
    job, first, second = running_gang(alice, **stage.OWN_COMMAND)
    stage.finish(first, Reason.EXIT_NONZERO, exit_code=1)
    Lease.objects.filter(pk=first.pk).update(reported_at=timezone.now() - timedelta(seconds=60))
    reports.lose(second.pk, Reason.NODE_SILENT, "The node stopped answering.")
    assert stage.newest_attempt(job).reason == "exit_nonzero"


def test_a_gang_that_only_aborted_is_broken_by_the_first_of_them(alice) -> None:
    job, first, second = running_gang(alice)
    stage.finish(first, Reason.PROCESS_VANISHED, exit_code=ABORTED)
    stage.finish(second, Reason.PROCESS_VANISHED, exit_code=ABORTED)
    assert (stage.newest_attempt(job).reason, failures(first, second)) == ("process_vanished", [1, 0])


def test_a_node_that_was_cut_off_is_lost_and_its_peer_that_survives_is_not_blamed(alice) -> None:
    job, cut_off, peer = running_gang(alice)
    fall_silent(cut_off)
    lost_nodes.sweep_silent_nodes()
    peer.refresh_from_db()
    assert peer.stop_reason == Reason.GANG_BROKEN
    stage.finish(peer, Reason.GANG_BROKEN)
    assert (stage.newest_attempt(job).reason, failures(cut_off, peer)) == ("node_silent", [1, 0])


@pytest.mark.parametrize("number", [4, 6, 7, 9, 11, 15])
def test_our_own_runtime_that_ends_by_a_signal_is_never_the_customers_fault(
    alice: Organisation, bob: Node, number: int
) -> None:
    job, (lease,) = stage.running_job(alice)
    stage.see_running(lease, seconds=MINUTES_10)
    stage.bill(lease, ms=MINUTES_10 * 1000)
    stage.finish(lease, Reason.EXIT_NONZERO, exit_code=128 + number)  # as agents from before name it
    job.refresh_from_db()
    attempt = stage.newest_attempt(job)
    assert (job.state, attempt.reason, attempt.fault) == ("recovering", "process_vanished", "provider")
    assert charges(lease) == [0]


@pytest.mark.parametrize("code", [1, 2, 125, 127])
def test_a_code_that_no_training_ends_with_is_not_the_customers_fault(
    alice: Organisation, bob: Node, code: int
) -> None:
    """A node whose runtime does not start, or torchrun that loses its peers: agents called these `exit_nonzero`."""
    job, (lease,) = stage.running_job(alice)
    stage.see_running(lease, seconds=MINUTES_10)
    stage.bill(lease, ms=MINUTES_10 * 1000)
    stage.finish(lease, Reason.EXIT_NONZERO, exit_code=code)
    job.refresh_from_db()
    attempt = stage.newest_attempt(job)
    assert (job.state, attempt.reason, charges(lease)) == ("recovering", "internal", [0])
    assert placement.request_of(job).demand.avoid == {bob.pk}, "else it would take every attempt"


def test_an_output_that_can_never_be_kept_still_is(alice: Organisation, bob: Node) -> None:
    _, (lease,) = stage.running_job(alice)
    stage.finish(lease, Reason.EXIT_NONZERO, exit_code=0, message="the output was not kept")
    assert stage.newest_attempt(Job.objects.get()).fault == "customer"


def test_an_own_command_that_ends_by_a_signal_still_is(alice: Organisation, bob: Node) -> None:
    job, (lease,) = stage.running_job(alice, **stage.OWN_COMMAND)
    stage.send_report(lease, AttemptState.STOPPING)
    stage.finish(lease, Reason.EXIT_NONZERO, exit_code=128 + 9)
    assert stage.newest_attempt(job).fault == "customer"

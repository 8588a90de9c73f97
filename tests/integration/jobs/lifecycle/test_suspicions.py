"""A gang's node that loses a peer has all nodes asked for a beat: who sends none is lost at once, who does is not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobs.models import Lease
from jobs.placing import replacing
from jobs.running import lost_nodes, suspicions
from jobs.running.assignments import desired_state
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState
from tests import stage
from tests.integration.jobs.lifecycle.gang_rows import follow, report_of, save

pytestmark = pytest.mark.django_db(transaction=True)


def report_lost_peer(lease, generation=0):
    stage.send_report(lease, AttemptState.RUNNING, follows_generations=True, lost_peer=True, generation=generation)


def beat(lease, seconds=0.0):
    """The newest beat of its node came so many seconds ago."""
    Node.objects.filter(pk=lease.node_id).update(last_seen_at=clock.now() - timedelta(seconds=seconds))


def ask(job, seconds=3.0):
    """Its nodes were asked for a beat so many seconds ago."""
    attempt = stage.newest_attempt(job)
    assert attempt.suspected_at is not None
    attempt.suspected_at = clock.now() - timedelta(seconds=seconds)
    attempt.save(update_fields=["suspected_at"])


def reported_state(lease):
    return Lease.objects.get(pk=lease.pk).reported_state


def test_a_node_that_sends_no_beat_is_replaced_within_seconds(gang, rack):
    job, (stays, silent) = gang
    report_lost_peer(stays)
    ask(job)
    beat(stays), beat(silent, seconds=7)
    assert lost_nodes.sweep_silent_nodes() == 1
    assert replacing.replace_lost() == 1
    silent.refresh_from_db()
    assert (silent.state, silent.end_reason) == ("ended", "node_silent")
    attempt = stage.newest_attempt(job)
    assert (attempt.generation, attempt.suspected_at) == (1, None)
    assert Node.objects.get(pk=silent.node_id).state == "online"  # 7 s are too short to say that it is away


def test_a_node_that_beats_is_not_lost_whatever_another_reports(gang):
    job, (liar, other) = gang
    report_lost_peer(liar)
    ask(job, seconds=60)
    beat(liar), beat(other, seconds=12)  # since it was asked; by itself that is not yet silence
    assert lost_nodes.sweep_silent_nodes() == 0
    assert reported_state(other) == "running"


def test_nobody_is_lost_before_the_time_to_answer_is_over(gang):
    job, (stays, silent) = gang
    report_lost_peer(stays)
    ask(job, seconds=suspicions.ANSWER_SECONDS - 1)
    beat(stays), beat(silent, seconds=7)
    assert lost_nodes.sweep_silent_nodes() == 0


def test_a_healthy_node_that_was_not_reached_is_not_lost(gang):
    """Nobody held its sync, or Redis lost the word: it beats every 5 s."""
    job, (stays, other) = gang
    report_lost_peer(stays)
    ask(job, seconds=4.5)
    beat(stays), beat(other, seconds=5.5)
    assert lost_nodes.sweep_silent_nodes() == 0


def test_where_no_node_of_the_gang_answers_nobody_is_lost(gang):
    """As while the sync process restarts."""
    job, (stays, silent) = gang
    report_lost_peer(stays)
    ask(job)
    beat(stays, seconds=7), beat(silent, seconds=8)
    assert lost_nodes.sweep_silent_nodes() == 0


def test_all_nodes_of_the_gang_are_asked_once_a_generation(gang):
    job, (stays, silent) = gang
    before = [desired_state(lease.node, [report_of(lease)])[0] for lease in (stays, silent)]
    report_lost_peer(stays)
    first = stage.newest_attempt(job).suspected_at
    asked = [desired_state(lease.node, [report_of(lease)])[0] for lease in (stays, silent)]
    assert not set(before) & set(asked)
    report_lost_peer(stays), report_lost_peer(silent)
    assert stage.newest_attempt(job).suspected_at == first
    assert [desired_state(lease.node, [report_of(lease)])[0] for lease in (stays, silent)] == asked


def test_the_other_leases_of_an_unheard_node_go_on(alice, gang):
    job, (stays, silent) = gang
    other, (elsewhere,) = stage.running_job(alice)
    Lease.objects.filter(pk=elsewhere.pk).update(node=silent.node)
    report_lost_peer(stays)
    ask(job)
    beat(stays), beat(silent, seconds=7)
    assert lost_nodes.sweep_silent_nodes() == 1
    assert reported_state(elsewhere) == "running"
    other.refresh_from_db()
    assert other.state == "running"


@pytest.mark.parametrize("change", ["another generation", "a program that joins none", "not running"])
def test_whose_report_asks_nobody(alice, rack, change):
    job, (stays, other) = stage.running_job(alice, resources={"gpus": 2, "nodes": 2, "kind": "any"})
    save(job, [stays, other], step=50, ms=1000)
    if change != "a program that joins none":
        follow([stays, other])
    if change == "not running":
        stage.send_report(stays, AttemptState.STOPPING, follows_generations=True, lost_peer=True)
    elif change == "another generation":
        report_lost_peer(stays, generation=1)
    else:
        stage.send_report(stays, AttemptState.RUNNING, lost_peer=True)
    assert stage.newest_attempt(job).suspected_at is None

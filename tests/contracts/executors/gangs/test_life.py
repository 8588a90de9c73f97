"""A gang's network from its making to its end, with agents and daemons killed in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial

import pytest

from provider_agent.keys import load_keys
from provider_agent.protocol import AttemptState, CheckpointPolicy, OverlayKind, Program, Reason
from tests.contracts.executors.gangs.bare import daemons
from tests.contracts.executors.gangs.conftest import Gang
from tests.contracts.executors.gangs.talking import TALK, has_ended
from tests.integration.provider_agent.conftest import eventually
from tests.integration.provider_agent.fake_leases import Artifact, Lease

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

TRAIN_SECONDS_MAX = 200.0
CONFIG = {"sequence_length": 32, "global_batch_size": 4, "warmup_steps": 2, "evaluate_every": 0, "steps": 4}

Make = Callable[[OverlayKind], Gang]
# What is the same however a gang's network is made is tried on one of them.
KINDS = ["wireguard", pytest.param("plain", marks=pytest.mark.soak)]


@pytest.mark.soak  # the next test begins with such a gang
@pytest.mark.parametrize("kind", KINDS)
def test_two_containers_train_one_model_over_their_own_network(make_gang: Make, kind: OverlayKind) -> None:
    gang = make_gang(kind)
    program = Program(runtime="train", config=CONFIG)
    path = {"PYTHONPATH": "/souk-lent/souk:/souk-lent/site"}
    leases = gang.start(program, env=path, lent=["site", "souk"])
    for lease in leases:
        eventually(partial(has_ended, lease), "the end", TRAIN_SECONDS_MAX)
        assert lease.report.reason is Reason.COMPLETED, lease.logs[-3000:]
    eventually(lambda: len(leases[0].events) == leases[0].report.event_bytes, "the last event")
    happened = [json.loads(line) for line in leases[0].events.splitlines()]
    assert next(each for each in happened if each["event"] == "started")["world_size"] == 2
    assert happened[-1]["event"] == "finished"
    assert f"network: the gang's alone ({kind})" in gang.log(0)
    assert [gang.left(rank) for rank in (0, 1)] == [[], []]


@pytest.mark.parametrize("kind", KINDS)
def test_container_goes_on_with_another_in_a_lost_ones_place(make_gang: Make, kind: OverlayKind) -> None:
    gang = make_gang(kind)
    program = Program(runtime="train", config=CONFIG | {"steps": 100_000})
    path = {"PYTHONPATH": "/souk-lent/souk:/souk-lent/site"}
    policy = CheckpointPolicy(every_steps=20)
    stays, lost = gang.start(program, env=path, lent=["site", "souk"], checkpoint=policy)
    step = eventually(gang.saved, "a checkpoint of both", TRAIN_SECONDS_MAX)
    assert stays.report is not None and stays.report.follows_generations
    assert f"network: the gang's alone ({kind})" in gang.log(0)
    before = container_of(gang, stays)
    gang.members[1].server.stop_lease(lost, Reason.NODE_DRAINED)
    eventually(partial(has_ended, lost), "the end of rank 1")
    assert not has_ended(stays)
    other = gang.replace(1, resume=gang.put_together(step))
    eventually(lambda: stays.report is not None and stays.report.generation == 1, "the next generation to be taken up")
    gang.says(0, f"Generation 1 of the gang begins at step {step}.", TRAIN_SECONDS_MAX)
    eventually(lambda: b'"resumed"' in stays.events, "the next generation to go on", TRAIN_SECONDS_MAX)
    newest = eventually(lambda: of_generation(gang, 1), "its first checkpoint", TRAIN_SECONDS_MAX)
    assert all(each.begin.step > step for each in newest)
    assert "Generation 1" not in gang.log(1), "it began in it"
    assert container_of(gang, stays) == before
    assert stays.report is not None and stays.report.state is AttemptState.RUNNING
    for rank, lease in ((0, stays), (1, other)):
        gang.members[rank].server.stop_lease(lease, Reason.CANCELLED_BY_CUSTOMER)
    for lease in (stays, other):
        eventually(partial(has_ended, lease), "the end", TRAIN_SECONDS_MAX)
    eventually(lambda: [gang.left(rank) for rank in (0, 1)] == [[], []], "nothing to be left")


def of_generation(gang: Gang, number: int) -> list[Artifact]:
    """What has arrived of both members of one generation's checkpoints; nothing before both have sent one."""
    found = [
        [each for each in member.server.artifacts.values() if each.is_complete and each.begin.generation == number]
        for member in gang.members
    ]
    return [*found[0], *found[1]] if all(found) else []


def container_of(gang: Gang, lease: Lease) -> tuple[str, str]:
    """Its id, and when it was started."""
    command = ["docker", "--host", gang.members[0].engine, "inspect", f"souk-{lease.assignment.lease_id}"]
    (found,) = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found["Id"], found["State"]["StartedAt"]


@pytest.mark.parametrize("kind", KINDS)
def test_network_outlives_the_agent_and_ends_with_the_lease(make_gang: Make, kind: OverlayKind) -> None:
    gang = make_gang(kind)
    facts = gang.members[0].server.enrolled.facts
    assert (facts.gang, facts.fabric_key) == (kind, load_keys(gang.members[0].data).fabric_public_hex)
    leases = gang.command(TALK)
    gang.says(0, "received 5 ")
    assert "interfaces ['lo', 'souk0']" in gang.log(0)
    before = gang.left(0)
    assert before
    gang.members[0].stop(signal.SIGKILL)
    gang.members[0].restart()
    eventually(lambda: gang.left(0) == before, "the next agent to adopt it as it is")
    received = gang.log(0).count("received")
    gang.says(0, f"received {received + 20} ")
    gang.members[0].server.stop_lease(leases[0], Reason.CANCELLED_BY_CUSTOMER)
    eventually(partial(has_ended, leases[0]), "the end of rank 0")
    assert gang.left(0) == []
    assert gang.left(1) != []
    # Rank 1's agent is dead when its program ends: the next one sweeps.
    gang.members[1].stop(signal.SIGKILL)
    (gang.members[1].folder.lease(leases[1].assignment.lease_id) / "work" / "enough").touch()
    gang.members[1].restart()
    eventually(partial(has_ended, leases[1]), "the end of rank 1")
    eventually(lambda: gang.left(1) == [], "the sweep")


def test_connection_survives_the_end_of_wireguards_process(make_gang: Make) -> None:
    gang = make_gang("wireguard")
    leases = gang.command(TALK)
    gang.says(0, "received 5 ")
    name = gang.members[0].overlay(leases[0]).name
    running = daemons(name)
    if not running:
        pytest.skip("the kernel has WireGuard itself: there is no process to end")
    os.kill(running[0], signal.SIGKILL)
    eventually(lambda: daemons(name) not in ([], running), "another one")
    received = gang.log(0).count("received")
    gang.says(0, f"received {received + 20} ")

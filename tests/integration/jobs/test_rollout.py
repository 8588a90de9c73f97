"""A release of the agent goes to a share of the nodes, then to more, and halts when nodes roll it back."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from pytest_django import Settings

from jobs import sweeps
from marketplace.nodes.errors import ReleaseUnfit
from marketplace.nodes.inventory import devices
from marketplace.nodes.models import AgentRelease, Node
from marketplace.nodes.releases import catalogue, progress, publishing, rollout
from marketplace.nodes.states import ReleaseState
from provider_agent.protocol import NodeFacts, Rollback, UpdateFacts
from tests.integration.jobs.rolling_out import SHA, check_in, node, offered_to, publish, roll_back, state
from tests.row_states import create_in_state, put_in_state

pytestmark = pytest.mark.django_db


def test_the_first_release_of_an_empty_market_has_nobody_to_be_tried_on() -> None:
    assert publish("0.1.0").state == ReleaseState.COMPLETE
    assert catalogue.installable() == AgentRelease.objects.get()


def test_a_release_goes_to_a_share_then_to_more_then_to_all(settings: Settings) -> None:
    settings.SOUK_ROLLOUT_CHECKED_IN_MIN = 2
    everybody = {node(number).name for number in range(20)}
    create_in_state(
        AgentRelease,
        "complete",
        version="0.1.0",
        wheel="w",
        sha256=SHA,
        share=1,
        stage_at=timezone.now(),
        published_at=timezone.now(),
    )
    publish("0.2.0", share=0.1)
    rollout.sweep()
    first = offered_to("0.2.0")
    assert len(first) == 2
    rollout.sweep()
    assert offered_to("0.2.0") == first, "the same nodes, however often it is swept"
    assert catalogue.installable().version == "0.1.0", "new nodes do not get it while it is tried"
    check_in("0.2.0", *list(first)[:1])
    rollout.sweep()
    assert offered_to("0.2.0") == first, "one of two is not enough"
    check_in("0.2.0", *first)
    rollout.sweep()  # raises the stage
    rollout.sweep()  # and reports
    assert len(offered_to("0.2.0")) == 5
    check_in("0.2.0", *offered_to("0.2.0"))
    rollout.sweep()
    rollout.sweep()
    assert offered_to("0.2.0") == everybody
    check_in("0.2.0", *everybody)
    rollout.sweep()
    assert state("0.2.0") == ReleaseState.COMPLETE
    assert catalogue.installable().version == "0.2.0"


def test_who_is_tried_first_is_not_always_the_same() -> None:
    for number in range(12):
        node(number)
    drawn = set()
    for minor in range(2, 10):
        publish(f"0.{minor}.0", share=0.05)
        rollout.sweep()
        drawn |= offered_to(f"0.{minor}.0")
    assert len(drawn) > 2


def test_one_rollback_stalls_and_the_limit_halts_and_nobody_is_offered_it_any_more(settings: Settings) -> None:
    settings.SOUK_ROLLOUT_ROLLBACKS_MAX = 2
    settings.SOUK_ROLLOUT_CHECKED_IN_MIN = 1
    for number in range(8):
        node(number)
    publish("0.2.0", share=0.5)
    rollout.sweep()
    bad, worse, *good = sorted(offered_to("0.2.0"))
    check_in("0.2.0", *good)
    roll_back("0.2.0", bad)
    rollout.sweep()
    assert (state("0.2.0"), AgentRelease.objects.get().share) == (ReleaseState.ROLLING, 0.5)
    assert progress.progress_of(AgentRelease.objects.get()).waiting == 2, (
        "one that is at it still, and one in the place of the bad"
    )
    roll_back("0.2.0", worse)
    rollout.sweep()
    assert state("0.2.0") == ReleaseState.HALTED
    assert offered_to("0.2.0") == set(good), "nobody but those who have it already"
    assert "2 nodes rolled it back" in progress.status()["reason"]
    rollout.resume(actor="operator:1")
    rollout.sweep()
    assert state("0.2.0") == ReleaseState.ROLLING, "what the operator has seen is forgiven"
    assert not {bad, worse} & offered_to("0.2.0")


def test_a_rollback_after_the_end_halts_too(settings: Settings) -> None:
    settings.SOUK_ROLLOUT_ROLLBACKS_MAX = 1
    late = node(1)
    publish("0.2.0", share=1)
    put_in_state(AgentRelease.objects.all(), ReleaseState.COMPLETE)
    rollout.sweep()
    roll_back("0.2.0", late.name)
    rollout.sweep()
    assert state("0.2.0") == ReleaseState.HALTED


def test_a_pause_withdraws_what_was_not_begun_and_a_new_release_supersedes() -> None:
    node(1)
    publish("0.2.0", share=1)
    rollout.sweep()
    assert offered_to("0.2.0")
    rollout.pause(actor="operator:1")
    rollout.sweep()
    assert offered_to("0.2.0") == set()
    publish("0.3.0", share=1)
    assert state("0.2.0") == ReleaseState.WITHDRAWN
    rollout.sweep()
    assert offered_to("0.3.0")


@pytest.mark.parametrize("version", ["0.1.9", "0.2", "0.2.0.0"])
def test_versions_only_rise(version: str) -> None:
    publish("0.2.0")
    with pytest.raises(ReleaseUnfit):
        publish(version)
    assert AgentRelease.objects.count() == 1


def test_a_provider_who_updates_by_hand_is_offered_it_last_and_waited_for_by_nobody(settings: Settings) -> None:
    settings.SOUK_ROLLOUT_CHECKED_IN_MIN = 3
    by_hand, by_itself = node(1, mode="manual"), node(2)
    node(3, mode="none")
    node(4, state="retired")
    publish("0.2.0")
    rollout.sweep()
    assert offered_to("0.2.0") == {by_itself.name}
    for _ in range(6):
        check_in("0.2.0", by_itself.name)
        rollout.sweep()
    assert state("0.2.0") == ReleaseState.COMPLETE
    assert offered_to("0.2.0") == {by_hand.name, by_itself.name}


def test_going_back_reaches_who_has_the_release_and_nobody_else() -> None:
    high, low = node(1, version="0.3.0"), node(2, version="0.2.0")
    for version in ("0.2.0", "0.3.0"):
        publish(version, share=1)
    publishing.roll_back_to("0.2.0", actor="operator:1")
    rollout.sweep()
    assert offered_to("0.2.0") == {high.name}
    assert AgentRelease.objects.get(version="0.2.0").rollback_from == "0.3.0"
    assert state("0.3.0") == ReleaseState.WITHDRAWN
    assert low.name not in offered_to("0.2.0")


def test_the_node_reports_what_it_rolled_back_and_since_when_it_has_its_version() -> None:
    one = node(1)
    device = one.devices.all()[0]
    facts = NodeFacts.model_validate(
        {
            "agent_version": "0.2.0", "operating_system": "Debian", "kernel": "6", "cpu_model": "x", "cpu_count": 2,
            "memory_mib": 4096, "disk_free_mib": 10, "executor": "process",
            "devices": [{"uuid": device.uuid, "index": 0, "kind": "cpu", "model": "x", "memory_mib": 1000}],
        }
    )  # fmt: skip
    rollback = Rollback(version="0.3.0", reason="it did not check in", at=timezone.now())
    devices.update_facts(one, facts.model_copy(update={"updates": UpdateFacts(mode="manual", rolled_back=rollback)}))
    seen = Node.objects.get(pk=one.pk)
    assert (seen.agent_version, seen.update_mode, seen.rolled_back_version) == ("0.2.0", "manual", "0.3.0")
    assert seen.agent_version_at is not None
    since = seen.agent_version_at
    devices.update_facts(seen, facts)
    again = Node.objects.get(pk=one.pk)
    assert (again.agent_version_at, again.rolled_back_version, again.update_mode) == (since, "", "none")


def test_the_operators_command_shows_and_refuses(settings: Settings) -> None:
    def ask(*words: str) -> dict[str, Any]:
        out = io.StringIO()
        call_command("rollout", *words, "--json", stdout=out)
        return json.loads(out.getvalue())

    assert ask("status") == {"release": None}
    with pytest.raises(CommandError, match="no release"):
        call_command("rollout", "pause")
    node(1)
    publish("0.2.0")
    assert ask("set", "--share", "0.4")["share"] == 0.4
    assert offered_to("0.2.0") == {"node-1"}, "at once"
    with pytest.raises(CommandError, match="at most 1"):
        call_command("rollout", "set", "--share", "1.5")
    shown = ask("status")
    for old, new in shown["deprecated"].items():
        assert old in {"told", "took_it_back", "installs"} and shown[old] == shown[new], "for one version more"
    assert shown["waiting"] == 1
    assert ask("pause")["state"] == "paused"
    assert offered_to("0.2.0") == set()
    assert ask("resume")["state"] == "rolling"
    assert sweeps.sweep_releases() == 0, "it was done already"

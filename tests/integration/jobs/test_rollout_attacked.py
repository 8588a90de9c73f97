"""A rollout among nodes that vanish, lie, are long dead or very few, and sweeps that run at the same moment."""

from __future__ import annotations

import io
from datetime import timedelta
from functools import partial
from threading import Thread
from unittest.mock import patch

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from pytest_django import Settings

from marketplace.nodes.models import AgentRelease, Node
from marketplace.nodes.releases import progress, publishing, rollout
from marketplace.nodes.states import ReleaseState
from tests.integration.jobs.rolling_out import check_in, node, offered_to, publish, roll_back, state
from tests.integration.racing import race
from tests.row_states import put_in_state

pytestmark = pytest.mark.django_db
MANY = 12


def set_state(names: set[str], to: str) -> None:
    put_in_state(Node.objects.filter(name__in=names), to)


def test_nodes_that_fall_silent_with_a_release_are_not_replaced_by_others() -> None:
    """A release that takes its node off the network must stop at its first stage."""
    for number in range(MANY):
        node(number)
    publish("0.2.0")
    first: set[str] = set()
    for _ in range(MANY):
        rollout.sweep()
        first |= offered_to("0.2.0")
        set_state(offered_to("0.2.0"), "offline")
    assert len(first) == 1


def test_nodes_that_checked_in_and_then_fell_silent_raise_no_stage(settings: Settings) -> None:
    settings.SOUK_ROLLOUT_CHECKED_IN_MIN = 3
    for number in range(MANY):
        node(number)
    publish("0.2.0", share=0.4)
    rollout.sweep()
    first = offered_to("0.2.0")
    assert len(first) == 5
    check_in("0.2.0", *first)
    set_state(set(sorted(first)[:4]), "offline")
    rollout.sweep()
    assert AgentRelease.objects.get().share == 0.4, "one of five is left"
    set_state(first, "online")
    rollout.sweep()
    assert AgentRelease.objects.get().share == 1.0


def test_a_later_stage_is_judged_by_its_own_nodes_too(settings: Settings) -> None:
    settings.SOUK_ROLLOUT_CHECKED_IN_MIN = 1
    for number in range(20):
        node(number)
    publish("0.2.0")
    rollout.sweep()
    check_in("0.2.0", *offered_to("0.2.0"))
    rollout.sweep()
    rollout.sweep()
    assert (AgentRelease.objects.get().share, len(offered_to("0.2.0"))) == (0.25, 5)
    AgentRelease.objects.update(stage_at=timezone.now() - timedelta(hours=1))
    rollout.sweep()
    assert AgentRelease.objects.get().share == 0.25, "of five that were offered it one has it, from the stage before"


def test_dead_nodes_make_no_stage_larger() -> None:
    for number in range(40):
        node(number, state="offline" if number >= 4 else "online")
    publish("0.2.0", share=0.1)
    rollout.sweep()
    assert len(offered_to("0.2.0")) == 1, "a tenth of those that are there"


def test_a_node_that_never_comes_back_keeps_no_release_from_its_end(settings: Settings) -> None:
    settings.SOUK_ROLLOUT_CHECKED_IN_MIN = 1
    names = {node(number).name for number in range(4)}
    publish("0.2.0", share=1)
    rollout.sweep()
    assert offered_to("0.2.0") == names
    check_in("0.2.0", *(names - {"node-3"}))
    rollout.sweep()
    assert state("0.2.0") == ReleaseState.ROLLING, "it is there and may be at it"
    set_state({"node-3"}, "offline")
    rollout.sweep()
    assert state("0.2.0") == ReleaseState.COMPLETE


def test_a_version_that_nobody_was_offered_proves_nothing(settings: Settings) -> None:
    """Mallory's nodes claim the new version on the day it comes out."""
    settings.SOUK_ROLLOUT_CHECKED_IN_MIN = 3
    for number in range(20):
        node(number)
    publish("0.2.0")
    rollout.sweep()
    (first,) = offered_to("0.2.0")
    liars = [f"node-{number}" for number in range(20) if f"node-{number}" != first][:3]
    check_in("0.2.0", *liars)
    for _ in range(3):
        AgentRelease.objects.update(stage_at=timezone.now() - timedelta(hours=1))
        rollout.sweep()
    assert AgentRelease.objects.get().share == 0.05
    assert offered_to("0.2.0") == {first}, "and their claims take nobody's place"


def test_who_comes_first_cannot_be_computed_from_what_a_node_knows(settings: Settings) -> None:
    one = node(1)
    release = publish("0.2.0")
    here = rollout.order_key(release.version, one.pk)
    settings.SECRET_KEY = "another marketplace's key, of the same length"
    assert rollout.order_key(release.version, one.pk) != here


@pytest.mark.parametrize(("nodes", "stages"), [(1, [1]), (2, [1, 2]), (3, [1, 3])])
def test_a_tiny_fleet_is_tried_on_one_node_first(settings: Settings, nodes: int, stages: list[int]) -> None:
    settings.SOUK_ROLLOUT_CHECKED_IN_MIN = 3
    for number in range(nodes):
        node(number)
    publish("0.2.0")
    seen = []
    for _ in range(8):
        rollout.sweep()
        if len(offered_to("0.2.0")) not in seen:
            seen.append(len(offered_to("0.2.0")))
        check_in("0.2.0", *offered_to("0.2.0"))
    assert (seen, state("0.2.0")) == (stages, ReleaseState.COMPLETE)


def test_the_only_node_of_a_market_halts_what_it_rolled_back(settings: Settings) -> None:
    settings.SOUK_ROLLOUT_ROLLBACKS_MAX = 2
    only = node(1)
    publish("0.2.0")
    rollout.sweep()
    roll_back("0.2.0", only.name)
    rollout.sweep()
    assert state("0.2.0") == ReleaseState.HALTED


def test_going_back_over_several_releases_reaches_the_nodes() -> None:
    one = node(1, version="0.4.0")
    for version in ("0.2.0", "0.3.0", "0.4.0"):
        publish(version, share=1)
        put_in_state(AgentRelease.objects.filter(version=version), ReleaseState.COMPLETE)
    publishing.roll_back_to("0.2.0", actor="operator:1")
    rollout.sweep()
    assert offered_to("0.2.0") == {one.name}
    assert state("0.3.0") == ReleaseState.WITHDRAWN


def test_going_back_to_a_wheel_that_is_gone_is_refused() -> None:
    node(1, version="0.3.0")
    for version in ("0.2.0", "0.3.0"):
        publish(version, share=1)
    with pytest.raises(CommandError, match="is gone"):
        call_command("rollout", "back", "--to", "0.2.0")
    assert state("0.3.0") == ReleaseState.ROLLING


def test_what_a_node_says_cannot_move_the_operators_cursor() -> None:
    one = node(1)
    publish("0.2.0")
    Node.objects.filter(pk=one.pk).update(rolled_back_version="0.2.0", rolled_back_reason="\x1b[2Jall is well\r\n> yes")
    out = io.StringIO()
    call_command("rollout", "status", stdout=out)
    line = next(line for line in out.getvalue().split("\n") if line.startswith("rolled back by"))
    assert "\x1b" not in line
    assert line.endswith("> yes")


@pytest.mark.django_db(transaction=True)
def test_sweeps_at_the_same_moment_halt_once_and_fail_never(settings: Settings) -> None:
    settings.SOUK_ROLLOUT_ROLLBACKS_MAX = 1
    late = node(1)
    publish("0.2.0", share=1)
    rollout.sweep()
    roll_back("0.2.0", late.name)
    found = race(*[rollout.sweep] * 4)
    assert [one for one in found if isinstance(one, Exception)] == []
    assert state("0.2.0") == ReleaseState.HALTED


@pytest.mark.django_db(transaction=True)
def test_an_operator_who_lowers_the_share_is_not_overruled_by_a_sweep(settings: Settings) -> None:
    settings.SOUK_ROLLOUT_CHECKED_IN_MIN = 1
    settings.SOUK_ROLLOUT_SOAK_SECONDS = 0
    for number in range(8):
        node(number)
    publish("0.2.0", share=0.25)
    rollout.sweep()
    check_in("0.2.0", *offered_to("0.2.0"))
    counted = progress.progress_of
    hands: list[Thread] = []

    def slow(release: AgentRelease) -> progress.Progress:
        """While the sweep counts, the operator acts: over another connection, which waits if it must."""
        found = counted(release)
        if not hands:
            hands.append(Thread(target=lambda: race(lambda: rollout.set_share(0.1, actor="operator:1"))))
            hands[0].start()
            hands[0].join(timeout=1.0)  # where the sweep holds the releases it comes after
        return found

    with patch.object(rollout, "progress_of", slow):
        rollout.sweep()
    hands[0].join(timeout=10)
    assert AgentRelease.objects.get().share == 0.1


def test_a_rollback_of_what_a_node_was_never_offered_halts_nothing(settings: Settings) -> None:
    """Mallory enrols two nodes on the day of every release."""
    settings.SOUK_ROLLOUT_ROLLBACKS_MAX = 2
    for number in range(20):
        node(number)
    publish("0.2.0")
    rollout.sweep()
    (first,) = offered_to("0.2.0")
    roll_back("0.2.0", *[f"node-{number}" for number in range(20) if f"node-{number}" != first][:5])
    rollout.sweep()
    assert state("0.2.0") == ReleaseState.ROLLING
    assert offered_to("0.2.0") == {first}
    assert len(progress.status()["rollbacks"]) == 5, "the operator sees what they say"


def test_nodes_that_join_in_the_middle_of_a_stage_enlarge_it_by_their_share() -> None:
    for number in range(20):
        node(number)
    publish("0.2.0")
    rollout.sweep()
    (first,) = offered_to("0.2.0")
    for number in range(20, 40):
        node(number)
    rollout.sweep()
    assert len(offered_to("0.2.0")) == 2
    assert first in offered_to("0.2.0")


@pytest.mark.django_db(transaction=True)
def test_two_servers_that_publish_the_same_release_at_once_both_have_it() -> None:
    for minor in range(2, 10):
        version = f"0.{minor}.0"
        found = race(*[partial(publish, version)] * 4)
        assert [str(one).split(" ")[0] for one in found] == [version] * 4
    assert AgentRelease.objects.count() == 8

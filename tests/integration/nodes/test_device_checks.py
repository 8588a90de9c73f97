"""Checks from the demand to the verdict, and every lie that they are there to find."""

from __future__ import annotations

import copy
import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings

from marketplace.foundation import clock
from marketplace.foundation.models import Event
from marketplace.nodes.device_challenges import calibration
from marketplace.nodes.device_checks import checking, demands
from marketplace.nodes.inventory import devices
from marketplace.nodes.models import Check, Device, Node, Offer, Provider
from marketplace.nodes.states import CheckState, NodeState
from provider_agent.protocol import CheckVerdict
from runtimes.probe.challenge.chain import Chain
from tests.integration.nodes.agent import Agent, bring_online, device, facts, measurements
from tests.integration.nodes.cards import CPU, Cards, measured_seconds, small_table, use_table
from tests.integration.nodes.conftest import provider_of

pytestmark = pytest.mark.django_db

CLAIMED = 1e11
RECALL_SLACK_SECONDS = calibration.RECALL_SLACK_SECONDS


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little work, and time enough for it on a busy computer."""
    use_table(monkeypatch, small_table())
    monkeypatch.setattr(calibration, "WORK_SLACK_SECONDS", 20.0)
    monkeypatch.setattr(calibration, "RECALL_SLACK_SECONDS", 10.0)


@pytest.fixture
def enforced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SOUK_VERIFICATION", "enforce")


@pytest.fixture
def node(provider: Provider, agent: Agent) -> Node:
    """Two devices that claim what one core can show."""
    return node_of(provider, agent, "GPU-1", "GPU-2")


def node_of(provider: Provider, agent: Agent, *uuids: str, model: str = "Card", flops: float = CLAIMED) -> Node:
    given = [device(uuid, index=index, model=model, memory_mib=2) for index, uuid in enumerate(uuids)]
    node = bring_online(agent.enrol(provider, facts=facts(*given)))
    request = measurements(*uuids, flops=flops)
    return devices.record_measurements(node, request)


def demand(node: Node) -> Check:
    check = demands.demand(node)
    assert check is not None
    return check


def failed(verdict: CheckVerdict) -> dict[str, list[str]]:
    """What was found wrong -> on which devices."""
    found: dict[str, list[str]] = {}
    for finding in verdict.findings:
        if not finding.is_passed:
            found.setdefault(finding.what, []).append(finding.device)
    return found


def test_honest_node_passes_and_its_figure_is_what_it_showed(node: Node, agent: Agent) -> None:
    assert demands.demand_due(set()) == [node.pk]
    check = node.checks.get()
    verdict = Cards(agent).answer(check.pk)
    assert (verdict.state, failed(verdict)) == ("passed", {})
    assert {finding.what for finding in verdict.findings} == {
        "products", "work_seconds", "memory_blocks", "recall_seconds",
    }  # fmt: skip
    check.refresh_from_db()
    node.refresh_from_db()
    assert check.ended_at is not None
    assert (node.checks_passed, node.wanted_check_id) == (1, None)
    assert node.verified_at is not None
    assert node.next_check_at is not None
    assert node.next_check_at > clock.now() + timedelta(minutes=30)
    states = Event.objects.filter(subject_kind="check", subject_id=check.pk).order_by("id").values_list("to_state")
    assert [state for (state,) in states] == ["demanded", "begun", "committed", "recalling", "passed"]


def test_figure_that_counts_is_never_above_what_was_shown(node: Node, agent: Agent) -> None:
    sold = node.devices.get(uuid="GPU-1")
    devices.record_measurements(node, measurements("GPU-1", "GPU-2", flops=CLAIMED))
    devices.record_shown(node, {"GPU-1": CLAIMED * 0.01 * 0.25, "GPU-2": CLAIMED})
    sold.refresh_from_db()
    assert sold.claimed_flops_per_second == {"bfloat16": CLAIMED}
    assert sold.flops_per_second == {"bfloat16": pytest.approx(CLAIMED / 4)}
    assert node.devices.get(uuid="GPU-2").flops_per_second == {"bfloat16": CLAIMED}
    # Reporting more afterwards does not help.
    devices.record_measurements(node, measurements("GPU-1", "GPU-2", flops=CLAIMED * 100))
    sold.refresh_from_db()
    assert sold.flops_per_second["bfloat16"] == pytest.approx(CLAIMED / 4)


def test_repeated_step_gets_the_same_answer_and_does_not_move_the_clock(node: Node, agent: Agent) -> None:
    check, cards = demand(node), Cards(agent)
    first = cards.begin(check.pk)
    check.refresh_from_db()
    began = check.begun_at
    assert cards.begin(check.pk) == first
    opened = cards.commit(check.pk)
    assert cards.commit(check.pk) == opened
    cards.reveal(check.pk, opened)
    cards.reveal(check.pk, opened)
    verdict = cards.recall(check.pk)
    again = agent.post(f"/api/agent/v1/checks/{check.pk}/recall", json.dumps({"step": 5, "devices": []}).encode())
    assert again.json()["verdict"] == verdict.model_dump(mode="json")
    check.refresh_from_db()
    node.refresh_from_db()
    assert check.begun_at == began
    assert node.checks_passed == 1


def test_another_answer_to_the_same_demand_is_refused(node: Node, agent: Agent) -> None:
    check, cards = demand(node), Cards(agent)
    cards.begin(check.pk)
    cards.commit(check.pk)
    changed = {"devices": [{"uuid": uuid, "roots": chain.roots[::-1]} for uuid, chain in cards.chains.items()]}
    assert cards.send(check.pk, "commit", changed, status=409)["code"] == "check_answered"


def test_replayed_answer_to_an_older_check_fails(node: Node, agent: Agent) -> None:
    old = Cards(agent)
    old.answer(demand(node).pk)
    check = demand(node)
    replaying = Cards(agent)
    replaying.begin(check.pk)
    replaying.chains = old.chains
    commitment = {"devices": [{"uuid": uuid, "roots": chain.roots} for uuid, chain in old.chains.items()]}
    opened = replaying.send(check.pk, "commit", commitment)
    for uuid, openings in opened["openings"].items():
        for index, (round_number, block) in enumerate(openings):
            shown = old.chains[uuid].reveal(round_number, block)
            replaying.send(check.pk, "reveal", {"uuid": uuid, "index": index, **shown})
    verdict = replaying.recall(check.pk)
    assert failed(verdict) == {"products": ["GPU-1", "GPU-2"]}
    products = [finding for finding in verdict.findings if finding.what == "products"]
    assert [(finding.measured, finding.needed) for finding in products] == [(0, 6), (0, 6)]


def test_answer_of_one_device_is_none_for_its_neighbour(node: Node, agent: Agent) -> None:
    """One card computes once and answers for both: the seeds differ."""

    class OneForAll(Cards):
        def compute(self) -> dict[str, Any]:
            assert self.task is not None
            chain = self.chain_of(self.task.devices[0])
            self.chains = {one.uuid: chain for one in self.task.devices}
            return {"devices": [{"uuid": uuid, "roots": chain.roots} for uuid in self.chains]}

    assert failed(OneForAll(agent).answer(demand(node).pk)) == {"products": ["GPU-2"]}


def test_check_of_another_node_cannot_be_answered(node: Node, mallory: Any) -> None:
    stranger = Agent()
    node_of(provider_of(mallory), stranger, "GPU-3")
    answered = Cards(stranger).send(demand(node).pk, "begin", {}, status=409)
    assert answered["details"] == {"state": "unknown"}


def test_wrong_product_in_one_round_is_found_when_it_is_opened(node: Node, agent: Agent) -> None:
    class Wrong(Cards):
        def chain_of(self, one: Any) -> Chain:
            chain = super().chain_of(one)
            for tiles in chain._tiles:
                tiles[..., 0] = (tiles[..., 0] + 1) % chain.modulus
            return rehash(chain)

    verdict = Wrong(agent).answer(demand(node).pk)
    assert failed(verdict) == {"products": ["GPU-1", "GPU-2"]}
    messages = {finding.message.split(" in ")[0] for finding in verdict.findings if not finding.is_passed}
    assert messages <= {"a wrong product", "a chain that begins with another state than the seed's"}


def test_skipped_rounds_are_found_whenever_one_of_them_is_opened(node: Node, agent: Agent) -> None:
    """The last two of eight rounds skipped, six openings: found with 1 - 0.75^6 = 82 % in each check."""

    class Lazy(Cards):
        def chain_of(self, one: Any) -> Chain:
            chain = super().chain_of(one)
            chain._tiles[7] = chain._tiles[8] = chain._tiles[6]
            return rehash(chain)

    for _ in range(6):
        check = demand(node)
        found = failed(Lazy(agent).answer(check.pk)).get("products", [])
        check.refresh_from_db()
        opened = {uuid for uuid, openings in check.openings.items() if {7, 8} & {number for number, _ in openings}}
        assert set(found) == opened


def test_memory_that_was_not_filled_is_found(node: Node, agent: Agent) -> None:
    """A quarter kept; 12 blocks of a device are picked: undetected with 0.25^12."""
    verdict = Cards(agent, kept=0.25).answer(demand(node).pk)
    assert failed(verdict) == {"memory_blocks": ["GPU-1", "GPU-2"]}
    found = next(finding for finding in verdict.findings if finding.what == "memory_blocks")
    assert (found.needed, found.message) == (12, "memory was not filled")


def test_one_card_that_poses_as_eight_slow_ones_lacks_their_memory(provider: Provider, agent: Agent) -> None:
    """It is as fast as it says; but the memory of all eight must be full at once, and it has that of one."""
    node = node_of(provider, agent, *[f"GPU-{number}" for number in range(8)], flops=CLAIMED / 8)

    class OneMemory(Cards):
        def _sums(self, filling: Any, key: str) -> str:
            self.kept = 1.0 if self.filled_first(filling) else 0.0
            return super()._sums(filling, key)

        def filled_first(self, filling: Any) -> bool:
            self.first = getattr(self, "first", filling)
            return self.first is filling

    verdict = OneMemory(agent).answer(demand(node).pk)
    assert failed(verdict) == {"memory_blocks": [f"GPU-{number}" for number in range(1, 8)]}


def slow_by(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Moves the server's clock; what an agent's clock says does not matter."""
    ahead = [0.0]
    real = clock.now
    monkeypatch.setattr(clock, "now", lambda: real() + timedelta(seconds=ahead[0]))
    return ahead


def test_one_card_that_poses_as_eight_is_too_slow_for_all_of_them(
    provider: Provider, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers each of the eight seeds, one after the other: right answers, eight times as late.

    The bound is set from the real time of one chain on this processor, so that eight cards side by side would pass.
    """
    cards = [f"GPU-{number}" for number in range(8)]
    table = small_table(size=256, rounds_min=64, rounds_max=64) | {"margin": 1.5}
    use_table(monkeypatch, table)
    monkeypatch.setattr(calibration, "WORK_SLACK_SECONDS", 0.0)
    one = min(measured_seconds(Chain("warm", size=256, grid=4, rounds=64, device=CPU).run) for _ in range(10))
    speed = 2 * 256**3 * 64 / one
    node = node_of(provider, agent, *cards, flops=speed / table["kinds"]["gpu"]["reach"])
    verdict = Cards(agent).answer(demand(node).pk)
    late = failed(verdict)
    assert late.pop("work_seconds") == cards
    assert late == {}
    found = next(finding for finding in verdict.findings if finding.what == "work_seconds")
    assert found.measured > found.needed > one


def test_processor_that_claims_to_be_an_h100_is_too_slow_for_its_model(
    provider: Provider, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML lies, and so does the benchmark: it reports little, so that its own figure would not betray it."""
    table = copy.deepcopy(small_table(size=256, rounds_min=64, rounds_max=64))
    monkeypatch.undo()
    table["models"] = calibration._table()["models"]
    use_table(monkeypatch, table)
    monkeypatch.setattr(calibration, "WORK_SLACK_SECONDS", 0.005)
    node = node_of(provider, agent, "GPU-1", model="NVIDIA H100 80GB HBM3", flops=1e6)
    verdict = Cards(agent).answer(demand(node).pk)
    assert failed(verdict) == {"work_seconds": ["GPU-1"]}
    honest = node_of(provider, other := Agent(), "GPU-2", model="Some processor", flops=1e6)
    assert failed(Cards(other).answer(demand(honest).pk)) == {}


def test_lying_clock_changes_no_time_that_was_measured(
    node: Node, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent signs every message with the time of the first, and needs 40 s: the server's clock counts."""
    ahead = slow_by(monkeypatch)

    def wait(step: str) -> None:
        ahead[0] += 40 if step == "commit" else 0

    real = agent.headers
    started = clock.now()
    monkeypatch.setattr(
        agent,
        "headers",
        lambda method, path, body, **more: real(method, path, body, time_ms=int(started.timestamp() * 1000)),
    )
    verdict = Cards(agent, waits=wait).answer(demand(node).pk)
    assert failed(verdict) == {"work_seconds": ["GPU-1", "GPU-2"]}
    assert next(finding.measured for finding in verdict.findings if finding.what == "work_seconds") > 40


def test_relay_that_answers_empty_steps_itself_is_found_by_its_longer_way(
    node: Node, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = slow_by(monkeypatch)
    monkeypatch.setattr(calibration, "RECALL_SLACK_SECONDS", RECALL_SLACK_SECONDS)

    def relay(step: str) -> None:
        ahead[0] += 0.4 if step == "recall" else 0.02 if step == "empty" else 0

    assert set(failed(Cards(agent, waits=relay).answer(demand(node).pk))) == {"recall_seconds"}


def test_node_far_away_is_not_taken_for_a_relay(node: Node, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = slow_by(monkeypatch)
    monkeypatch.setattr(calibration, "RECALL_SLACK_SECONDS", RECALL_SLACK_SECONDS)

    def far(step: str) -> None:
        ahead[0] += 0.4

    assert failed(Cards(agent, waits=far).answer(demand(node).pk)) == {}


def test_shadow_mode_shows_a_failure_and_excludes_nobody(node: Node, agent: Agent) -> None:
    Cards(agent, kept=0.1).answer(demand(node).pk)
    node.refresh_from_db()
    assert (node.checks_failed, node.suspended_at, node.state) == (1, None, NodeState.ONLINE)
    assert Offer.objects.rentable().filter(node=node).exists()
    assert node.next_check_at is not None
    assert node.next_check_at < clock.now() + timedelta(minutes=5)


def test_enforced_failure_suspends_then_quarantines_and_a_passed_check_lifts_it(
    enforced: None, node: Node, agent: Agent
) -> None:
    node.refresh_from_db()
    assert node.suspended_at is not None, "it waits for its first check"
    assert not Device.objects.rentable().filter(node=node).exists()
    Cards(agent).answer(demand(node).pk)
    assert Offer.objects.rentable().filter(node=node).exists()
    for failures in (1, 2):
        Cards(agent, kept=0.1).answer(demand(node).pk)
        node.refresh_from_db()
        assert (node.state, node.checks_failed_in_row) == (NodeState.ONLINE, failures)
        assert not Offer.objects.rentable().filter(node=node).exists()
    Cards(agent, kept=0.1).answer(demand(node).pk)
    node.refresh_from_db()
    assert node.state == NodeState.QUARANTINED


def test_saying_nothing_is_a_failure(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    check, ahead = demand(node), slow_by(monkeypatch)
    assert checking.expire_overdue() == []
    ahead[0] += checking.BEGIN_SECONDS_MAX + 1
    assert checking.expire_overdue() == [node.pk]
    check.refresh_from_db()
    assert (check.state, check.reason) == (CheckState.FAILED, "unanswered")
    assert not Node.objects.filter(pk=node.pk, wanted_check_id__isnull=False).exists()


def test_check_never_runs_beside_a_lease(node: Node) -> None:
    assert demands.demand_due({node.pk}) == []
    check = demand(node)
    assert demands.withdraw_where_busy({node.pk}) == [node.pk]
    check.refresh_from_db()
    assert check.state == CheckState.WITHDRAWN
    node.refresh_from_db()
    assert (node.checks_failed, node.wanted_check_id) == (0, None)


def test_policy_off_demands_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SOUK_VERIFICATION", "off")
    assert demands.demand_due(set()) == []


def test_two_demands_at_once_make_one_check(node: Node) -> None:
    assert demands.demand(node) is not None
    assert demands.demand(node) is None


def test_dear_nodes_are_checked_more_often_and_those_with_a_history_less(node: Node) -> None:
    def usual(price: int, **changes: int) -> float:
        for name, value in changes.items():
            setattr(node, name, value)
        return sum(demands.next_check_seconds(node, price) for _ in range(400)) / 400

    cheap, dear = usual(500_000), usual(2_000_000)
    assert 3 < cheap / dear < 5
    assert 1.6 < usual(500_000, checks_passed=10) / cheap < 2.4
    assert usual(500_000, checks_passed=10, checks_failed_in_row=1) == pytest.approx(cheap, rel=0.2)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"devices": [{"uuid": "GPU-1", "roots": ["0" * 64] * 9}]}, "every device of the check answers once"),
        ({"devices": [{"uuid": uuid, "roots": ["0" * 64]} for uuid in ("GPU-1", "GPU-2")]}, "9 SHA-256 in hex"),
        ({"devices": [{"uuid": uuid, "roots": ["x" * 64] * 9} for uuid in ("GPU-1", "GPU-2")]}, "9 SHA-256 in hex"),
    ],
)
def test_answer_that_cannot_be_one_is_refused_and_the_clock_goes_on(
    node: Node, agent: Agent, body: dict[str, Any], problem: str
) -> None:
    check, cards = demand(node), Cards(agent)
    cards.begin(check.pk)
    assert problem in cards.send(check.pk, "commit", body, status=400)["message"]
    check.refresh_from_db()
    assert check.state == CheckState.BEGUN


def rehash(chain: Chain) -> Chain:
    """Hashes and roots that fit tiles which were changed."""
    for state, tiles in enumerate(chain._tiles):
        flat = tiles.reshape(-1, tiles.shape[-1]).numpy()
        chain._hashes[state] = b"".join(hashlib.sha256(tile).digest() for tile in flat)
    return chain

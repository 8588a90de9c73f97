"""Reputation from what happened; the provider sees its parts, and each failed check with its numbers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from marketplace.accounts.models import Membership
from marketplace.foundation import clock
from marketplace.foundation.models import Event
from marketplace.nodes.device_checks import demands
from marketplace.nodes.models import Device, Node
from marketplace.nodes.watching import liveness, reputation
from tests.integration.nodes.agent import Agent
from tests.integration.nodes.cards import Cards, small_table, use_table
from tests.people import sign

pytestmark = pytest.mark.django_db


def parts_of(node: Node) -> dict[str, float]:
    node.refresh_from_db()
    return {part.name: part.value for part in reputation.reputation_of(node).parts}


def age(node: Node, days: int) -> None:
    """As if it had enrolled and come online so long ago."""
    Node.objects.filter(pk=node.pk).update(enrolled_at=clock.now() - timedelta(days=days))
    Event.objects.filter(subject_id=node.pk).update(created_at=clock.now() - timedelta(days=days))


def test_new_node_stands_in_the_middle_and_the_score_is_the_weighted_mean(node: Node) -> None:
    found = reputation.reputation_of(node)
    assert {part.name: part.value for part in found.parts} == {
        "uptime": pytest.approx(1, abs=0.01), "attempts": 0.5, "verification": 0.5, "age": pytest.approx(0, abs=0.01),
    }  # fmt: skip
    assert found.score == pytest.approx(0.3 + 0.5 * 0.35 + 0.5 * 0.25, abs=0.01)
    assert sum(part.weight for part in found.parts) == pytest.approx(1)


def test_attempts_and_checks_move_their_parts(node: Node) -> None:
    Node.objects.filter(pk=node.pk).update(successes=8, failures=0, checks_passed=2)
    assert (parts_of(node)["attempts"], parts_of(node)["verification"]) == (0.9, 0.75)
    Node.objects.filter(pk=node.pk).update(failures=8, checks_failed=2, checks_failed_in_row=2)
    assert (parts_of(node)["attempts"], parts_of(node)["verification"]) == (0.5, 0.125)


def test_time_away_lowers_uptime_and_only_the_last_thirty_days_count(node: Node) -> None:
    age(node, 60)
    assert parts_of(node)["uptime"] == 1
    assert parts_of(node)["age"] == 1
    liveness.mark_offline([node.pk])
    Event.objects.filter(subject_id=node.pk, to_state="offline").update(created_at=clock.now() - timedelta(days=10))
    assert parts_of(node)["uptime"] == pytest.approx(2 / 3, abs=0.01)


def test_provider_sees_its_reputation_and_every_failed_check_with_its_numbers(
    node: Node, bob: Membership, mallory: Membership, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_table(monkeypatch, small_table())
    Device.objects.update(claimed_flops_per_second={"float32": 1e9}, flops_per_second={"float32": 1e9})
    check = demands.demand(node)
    assert check is not None
    Cards(agent, kept=0.1).answer(check.pk)
    client = sign(bob)
    (shown,) = client.get(f"/api/v1/provider/nodes/{node.pk}/checks").json()["results"]
    assert (shown["id"], shown["state"], shown["reason"], shown["is_enforced"]) == (
        str(check.pk), "failed", "memory_blocks", False,
    )  # fmt: skip
    found = next(finding for finding in shown["findings"] if not finding["is_passed"])
    assert (found["what"], found["needed"], found["message"]) == ("memory_blocks", 12, "memory was not filled")
    assert found["measured"] < 12
    assert "seed" not in shown
    body = client.get(f"/api/v1/provider/nodes/{node.pk}/reputation").json()
    assert [part["name"] for part in body["parts"]] == ["uptime", "attempts", "verification", "age"]
    assert "1 of 1 checks failed, the last 1 in a row" in {part["because"] for part in body["parts"]}
    own = client.get(f"/api/v1/provider/nodes/{node.pk}").json()
    assert (own["checks_failed"], own["suspended_at"]) == (1, None)
    assert own["devices"][0]["claimed_flops_per_second"] == {"float32": 1e9}
    for path in ("checks", "reputation"):
        assert sign(mallory).get(f"/api/v1/provider/nodes/{node.pk}/{path}").status_code in {403, 404}


def test_operator_sees_checks_and_the_parts_and_can_ask_for_a_check(node: Node, admin_client) -> None:
    check = demands.demand(node)
    assert check is not None
    page = admin_client.get(f"/admin/nodes/check/{check.pk}/change/").content.decode()
    assert check.seed not in page
    assert "verification 0.50 x 0.25" in admin_client.get(f"/admin/nodes/node/{node.pk}/change/").content.decode()
    demands.withdraw_where_busy({node.pk})
    before = Node.objects.get(pk=node.pk).next_check_at
    admin_client.post("/admin/nodes/node/", {"action": "check_now", "_selected_action": [node.pk]})
    assert Node.objects.get(pk=node.pk).next_check_at < before

"""One card, listed twice: under one UUID, under a changed one, or twice on one node."""

from __future__ import annotations

import pytest

from marketplace.accounts.models import Membership
from marketplace.nodes.device_checks import demands
from marketplace.nodes.errors import AlreadyEnrolled, BadFacts
from marketplace.nodes.inventory import devices
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import Device, Node, Provider
from provider_agent.protocol import DeviceFacts
from tests.integration.nodes.agent import Agent, bring_online, device, facts
from tests.integration.nodes.cards import Cards, small_table, use_table
from tests.integration.nodes.conftest import provider_of

pytestmark = pytest.mark.django_db


def card(uuid: str, *, index: int = 0, serial: str = "1650", bus: str = "0000:3b:00.0", **more: str) -> DeviceFacts:
    details = {"serial": serial, "pci_bus_id": bus, **more}
    return device(uuid, index=index).model_copy(update={"details": details})


@pytest.fixture
def sold(provider: Provider, agent: Agent) -> Node:
    """Bob sells the board 1650 as GPU-1."""
    return bring_online(agent.enrol(provider, facts=facts(card("GPU-1"))))


def test_gpu_that_a_node_sells_cannot_be_enrolled_on_another(sold: Node, mallory: Membership) -> None:
    with pytest.raises(AlreadyEnrolled, match="GPU-1"):
        Agent().enrol(provider_of(mallory), facts=facts(card("GPU-1", serial="")))
    assert Node.objects.count() == 1


def test_changed_uuid_does_not_hide_the_board(sold: Node, mallory: Membership) -> None:
    with pytest.raises(AlreadyEnrolled, match="GPU-new"):
        Agent().enrol(provider_of(mallory), facts=facts(card("GPU-new", bus="0000:5e:00.0")))
    assert Node.objects.count() == 1


def test_node_that_changes_its_uuids_later_gains_nothing(sold: Node, mallory: Membership) -> None:
    other = bring_online(Agent().enrol(provider_of(mallory), facts=facts(card("GPU-2", serial="77"))))
    devices.update_facts(other, facts(card("GPU-3", serial="1650")))
    assert not Device.objects.get(uuid="GPU-3").is_healthy
    assert not Device.objects.get(uuid="GPU-2").is_healthy


def test_one_card_under_two_names_on_one_node_is_refused(provider: Provider, agent: Agent) -> None:
    with pytest.raises(BadFacts, match=r"one place of the bus: 0000:3b:00\.0"):
        agent.enrol(provider, facts=facts(card("GPU-1"), card("GPU-2", index=1, serial="")))


def test_cards_without_a_serial_are_distinguished_by_their_uuids(sold: Node, mallory: Membership) -> None:
    for uuid in ("GPU-5", "GPU-6"):
        Agent().enrol(provider_of(mallory), facts=facts(card(uuid, serial="0")))
    assert Node.objects.count() == 3


def test_board_of_a_node_that_left_can_be_enrolled_again(sold: Node, mallory: Membership) -> None:
    enrolment.retire(sold, actor="test")
    Agent().enrol(provider_of(mallory), facts=facts(card("GPU-new")))


def test_card_that_the_kernel_does_not_list_fails_its_check(
    provider: Provider, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spoofed NVML: the library invents a card, the kernel has none there."""
    use_table(monkeypatch, small_table())
    given = [card("GPU-1", kernel="missing"), card("GPU-2", index=1, bus="0000:5e:00.0", kernel="NVIDIA H100")]
    node = bring_online(agent.enrol(provider, facts=facts(*given)))
    Device.objects.update(claimed_flops_per_second={"float32": 1e9}, flops_per_second={"float32": 1e9})
    check = demands.demand(node)
    assert check is not None
    verdict = Cards(agent).answer(check.pk)
    found = [(finding.device, finding.is_passed) for finding in verdict.findings if finding.what == "identity"]
    assert found == [("GPU-1", False), ("GPU-2", True)]
    assert verdict.state == "failed"

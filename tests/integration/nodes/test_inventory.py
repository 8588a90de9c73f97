"""What a node says of itself makes nothing rentable that was not measured."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from pydantic import ValidationError

from marketplace.accounts.models import Membership
from marketplace.nodes.errors import BadFacts
from marketplace.nodes.inventory import devices
from marketplace.nodes.models import Device, Node, Provider
from provider_agent.protocol import DeviceMeasurement, MeasurementRequest
from tests.integration.nodes.agent import Agent, bring_online, device, facts, measurements
from tests.integration.nodes.conftest import found, provider_of
from tests.integration.racing import race

pytestmark = pytest.mark.django_db


def test_measurements_are_kept_per_device(provider: Provider, agent: Agent) -> None:
    node = agent.enrol(provider)
    devices.record_measurements(node, measurements(flops=3e14))
    kept = Device.objects.get()
    assert (kept.flops_per_second, kept.memory_bytes_per_second) == ({"bfloat16": 3e14}, 3e12)
    assert Node.objects.get().measured_at is not None


@pytest.mark.parametrize(
    "change",
    [
        {"uuid": "GPU-of-others"},
        {"flops_per_second": {}},
        {"flops_per_second": {"bfloat16": 0}},
        {"flops_per_second": {"bfloat16": -1}},
        {"flops_per_second": {"bfloat16": 1e19}},
        {"flops_per_second": {"bfloat16": float("inf")}},
        {"flops_per_second": {"bfloat16": float("nan")}},
        {"flops_per_second": {"'; DROP TABLE": 1e12}},
        {"flops_per_second": {f"d{number}": 1e12 for number in range(17)}},
        {"memory_bytes_per_second": float("inf")},
    ],
)
def test_measurements_that_cannot_be_are_refused(provider: Provider, agent: Agent, change: dict[str, Any]) -> None:
    node = agent.enrol(provider)
    fields: dict[str, Any] = {"uuid": "GPU-1", "flops_per_second": {"bfloat16": 1e14}, "memory_bytes_per_second": 1e12}
    with pytest.raises((BadFacts, ValidationError)):  # by what it means, or by its form already
        measurement = DeviceMeasurement(seconds=1, **(fields | change))
        devices.record_measurements(node, MeasurementRequest(probe_version=1, devices=[measurement]))
    assert Node.objects.get().measured_at is None


def test_every_device_must_be_measured(provider: Provider, agent: Agent) -> None:
    node = agent.enrol(provider, facts=facts(device("GPU-1"), device("GPU-2", index=1)))
    with pytest.raises(BadFacts, match="GPU-2"):
        devices.record_measurements(node, measurements("GPU-1"))


def test_a_device_that_is_gone_is_unhealthy_and_healthy_when_it_is_back(node: Node) -> None:
    devices.update_facts(node, facts(device("GPU-2")))
    assert not Device.objects.get(uuid="GPU-1").is_healthy
    devices.update_facts(node, facts(device("GPU-1")))
    assert Device.objects.get(uuid="GPU-1").is_healthy
    assert [one.uuid for one in Device.objects.rentable()] == ["GPU-1"]


def test_a_device_that_has_become_another_must_be_measured_again(node: Node) -> None:
    devices.update_facts(node, facts(device("GPU-1", model="NVIDIA A100")))
    assert not Device.objects.rentable().exists()


def test_mallory_cannot_take_bobs_gpu_by_naming_it(node: Node, mallory: Membership) -> None:
    agent = Agent()
    other = agent.enrol(provider_of(mallory), facts=facts(device("GPU-M")))
    bring_online(other)
    devices.update_facts(other, facts(device("GPU-M"), device("GPU-1", index=1)))
    assert not other.devices.get(uuid="GPU-1").is_healthy
    assert node.devices.get(uuid="GPU-1").is_healthy


@pytest.mark.django_db(transaction=True)
def test_two_accounts_at_once_leave_one_truth() -> None:
    node = Agent().enrol(provider_of(found("bob")))
    both = facts(device("GPU-1"), device("GPU-2", index=1))
    outcomes = race(*[functools.partial(devices.update_facts, node, both)] * 3)
    assert all(isinstance(outcome, Node) for outcome in outcomes), outcomes
    assert Device.objects.count() == 2

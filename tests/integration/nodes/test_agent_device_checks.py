"""The agent's real program answers a real marketplace's check: on two processor shares at once, over HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.conf import settings as django_settings

from marketplace.nodes.device_challenges import calibration
from marketplace.nodes.device_checks import demands
from marketplace.nodes.inventory import devices as inventory
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import Node, Provider
from marketplace.nodes.states import CheckState
from marketplace.nodes.watching import liveness
from provider_agent.assembly import assemble
from provider_agent.config import AgentSettings, DataFolder
from provider_agent.context import AgentContext
from provider_agent.journal import FACT_CHECK
from provider_agent.node import enrolment as joining
from provider_agent.node.device_checks import DeviceChecks
from provider_agent.node.status import read_status
from provider_agent.protocol import DeviceMeasurement, MeasurementRequest, OfferTerms
from tests.integration.nodes.agent import beat
from tests.integration.nodes.cards import small_table, use_table

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS_MAX = 90.0


@pytest.fixture
def context(provider: Provider, live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentContext:
    use_table(monkeypatch, small_table(memory_mib_max=8))
    for slack in ("WORK_SLACK_SECONDS", "RECALL_SLACK_SECONDS"):  # a busy computer is no slow device
        monkeypatch.setattr(calibration, slack, SECONDS_MAX)
    monkeypatch.setattr(django_settings, "SOUK_API_URL", live_server.url)
    _, token = enrolment.issue_token(provider, actor="test")
    folder = DataFolder(tmp_path / "bob")
    settings = AgentSettings(
        name="bob-1",
        offer=OfferTerms(price_usd_micros_per_device_hour=1_000_000),
        executor="process",
        device_kind="cpu",
        devices=2,
        runtime_python=sys.executable,
    )
    asyncio.run(joining.enrol(folder, settings, server=live_server.url, token=token))
    return assemble(folder)


def check_of(context: AgentContext) -> UUID:
    """The node is measured and online, and a check is demanded of it."""
    node = Node.objects.get()
    devices = [
        DeviceMeasurement(uuid=uuid, flops_per_second={"float32": 1e11}, memory_bytes_per_second=1e10, seconds=1)
        for uuid in context.devices
    ]
    inventory.record_measurements(node, MeasurementRequest(probe_version=1, devices=devices))
    beat(node.pk)
    liveness.flush_beats()
    assert demands.demand_due(set()) == [node.pk]
    return node.checks.get().pk


async def answer(context: AgentContext, check_id: UUID, *, until: Callable[[], bool] | None = None) -> None:
    """Receive the check as the sync loop does, and wait until it is over; stop it once `until` holds."""
    checks = DeviceChecks(context)
    checks.accept(check_id, is_idle=True)
    assert checks.is_busy
    try:
        async with asyncio.timeout(SECONDS_MAX):
            while checks.is_busy:
                if until is not None and until():
                    checks.cancel()
                await asyncio.sleep(0.05)
    finally:
        await checks.close()
        await context.client.close()
        await context.executor.close()


def test_agent_answers_a_check_on_all_its_devices_and_shows_the_verdict(
    context: AgentContext, live_server: Any
) -> None:
    check_id = check_of(context)
    asyncio.run(answer(context, check_id))
    node = Node.objects.get()
    check = node.checks.get(pk=check_id)
    assert check.state == CheckState.PASSED, check.findings
    assert {finding["device"] for finding in check.findings} == set(context.devices)
    assert node.checks_passed == 1
    result = json.loads(context.journal.load_fact(FACT_CHECK) or "")
    assert (result["check_id"], result["state"]) == (str(check_id), "passed")
    assert read_status(context.folder)["last_check"] == result
    assert list(context.folder.leases.iterdir()) == []
    assert all(device.shown_flops_per_second for device in node.devices.all())


def test_check_that_is_stopped_leaves_nothing_behind(context: AgentContext, live_server: Any) -> None:
    check_id = check_of(context)
    began = lambda: any(context.folder.leases.glob("*/work"))  # noqa: E731
    asyncio.run(answer(context, check_id, until=began))
    assert list(context.folder.leases.iterdir()) == []
    assert not any(turn.locked() for turn in context.device_locks.values())
    assert context.journal.load_fact(FACT_CHECK) is None
    assert demands.withdraw_where_busy({Node.objects.get().pk}) == [Node.objects.get().pk]


def test_an_agent_that_stops_waits_for_the_check_before_the_newest_too(context: AgentContext, live_server: Any) -> None:
    check_id = check_of(context)

    async def scene() -> None:
        checks = DeviceChecks(context)
        checks.accept(check_id, is_idle=True)
        async with asyncio.timeout(SECONDS_MAX):
            while not any(context.folder.leases.glob("*/work")):
                await asyncio.sleep(0.05)
        checks.accept(uuid4(), is_idle=True)  # withdraws the first, whose program is still being ended
        await checks.close()
        assert not checks.is_busy
        assert list(context.folder.leases.iterdir()) == []
        await context.client.close()
        await context.executor.close()

    asyncio.run(scene())
    assert not any(turn.locked() for turn in context.device_locks.values())

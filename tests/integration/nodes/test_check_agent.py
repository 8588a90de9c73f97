"""The agent's real program answers a real marketplace's check: on two processor shares at once, over HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings as django_settings

from marketplace.nodes import demands, enrolment, inventory, liveness
from marketplace.nodes.models import Node, Provider
from marketplace.nodes.states import CheckState
from provider_agent import enrolment as joining
from provider_agent.assembly import assemble
from provider_agent.checks import Checks
from provider_agent.config import AgentSettings, DataFolder
from provider_agent.journal import FACT_CHECK
from provider_agent.porter import Porter
from provider_agent.protocol import DeviceMeasurement, MeasurementRequest, OfferTerms
from provider_agent.status import read_status
from tests.integration.nodes.agent import beat
from tests.integration.nodes.cards import small_table, use_table

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS_MAX = 90.0


@pytest.fixture
def porter(provider: Provider, live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Porter:
    use_table(monkeypatch, small_table(memory_mib_max=8))
    monkeypatch.setattr(django_settings, "SOUK_API_URL", live_server.url)
    _, token = enrolment.issue_token(provider, actor="test")
    folder = DataFolder(tmp_path / "bob")
    settings = AgentSettings(
        name="bob-1",
        offer=OfferTerms(price_usd_micros_per_device_hour=1_000_000),
        device_kind="cpu",
        devices=2,
        runtime_python=sys.executable,
    )
    asyncio.run(joining.enrol(folder, settings, server=live_server.url, token=token))
    return assemble(folder)


def check_of(porter: Porter) -> UUID:
    """The node is measured and online, and a check is demanded of it."""
    node = Node.objects.get()
    devices = [
        DeviceMeasurement(uuid=uuid, flops_per_second={"float32": 1e11}, memory_bytes_per_second=1e10, seconds=1)
        for uuid in porter.devices
    ]
    inventory.record_measurements(node, MeasurementRequest(probe_version=1, devices=devices))
    beat(node.pk)
    liveness.flush_beats()
    assert demands.demand_due(set()) == [node.pk]
    return node.checks.get().pk


async def answer(porter: Porter, check_id: UUID, *, until: Callable[[], bool] | None = None) -> None:
    """Hear of the check as the sync loop does, and wait until it is over; give way once `until` holds."""
    checks = Checks(porter)
    checks.hear(check_id, is_idle=True)
    assert checks._task is not None
    try:
        async with asyncio.timeout(SECONDS_MAX):
            while not checks._task.done():
                if until is not None and until():
                    checks.give_way()
                await asyncio.sleep(0.05)
    finally:
        await checks.close()
        await porter.client.close()
        await porter.executor.close()


def test_agent_answers_a_check_on_all_its_devices_and_shows_the_verdict(porter: Porter, live_server: Any) -> None:
    check_id = check_of(porter)
    asyncio.run(answer(porter, check_id))
    node = Node.objects.get()
    check = node.checks.get(pk=check_id)
    assert check.state == CheckState.PASSED, check.findings
    assert {finding["device"] for finding in check.findings} == set(porter.devices)
    assert node.checks_passed == 1
    said = json.loads(porter.journal.load_fact(FACT_CHECK) or "")
    assert (said["check_id"], said["state"]) == (str(check_id), "passed")
    assert read_status(porter.folder)["last_check"] == said
    assert list(porter.folder.leases.iterdir()) == []
    assert all(device.shown_flops_per_second for device in node.devices.all())


def test_check_gives_way_and_leaves_nothing_behind(porter: Porter, live_server: Any) -> None:
    check_id = check_of(porter)
    began = lambda: any(porter.folder.leases.glob("*/work"))  # noqa: E731
    asyncio.run(answer(porter, check_id, until=began))
    assert list(porter.folder.leases.iterdir()) == []
    assert not any(turn.locked() for turn in porter.turns.values())
    assert porter.journal.load_fact(FACT_CHECK) is None
    assert demands.withdraw_where_busy({Node.objects.get().pk}) == [Node.objects.get().pk]

"""A marketplace that knows one kind of job more, and Bob's node with a real agent."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from django.db import connection

from jobs.artifacts.store import Store
from jobs.kinds import registry
from jobs.spec.kinds import registry as spec_registry
from jobs.sync.app import Application
from marketplace.nodes import agent_auth
from marketplace.nodes.inventory import devices as inventory
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import Node, Provider
from marketplace.nodes.watching import liveness
from provider_agent.assembly import assemble
from provider_agent.config import AgentSettings, DataFolder
from provider_agent.journal import Journal
from provider_agent.node import enrolment as joining
from provider_agent.node.benchmark import FACT_MEASURED
from provider_agent.protocol import DeviceMeasurement, MeasurementRequest, OfferTerms
from tests import stage
from tests.integration.jobs.kinds.parrot import Parrot, ParrotSpec

REPOSITORY = Path(__file__).parents[4]
SECONDS_MAX = 90.0
PRICE_USD_MICROS = 3_600_000  # an hour of one CPU share: a tenth of a cent a second


@pytest.fixture
def parrot(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both tables have the toy kind, and so has the constraint on Job.kind."""
    monkeypatch.setitem(spec_registry.KINDS, "parrot", ParrotSpec())
    monkeypatch.setitem(registry.KINDS, "parrot", Parrot())
    name = "job_kind_known"
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", [name])
        (definition,) = cursor.fetchone()
        cursor.execute(f"ALTER TABLE jobs_job DROP CONSTRAINT {name}")
        cursor.execute(f"ALTER TABLE jobs_job ADD CONSTRAINT {name} CHECK (kind IN ('train', 'parrot'))")
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE jobs_job DROP CONSTRAINT {name}")
        cursor.execute("TRUNCATE jobs_job CASCADE")  # no row of the toy kind is left for the constraint to refuse
        cursor.execute(f"ALTER TABLE jobs_job ADD CONSTRAINT {name} {definition}")


@pytest.fixture
def sync_url(transactional_db: None) -> Iterator[str]:
    """The process that agents sync with, on a thread."""
    agent_auth.forget_all()
    config = uvicorn.Config(Application(), host="127.0.0.1", port=0, log_level="warning", lifespan="on")
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(20)


@pytest.fixture
def bobs_node(local_store: Store, sync_url: str, settings: Any) -> Iterator[Node]:
    """Online by its own agent, a process of its own with the process executor."""
    settings.SOUK_SYNC_URL = sync_url
    provider = Provider.objects.create(organisation=stage.organisation("bob"), display_name="Bob")
    _, token = enrolment.issue_token(provider, actor="test")
    with tempfile.TemporaryDirectory(prefix="souk-kinds-", dir="/tmp") as name:
        folder = DataFolder(Path(name) / "bob")
        offer = OfferTerms(price_usd_micros_per_device_hour=PRICE_USD_MICROS)
        chosen = AgentSettings(
            name="bob-1",
            offer=offer,
            executor="process",
            allow_strangers=True,
            device_kind="cpu",
            runtime_python=sys.executable,
        )
        asyncio.run(joining.enrol(folder, chosen, server=settings.SOUK_API_URL, token=token))
        node = Node.objects.get()
        _count_as_measured(node, folder)
        with (Path(name) / "agent.log").open("wb") as log:
            command = [sys.executable, "-m", "provider_agent", "start", "--data", str(folder.root)]
            agent = subprocess.Popen(command, stdout=log, stderr=log, cwd=REPOSITORY)
        try:
            eventually(lambda: liveness.flush_beats() or Node.objects.filter(pk=node.pk, state="online").exists())
            yield node
        finally:
            agent.terminate()
            agent.wait(30)
            print((Path(name) / "agent.log").read_text())


def eventually(condition: Callable[[], Any], *, seconds: float = SECONDS_MAX) -> Any:
    """Wait until `condition` holds; returns what it returned."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"did not happen in {seconds} s: {condition}")


def _count_as_measured(node: Node, folder: DataFolder) -> None:
    """As if the node's benchmark had run."""
    uuids = list(assemble(folder).devices)
    measured = [
        DeviceMeasurement(uuid=uuid, flops_per_second={"float32": 1e11}, memory_bytes_per_second=1e10, seconds=1)
        for uuid in uuids
    ]
    inventory.record_measurements(node, MeasurementRequest(probe_version=1, devices=measured))
    journal = Journal(folder.journal)
    journal.save_fact(FACT_MEASURED, ",".join(uuids))
    journal.close()

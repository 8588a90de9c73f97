"""Bob's agent sends its token usage statements to the real API, also when it is started anew or cut off."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.endpoints import payments
from jobs.models import Endpoint, Lease, LeaseStatement
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from provider_agent.client import Client
from provider_agent.lease import usage_statements
from provider_agent.protocol import NO_CONTRACT
from tests import stage
from tests.integration.jobs.conftest import node_with_key, transport_key
from tests.integration.jobs.serving import scenes

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.agent_urls")]


@dataclass
class Counts:
    requests: int = 0
    without_usage: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@pytest.fixture
def lease(alice: Organisation, bob: Node) -> Lease:
    endpoint: Endpoint = scenes.endpoint(alice)
    payments.open_window(endpoint.job)
    return scenes.run(endpoint.job, endpoint, bob)


def _state(live_server: Any, lease: Lease, folder: Path, *counts: Counts, node: Node | None = None) -> None:
    """As the agent does at a lease's end; with more counts, its task failed and was restarted after each."""

    async def go() -> None:
        signer = node or lease.node
        client = Client(api_url=live_server.url, node_id=signer.id, key=transport_key(signer.name))
        context: Any = SimpleNamespace(client=client, keys=SimpleNamespace(receipt_hex=stage.receipt_key(signer.name)))
        assignment = SimpleNamespace(receipt_domain=NO_CONTRACT, fence=lease.fence)
        entry: Any = SimpleNamespace(lease_id=lease.pk, assignment=assignment, has_ended=True)
        try:
            book = usage_statements.open_usage_statements(context, entry, folder)
            for each in counts:
                await usage_statements.ship_usage_statements(
                    context, entry, book, functools.partial(dataclasses.replace, each)
                )
        finally:
            await client.close()

    asyncio.run(go())


def test_agent_states_what_it_counted_and_goes_on_after_a_restart(
    live_server: Any, lease: Lease, tmp_path: Path
) -> None:
    _state(live_server, lease, tmp_path, Counts(3, 1, 30, 300))
    _state(live_server, lease, tmp_path, Counts())  # a new agent that has counted nothing yet
    _state(live_server, lease, tmp_path, Counts(2, 0, 20, 200))
    kept = LeaseStatement.objects.get()
    assert (kept.seq, kept.requests, kept.without_usage) == (2, 5, 1)
    assert (kept.input_tokens, kept.output_tokens) == (50, 500)


def test_restarted_task_counts_nothing_twice(live_server: Any, lease: Lease, tmp_path: Path) -> None:
    _state(live_server, lease, tmp_path, Counts(3, 1, 30, 300), Counts(4, 1, 40, 400))
    kept = LeaseStatement.objects.get()
    assert (kept.requests, kept.without_usage, kept.input_tokens, kept.output_tokens) == (4, 1, 40, 400)


def test_statement_that_no_server_answered_is_sent_again_as_it_was(
    live_server: Any, lease: Lease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_statements, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(usage_statements, "LAST_TRIES_MAX", 2)
    _state(SimpleNamespace(url="http://127.0.0.1:9"), lease, tmp_path, Counts(requests=3))
    before = (tmp_path / usage_statements.STATEMENT_FILE).read_bytes()
    assert not LeaseStatement.objects.exists()
    monkeypatch.setattr(usage_statements, "LAST_TRIES_MAX", 20)
    _state(live_server, lease, tmp_path, Counts(requests=1))
    kept = LeaseStatement.objects.get()
    assert (kept.seq, kept.requests) == (2, 4)
    assert b'"seq":1' in before and kept.prev_digest != "0x" + "0" * 64


def test_nobody_states_for_the_lease_of_another(
    live_server: Any, lease: Lease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_statements, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(usage_statements, "LAST_TRIES_MAX", 2)
    _state(live_server, lease, tmp_path, Counts(requests=3), node=node_with_key("mallorys-node"))
    assert not LeaseStatement.objects.exists()

"""Alice has a job that runs on Bob's node."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from jobs.artifacts import choice as stores
from jobs.artifacts.store import Store
from jobs.models import Lease
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState
from tests import stage
from tests.stage import DOLLAR


def transport_key(name: str) -> Ed25519PrivateKey:
    """The key with which the node of this name signs its requests."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"key of {name}".encode()).digest())


def node_with_key(name: str, **more: Any) -> Node:
    """A node that can sign."""
    node = stage.node(name, **more)
    node.transport_public_key = transport_key(name).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
    node.save()
    return node


@pytest.fixture
def alice(transactional_db: None) -> Organisation:
    return stage.organisation("alice", usd_micros=50 * DOLLAR)


@pytest.fixture
def bob(transactional_db: None) -> Node:
    return node_with_key("bobs-node")


@pytest.fixture
def url(transactional_db: None) -> Iterator[str]:
    """The address of a sync process that listens."""
    from tests.integration.jobs.sync.syncing import serving, wait_until  # it signs by a key from here

    with serving() as base:
        wait_until(lambda: httpx.get(f"{base}/healthz").json()["is_listening"])
        yield base


@pytest.fixture
def lease(alice: Organisation, bob: Node) -> Lease:
    (lease,) = stage.place(stage.submit(alice))
    stage.send_report(lease, AttemptState.PREPARING)
    stage.send_report(lease, AttemptState.RUNNING)
    return Lease.objects.select_related("attempt__job", "node").get(pk=lease.pk)


@pytest.fixture
def own_lease(alice: Organisation, bob: Node) -> Lease:
    """Of a customer's own program, whose checkpoints may be anything."""
    _, (lease,) = stage.running_job(alice, **stage.OWN_COMMAND)
    return Lease.objects.select_related("attempt__job", "node").get(pk=lease.pk)


@pytest.fixture
def local_store(settings: Any, tmp_path: Any, live_server: Any) -> Iterator[Store]:
    """An empty store on the disk, behind a real server."""
    settings.SOUK_DATA = tmp_path
    settings.SOUK_API_URL = live_server.url
    stores._store_for.cache_clear()
    yield stores.get_store()
    stores._store_for.cache_clear()

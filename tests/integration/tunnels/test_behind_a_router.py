"""A replica behind NAT answers, over TLS, with no port open there; and again after its line got another address."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jobs.gateway.engines.upstream import UpstreamError
from jobs.gateway.tunnels import TunnelHub
from tests.fakes.tunnelled import gateway, make_certificate, public_of, row, run, until
from tests.integration.tunnels.nat import HERE, OUTSIDE, OUTSIDE_LATER, behind_nat, why_not

ANSWERED_SECONDS_MAX = 60
AGENT = Path(__file__).with_name("agent.py")
pytestmark = pytest.mark.docker  # root and namespaces


def test_a_replica_behind_nat_answers_and_nothing_listens_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := why_not():
        pytest.skip(why)
    monkeypatch.setattr("jobs.gateway.tunnels.tunnel.HEARTBEAT_SECONDS", 0.5)
    node, lease_id = Ed25519PrivateKey.generate(), uuid4()

    async def scenario() -> None:
        certificate = make_certificate(tmp_path, HERE)
        async with gateway(HERE, certificate) as there:
            there.hub.allow([row(lease_id, node)])
            words = [node.private_bytes_raw().hex(), str(lease_id), there.url, public_of(there.key)]
            agent = subprocess.Popen(
                ["ip", "netns", "exec", nat.node, sys.executable, AGENT, tmp_path, *words],
                env=os.environ | {"SSL_CERT_FILE": str(certificate), "PYTHONPATH": str(Path(__file__).parents[3])},
            )
            try:
                await until(there.hub.announced)
                assert await ask(there.hub) == b"hello from behind"
                assert set(there.clients) == {OUTSIDE}, "the router's address alone is seen"
                assert nat.listening() == []
                nat.renumber()
                await until(lambda: OUTSIDE_LATER in there.clients)
                assert await ask_until_answered(there.hub) == b"hello from behind"
            finally:
                agent.kill()
                agent.wait()

    async def ask(hub: TunnelHub) -> bytes:
        upstream = await until(lambda: hub.upstream(lease_id))
        answer = await upstream.request("POST", "/v1/x", [], b"", seconds=10)
        return b"".join([chunk async for chunk in answer.chunks()])

    async def ask_until_answered(hub: TunnelHub) -> bytes:
        """The gateway may use the dead tunnel until the new one has announced the lease."""
        async with asyncio.timeout(ANSWERED_SECONDS_MAX):
            while True:
                with contextlib.suppress(UpstreamError):
                    return await ask(hub)
                await asyncio.sleep(0.05)

    with behind_nat() as nat:
        run(scenario())

"""wss:// stands for a certificate that the agent's computer believes; the pinned key stands beside it."""

from __future__ import annotations

import ssl
from pathlib import Path
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from provider_agent.tunnel import Tunnels
from tests.fakes.tunnelled import READY, gateway, make_certificate, row, run, until


def test_a_gateway_with_a_certificate_that_is_believed_is_dialled_and_another_is_not(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "127.0.0.1")

    async def scenario() -> None:
        async with gateway(certificate=certificate) as there:
            node, lease_id = Ed25519PrivateKey.generate(), uuid4()
            there.hub.allow([row(lease_id, node)])
            wary = Tunnels(node)
            wary.announce(lease_id, there.place, tmp_path / "serve.sock", READY)
            (status,) = await until(lambda: [one for one in wary.status() if one["why"]])
            assert "certificate" in status["why"].lower()
            assert not there.hub.announced()
            trusting = Tunnels(node, tls=lambda: ssl.create_default_context(cafile=str(certificate)))
            trusting.announce(lease_id, there.place, tmp_path / "serve.sock", READY)
            await until(there.hub.announced)
            await wary.close()
            await trusting.close()

    run(scenario())

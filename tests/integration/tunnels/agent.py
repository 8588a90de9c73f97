"""Bob's side, a process of its own: tunnels and an engine. `python agent.py FOLDER NODE_KEY LEASE URL GATEWAY_KEY`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from provider_agent.protocol import GatewayPlace, ServePlace
from provider_agent.tunnel import Tunnels, gateway_connection
from tests.fakes.tunnelled import READY, served


async def engine(scope: Any, receive: Any, send: Any) -> None:
    """Says hello, a word at a time."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for word in (b"hello ", b"from ", b"behind"):
        await send({"type": "http.response.body", "body": word, "more_body": True})
        await asyncio.sleep(0.01)
    await send({"type": "http.response.body"})


async def main(folder: Path, node_key: str, lease_id: str, url: str, gateway_key: str) -> None:
    """Until it is ended."""
    setattr(gateway_connection, "HEARTBEAT_SECONDS", 0.5)  # noqa: B010 - so that the test need not wait for three of the usual ones
    tunnels = Tunnels(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(node_key)))
    place = ServePlace(endpoint_id=UUID(int=0), gateways=[GatewayPlace(url=url, public_key=gateway_key)])
    async with served(engine, uds=str(folder / "serve.sock")):
        tunnels.announce(UUID(lease_id), place, folder / "serve.sock", READY)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))

"""python -m tests.fakes.tunnel_end SPEC: a provider's end of the tunnels, and nothing else of an agent.

SPEC is JSON: `seed` (hex of the node's Ed25519 key), `place` (a ServePlace), `leases` (lease_id, socket, ready of
each). It lives until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from uuid import UUID

import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from provider_agent.protocol.serving import ServePlace
from provider_agent.tunnel import Tunnels


async def serve(spec: dict[str, object]) -> None:
    """Announce every lease, then go on for ever."""
    tunnels = Tunnels(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(str(spec["seed"]))))
    place = ServePlace.model_validate(spec["place"])
    tunnels.start()
    leases = spec["leases"]
    assert isinstance(leases, list)
    for lease in leases:
        tunnels.announce(UUID(lease["lease_id"]), place, Path(lease["socket"]), lease["ready"])
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(json.loads(sys.argv[1])))

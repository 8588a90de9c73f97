"""python -m tests.fakes.gateway_child: the real gateway, configured by its environment (SOUK_GATEWAY_*).

Without more it is `souk gateway`. With PLAIN_REPLICAS in the environment (JSON: lease_id, port or socket, ready, of
each) it reaches its replicas by plain connections instead of tunnels: all else is the same.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from uuid import UUID

import uvloop

from jobs.gateway.answering.serving import Serving
from jobs.gateway.config import GatewayConfig
from jobs.gateway.engines.upstream import Announced
from jobs.gateway.process import Backend, Parts, serve
from tests.fakes.plain_replicas import PlainReplicas, Where

PLAIN = "PLAIN_REPLICAS"


def main() -> None:
    """Serve until SIGTERM."""
    if PLAIN in os.environ:
        uvloop.run(serve_plain(GatewayConfig.from_env(os.environ), json.loads(os.environ[PLAIN])))
        return
    from marketplace.config.commands.gateway import app

    app(args=[], prog_name="souk gateway")


async def serve_plain(config: GatewayConfig, replicas: list[dict[str, Any]]) -> None:
    """As `souk gateway` is made of its parts, but for the way to the replicas."""

    def compose(parts: Parts) -> Backend:
        plain = PlainReplicas({UUID(row["lease_id"]): _engine(row) for row in replicas})
        serving = Serving(plain, parts.directory, parts.meter, on_wanted=parts.control.wake)
        parts.control.loads, parts.control.replica_loads = serving.loads, serving.replica_loads

        async def refuse(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "websocket.close", "code": 1008})

        return Backend(serving=serving, accept_tunnel=refuse, close=serving.close)

    await serve(config, compose)


def _engine(row: dict[str, Any]) -> tuple[Where, Announced]:
    ready = row["ready"]
    where = Where(row.get("port", 0), Path(row["socket"]) if row.get("socket") else None)
    lease_id = UUID(row["lease_id"])
    announced = Announced(lease_id, ready["engine"], frozenset(ready["capabilities"]), ready.get("context"), ready)
    return where, announced


if __name__ == "__main__":
    main()

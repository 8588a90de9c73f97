"""A gateway with the stage's engine in a process of its own, to be killed: python -m ... CONTROL_URL DATA."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from jobs.gateway.config import GatewayConfig
from jobs.gateway.process import Backend, Parts, Serving, serve
from tests.unit.jobs.gateway.stage import TOKEN, Engine


def main() -> None:
    config = GatewayConfig(control_url=sys.argv[1], token=TOKEN, data=Path(sys.argv[2]), port=0, drain_seconds=5)

    def compose(parts: Parts) -> Backend:
        async def refuse(scope: object, receive: object, send: object) -> None: ...

        return Backend(Engine(parts.meter), refuse)

    def announce(serving: Serving) -> None:
        print(serving.port, flush=True)

    asyncio.run(serve(config, compose, on_listening=announce))


if __name__ == "__main__":
    main()

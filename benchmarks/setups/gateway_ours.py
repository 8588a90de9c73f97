"""Our own gateway for benchmarks/gateway.py: the real process, with keys, limits and metering, before a fixed table.

`gateway` reaches the engine by plain connections, `gateway+tunnel` by the agent's own tunnel. The fake control plane
(tests/fakes/control), which accepts every row of usage, and the agent run on the other core.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.setups.gateway_peers import OTHER_CORE, SUBJECT_CORE, NotMeasured, Route
from tests.fakes.serving_stack import Elsewhere, Stack

SUBJECT, OTHER = (("taskset", "-c", str(core)) for core in (SUBJECT_CORE, OTHER_CORE))
REPLICAS = 2  # leases on two nodes, before the one engine: a tunnel takes 1,024 requests of a lease at once
BOUNDS = {"requests_max": 8_192, "requests_per_endpoint_max": 8_192}  # more streams than are held


class Gateway(Route):
    """Without the tunnel: what the gateway itself costs."""

    name = "gateway"
    can_pause = False
    is_plain = True

    def start(self, engine: Elsewhere, folder: Path) -> None:
        self._stack = Stack(Path(tempfile.mkdtemp(prefix="ours-", dir=folder)), prefix=OTHER)
        self.key, self.port = self._stack.key, self._stack.gateway_port
        replicas = [self._stack.adopt(engine) for _ in range(REPLICAS)]
        try:
            self._process = self._stack.start_gateway(is_plain=self.is_plain, prefix=SUBJECT, **BOUNDS)
            if not self.is_plain:
                for replica in replicas:
                    self._stack.start_provider(replica, prefix=OTHER)
            self._stack.wait_ready(REPLICAS)
        except TimeoutError as error:
            raise NotMeasured(str(error)) from error

    @property
    def subject(self) -> int:
        return self._process.process.pid

    def stop(self) -> None:
        if hasattr(self, "_stack"):
            self._stack.close()


class GatewayTunnel(Gateway):
    """With the tunnel, as requests go in truth."""

    name = "gateway+tunnel"
    is_plain = False

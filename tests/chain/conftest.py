"""A real node for what the development chain has none of: a mempool, reorganisations, finality that lags."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from billing.chain.devchain import development
from billing.chain.devchain.chain import CHAIN_ID, DEVELOPMENT_KEYS
from tests.chain.proxy import Proxy
from tests.integration.billing.chain.town import Town

ROOT = Path(__file__).resolve().parents[2]
CANDIDATES = (os.environ.get("SOUK_ANVIL", ""), str(ROOT / ".cache" / "node_modules" / ".bin" / "anvil"))
CONFIRMATIONS = 3
# After some hundred blocks anvil 1.7.1 keeps all but its newest ten states on disk, without the contracts' code: a
# deeper reorganisation would leave no contract. With a limit it keeps these in memory, and none on disk.
STATES_KEPT = 200


class Anvil(Town):
    """A town on anvil, seen through two endpoints; `rpc` reaches the node itself, `proxy` may lie."""

    url: str
    proxy: Proxy

    def rpc(self, method: str, *params: Any) -> Any:
        answer = self.proxy.ask.post(
            self.url, json={"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}
        ).json()
        assert "error" not in answer, answer
        return answer["result"]

    def mine(self, blocks: int = 1) -> None:
        self.rpc("anvil_mine", hex(blocks))

    def reorg(self, depth: int) -> None:
        """The newest blocks are replaced by as many empty ones."""
        self.rpc("anvil_reorg", depth, [])


@pytest.fixture(scope="session")
def anvil_path() -> str:
    found = next((path for path in CANDIDATES if path and Path(path).is_file()), None)
    if found is None:
        pytest.skip("anvil is not here: npm install --prefix .cache @foundry-rs/anvil@1.7.1, or set SOUK_ANVIL")
    return found


@pytest.fixture
def anvil_url(anvil_path: str) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--port", str(port), "--chain-id", str(CHAIN_ID), "--prune-history", str(STATES_KEPT), "--silent"]
    node = subprocess.Popen([anvil_path, *options], start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield url
    finally:
        os.killpg(node.pid, signal.SIGKILL)  # npm's command is a wrapper: the node itself is its child
        node.wait()


@pytest.fixture
def build_anvil(anvil_url: str, db: None, settings: Any) -> Iterator[Callable[..., Anvil]]:
    proxies: list[Proxy] = []

    def build(**changes: Any) -> Anvil:
        proxy = Proxy(anvil_url)
        proxies.append(proxy)
        chain = {
            "chain_id": CHAIN_ID,
            "name": "anvil",
            "rpc_urls": [anvil_url, proxy.url],
            "finality": "depth",
            "confirmations": CONFIRMATIONS,
        }
        settings.SOUK_CHAINS = [chain | changes]
        settings.SOUK_CHAIN_KEY = DEVELOPMENT_KEYS[0]
        settings.SOUK_CHAIN_SETTLER_KEY = settings.SOUK_CHAIN_PUBLISHER_KEY = ""
        town = Anvil(development.register(CHAIN_ID, *development.build_town(CHAIN_ID)))
        town.url, town.proxy = anvil_url, proxy
        return town

    yield build
    for proxy in proxies:
        proxy.close()


@pytest.fixture
def anvil(build_anvil: Callable[..., Anvil]) -> Anvil:
    return build_anvil()

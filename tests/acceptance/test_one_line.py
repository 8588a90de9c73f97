"""A stranger pastes one line: the agent runs, the node is listed, the page shows it; one more line and it is gone."""

from __future__ import annotations

import getpass
import json
import secrets
import shlex
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from examples.market import SOUK, Market, NodeOptions, run, run_json

pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow]


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A node's folder; an agent that a failed test left running is ended by its own pid."""
    yield tmp_path / "node"
    pid_file = tmp_path / "node" / "agent.pid"
    if pid_file.exists() and psutil.pid_exists(pid := int(pid_file.read_text())):
        pid_file.unlink()  # else its keeper would bring it back
        psutil.Process(pid).kill()


def test_the_line_of_add_node_makes_a_listed_node_until_it_is_uninstalled(market: Market, data: Path) -> None:
    provider = market.sign_up(f"stranger-{secrets.token_hex(6)}")  # another, when the test is tried again
    env = provider.env(market.server)
    line = run_json([SOUK, "provider", "add-node"], env)["command"]
    where = ["--prefix", str(market.prefix), "--data", str(data), "--user", getpass.getuser()]
    own = [
        *where,
        "--executor",
        "process",
        "--price",
        "0.77",
        "--name",
        "stranger",
        *NodeOptions(devices=1).arguments(),
    ]
    output = run(["sh", "-c", f"{line} {shlex.join(own)}"], env, seconds=200)
    node_id = json.loads((data / "config.json").read_text())["node_id"]
    page = f"{market.server}/nodes/{node_id}"
    assert f"Listed: {page}" in output
    shown = httpx.get(page).text
    for seen in ("stranger", "for rent", "$0.77 per device and hour"):
        assert seen in shown
    agent = psutil.Process(int((data / "agent.pid").read_text()))
    assert agent.is_running()

    again = f"curl -fsSL {market.server}/install.sh | sh -s -- {shlex.join(where)}"
    assert "keeps its identity" in run(["sh", "-c", again], env)
    assert not agent.is_running(), "the agent runs anew"

    gone = run(["sh", "-c", f"{again} --uninstall"], env)
    assert "Retired stranger" in gone
    assert not data.exists()
    assert market.prefix.exists(), "other nodes of this computer use it"
    assert httpx.get(f"{page}.json").json() == {"name": "stranger", "state": "retired", "is_listed": False}

"""The chain for development that `souk up` runs where no other is configured: on loopback, kept in the data folder."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
from pathlib import Path
from typing import Final

from billing.chain.devchain.chain import CHAIN_ID, DEVELOPMENT_KEYS
from billing.chain.devchain.token import TOKEN_CODE, TOKEN_PRICE
from marketplace.config.embedded.child_supervisor import ChildSupervisor, Say
from marketplace.config.embedded.children import Recipe
from marketplace.config.embedded.folder import DataFolder
from marketplace.config.embedded.processes import Addresses

LOOPBACK: Final = "127.0.0.1"
BACKLOG: Final = 64


def start(folder: DataFolder, addresses: Addresses, supervisor: ChildSupervisor, say: Say) -> dict[str, str]:
    """Start it beside everything else; returns the settings by which the others find it, none where there is no chain.

    Nothing waits for it: the next run of Celery's task that finds it deploys the contracts.
    """
    described = described_in(folder.path)
    described.unlink(missing_ok=True)
    if os.environ.get("SOUK_CHAINS"):
        say("chain: those of SOUK_CHAINS")
        return {}
    if importlib.util.find_spec("eth_tester") is None or importlib.util.find_spec("web3") is None:
        say("chain: none; pip install 'gpusouk[chain,devchain]' to pay in tokens of a development chain")
        return {}
    listener = _open_listener(addresses.port + 2)
    journal = folder.path / "chain" / "journal.jsonl"
    command = [
        sys.executable,
        "-m",
        "billing.chain.devchain.rpc",
        "--fd",
        str(listener.fileno()),
        "--journal",
        str(journal),
    ]
    supervisor.start(Recipe("devchain", command, folder.log("devchain"), sockets=[listener]))
    url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
    chain = {"chain_id": CHAIN_ID, "name": "development", "rpc_urls": [url], "is_development": True}
    described.parent.mkdir(mode=0o700, exist_ok=True)
    described.write_text(json.dumps([chain]))
    say(f"chain: a development chain on {url} (id {CHAIN_ID}; its tokens are worth nothing)")
    return _settings(described)


def attach(data: Path) -> dict[str, str]:
    """The same settings for the operator's commands, of a marketplace that runs."""
    described = described_in(data)
    if os.environ.get("SOUK_CHAINS") or not described.is_file():
        return {}
    return _settings(described)


def _settings(described: Path) -> dict[str, str]:
    """A token of the development chain costs a dollar, unless the operator sets another price."""
    return {
        "SOUK_CHAINS": described.read_text(),
        "SOUK_CHAIN_KEY": DEVELOPMENT_KEYS[0],
        "SOUK_TOKEN_PRICES": os.environ.get("SOUK_TOKEN_PRICES", json.dumps({TOKEN_CODE: TOKEN_PRICE})),
    }


def described_in(data: Path) -> Path:
    return data / "chain" / "chains.json"


def _open_listener(wanted: int) -> socket.socket:
    """The port after sync's, or any that is free; ours until the end, so that a restart listens on the same one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, wanted))
    except (OSError, OverflowError):
        listener.bind((LOOPBACK, 0))
    listener.listen(BACKLOG)
    return listener

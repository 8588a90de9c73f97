"""The doctor's lines about jobs' disks, their way to the internet, and the fabric's address, of an enrolled node."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from provider_agent.config import AgentConfig, DataFolder, load_config
from provider_agent.journal import FACT_LINKS, Journal
from provider_agent.node import abilities
from provider_agent.node.abilities import check_disk_limit, check_egress, check_fabric_address, check_gangs
from provider_agent.preflight.finding import Finding
from tests.integration.provider_agent.conftest import Bob
from tests.integration.provider_agent.fake_server import FakeServer

LOOPBACK = "127.0.0.77"


def config_of(bob: Bob, **changes: Any) -> AgentConfig:
    bob.enrol()
    return load_config(bob.folder).model_copy(update={"fabric": "rack", **changes})


def address_of(bob: Bob, **changes: Any) -> Finding:
    return check_fabric_address(bob.folder, config_of(bob, **changes))


def save_links(folder: DataFolder, **whys: str) -> None:
    """What the newest probes saw; an empty reason for a node that was reached."""
    journal = Journal(folder.journal)
    links = {peer: {"is_reached": not why, "why": why} for peer, why in whys.items()}
    journal.save_fact(FACT_LINKS, json.dumps(links))
    journal.close()


def test_an_address_of_this_computer_is_shown_with_its_ports_and_who_was_reached(bob: Bob) -> None:
    found = address_of(bob, fabric_address=LOOPBACK)
    assert found.verdict == "PASS"
    assert found.found == (
        f"{LOOPBACK} of this computer; free ports: TCP 200 of 27100-27299, UDP 2000 of 29500-31499; "
        "no other node measured the way yet"
    )
    save_links(bob.folder, rack2="", rack3="not reached")
    assert "; 1 of 2 nodes reached" in check_fabric_address(bob.folder, config_of_again(bob)).found


def config_of_again(bob: Bob) -> AgentConfig:
    return load_config(bob.folder).model_copy(update={"fabric": "rack", "fabric_address": LOOPBACK})


def test_a_node_that_nobody_reached_is_shown_which_ports_to_open(bob: Bob) -> None:
    config = config_of(bob, fabric_address=LOOPBACK)
    save_links(bob.folder, rack2="rack2 at 10.0.0.8:27105 not reached within 12 s: Connection timed out")
    found = check_fabric_address(bob.folder, config)
    assert found.verdict == "FIX"
    assert "no other node was reached. rack2: rack2 at 10.0.0.8:27105 not reached" in found.found
    assert "TCP 27100-27299 and UDP 29500-31499" in found.fix


def test_ports_that_are_taken_are_counted_and_none_left_is_to_be_fixed(
    bob: Bob, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(bob, fabric_address=LOOPBACK)
    with socket.create_server((LOOPBACK, 27100)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind((LOOPBACK, 29500))
        found = check_fabric_address(bob.folder, config).found
        assert "TCP 199 of 27100-27299, UDP 1999 of 29500-31499" in found
        monkeypatch.setattr(abilities, "PROBE_PORTS", range(27100, 27101))
        assert check_fabric_address(bob.folder, config).verdict == "FIX"


@pytest.mark.parametrize(
    ("changes", "verdict", "finding"),
    [
        ({"fabric": ""}, "SKIP", "none is declared"),
        ({"fabric_address": ""}, "FIX", "none is declared, but the fabric rack"),
        ({"fabric_address": "192.0.2.77"}, "FIX", "192.0.2.77 is not one of this computer"),
    ],
)
def test_an_address_that_is_none_is_reported(bob: Bob, changes: dict[str, str], verdict: str, finding: str) -> None:
    found = address_of(bob, **changes)
    assert (found.verdict, finding in found.found) == (verdict, True), found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root asks for others")
def test_root_who_asks_is_shown_what_the_agent_may_and_not_root(bob: Bob, server: FakeServer, tmp_path: Path) -> None:
    config = config_of(bob, executor="docker", egress="public", fabric_address=LOOPBACK)
    assert check_disk_limit(bob.folder, config).verdict == "PASS"
    os.chown(bob.data, 65534, 65534)
    for check, verdict in ((check_disk_limit, "SKIP"), (check_egress, "FIX"), (check_gangs, "FIX")):
        found = check(bob.folder, config)
        assert (found.verdict, found.fix) == (verdict, "run the install line with --user root")
        assert "the agent runs as nobody, not as root" in found.found

"""What a gang's network is made of: checked first, and never sent to an agent that does not know it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from provider_agent.config import AgentSettings
from provider_agent.errors import ExecutorFailed
from provider_agent.executors.firewall import BRIDGE_PREFIX
from provider_agent.keys import FABRIC_KEY_NAME, load_keys, make_keys
from provider_agent.lease.workfolder import OWN_PORT_FIRST, OWN_PORTS, own_port
from provider_agent.overlay import Overlay, Overlays, overlay_of, rules, system, vxlan, wireguard
from provider_agent.protocol import Assignment, GangMember, GangPlace, OfferTerms, Program, gang_address
from provider_agent.system import capabilities, programs
from provider_agent.system.programs import SYSTEM_PATH

KEYS = [X25519PrivateKey.generate() for _ in range(3)]
ATTEMPT = UUID(int=7)


def public(rank: int) -> str:
    return KEYS[rank].public_key().public_bytes_raw().hex()


def address(rank: int) -> str:
    return f"203.0.113.{rank + 1}"


def member(rank: int, **changes: Any) -> GangMember:
    values = {
        "rank": rank,
        "address": address(rank),
        "port": 29_600,
        "public_key": public(rank),
        "overlay_address": gang_address(rank),
    }
    return GangMember(**values | changes)


def gang(rank: int = 0, **changes: Any) -> GangPlace:
    values: dict[str, Any] = {
        "nodes": 3,
        "node_rank": rank,
        "master_address": gang_address(0),
        "overlay": "wireguard",
        "members": [member(number) for number in range(3)],
    }
    return GangPlace(**values | changes)


def assignment(place: GangPlace) -> Assignment:
    return Assignment(
        node_id=uuid4(),
        lease_id=uuid4(),
        fence=1,
        attempt_id=ATTEMPT,
        attempt_number=1,
        job_id=uuid4(),
        job_name="alice-job",
        device_uuids=["cpu-0"],
        rate_usd_micros_per_hour=1,
        cap_usd_micros=1,
        program=Program(command=["true"]),
        gang=place,
        seconds_max=1,
    )


def test_assignment_names_its_members_and_survives_the_wire_and_the_record() -> None:
    given = assignment(gang(1))
    read = Assignment.model_validate_json(given.model_dump_json())
    assert read == given
    overlay = overlay_of(read, kind="wireguard", public_key=public(1), address=address(1))
    assert overlay.me.overlay_address == "10.83.0.2"
    assert [other.rank for other in overlay.others] == [0, 2]
    assert Overlay.from_dict(json.loads(json.dumps(overlay.as_dict()))) == overlay


def test_assignment_without_an_overlay_says_no_new_word() -> None:
    old = {"nodes", "node_rank", "devices_per_node", "master_address", "master_port"}
    assert set(json.loads(assignment(GangPlace(nodes=2)).model_dump_json())["gang"]) == old


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"overlay": "plain"}, "asks for plain, this node offers wireguard"),
        ({"overlay": "", "members": []}, "asks for none"),
        ({"members": [member(0), member(1)]}, "does not name 3 members by rank"),
        ({"members": [member(0), member(2), member(1)]}, "does not name 3 members by rank"),
        ({"node_rank": 3}, "does not name 3 members by rank"),
        ({"members": [member(0, public_key=public(1)), member(1), member(2)]}, "by another key"),
        ({"members": [member(0), member(1), member(2, public_key=public(1))]}, "same key"),
        ({"members": [member(0), member(1), member(2, address="rack-3")]}, "rack-3"),
        ({"members": [member(0), member(1), member(2, address="-j ACCEPT")]}, "-j ACCEPT"),
        ({"members": [member(0), member(1), member(2, address="fe80::1%\n-A INPUT -j ACCEPT")]}, "no plain IP address"),
        ({"members": [member(0), member(1), member(2, address="2001:db8::3")]}, "others IPv6"),
        ({"members": [member(0), member(1), member(2, overlay_address="192.168.0.1")]}, "outside of"),
        ({"members": [member(0), member(1), member(2, overlay_address="10.83.0.2")]}, "same overlay address"),
        ({"members": [member(0), member(1), member(2, address="203.0.113.2")]}, "same address and port"),
        ({"members": [member(0), member(1), member(2, address="127.0.0.1")]}, "127.0.0.1 is no address of another"),
        ({"members": [member(0), member(1), member(2, address="0.0.0.0")]}, "0.0.0.0 is no address of another"),
        ({"members": [member(0), member(1), member(2, address="224.0.0.1")]}, "224.0.0.1 is no address of another"),
        ({"members": [member(0), member(1), member(2, address="255.255.255.255")]}, "is no address of another"),
        ({"members": [member(n, address=f"::ffff:203.0.113.{n + 1}") for n in range(3)]}, "is no address of another"),
        (
            {"members": [member(0, address="203.0.113.9"), member(1), member(2)]},
            "this node's fabric address 203.0.113.1",
        ),
        ({"members": [member(0, port=53), member(1), member(2)]}, "port 53 is not from 29500 to 31499"),
        ({"master_address": "203.0.113.1"}, "not that of rank 0"),
    ],
)
def test_assignment_that_does_not_fit_is_refused_by_what_is_wrong(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ExecutorFailed, match=problem):
        overlay_of(assignment(gang(**changes)), kind="wireguard", public_key=public(0), address=address(0))


def test_one_address_in_two_spellings_is_one() -> None:
    members = [member(n, address=f"2001:db8::{n + 1}") for n in range(3)]
    place = gang(members=members)
    assert overlay_of(assignment(place), kind="wireguard", public_key=public(0), address="2001:DB8:0::1").others
    members[2] = member(2, address="2001:db8:0:0::2")
    with pytest.raises(ExecutorFailed, match="same address and port"):
        overlay_of(assignment(gang(members=members)), kind="wireguard", public_key=public(0), address="2001:db8::1")


def test_both_ends_of_a_pair_and_nobody_else_compute_its_key() -> None:
    def pair(mine: int, theirs: int, attempt: UUID = ATTEMPT) -> bytes:
        return wireguard.pair_key(KEYS[mine], bytes.fromhex(public(theirs)), attempt)

    assert pair(0, 1) == pair(1, 0)
    assert len({pair(0, 1), pair(0, 2), pair(1, 2), pair(0, 1, UUID(int=8))}) == 4


def test_key_that_is_none_is_refused() -> None:
    with pytest.raises(ExecutorFailed, match="key is none"):
        wireguard.pair_key(KEYS[0], bytes(32), ATTEMPT)


def test_configuration_names_the_others_and_each_one_address() -> None:
    overlay = overlay_of(assignment(gang(1)), kind="wireguard", public_key=public(1), address=address(1))
    lines = wireguard.configuration(overlay, KEYS[1]).splitlines()
    assert lines.count("[Peer]") == 2
    assert [line for line in lines if "AllowedIPs" in line] == [
        "AllowedIPs = 10.83.0.1/32",
        "AllowedIPs = 10.83.0.3/32",
    ]
    assert "Endpoint = 203.0.113.1:29600" in lines
    assert wireguard.endpoint("2001:db8::1", 5) == "[2001:db8::1]:5"


def test_rules_open_the_port_to_members_alone() -> None:
    overlay = overlay_of(assignment(gang(1)), kind="wireguard", public_key=public(1), address=address(1))
    chain = rules.chain_of(overlay.lease_id)
    orders = [line for line in rules.rules(overlay).splitlines() if line.startswith("-A")]
    accepted = [f"-A {chain} -s 203.0.113.{last} -j ACCEPT" for last in (1, 3)]
    assert orders == [*accepted, f"-A {chain} -j DROP", f"-A {chain} -j DROP"]
    assert rules.LEASES.removesuffix("+") == BRIDGE_PREFIX
    assert len(chain) <= 28
    assert len(overlay.name) <= 15


def test_plain_members_have_addresses_of_their_own() -> None:
    assert len({vxlan.hardware_address(rank) for rank in range(300)}) == 300
    first = overlay_of(assignment(gang(0)), kind="wireguard", public_key=public(0), address=address(0))
    second = overlay_of(assignment(gang(1)), kind="wireguard", public_key=public(1), address=address(1))
    assert vxlan.network_number(first) == vxlan.network_number(second) < 2**24


def test_node_that_enrolled_before_gets_its_fabric_key_and_keeps_it(tmp_path: Path) -> None:
    make_keys(tmp_path)
    (tmp_path / FABRIC_KEY_NAME).unlink()
    first = load_keys(tmp_path).fabric_public_hex
    assert load_keys(tmp_path).fabric_public_hex == first
    assert stat.S_IMODE((tmp_path / FABRIC_KEY_NAME).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.glob(".*")] == []
    assert KEYS[0].private_bytes_raw().hex() not in repr(load_keys(tmp_path))


def test_configuration_of_an_older_agent_is_still_read() -> None:
    offer = OfferTerms(price_usd_micros_per_device_hour=1)
    settings = AgentSettings.model_validate(
        {"name": "bob-1", "offer": offer, "executor": "docker", "fabric_network": "br0"}
    )
    assert settings.fabric_privacy == "wireguard"


def test_rank_beyond_the_network_has_no_address() -> None:
    assert gang_address(255) == "10.83.1.0"
    with pytest.raises(IndexError):
        gang_address(2**16)


def test_leases_of_one_agent_look_for_ports_in_different_places() -> None:
    first, second = own_port(0), own_port(1)
    assert first != second
    with socket.socket() as other:
        other.bind(("127.0.0.1", first))
        assert own_port(0) not in {first, second}
    assert OWN_PORT_FIRST + OWN_PORTS <= 32_768, "below the ports of outgoing connections"


def overlays(folder: Path, address: str) -> Overlays:
    return Overlays(folder / "gangs", key_path=folder / FABRIC_KEY_NAME, kind="wireguard", address=address)


def test_node_that_cannot_join_gangs_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(capabilities, "lacking", lambda _names: [])  # as root has them, whoever runs this test
    assert overlays(tmp_path, "").why_not() == "the node has no address in a fabric"
    if shutil.which("ip", path=SYSTEM_PATH):
        assert "'rack-1' is no IP address" in overlays(tmp_path, "rack-1").why_not()
        assert "no interface here has" in overlays(tmp_path, "203.0.113.99").why_not()
    monkeypatch.setattr(programs, "SYSTEM_PATH", str(tmp_path))
    assert overlays(tmp_path, "127.0.0.1").why_not() == "ip is not installed"
    monkeypatch.setattr(capabilities, "lacking", lambda _names: ["CAP_NET_ADMIN"])
    assert overlays(tmp_path, "127.0.0.1").why_not() == "the agent lacks CAP_NET_ADMIN"
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert overlays(tmp_path, "127.0.0.1").why_not() == "the agent is not root"


@pytest.mark.parametrize(
    ("container", "pid"),
    [("another", os.getpid()), ("", 1), ("", os.getpid())],
    ids=["another container", "the first process", "no container"],
)
def test_process_that_is_not_the_containers_is_left_alone(container: str, pid: int) -> None:
    with pytest.raises(ExecutorFailed):
        system.Program(pid, container).require()

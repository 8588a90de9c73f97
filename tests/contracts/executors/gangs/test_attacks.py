"""What a neighbour in the fabric, and a program of the gang itself, may try; shown to succeed first where it can."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from provider_agent.keys import load_keys
from provider_agent.overlay import Overlay, rules, vxlan, wireguard
from provider_agent.overlay.system import Program, System
from provider_agent.protocol import GangMember, OverlayKind, gang_address
from tests.contracts.executors.gangs.bare import Node, program
from tests.contracts.executors.gangs.conftest import PORT, Gang
from tests.contracts.executors.gangs.fabric import NEIGHBOUR_ADDRESS, NODE_ADDRESSES, OPEN_PORT, Fabric
from tests.integration.provider_agent.conftest import eventually

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

MARKER = "the-marker-of-this-gang"
TENANT = "from the tenant"
TRY_SECONDS = "6"
# Rank 0 prints whatever comes, by connection and by datagram; rank 1 sends it the marker for ever.
TALK = f"""
import os, socket, threading, time
master = os.environ['SOUK_MASTER_ADDR'], int(os.environ['SOUK_MASTER_PORT'])
def patiently(action):
    while True:
        try: return action()
        except OSError: time.sleep(0.1)
if os.environ['SOUK_NODE_RANK'] == '0':
    listener = patiently(lambda: socket.create_server(master))
    box = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    box.bind(master)
    def read():
        while True: print('got', box.recv(1000).decode())
    threading.Thread(target=read, daemon=True).start()
    def serve(peer):
        for line in peer.makefile(): print('received', line.strip())
    while True: threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
else:
    out = patiently(lambda: socket.create_connection(master, 2))
    while True:
        out.sendall(b'{MARKER}\\n'); time.sleep(0.05)
"""
# Everything on the wire to the gang's port for some seconds: how many packets, and how many with the marker in them.
SNIFF = """
import socket, sys, time
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
wire.settimeout(1)
port, marker = int(sys.argv[1]).to_bytes(2, 'big'), sys.argv[2].encode()
seen = read = 0
until = time.monotonic() + 4
while time.monotonic() < until:
    try: frame = wire.recv(65536)
    except TimeoutError: continue
    if frame[12:14] == b'\\x08\\x00' and frame[23] == 17 and frame[36:38] == port:
        seen += 1
        read += marker in frame
print(seen, read)
"""
# Each address and port in the arguments: connected, or not.
CONNECT = """
import socket, sys
for address, port in zip(sys.argv[2::2], sys.argv[3::2]):
    try: socket.create_connection((address, int(port)), float(sys.argv[1])).close(); print(address, port, 'connected')
    except OSError: print(address, port, 'failed')
"""
SEND = "import socket, sys; socket.socket(2, 2).sendto(sys.argv[1].encode(), (sys.argv[2], int(sys.argv[3])))"
# The datagram of the second argument at the port of the first, or nothing; WireGuard's own come there, too.
LISTEN = """
import socket, sys, time
box = socket.socket(2, 2); box.bind(('', int(sys.argv[1]))); box.settimeout(0.2)
print('ready', flush=True)
until = time.monotonic() + 10  # who sends has to start first
while time.monotonic() < until:
    try: found = box.recv(1000)
    except TimeoutError: continue
    if found == sys.argv[2].encode(): break
else: found = b'nothing'
print(found.decode())
"""

Make = Callable[[OverlayKind], Gang]


@pytest.mark.parametrize(("kind", "is_readable"), [("plain", True), ("wireguard", False)])
def test_neighbour_reads_plain_and_not_wireguard(
    make_gang: Make, fabric: Fabric, kind: OverlayKind, is_readable: bool
) -> None:
    gang = make_gang(kind)
    gang.command(TALK)
    gang.says(0, f"received {MARKER}")
    seen, read = map(int, output_of(fabric.python(fabric.neighbour, SNIFF, str(PORT), MARKER)).split())
    assert seen > 10, "the wire is observed"
    assert (read > 0) is is_readable


def test_neighbour_cannot_connect_to_the_rendezvous_or_reach_into_the_overlay(make_gang: Make, fabric: Fabric) -> None:
    gang = make_gang("wireguard")
    gang.command(TALK)
    gang.says(0, f"received {MARKER}")
    way = f"10.83.0.0/16 via {NODE_ADDRESSES[0]}"
    fabric.run(fabric.neighbour, f"ip route add {way}")
    places = [NODE_ADDRESSES[0], OPEN_PORT, NODE_ADDRESSES[0], PORT, NODE_ADDRESSES[1], PORT, gang_address(0), PORT]
    try:
        tried = output_of(fabric.python(fabric.neighbour, CONNECT, "2", *map(str, places))).splitlines()
    finally:
        fabric.run(fabric.neighbour, f"ip route delete {way}")
    assert tried[0] == f"{NODE_ADDRESSES[0]} {OPEN_PORT} connected", "the node is reached"
    assert [line.split()[-1] for line in tried[1:]] == ["failed"] * 3


def test_neighbour_joins_wireguard_neither_with_its_key_nor_from_another_address(
    make_gang: Make, fabric: Fabric
) -> None:
    gang = make_gang("wireguard")
    leases = gang.command(TALK)
    gang.says(0, f"received {MARKER}")
    member = gang.members[0]
    stolen = load_keys(gang.members[1].data).fabric
    true, node = gang.members[1].overlay(leases[1]), System(tuple(fabric.inside(fabric.nodes[0])))
    # The true member is silent meanwhile: otherwise the answers go to whoever of the two spoke last.
    with ruled(fabric, fabric.nodes[1], f"OUTPUT -p udp --dport {PORT} -j DROP"):
        # 1. With a member's key and without the rules the way is open: this is what the others are measured by.
        with ruled(fabric, fabric.nodes[0], f"INPUT -p udp --dport {PORT} -j ACCEPT"):

            def is_open() -> bool:
                rules.remove(node, member.overlay(leases[0]))  # each time: the agent puts them back now and then
                return intrude(fabric, true, stolen) == "connected"

            assert any(is_open() for _ in range(3))
            rules.remove(node, member.overlay(leases[0]))
            # 2. A key of the neighbour's own is not accepted; nor is the member's in another attempt.
            assert intrude(fabric, true, X25519PrivateKey.generate()) == "failed"
            assert intrude(fabric, replace(true, attempt_id=leases[0].assignment.job_id), stolen) == "failed"
        # 3. With the rules back, not even the stolen key helps from an address that is not a member's.
        rules.install(node, member.overlay(leases[0]))
        assert intrude(fabric, true, stolen) == "failed"


def test_neighbour_sends_into_a_plain_gang_only_without_its_rules(make_gang: Make, fabric: Fabric) -> None:
    gang = make_gang("plain")
    leases = gang.command(TALK)
    gang.says(0, f"received {MARKER}")
    node, overlay = System(tuple(fabric.inside(fabric.nodes[0]))), gang.members[0].overlay(leases[0])
    with disguised(fabric, gang.members[1].overlay(leases[1])):
        with ruled(fabric, fabric.nodes[0], f"INPUT -p udp --dport {PORT} -j ACCEPT"):

            def is_there() -> bool:
                rules.remove(node, overlay)  # each time: the agent puts them back now and then
                output_of(fabric.python(fabric.neighbour, SEND, "without", gang_address(0), str(PORT)))
                return "got without" in gang.log(0)

            eventually(is_there, "a datagram without the rules", seconds=60)
        rules.install(node, overlay)
        output_of(fabric.python(fabric.neighbour, SEND, "within", gang_address(0), str(PORT)))
        lines_before = gang.log(0).count(MARKER)
        eventually(lambda: gang.log(0).count(MARKER) > lines_before + 40, "the gang's going on")
    assert "got within" not in gang.log(0)


@pytest.mark.parametrize("kind", ["wireguard", "plain"])
def test_program_reaches_its_gang_and_no_node(make_gang: Make, fabric: Fabric, kind: OverlayKind) -> None:
    gang = make_gang(kind)
    places = [(NODE_ADDRESSES[0], OPEN_PORT), (NODE_ADDRESSES[1], OPEN_PORT), ("203.0.113.254", 22), ("1.1.1.1", 53)]
    places += [(gang_address(0), OPEN_PORT), (gang_address(1), OPEN_PORT), (NODE_ADDRESSES[1], PORT)]
    words = [str(word) for place in places for word in place]
    attempt = f"    import sys; sys.argv = ['', '3', *{words!r}]\n    exec({CONNECT!r})\n"
    code = TALK.replace("    out = ", f"{attempt}    out = ", 1)
    gang.command(code)
    gang.says(0, f"received {MARKER}")
    eventually(lambda: gang.log(1).count("failed") == len(places), "a failure for each place")
    assert "connected" not in gang.log(1)
    tried = output_of(fabric.python(fabric.neighbour, CONNECT, "2", *words[:4])).splitlines()
    assert [line.split()[-1] for line in tried] == ["connected"] * 2, "they are there to be reached"


def intrude(fabric: Fabric, member: Overlay, key: X25519PrivateKey) -> str:
    """What becomes of a connection to rank 0, from the neighbour with `key` in the place of `member`."""
    name, inside = "soukgintrude", System(tuple(fabric.inside(fabric.neighbour)))
    subprocess.run([*inside.prefix, "wireguard-go", name], check=True, capture_output=True)
    try:
        text = wireguard.configuration(member, key)
        inside.run("wg", "setconf", name, "/dev/stdin", text=text)
        inside.run("ip", "address", "add", f"{member.me.overlay_address}/16", "dev", name)
        inside.run("ip", "link", "set", name, "up")
        tried = output_of(fabric.python(fabric.neighbour, CONNECT, TRY_SECONDS, gang_address(0), str(PORT)))
        return tried.split()[-1]
    finally:
        wireguard.end(name)
        until = time.monotonic() + 10
        port_in_use = ("sh", "-c", f"ss -Hlun sport = :{PORT} | grep -q .")  # the socket outlives the interface
        while inside.asks("ip", "link", "show", name) or inside.asks(*port_in_use):
            assert time.monotonic() < until
            time.sleep(0.1)


@contextlib.contextmanager
def ruled(fabric: Fabric, name: str, rule: str) -> Iterator[None]:
    """One more rule, before the others."""
    fabric.run(name, f"iptables -I {rule}")
    try:
        yield
    finally:
        fabric.run(name, f"iptables -D {rule}")


@contextlib.contextmanager
def disguised(fabric: Fabric, member: Overlay) -> Iterator[None]:
    """The neighbour with a member's overlay and hardware addresses, on the gang's plain network."""
    inside = System(tuple(fabric.inside(fabric.neighbour)))
    me: GangMember = member.me.model_copy(update={"address": NEIGHBOUR_ADDRESS})
    members = [me if each.rank == me.rank else each for each in member.gang.members]
    overlay = replace(member, gang=member.gang.model_copy(update={"members": members}))
    vxlan.make(inside, overlay)
    try:
        inside.run("ip", "address", "add", f"{me.overlay_address}/16", "dev", overlay.name)
        inside.run("ip", "link", "set", overlay.name, "up")
        lladdr = ["lladdr", vxlan.hardware_address(0), "nud", "permanent"]
        inside.run("ip", "neighbour", "replace", gang_address(0), *lladdr, "dev", overlay.name)
        yield
    finally:
        inside.run("ip", "link", "delete", overlay.name)


def output_of(process: subprocess.Popen[str]) -> str:
    """All of its output, once it has ended."""
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out.strip()


def test_program_of_another_tenant_does_not_send_in_a_members_name(node: Node, fabric: Fabric) -> None:
    """One that may reach the internet leaves by its node's address, which the other members' rules let in."""
    overlay, (here, there) = node.overlay(29_701), fabric.nodes
    with program() as pid, tenant(fabric, here) as inside:
        node.overlays.make(overlay, Program(pid, ""))
        with ruled(fabric, there, f"INPUT -p udp --dport 29701 -s {NODE_ADDRESSES[0]} -j ACCEPT"):
            rules.remove(node.system, overlay)
            assert received(fabric, there, inside, 29_701) == TENANT
            rules.install(node.system, overlay)
            assert received(fabric, there, inside, 29_701) == "nothing"
        with ruled(fabric, there, f"INPUT -p udp --dport 29801 -s {NODE_ADDRESSES[0]} -j ACCEPT"):
            assert received(fabric, there, inside, 29_801) == TENANT, "only the gang's port is shut"


@contextlib.contextmanager
def tenant(fabric: Fabric, name: str) -> Iterator[System]:
    """A program with a way out of a node, as an engine makes it: a bridge of the lease's own, and masquerading."""
    with program() as pid:
        inside = System(("nsenter", f"--net=/proc/{pid}/ns/net"))
        node = System(tuple(fabric.inside(name)))
        node.run("ip", "link", "add", "souktenant", "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        node.run("ip", "address", "add", "172.31.0.1/24", "dev", "souktenant")
        node.run("ip", "link", "set", "souktenant", "up")
        inside.run("ip", "address", "add", "172.31.0.2/24", "dev", "eth0")
        inside.run("ip", "link", "set", "eth0", "up")
        inside.run("ip", "route", "add", "default", "via", "172.31.0.1")
        node.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        masquerade = ("POSTROUTING", "-s", "172.31.0.0/24", "-j", "MASQUERADE")
        node.run("iptables", "-t", "nat", "-A", *masquerade)
        try:
            with ruled(fabric, name, "FORWARD -s 172.31.0.0/24 -j ACCEPT"):
                yield inside
        finally:
            node.run("iptables", "-t", "nat", "-D", *masquerade)
            node.run("ip", "link", "delete", "souktenant")


def received(fabric: Fabric, name: str, sender: System, port: int) -> str:
    """What a node receives at a port while the sender sends to it."""
    listener = fabric.python(name, LISTEN, str(port), TENANT)
    assert listener.stdout is not None
    assert listener.stdout.readline() == "ready\n"
    for _ in range(5):
        sender.run(sys.executable, "-I", "-c", SEND, TENANT, NODE_ADDRESSES[1], str(port))
    return output_of(listener)

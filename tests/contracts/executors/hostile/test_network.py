"""Containers that reach for what is not theirs over the network. The engine and its world: see ../world.py."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from provider_agent.errors import ExecutorFailed, ImageUnavailable
from provider_agent.executors.docker.create import Protections
from provider_agent.executors.firewall import (
    CHAIN,
    CONNECTIONS_BURST,
    CONNECTIONS_PER_SECOND_MAX,
    DENIED_NETWORKS,
    Firewall,
    rules,
)
from tests.contracts.executors.hostile.conftest import Node, Running
from tests.contracts.executors.world import CARRIER, INTERNET, MAIL_PORT, METADATA, NEIGHBOUR, NODE, World
from tests.integration.provider_agent.conftest import eventually

pytestmark = pytest.mark.docker

# The image's Python is a minimal one: sockets, no HTTP client.
REACH = (
    "import socket\n"
    "for address in {addresses!r}:\n"
    "    host, _, port = address.partition(':')\n"
    "    try:\n"
    "        with socket.create_connection((host, int(port or 80)), timeout=2) as connection:\n"
    "            connection.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\n"
    "            print(address, connection.makefile().read()[-7:])\n"
    "    except OSError as error: print(address, 'not')\n"
)
LISTEN = (
    "import socket\n"
    "listener = socket.create_server(('0.0.0.0', 80))\n"
    "print('up')\n"
    "while True:\n"
    "    caller = listener.accept()[0]\n"
    "    caller.recv(1000); caller.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\nreached'); caller.close()\n"
)
# Nobody listens at the port: who is refused was let through.
FLOOD = (
    "import errno, socket, time\n"
    "sockets = [socket.socket() for _ in range({most})]\n"
    "for each in sockets: each.setblocking(False); each.connect_ex(('{address}', 81))\n"
    "time.sleep(1)\n"
    "refused = [each.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED for each in sockets]\n"
    "print(sum(refused))\n"
)
OPEN = Protections(filter_egress=False)


def reach(node: Node, *addresses: str, protections: Protections | None = None, has_egress: bool = True) -> list[str]:
    """Which of the addresses a container reaches."""
    code = REACH.format(addresses=addresses)
    tried = node.start(code, protections or Protections(), has_egress=has_egress)
    tried.wait()
    tried.remove()
    lines = [line.split() for line in tried.log().splitlines()]
    assert [address for address, _ in lines] == list(addresses), tried.log()
    return [address for address, result in lines if result == "reached"]


def test_metadata_address_is_out_of_reach_and_the_internet_is_not(node: Node) -> None:
    assert reach(node, METADATA, INTERNET, protections=OPEN) == [METADATA, INTERNET]
    assert reach(node, METADATA, INTERNET) == [INTERNET]
    node.assert_works()


def test_providers_network_is_out_of_reach(node: Node) -> None:
    assert reach(node, NEIGHBOUR, CARRIER, protections=OPEN) == [NEIGHBOUR, CARRIER]
    assert reach(node, NEIGHBOUR, CARRIER) == []


def test_node_itself_is_out_of_reach(node: Node) -> None:
    assert reach(node, NODE, "172.29.0.1", protections=OPEN) == [NODE, "172.29.0.1"]
    assert reach(node, NODE, "172.29.0.1") == []


def test_mail_cannot_be_sent(node: Node) -> None:
    mail = f"{INTERNET}:{MAIL_PORT}"
    assert reach(node, mail, protections=OPEN) == [mail]
    assert reach(node, mail) == []


def test_connections_cannot_be_opened_by_the_thousand(node: Node) -> None:
    let_through = []
    for protections in (OPEN, Protections()):
        flood = node.start(FLOOD.format(address=INTERNET, most=900), protections, has_egress=True)
        flood.wait()
        flood.remove()
        let_through.append(int(flood.log().splitlines()[-1]))
    seconds_at_most = 5  # and SYNs that are sent again
    assert let_through[0] == 900
    assert 0 < let_through[1] <= CONNECTIONS_BURST + CONNECTIONS_PER_SECOND_MAX * seconds_at_most
    node.assert_works()


def test_neighbouring_container_is_out_of_reach(node: Node) -> None:
    shared = Protections(network="bridge")
    neighbour = node.start(LISTEN, shared, has_egress=True)
    neighbour.says("up")
    address = _address(neighbour)
    assert reach(node, address, protections=shared) == [address]
    neighbour.remove()
    apart = node.start(LISTEN, has_egress=True)
    apart.says("up")
    assert reach(node, _address(apart)) == []
    node.assert_works()


def test_nobody_outside_reaches_a_container(node: Node, world: World) -> None:
    listening = node.start(LISTEN, OPEN, has_egress=True)
    listening.says("up")
    world.run(world.outside, f"ip route replace {_address(listening)}/32 via {NODE}")
    world.run(world.node, "iptables -I DOCKER-USER -j ACCEPT")  # a provider whose own filter lets everything through
    try:
        eventually(lambda: _outside_reaches(world, _address(listening)), "the container that is open")
        listening.remove()
        closed = node.start(LISTEN, has_egress=True)
        closed.says("up")
        world.run(world.outside, f"ip route replace {_address(closed)}/32 via {NODE}")
        assert not _outside_reaches(world, _address(closed))
    finally:
        world.run(world.node, "iptables -D DOCKER-USER -j ACCEPT")


def test_without_a_network_nothing_is_reached(node: Node) -> None:
    assert reach(node, INTERNET, METADATA, NODE, has_egress=False) == []


def test_rules_come_with_the_first_network_and_go_with_the_last(node: Node, world: World) -> None:
    assert CHAIN not in _mangle(world)
    first = node.start("import time; time.sleep(600)", has_egress=True)
    second = node.start("import time; time.sleep(600)", has_egress=True)
    assert all(f"-A {CHAIN} -d {network} -j DROP" in _mangle(world) for network in DENIED_NETWORKS)
    assert _mangle(world).count(f"-j {CHAIN}\n") == 1
    first.remove()
    assert CHAIN in _mangle(world)
    second.remove()
    assert CHAIN not in _mangle(world)


def test_rules_that_somebody_flushed_come_back(node: Node, world: World) -> None:
    lease = node.start("import time; time.sleep(600)", has_egress=True)
    world.run(world.node, "iptables -t mangle -F")
    asyncio.run(lease.executor.extend(lease.handle, 60.0))
    assert f"-A PREROUTING -i souk+ -j {CHAIN}\n" in _mangle(world)
    assert f"-A {CHAIN} -d 169.254.0.0/16 -j DROP" in _mangle(world)


def test_leftovers_of_a_dead_agent_are_swept(node: Node, world: World) -> None:
    lease = node.start("print('up')", has_egress=True)
    lease.wait()
    engine = lease.executor._engine
    engine.containers.get(lease.handle["container"]).remove(force=True)  # somebody pruned it while no agent ran
    assert CHAIN in _mangle(world)
    asyncio.run(node.executor().sweep())
    assert CHAIN not in _mangle(world)
    assert engine.networks.list(filters={"label": "souk.lease"}) == []


def test_network_goes_with_a_start_that_fails(node: Node, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = node.executor()
    image = executor._engine.containers.get(node.running[0].handle["container"]).commit("souk-test/gone", "1")
    executor._engine.images.remove("souk-test/gone:1")
    monkeypatch.setattr("provider_agent.executors.docker.executor.find_image", lambda *_: image)  # pruned just now
    with pytest.raises(ImageUnavailable):
        node.start("print('up')", executor=executor, has_egress=True, image="souk-test/gone:1")
    assert executor._engine.networks.list(filters={"label": "souk.lease"}) == []
    assert CHAIN not in _mangle(world)


def test_provider_who_offers_no_network_gives_none(node: Node) -> None:
    with pytest.raises(ExecutorFailed, match="does not offer it"):
        node.start("print('up')", executor=node.executor(offers_egress=False), has_egress=True)


def test_rules_are_exactly_these() -> None:
    assert rules() == GOLDEN
    assert Firewall().prefix == ()


GOLDEN = """*mangle
:SOUK-EGRESS - [0:0]
:SOUK-INBOUND - [0:0]
-A SOUK-EGRESS -m addrtype --dst-type LOCAL -j DROP
-A SOUK-EGRESS -d 0.0.0.0/8 -j DROP
-A SOUK-EGRESS -d 10.0.0.0/8 -j DROP
-A SOUK-EGRESS -d 100.64.0.0/10 -j DROP
-A SOUK-EGRESS -d 127.0.0.0/8 -j DROP
-A SOUK-EGRESS -d 169.254.0.0/16 -j DROP
-A SOUK-EGRESS -d 172.16.0.0/12 -j DROP
-A SOUK-EGRESS -d 192.0.0.0/24 -j DROP
-A SOUK-EGRESS -d 192.168.0.0/16 -j DROP
-A SOUK-EGRESS -d 198.18.0.0/15 -j DROP
-A SOUK-EGRESS -d 224.0.0.0/4 -j DROP
-A SOUK-EGRESS -d 240.0.0.0/4 -j DROP
-A SOUK-EGRESS -p tcp -m multiport --dports 25,465,587 -j DROP
-A SOUK-EGRESS -m conntrack --ctstate NEW -m hashlimit --hashlimit-name souk --hashlimit-mode srcip \
--hashlimit-above 50/sec --hashlimit-burst 500 -j DROP
-A SOUK-INBOUND -m conntrack ! --ctstate ESTABLISHED,RELATED -j DROP
COMMIT
"""


def _address(running: Running) -> str:
    container = running.executor._engine.containers.get(running.handle["container"])
    (network,) = container.attrs["NetworkSettings"]["Networks"].values()
    return network["IPAddress"]


def _outside_reaches(world: World, address: str) -> bool:
    code = f"import urllib.request as u; print(u.urlopen('http://{address}/', timeout=3).read().decode())"
    asked = subprocess.run([*world.inside(world.outside), "python3", "-c", code], capture_output=True, check=False)
    return asked.stdout == b"reached\n"


def _mangle(world: World) -> str:
    command = [*world.inside(world.node), "iptables", "-t", "mangle", "-S"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout

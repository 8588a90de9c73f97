"""Nodes in network namespaces of their own, on one bridge: what the probe finds is what the network is.

rack-0 --- 100 Mbit/s out ---+
rack-1 --- 40 Mbit/s out  ---+ bridge
rack-2 --- a firewall that drops the probes' ports
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.utils import timezone

from jobs.matching.fabrics import Link, groups_of
from marketplace.nodes.fabrics import link_reports, links
from marketplace.nodes.models import FabricLink, LinkProbe, Node, Provider
from provider_agent.protocol import PROBE_PORT_FIRST, PROBE_PORT_LAST, LinkDemand, LinkReport
from tests import stage
from tests.integration.nodes.agent import Agent, bring_online, device
from tests.row_states import put_in_state

REPOSITORY = Path(__file__).parents[3]
SUBNET = "10.177.3"
OUT_MEGABITS = {"rack-0": 100, "rack-1": 40}
PROBE_SECONDS_MAX = 90
PROGRAM = """
import asyncio, sys
from provider_agent.node import fabric_probe, fabric_wire
from provider_agent.protocol import LinkDemand
fabric_probe.JOIN_SECONDS_MAX = 8  # a firewall drops without a word: shorten the wait for it
fabric_wire.STREAM_SECONDS, fabric_probe.MEASURE_SECONDS_MAX = 8, 30  # one of both may stand still for a second
print(asyncio.run(fabric_probe.probe(LinkDemand.model_validate_json(sys.stdin.read()))).model_dump_json())
"""

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc", "iptables"))), reason="needs root, ip, tc and iptables"
)
pytestmark = [pytest.mark.django_db(transaction=True), needs_root]


def run(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.fixture
def spaces() -> Iterator[dict[str, str]]:
    """Node -> its namespace; everything is gone afterwards, with the namespaces."""
    switch = f"souk-links-switch-{os.getpid()}"
    found = {f"rack-{number}": f"souk-links-{number}-{os.getpid()}" for number in range(3)}
    try:
        run(f"ip netns add {switch}")
        run(f"ip -n {switch} link add br0 type bridge")
        run(f"ip -n {switch} link set br0 up")
        for number, space in enumerate(found.values()):
            run(f"ip netns add {space}")
            run(f"ip -n {space} link add eth0 type veth peer name port{number} netns {switch}")
            run(f"ip -n {switch} link set port{number} master br0 up")
            run(f"ip -n {space} addr add {SUBNET}.{number + 1}/24 dev eth0")
            run(f"ip -n {space} link set eth0 up")
        for name, megabits in OUT_MEGABITS.items():
            shape = f"root tbf rate {megabits}mbit burst 64kb latency 50ms"
            run(f"ip netns exec {found[name]} tc qdisc add dev eth0 {shape}")
        ports = f"{PROBE_PORT_FIRST}:{PROBE_PORT_LAST}"
        run(f"ip netns exec {found['rack-2']} iptables -A INPUT -p tcp --dport {ports} -j DROP")
        yield found
    finally:
        for space in (*found.values(), switch):
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


@pytest.fixture
def rack(transactional_db: None) -> dict[str, Node]:
    """Three enrolled nodes of one label, with the addresses that they have in their namespaces."""
    owner = stage.organisation("bob")
    provider = Provider.objects.create(organisation=owner, display_name="bob")
    found = {}
    for number in range(3):
        agent, name = Agent(), f"rack-{number}"
        facts = agent.enrol_request("x" * 20).facts.model_copy(update={"devices": [device(f"GPU-{number}")]})
        fields = {"name": name, "fabric": "rack", "fabric_address": f"{SUBNET}.{number + 1}"}
        found[name] = bring_online(agent.enrol(provider, facts=facts, **fields))
    return found


def measure(probe: LinkProbe, spaces: dict[str, str]) -> FabricLink:
    """Both agents' part of one probe, each in its namespace; reported by the marketplace's verbs."""
    ends = [probe.link.a, probe.link.b]
    running = [(node, start(spaces[node.name], demand_of(node))) for node in ends]
    for node, process in running:
        out, errors = process.communicate(timeout=PROBE_SECONDS_MAX)
        assert process.returncode == 0, errors
        link_reports.report(node, probe.pk, LinkReport.model_validate_json(out))
    return FabricLink.objects.get(pk=probe.link_id)


def start(space: str, demand: LinkDemand) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        ["ip", "netns", "exec", space, sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert process.stdin is not None
    process.stdin.write(demand.model_dump_json())
    process.stdin.close()
    process.stdin = None
    return process


def demand_of(node: Node) -> LinkDemand:
    found = links.demand_of(Node.objects.get(pk=node.pk))
    assert found is not None
    return found


def test_shaped_links_are_measured_as_they_are_and_a_firewalled_node_is_left_out(spaces, rack) -> None:
    until = time.monotonic() + 150
    while FabricLink.objects.exclude(measured_at=None).count() < 3 and time.monotonic() < until:
        Node.objects.update(last_seen_at=timezone.now())  # a probe that fails takes longer than two beats
        assert links.demand_due([])
        for probe in list(link_reports.live().select_related("link__a", "link__b")):
            measure(probe, spaces)
    found = {frozenset({link.a.name, link.b.name}): link for link in FabricLink.objects.select_related("a", "b")}
    # 1. As fast as the slower direction is shaped, within 30 %.
    shaped = found[frozenset({"rack-0", "rack-1"})]
    assert shaped.is_reachable, shaped.why
    assert shaped.bandwidth_bytes_per_second is not None
    megabits = shaped.bandwidth_bytes_per_second * 8 / 1e6
    print(f"shaped to 40 Mbit/s, measured {megabits:.1f} Mbit/s, {shaped.round_trip_us} us")
    assert 0.7 * 40 < megabits < 1.3 * 40
    assert shaped.round_trip_us is not None
    assert 0 < shaped.round_trip_us < 50_000
    # 2. Behind the firewall no node is reached, and the provider gets a message with both ends of the link.
    for name in ("rack-0", "rack-1"):
        link = found[frozenset({name, "rack-2"})]
        assert not link.is_reachable
        assert f"{name} to rack-2: rack-2 at {SUBNET}.3:" in link.why
        assert "not reached within 8 s" in link.why
        assert f"rack-2 to {name}:" not in link.why, "the other way is open"
    # 3. Only those that reach each other are a group.
    measured = FabricLink.objects.values_list("a_id", "b_id", "is_reachable")
    groups = groups_of(Link(*row) for row in measured)
    assert set(groups) == {rack["rack-0"].pk, rack["rack-1"].pk}


def test_a_node_whose_network_is_gone_is_reported_as_unreachable(spaces, rack) -> None:
    put_in_state(Node.objects.filter(pk=rack["rack-2"].pk), "retired")
    run(f"ip -n {spaces['rack-1']} link set eth0 down")
    assert links.demand_due([])
    link = measure(link_reports.live().select_related("link__a", "link__b").get(), spaces)
    assert not link.is_reachable
    for one, other in (("rack-0", "rack-1"), ("rack-1", "rack-0")):
        assert f"{one} to {other}: {other} at {SUBNET}." in link.why
    assert "nobody came" not in link.why, "who dials knows better than who waits"

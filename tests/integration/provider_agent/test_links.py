"""Two agents, real processes, ordered to measure the link between them; the marketplace is fake_server."""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import psutil
import pytest

from provider_agent.journal import FACT_LINKS, Journal, read_links
from provider_agent.node.links import LINKS_KEPT_MAX, remember_link
from provider_agent.protocol import AttemptState, LinkDemand, LinkReport, Reason
from tests.integration.provider_agent.conftest import Bob, eventually, python
from tests.integration.provider_agent.fake_server import FakeServer
from tests.integration.provider_agent.ports import free_ports

pytestmark = pytest.mark.slow

ADDRESS = "127.0.0.1"
TOKEN = "souk_enrol_0123456789abcdef"  # each is good for one node


@pytest.fixture
def pair(server: FakeServer, tmp_path: Path) -> Iterator[tuple[Bob, Bob]]:
    found = []
    for name in ("first", "second"):
        server.token = TOKEN
        bob = Bob(server, tmp_path / name)
        bob.enrol(name=name, fabric="rack", fabric_address=ADDRESS)
        bob.start()
        found.append(bob)
    yield found[0], found[1]
    for bob in found:
        bob.stop()


def demand_pair(server: FakeServer, first: Bob, second: Bob, *, address: str = ADDRESS) -> None:
    """Send both what the marketplace would."""
    server.want_links(demands_of(first, second, address=address))


def demands_of(first: Bob, second: Bob, *, address: str = ADDRESS) -> dict[UUID, LinkDemand]:
    """What the marketplace would send each."""
    ports = free_ports()
    shared = {"probe_id": uuid4(), "secret": secrets.token_hex(32), "address": address, "peer_address": ADDRESS}
    listen = LinkDemand(role="listen", peer_name="second", port=ports[0], peer_port=ports[1], **shared)
    dial = LinkDemand(role="dial", peer_name="first", port=ports[1], peer_port=ports[0], **shared)
    return {first.node_id(): listen, second.node_id(): dial}


def reports_of(server: FakeServer, pair: tuple[Bob, Bob]) -> list[LinkReport]:
    """One of each, in the order of the pair."""
    found = dict(server.link_reports)
    return [found[bob.node_id()] for bob in pair]


def test_two_agents_measure_the_way_between_them_report_it_and_show_it(server: FakeServer, pair) -> None:
    first, second = pair
    demand_pair(server, first, second)
    eventually(lambda: len(server.link_reports) == 2, "both reported")
    listener, dialler = reports_of(server, pair)
    assert listener.dialled and listener.was_dialled and dialler.dialled and dialler.was_dialled
    assert dialler.round_trip_us
    shown = json.loads(second.run("status", "--json").stdout)
    assert shown["fabric"] == "rack"
    assert shown["links"]["first"]["is_reached"] is True
    assert shown["links"]["first"]["round_trip_us"] == dialler.round_trip_us
    assert f"link to first ({ADDRESS}): " in second.run("status").stdout
    for bob in pair:
        assert server.link_demands[bob.node_id()].secret not in bob.log_text()
    time.sleep(1.5)  # the demand still stands, and is answered once
    assert len(server.link_reports) == 2


def test_what_cannot_be_remembered_is_reported_all_the_same(server: FakeServer, pair) -> None:
    first, second = pair
    damaged = Journal(first.folder.journal)
    damaged.save_fact(FACT_LINKS, '{"second": ')
    damaged.close()
    full = sqlite3.connect(second.folder.journal)  # as on a full disk: no fact can be written
    full.execute("CREATE TRIGGER full BEFORE INSERT ON fact BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
    full.close()
    demand_pair(server, first, second)
    eventually(lambda: len(server.link_reports) == 2, "both reported")
    assert [report.why for report in reports_of(server, pair)] == ["", ""]
    assert json.loads(first.run("status", "--json").stdout)["links"]["second"]["is_reached"] is True
    assert json.loads(second.run("status", "--json").stdout)["links"] == {}
    assert "disk is full" in second.log_text()


def test_an_agent_opens_nothing_but_the_address_that_its_provider_declared(server: FakeServer, pair) -> None:
    first, second = pair
    demand_pair(server, first, second, address="127.0.0.9")
    eventually(lambda: len(server.link_reports) == 2, "both reported")
    for report in reports_of(server, pair):
        assert not report.dialled
        assert report.why == "this node was asked to listen on 127.0.0.9, but its fabric address is 127.0.0.1"


def test_a_lease_ends_the_probe_at_once_and_its_ports_are_closed(server: FakeServer, pair) -> None:
    first, second = pair
    demands = demands_of(first, second)
    listen = demands[first.node_id()]
    server.want_links({first.node_id(): listen})  # alone it waits for 12 s, where both would be done in two
    assert first.process is not None
    agent = psutil.Process(first.process.pid)
    port = listen.port
    eventually(lambda: port in listening(agent), "the probe began")
    lease = server.give(first.assignment(*python("import time; time.sleep(60)")))
    eventually(lambda: AttemptState.RUNNING in lease.states, "the lease runs")
    assert port not in listening(agent)
    assert "is cancelled" in first.log_text()
    server.want_links(demands)
    eventually(lambda: dict(server.link_reports).get(second.node_id()), "the other side says what it saw")
    assert first.node_id() not in dict(server.link_reports)
    assert not dict(server.link_reports)[second.node_id()].dialled
    server.stop_lease(lease, Reason.CANCELLED_BY_CUSTOMER)
    eventually(lambda: AttemptState.CANCELLED in lease.states, "the lease ends")


def listening(agent: psutil.Process) -> set[int]:
    """Ports that the agent itself listens on."""
    return {each.laddr.port for each in agent.net_connections() if each.status == psutil.CONN_LISTEN}


def test_of_a_large_fabric_the_newest_looks_are_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite3")
    for number in range(LINKS_KEPT_MAX + 10):
        demand = LinkDemand(
            probe_id=uuid4(), role="dial", peer_name=f"peer-{number}", address=ADDRESS, port=27100,
            peer_address=ADDRESS, peer_port=27101, secret="0" * 64,
        )  # fmt: skip
        remember_link(journal, demand, LinkReport(listen_why="nobody came"))
    assert list(read_links(journal)) == [f"peer-{number}" for number in range(10, LINKS_KEPT_MAX + 10)]
    journal.close()

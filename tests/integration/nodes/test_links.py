"""Links of a fabric: who must measure them, whose report counts, and what follows. Bob provides, Mallory lies."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import pairwise
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from marketplace.foundation import clock
from marketplace.nodes.device_checks import demands
from marketplace.nodes.errors import BadFacts, ProbeAnswered, ProbeOver
from marketplace.nodes.fabrics import link_reports, links
from marketplace.nodes.models import FabricLink, LinkProbe, Node, Provider
from marketplace.nodes.offering import availability
from provider_agent.protocol import PROBE_PORT_FIRST, PROBE_PORT_LAST, LinkReport
from tests.integration.nodes.agent import Agent, bring_online, device
from tests.integration.nodes.conftest import provider_of

GOOD = LinkReport(
    dialled=True, was_dialled=True, round_trip_us=150, sent_bytes_per_second=900, received_bytes_per_second=1000
)
FAILED = LinkReport(dial_why="rack-1 at 10.0.0.1:27100 not reached within 12 s: Connection refused")


def add_nodes(provider: Provider, count: int, *, fabric: str = "rack", first: int = 0) -> list[tuple[Agent, Node]]:
    """Enrolled, measured and online."""
    found = []
    for number in range(first, first + count):
        agent = Agent()
        facts_of = agent.enrol_request("x" * 20).facts.model_copy(
            update={"devices": [device(f"GPU-{number}-{fabric}")]}
        )
        fields = {
            "name": f"{fabric or 'alone'}-{number}",
            "fabric": fabric,
            "fabric_address": f"10.0.{number // 250}.{number % 250 + 1}",
        }
        node = agent.enrol(provider, facts=facts_of, **fields)
        found.append((agent, bring_online(node)))
    return found


@pytest.fixture
def pair(provider: Provider) -> tuple[tuple[Agent, Node], tuple[Agent, Node]]:
    first, second = add_nodes(provider, 2)
    return first, second


@pytest.fixture
def probe(pair: object) -> LinkProbe:
    assert len(links.demand_due([])) == 2
    return LinkProbe.objects.get()


def both_say(probe: LinkProbe, listener: LinkReport, dialler: LinkReport) -> FabricLink:
    dials = probe.link.other(probe.listener_id)
    link_reports.report(probe.listener, probe.pk, listener)
    link_reports.report(dials, probe.pk, dialler)
    return FabricLink.objects.get(pk=probe.link_id)


def demand_for(node: Node):
    return links.demand_of(Node.objects.get(pk=node.pk))


# --- demands


def test_two_nodes_of_a_label_both_receive_it_at_once_and_know_the_same_secret(pair, probe):
    (_, first), (_, second) = pair
    demand, peers = demand_for(first), demand_for(second)
    assert demand.probe_id == peers.probe_id == probe.pk
    assert {demand.role, peers.role} == {"listen", "dial"}
    assert demand.secret == peers.secret
    assert (demand.address, demand.port) == (peers.peer_address, peers.peer_port)
    assert (demand.peer_address, demand.peer_port) == (peers.address, peers.port)
    assert demand.peer_name == second.name
    assert demand.port != demand.peer_port
    assert (
        PROBE_PORT_FIRST <= min(demand.port, demand.peer_port) <= max(demand.port, demand.peer_port) <= PROBE_PORT_LAST
    )


def test_nodes_of_other_labels_and_other_providers_never_learn_of_each_other(provider, mallory):
    add_nodes(provider, 1, fabric="rack")
    add_nodes(provider, 1, fabric="other", first=10)
    add_nodes(provider, 1, fabric="", first=20)
    add_nodes(provider_of(mallory), 1, fabric="rack", first=30)
    assert links.demand_due([]) == []
    assert not FabricLink.objects.exists()


def test_fabric_needs_an_address_that_one_node_can_have(provider):
    for address in ("", "0.0.0.0", "224.0.0.1", "::"):
        with pytest.raises(BadFacts):
            Agent().enrol(provider, fabric="rack", fabric_address=address)
    assert not Node.objects.exists()


def test_a_node_with_a_lease_a_check_or_a_probe_is_left_alone(pair):
    (_, first), (_, second) = pair
    assert links.demand_due([first.pk]) == []
    assert demands.demand(second) is not None
    assert links.demand_due([]) == []
    Node.objects.update(wanted_check_id=None)
    assert set(links.demand_due([])) == {first.pk, second.pk}
    assert links.demand_due([]) == [], "once is enough"


def test_a_node_that_is_probed_is_not_checked_at_the_same_time(pair, probe, settings):
    settings.SOUK_VERIFICATION = "shadow"
    assert demands.demand_due([]) == []
    both_say(probe, GOOD, GOOD)
    assert len(demands.demand_due([])) == 2


def test_a_silent_or_draining_node_is_not_probed(pair):
    (_, first), _ = pair
    Node.objects.filter(pk=first.pk).update(last_seen_at=timezone.now() - timedelta(minutes=2))
    assert links.demand_due([]) == []
    Node.objects.filter(pk=first.pk).update(last_seen_at=timezone.now())
    availability.drain(first, actor="bob")
    assert links.demand_due([]) == []


def test_eight_nodes_have_all_pairs_probed_and_a_large_fabric_some_for_each_node():
    ids = [UUID(int=number) for number in range(1, 9)]
    assert len(links.wanted_pairs(ids)) == 8 * 7 // 2
    many = [UUID(int=number) for number in range(1, 201)]
    pairs = links.wanted_pairs(many)
    assert len(pairs) == len(set(pairs)) == 200 * links.RING_NEIGHBOURS
    assert all(a < b for a, b in pairs)
    of_each = {node: sum(node in pair for pair in pairs) for node in many}
    assert set(of_each.values()) == {2 * links.RING_NEIGHBOURS}
    nine = links.wanted_pairs(many[:9])
    assert len(set(nine)) == 36, "nine nodes with four neighbours on either side are all pairs"


def test_probes_of_one_provider_at_once_are_bounded_and_have_ports_of_their_own(provider):
    add_nodes(provider, 12)
    demanded = links.demand_due([])
    assert len(demanded) == 2 * links.PROBES_PER_PROVIDER_MAX == len(set(demanded))
    ports = [port for ports in LinkProbe.objects.values_list("ports", flat=True) for port in ports.values()]
    assert len(set(ports)) == len(ports)
    assert links.demand_due([]) == []


def test_every_pair_gets_its_turn_and_then_nobody_is_asked_for_a_day(provider):
    add_nodes(provider, 5)
    for _ in range(20):
        links.demand_due([])
        for probe in link_reports.live().select_related("link__a", "link__b", "listener"):
            both_say(probe, GOOD, GOOD)
    assert FabricLink.objects.filter(is_reachable=True).count() == 10
    assert links.demand_due([]) == []
    soonest = min(FabricLink.objects.values_list("next_probe_at", flat=True))
    assert soonest > timezone.now() + timedelta(hours=17)
    assert links.make_due(Node.objects.all()) == 10
    assert links.demand_due([])
    assert LinkProbe.objects.count() <= 10, "what is over is not kept for ever"


# --- reports


def test_the_link_gets_the_lowest_bandwidth_and_the_diallers_round_trip(pair, probe):
    listener = GOOD.model_copy(update={"sent_bytes_per_second": 500, "round_trip_us": None})
    link = both_say(probe, listener, GOOD)
    assert (link.is_reachable, link.bandwidth_bytes_per_second, link.round_trip_us) == (True, 500, 150)
    probe.refresh_from_db()
    assert (probe.state, probe.secret) == ("measured", "")
    assert [demand_for(node) for _, node in pair] == [None, None]


def test_one_report_is_not_enough(pair, probe):
    link_reports.report(probe.listener, probe.pk, GOOD)
    link = FabricLink.objects.get()
    assert (link.is_reachable, link.measured_at) == (False, None)
    assert demand_for(probe.listener) is None, "it is not asked again"
    assert demand_for(link.other(probe.listener_id)).probe_id == probe.pk


def test_a_way_that_only_one_side_saw_is_none(pair, probe):
    deaf = GOOD.model_copy(update={"was_dialled": False, "listen_why": "nobody came"})
    link = both_say(probe, deaf, GOOD)
    assert not link.is_reachable
    listener, dialler = probe.listener.name, link.other(probe.listener_id).name
    assert link.why == f"{dialler} to {listener}: {dialler} reports a connection, {listener}: nobody came"


def test_one_way_that_fails_is_named(pair, probe):
    link = both_say(
        probe,
        LinkReport(was_dialled=True, dial_why="refused", sent_bytes_per_second=5, received_bytes_per_second=5),
        GOOD.model_copy(update={"was_dialled": False}),
    )
    listener = probe.listener
    assert (link.is_reachable, link.why) == (False, f"{listener.name} to {link.other(listener.pk).name}: refused")


@pytest.mark.parametrize(
    ("shared", "why"),
    [
        ({"fabric_key": "a" * 64}, "have the same gang key"),
        ({"fabric_address": "10.0.0.1"}, "have the address 10.0.0.1"),
    ],
)
def test_nodes_whose_containers_cannot_be_of_one_gang_have_no_link(pair, probe, shared: dict[str, str], why: str):
    nodes = Node.objects.filter(pk__in=[node.pk for _, node in pair])
    nodes.update(executor="docker", **shared)
    link = both_say(LinkProbe.objects.get(), GOOD, GOOD)
    assert not link.is_reachable
    assert why in link.why
    nodes.update(executor="process")
    assert both_say(demand_again(link), GOOD, GOOD).is_reachable, "processes use their nodes' own addresses"


def demand_again(link: FabricLink) -> LinkProbe:
    links.make_due(Node.objects.filter(pk=link.a_id))
    assert len(links.demand_due([])) == 2
    return LinkProbe.objects.get(state="demanded")


def test_reached_without_figures_is_not_measured(pair, probe):
    link = both_say(probe, GOOD.model_copy(update={"sent_bytes_per_second": 0}), GOOD)
    assert (link.is_reachable, link.why) == (False, "both reached each other, but sent no figures")


def test_a_repeated_report_changes_nothing_and_another_one_is_refused(pair, probe):
    link_reports.report(probe.listener, probe.pk, GOOD)
    link_reports.report(probe.listener, probe.pk, GOOD)
    with pytest.raises(ProbeAnswered):
        link_reports.report(probe.listener, probe.pk, GOOD.model_copy(update={"round_trip_us": 1}))
    dialler = probe.link.other(probe.listener_id)
    link_reports.report(dialler, probe.pk, GOOD)
    before = FabricLink.objects.values().get()
    link_reports.report(dialler, probe.pk, GOOD)
    with pytest.raises(ProbeAnswered):
        link_reports.report(dialler, probe.pk, FAILED)
    assert FabricLink.objects.values().get() == before


def test_reports_of_other_nodes_and_for_other_probes_are_refused_by_the_api(pair, probe, provider, mallory):
    ((stranger, _),) = add_nodes(provider_of(mallory), 1, first=40)
    ((neighbour, _),) = add_nodes(provider, 1, first=50)
    (own, _), _ = pair
    body = GOOD.model_dump_json().encode()
    for agent, path in ((stranger, probe.pk), (neighbour, probe.pk), (own, uuid4())):
        answer = agent.post(f"/api/agent/v1/links/{path}", body)
        assert (answer.status_code, answer.json()["code"]) == (409, "probe_over")
    probe.refresh_from_db()
    assert probe.reports == {}
    # Signed by another key, or with another body: nobody at all.
    assert own.post(f"/api/agent/v1/links/{probe.pk}", body, send=FAILED.model_dump_json().encode()).status_code == 401
    assert own.post(f"/api/agent/v1/links/{probe.pk}", b'{"dialled": true, "speed": 1}').status_code == 400
    for invisible in ("\\u202e", "\\u2028", "\\u200b", "\\u001b[2J"):  # operators read it, on a page and in a terminal
        report = f'{{"dial_why": "not {invisible}reached"}}'.encode()
        assert own.post(f"/api/agent/v1/links/{probe.pk}", report).status_code == 400
    for bad in (
        {"round_trip_us": -1},
        {"dial_why": "\x00"},
        {"listen_why": "a\nb"},
        {"dial_why": "x" * 301},
        {"received_bytes_per_second": 1e30},
    ):
        assert own.post(f"/api/agent/v1/links/{probe.pk}", json.dumps(bad).encode()).status_code == 400
    assert own.post(f"/api/agent/v1/links/{probe.pk}", body).status_code == 204


def test_a_late_report_is_refused_and_the_silence_concluded(pair, probe, monkeypatch):
    link_reports.report(probe.listener, probe.pk, GOOD)
    late = timezone.now() + timedelta(seconds=link_reports.ANSWER_SECONDS_MAX + 1)
    monkeypatch.setattr(clock, "now", lambda: late)
    dialler = probe.link.other(probe.listener_id)
    with pytest.raises(ProbeOver):
        link_reports.report(dialler, probe.pk, GOOD)
    assert set(link_reports.expire_overdue()) == {node.pk for _, node in pair}
    link = FabricLink.objects.get()
    assert (link.is_reachable, link.failures_in_row) == (False, 1)
    assert f"{dialler.name} did not answer" in link.why
    assert demand_for(dialler) is None
    with pytest.raises(ProbeOver):
        link_reports.report(dialler, probe.pk, GOOD)


def test_silence_of_both_says_nothing_of_a_link_that_was_measured(pair, probe, monkeypatch):
    both_say(probe, GOOD, GOOD)
    links.make_due(Node.objects.all())
    assert links.demand_due([])
    late = timezone.now() + timedelta(seconds=link_reports.ANSWER_SECONDS_MAX + 1)
    monkeypatch.setattr(clock, "now", lambda: late)
    assert len(link_reports.expire_overdue()) == 2
    link = FabricLink.objects.get()
    assert (link.is_reachable, link.failures_in_row, link.why) == (True, 1, "")


def test_failures_are_tried_again_soon_and_then_later_each_time(pair, monkeypatch):
    now = timezone.now()
    monkeypatch.setattr(clock, "now", lambda: now)
    pauses = []
    for _ in range(14):
        assert links.demand_due([])
        link = both_say(link_reports.live().get(), FAILED, FAILED)
        pauses.append((link.next_probe_at - now).total_seconds())
        now += timedelta(seconds=pauses[-1])
        Node.objects.update(last_seen_at=now)
    assert pauses[0] <= 45
    assert all(later > earlier for earlier, later in pairwise(pauses[:7]))
    assert max(pauses) <= link_reports.RETRY_SECONDS_MAX * 1.25
    assert links.demand_due([])
    healed = both_say(link_reports.live().get(), GOOD, GOOD)
    assert (healed.is_reachable, healed.failures_in_row, healed.why) == (True, 0, "")


def test_a_probe_is_withdrawn_for_a_lease_and_records_nothing(pair, probe):
    (_, first), _ = pair
    assert set(link_reports.withdraw_where_busy([first.pk])) == {node.pk for _, node in pair}
    link, _ = FabricLink.objects.get(), probe.refresh_from_db()
    assert (probe.state, probe.secret) == ("withdrawn", "")
    assert (link.is_reachable, link.measured_at, link.failures_in_row, link.why) == (False, None, 0, "")
    with pytest.raises(ProbeOver):
        link_reports.report(first, probe.pk, GOOD)
    assert links.demand_due([]) == []


def test_a_probe_of_a_node_that_leaves_is_withdrawn(pair, probe):
    (_, first), _ = pair
    availability.quarantine(first, actor="operator", reason="test")
    assert link_reports.withdraw_where_busy([])
    assert not link_reports.live().exists()


def test_the_database_keeps_one_link_a_pair_in_order_and_with_figures(pair):
    a, b = sorted((node for _, node in pair), key=lambda node: node.pk)
    FabricLink.objects.create(a=a, b=b)
    for bad in ({"a": a, "b": b}, {"a": b, "b": a}, {"a": a, "b": a}):
        with pytest.raises(IntegrityError), transaction.atomic():
            FabricLink.objects.create(**bad)
    with pytest.raises(IntegrityError), transaction.atomic():
        FabricLink.objects.update(is_reachable=True)


# --- shown


def test_a_provider_sees_its_nodes_links_and_nobody_elses(pair, probe, bob, mallory):
    from tests.people import sign

    both_say(probe, GOOD, GOOD)
    provider_of(mallory)
    (_, first), (_, second) = pair
    rows = sign(bob).get("/api/v1/provider/nodes").json()["results"]
    shown = {row["name"]: row["links"] for row in rows}
    assert shown[first.name][0] | {"measured_at": 0, "next_probe_at": 0} == {
        "node_id": str(second.pk),
        "node_name": second.name,
        "condition": "good",
        "why": "",
        "round_trip_us": 150,
        "bandwidth_bytes_per_second": 900,
        "measured_at": 0,
        "next_probe_at": 0,
    }
    assert shown[second.name][0]["node_name"] == first.name
    assert sign(mallory).get(f"/api/v1/provider/nodes/{first.pk}").status_code == 404
    assert "secret" not in str(rows)


def test_the_operators_page_of_a_node_lists_its_links(pair, probe, admin_client):
    both_say(probe, FAILED.model_copy(update={"dial_why": "<b>no route</b>"}), FAILED)
    (_, first), (_, second) = pair
    page = admin_client.get(f"/admin/nodes/node/{first.pk}/change/").content.decode()
    assert f"{second.name}: failed:" in page
    assert "<b>no route</b>" not in page
    assert "&lt;b&gt;no route" in page

"""A probe of a link on its way to both nodes, through a real sync process, and back."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.utils import timezone

from jobs import sweeps
from jobs.sync.changes import POLL_SECONDS, NodeChanges
from marketplace.nodes.fabrics import link_reports, links
from marketplace.nodes.models import FabricLink, Node
from provider_agent.protocol import (
    FEATURE_CHECKS,
    FEATURE_LINKS,
    HEADER_FEATURES,
    AttemptState,
    LinkReport,
    SyncResponse,
)
from tests import stage
from tests.integration.jobs.conftest import node_with_key
from tests.integration.jobs.sync.syncing import message, post, sync

pytestmark = pytest.mark.django_db(transaction=True)

KNOWS = {HEADER_FEATURES: f"{FEATURE_CHECKS},{FEATURE_LINKS}"}
GOOD = LinkReport(
    dialled=True, was_dialled=True, round_trip_us=150, sent_bytes_per_second=900, received_bytes_per_second=1000
)


@pytest.fixture(autouse=True)
def no_checks(settings):
    settings.SOUK_VERIFICATION = "off"


@pytest.fixture
def rack(transactional_db) -> list[Node]:
    owner = stage.organisation("carol")
    nodes = [node_with_key(f"rack-{number}", fabric="rack", provider=owner) for number in range(2)]
    FabricLink.objects.all().delete()
    return nodes


def ask(base: str, node: Node, *, known: str = "", wait_seconds: float = 0, **headers: str) -> SyncResponse:
    body = message(known=known, wait_seconds=wait_seconds).model_dump_json().encode()
    return SyncResponse.model_validate_json(post(base, node, body, **headers).content)


def test_both_waiting_nodes_receive_it_within_seconds_and_an_older_agent_never(url, rack):
    known = [ask(url, node, **KNOWS).version for node in rack]
    with ThreadPoolExecutor(2) as pool:
        held = [
            pool.submit(ask, url, node, known=version, wait_seconds=15, **KNOWS)
            for node, version in zip(rack, known, strict=True)
        ]
        time.sleep(0.5)
        assert not any(each.done() for each in held)
        assert sweeps.sweep_checks() == 2
        began = time.monotonic()
        answers = [each.result(14) for each in held]
        assert time.monotonic() - began < 14, "not only when their wait ends"
    demands = [answer.link for answer in answers]
    assert all(demands)
    assert {demand.role for demand in demands} == {"listen", "dial"}
    assert demands[0].probe_id == demands[1].probe_id
    assert all(answer.version != version for answer, version in zip(answers, known, strict=True))
    for features in ({}, {HEADER_FEATURES: FEATURE_CHECKS}):
        older = post(url, rack[0], message().model_dump_json().encode(), **features)
        assert "link" not in older.json()
    # At the next sync it receives the same, until it has reported.
    assert ask(url, rack[0], **KNOWS).link == demands[0]
    link_reports.report(rack[0], demands[0].probe_id, GOOD)
    assert sync(url, rack[0]).link is None
    link_reports.report(rack[1], demands[1].probe_id, GOOD)
    assert FabricLink.objects.get().is_reachable


def test_what_a_lost_wake_missed_is_found_in_the_events(rack):
    changes = NodeChanges()
    changes.find()
    assert links.demand_due([])
    assert set(changes.find()) == {node.pk for node in rack}
    assert POLL_SECONDS <= 5
    assert link_reports.withdraw_where_busy([rack[0].pk])
    assert set(changes.find()) == {node.pk for node in rack}


def test_a_lease_on_either_node_keeps_the_probe_away_and_ends_one_that_was_demanded(rack):
    alice = stage.organisation("alice", usd_micros=50 * stage.DOLLAR)
    assert sweeps.sweep_checks() == 2
    (lease,) = stage.place(stage.submit(alice))
    assert sweeps.sweep_checks() == 2, "both learn that it is over"
    assert not link_reports.live().exists()
    FabricLink.objects.update(next_probe_at=timezone.now())
    assert sweeps.sweep_checks() == 0
    stage.send_report(lease, AttemptState.RUNNING)
    assert sweeps.sweep_checks() == 0

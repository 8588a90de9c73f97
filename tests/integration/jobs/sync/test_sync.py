"""The sync process under a real uvicorn: what agents see of it."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import httpx
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs import lifecycle, sweeps
from jobs.models import Lease
from jobs.running import suspicions
from jobs.sync.answers import Idle, answer_for, answer_idle, take_in
from jobs.sync.app import SYNC_PATH
from jobs.sync.changes import NodeChanges
from marketplace.foundation import signing
from marketplace.foundation.models import Event
from marketplace.foundation.states import advance
from marketplace.nodes import agent_auth, wake
from marketplace.nodes.device_checks import demands
from marketplace.nodes.errors import ClockSkew
from marketplace.nodes.models import AgentRelease, Node
from marketplace.nodes.releases import publishing
from marketplace.nodes.wake import wake_nodes
from marketplace.nodes.watching import liveness
from provider_agent.protocol import (
    FEATURE_CHECKS,
    FEATURE_UPDATES,
    HEADER_FEATURES,
    REQUEST_WINDOW_SECONDS,
    SYNC_BODY_BYTES_MAX,
    AttemptState,
    LeaseReport,
    SyncResponse,
    sign_request,
    verify_assignment,
)
from tests import stage
from tests.integration.jobs.conftest import node_with_key, transport_key
from tests.integration.jobs.sync.syncing import BOOT, message, post, serving, sync, wait_until
from tests.row_states import put_in_state

pytestmark = pytest.mark.django_db(transaction=True)


def report(lease: Lease, state: AttemptState, **more) -> LeaseReport:
    return LeaseReport(lease_id=lease.id, fence=lease.fence, attempt_id=lease.attempt_id, state=state, **more)


def test_an_idle_node_gets_nothing_to_do_every_15_seconds(url, bob):
    answer = sync(url, bob)
    assert (answer.desired, answer.forget, answer.node_state) == ([], [], "online")
    assert 13 <= answer.beat_seconds <= 15


def test_nodes_that_come_at_once_get_in_a_few_queries_what_each_gets_alone(alice, bob):
    carol, dora = node_with_key("carol"), node_with_key("dora")
    stage.place(stage.submit(alice))
    (leased,) = Lease.objects.live().values_list("node_id", flat=True)
    Node.objects.filter(pk=dora.id).update(synced_ms=5_000)  # a newer sync than this one was taken in
    asked = [Idle(node.id, BOOT, 4_000) for node in (bob, carol, dora)]
    with CaptureQueriesContext(connection) as queries:
        answers = answer_idle(asked)
    assert len(queries) == 3, [query["sql"] for query in queries]
    assert {each.node_id for each in answers} == {bob.id, carol.id} - {leased}
    for each, answer in answers.items():
        assert answer == answer_for(each.node_id, message())
    synced_ms = dict(Node.objects.values_list("pk", "synced_ms"))
    assert (synced_ms[bob.id], synced_ms[carol.id], synced_ms[dora.id]) == (4_000, 4_000, 5_000)
    assert Node.objects.get(pk=carol.id).boot_id == BOOT


def test_a_node_that_is_wanted_for_a_probe_is_not_answered_as_an_idle_one(bob):
    Node.objects.update(wanted_probe_id=uuid4())
    assert answer_idle([Idle(bob.id, BOOT, None)]) == {}


def test_a_request_that_waited_for_the_database_beyond_its_signature_is_not_late(bob):
    body = message().model_dump_json().encode()
    came_at = timezone.now()
    headers = sign_request(transport_key(bob.name), bob.id, "POST", SYNC_PATH, int(came_at.timestamp() * 1000), body)
    since = came_at - timedelta(seconds=REQUEST_WINDOW_SECONDS + 1)
    assert agent_auth.verify(bob, "POST", SYNC_PATH, headers, body, received_at=came_at) == bob
    with pytest.raises(ClockSkew):
        agent_auth.verify(bob, "POST", SYNC_PATH, headers, body, received_at=since)


def test_a_placed_job_comes_as_a_signed_assignment_until_the_node_reports_it(url, alice, bob):
    (lease,) = stage.place(stage.submit(alice))
    (wanted,) = sync(url, bob).desired
    assert verify_assignment(signing.server_public_key_hex(), wanted.assignment).lease_id == lease.id
    answer = sync(url, bob, report(lease, AttemptState.PREPARING))
    assert (answer.desired[0].action, answer.desired[0].assignment) == ("run", None)
    assert 4 <= answer.beat_seconds <= 5


def test_reports_move_the_job_and_each_beat_extends_the_lease(url, alice, bob):
    (lease,) = stage.place(stage.submit(alice))
    sync(url, bob, report(lease, AttemptState.PREPARING))
    sync(url, bob, report(lease, AttemptState.RUNNING))
    lease.refresh_from_db()
    assert lease.attempt.job.state == "running"
    first = lease.lease_until, lease.observed_until
    sync(url, bob, report(lease, AttemptState.RUNNING))  # the very same report
    lease.refresh_from_db()
    assert (lease.lease_until, lease.observed_until) > first
    assert lease.observed_until > first[1]


def test_a_held_sync_is_answered_when_a_job_is_placed(url, alice, bob):
    known = sync(url, bob).version
    with ThreadPoolExecutor(1) as agent:
        held = agent.submit(sync, url, bob, known=known, wait_seconds=15)
        wait_until(lambda: httpx.get(f"{url}/healthz").json()["held"] == 1)
        time.sleep(0.2)
        assert not held.done()
        started = time.monotonic()
        (lease,) = stage.place(stage.submit(alice))
        answer = held.result(timeout=14)
    assert time.monotonic() - started < 14
    assert [wanted.lease_id for wanted in answer.desired] == [lease.id]


def test_a_held_sync_is_answered_when_the_job_is_cancelled(url, alice, bob):
    job = stage.submit(alice)
    (lease,) = stage.place(job)
    running = report(lease, AttemptState.RUNNING)
    known = sync(url, bob, running).version
    with ThreadPoolExecutor(1) as agent:
        held = agent.submit(sync, url, bob, running, known=known, wait_seconds=4)
        wait_until(lambda: httpx.get(f"{url}/healthz").json()["held"] == 1)
        lifecycle.cancel(job.id, actor="alice")
        (wanted,) = held.result(timeout=14).desired
    assert (wanted.action, wanted.stop_reason) == ("stop", "cancelled_by_customer")


def test_a_held_sync_is_answered_when_another_node_of_the_gang_has_lost_a_peer(url, alice, bob):
    (lease,) = stage.place(stage.submit(alice))
    running = report(lease, AttemptState.RUNNING)
    sync(url, bob, report(lease, AttemptState.PREPARING))
    known = sync(url, bob, running).version
    with ThreadPoolExecutor(1) as agent:
        held = agent.submit(sync, url, bob, running, known=known, wait_seconds=4)
        wait_until(lambda: httpx.get(f"{url}/healthz").json()["held"] == 1)
        started = time.monotonic()
        suspicions.suspect([Lease.objects.select_related("attempt").get(pk=lease.pk)])
        answer = held.result(timeout=14)
    assert time.monotonic() - started < 3.5, "before the hold's end"
    assert answer.version != known
    assert [wanted.action for wanted in answer.desired] == ["run"]


def test_a_wake_that_changes_nothing_does_not_end_the_wait(url, bob):
    known = sync(url, bob).version
    with ThreadPoolExecutor(1) as agent:
        started = time.monotonic()
        held = agent.submit(sync, url, bob, known=known, wait_seconds=4)
        wait_until(lambda: httpx.get(f"{url}/healthz").json()["held"] == 1)
        wake_nodes([bob.id])
        answer = held.result(timeout=10)
    assert time.monotonic() - started >= 3.9
    assert answer.version == known


def test_a_sync_whose_time_is_up_is_answered_with_what_is_known(url, bob):
    known = sync(url, bob).version
    started = time.monotonic()
    assert sync(url, bob, known=known, wait_seconds=0.4).version == known
    assert time.monotonic() - started >= 0.35


def test_every_sync_is_a_beat(url, bob):
    Node.objects.filter(pk=bob.pk).update(last_seen_at=None)
    sync(url, bob)
    wait_until(lambda: liveness.flush_beats() == 1)
    bob.refresh_from_db()
    assert bob.last_seen_at is not None


def test_a_replayed_sync_changes_nothing(url, alice, bob):
    (lease,) = stage.place(stage.submit(alice))
    time_ms = int(time.time() * 1000)
    before = message().model_dump_json().encode()
    first = message(report(lease, AttemptState.PREPARING)).model_dump_json().encode()
    second = message(report(lease, AttemptState.RUNNING)).model_dump_json().encode()
    for number, body in enumerate((before, first, second)):
        assert post(url, bob, body, time_ms=time_ms + number).status_code == 200
    events = Event.objects.count()
    # Mallory replays the messages, twice, in a bad order: even that the node once did not know the lease.
    for number, body in ((2, second), (1, first), (0, before), (0, before), (1, first)):
        assert post(url, bob, body, time_ms=time_ms + number).status_code == 200
    lease.refresh_from_db()
    assert (lease.reported_state, lease.state, Event.objects.count()) == ("running", "active", events)


def test_an_old_sync_is_not_believed_by_another_process_either(alice, bob):
    (lease,) = stage.place(stage.submit(alice))
    take_in(bob.id, message(report(lease, AttemptState.RUNNING)), timezone.now(), 1_000)
    take_in(bob.id, message(boot_id=uuid4()), timezone.now(), 999)  # of before it knew the lease
    lease.refresh_from_db()
    assert (lease.reported_state, lease.state) == ("running", "active")


def test_a_new_boot_that_does_not_know_the_lease_has_lost_it(url, alice, bob):
    (lease,) = stage.place(stage.submit(alice))
    sync(url, bob, report(lease, AttemptState.RUNNING))
    sync(url, bob, boot_id=uuid4())
    lease.refresh_from_db()
    assert (lease.reported_reason, lease.attempt.job.state) == ("process_vanished", "recovering")


def another_signature(signature: str) -> str:
    """The same with its first bits changed, whatever they are."""
    return ("B" if signature.startswith("A") else "A") + signature[1:]


def test_a_changed_signature_body_or_node_is_refused(url, bob):
    body = message().model_dump_json().encode()
    headers = sign_request(transport_key(bob.name), bob.id, "POST", SYNC_PATH, int(time.time() * 1000), body)
    address = f"{url}{SYNC_PATH}"
    for bad_url, bad_body, bad_headers in (
        (address, body + b" ", headers),
        (f"{address}?x=1", body, headers),
        (address, body, headers | {"Souk-Signature": another_signature(headers["Souk-Signature"])}),
        (address, body, headers | {"Souk-Node": str(uuid4())}),
        (address, body, headers | {"Souk-Time": str(int(headers["Souk-Time"]) + 1)}),
        (address, body, headers | {"Souk-Time": "soon"}),
        (address, body, {}),
    ):
        answer = httpx.post(bad_url, content=bad_body, headers=bad_headers)
        assert (answer.status_code, set(answer.json())) == (401, {"code", "message", "details"})
    assert httpx.post(address, content=body, headers=headers).status_code == 200


def test_a_wrong_clock_is_refused_with_the_servers_time(url, bob):
    body = message().model_dump_json().encode()
    for seconds in (-90, 90):
        answer = post(url, bob, body, time_ms=int((time.time() + seconds) * 1000))
        assert answer.json()["code"] == "clock_skew"
        assert answer.json()["details"]["server_time"].startswith(str(timezone.now().year))


def test_another_protocol_is_refused_with_those_that_are_spoken(url, bob):
    answer = post(url, bob, b'{"protocol": 99, "a_new_field": true}')
    assert (answer.status_code, answer.json()["code"]) == (426, "protocol_unsupported")
    assert answer.json()["details"]["spoken"] == [1]


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 400), (b"{", 400), (b"[]", 426), (b'{"protocol": 1}', 400), (b'{"protocol": 1, "boot_id": "x"}', 400)],
)
def test_a_body_that_is_no_message_is_refused(url, bob, body, status):
    answer = post(url, bob, body)
    assert (answer.status_code, set(answer.json())) == (status, {"code", "message", "details"})


def test_a_body_that_is_too_large_is_refused(url, bob):
    def unannounced():
        for _ in range(SYNC_BODY_BYTES_MAX // 65536 + 2):
            yield b" " * 65536

    for content in (b" " * (SYNC_BODY_BYTES_MAX + 1), unannounced()):
        answer = httpx.post(f"{url}{SYNC_PATH}", content=content)
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def test_there_is_nothing_else_at_this_server(url):
    assert httpx.get(f"{url}{SYNC_PATH}").status_code == 404
    assert httpx.get(f"{url}/admin/").json()["code"] == "not_found"


def test_without_redis_everything_goes_on_a_little_later(settings, alice, bob):
    settings.REDIS_URL = "unix:///nowhere/redis.sock"
    with serving() as url:
        Node.objects.filter(pk=bob.pk).update(last_seen_at=None)
        known = sync(url, bob).version
        wait_until(lambda: Node.objects.get(pk=bob.pk).last_seen_at is not None)  # the beat went to the database
        with ThreadPoolExecutor(1) as agent:
            held = agent.submit(sync, url, bob, known=known, wait_seconds=15)
            wait_until(lambda: httpx.get(f"{url}/healthz").json()["held"] == 1)
            (lease,) = stage.place(stage.submit(alice))  # its wake is lost
            answer = held.result(timeout=14)
        assert [wanted.lease_id for wanted in answer.desired] == [lease.id]


def test_an_assignment_whose_wake_was_lost_arrives_within_seconds(url, alice, bob, monkeypatch):
    known = sync(url, bob).version
    monkeypatch.setattr(wake, "_publish", lambda ids: None)
    with ThreadPoolExecutor(1) as agent:
        held = agent.submit(sync, url, bob, known=known, wait_seconds=15)
        wait_until(lambda: httpx.get(f"{url}/healthz").json()["held"] == 1)
        started = time.monotonic()
        (lease,) = stage.place(stage.submit(alice))
        answer = held.result(timeout=14)
    assert [wanted.lease_id for wanted in answer.desired] == [lease.id]
    assert time.monotonic() - started < 12, "before the hold's end, and before the lease counts as never started"


def test_a_node_learns_within_seconds_that_it_was_quarantined_and_then_retired(url, bob):
    known = sync(url, bob).version
    sync(url, bob, known=known)
    with ThreadPoolExecutor(1) as agent:
        held = agent.submit(sync, url, bob, known=known, wait_seconds=15)
        wait_until(lambda: httpx.get(f"{url}/healthz").json()["held"] == 1)
        started = time.monotonic()
        advance(bob, "quarantined", reason="by hand")
        answer = held.result(timeout=14)
    assert answer.node_state == "quarantined"
    assert time.monotonic() - started < 12, "before the hold's end"
    advance(bob, "retired", reason="by hand")
    wait_until(lambda: post(url, bob, message().model_dump_json().encode()).status_code == 401)


def test_what_is_decided_before_the_first_look_for_changes_is_seen_by_it(transactional_db, bob, monkeypatch):
    may_look, find = threading.Event(), NodeChanges.find

    def find_late(changes: NodeChanges):
        assert may_look.wait(20)
        return find(changes)

    monkeypatch.setattr(NodeChanges, "find", find_late)
    with serving() as url:
        known = sync(url, bob).version
        assert sync(url, bob).version == known, "the answer and the node are remembered"
        advance(bob, "retired", reason="by hand")
        assert sync(url, bob).version == known
        may_look.set()
        wait_until(lambda: post(url, bob, message().model_dump_json().encode()).status_code == 401)


def test_a_retired_node_is_let_in_no_more(url, bob):
    assert sync(url, bob).node_state == "online"
    put_in_state(Node.objects.filter(pk=bob.pk), "retired")
    agent_auth.forget(bob.id)
    assert post(url, bob, message().model_dump_json().encode()).status_code == 401


def test_waiting_agent_receives_a_check_and_an_older_one_never_sees_the_field(url, bob):
    Node.objects.filter(pk=bob.pk).update(next_check_at=timezone.now())
    known = sync(url, bob).version
    body = message(known=known, wait_seconds=10).model_dump_json().encode()
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(post, url, bob, body, **{HEADER_FEATURES: FEATURE_CHECKS})
        time.sleep(0.5)
        assert not held.done()
        assert sweeps.sweep_checks() == 1
        answer = SyncResponse.model_validate_json(held.result(10).content)
    check_id = Node.objects.get(pk=bob.pk).wanted_check_id
    assert answer.check == check_id
    assert answer.version != known
    older = post(url, bob, message().model_dump_json().encode())
    assert "check" not in older.json()
    assert demands.withdraw_where_busy({bob.pk}) == [bob.pk]


def test_waiting_agent_receives_a_release_not_during_a_check_an_older_one_never(url, bob):
    publishing.publish(version="0.2.0", wheel="gpusouk-0.2.0-py3-none-any.whl", sha256="ab" * 32, share=1)
    put_in_state(AgentRelease.objects.all(), "rolling")
    Node.objects.filter(pk=bob.pk).update(update_mode="auto", agent_version="0.1.0")
    known = sync(url, bob).version
    body = message(known=known, wait_seconds=10).model_dump_json().encode()
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(post, url, bob, body, **{HEADER_FEATURES: f"{FEATURE_CHECKS},{FEATURE_UPDATES}"})
        time.sleep(0.5)
        assert not held.done()
        assert sweeps.sweep_releases() == 1
        answer = SyncResponse.model_validate_json(held.result(10).content)
    assert answer.update is not None
    assert answer.update.version == "0.2.0"
    assert "update" not in post(url, bob, message().model_dump_json().encode()).json()
    Node.objects.filter(pk=bob.pk).update(next_check_at=timezone.now())
    assert sweeps.sweep_checks() == 1
    both = {HEADER_FEATURES: f"{FEATURE_CHECKS},{FEATURE_UPDATES}"}

    def beat():
        return post(url, bob, message().model_dump_json().encode(), **both).json()

    wait_until(lambda: "check" in beat())  # once the wake is there
    assert "update" not in beat()


def test_node_that_holds_a_lease_is_not_checked(bob, lease):
    Node.objects.filter(pk=bob.pk).update(next_check_at=timezone.now())
    assert lease.node_id == bob.pk
    assert sweeps.sweep_checks() == 0
    assert Node.objects.get(pk=bob.pk).wanted_check_id is None


def test_neighbour_of_a_lease_on_one_computer_is_not_checked_either(bob, lease, settings):
    other = node_with_key("neighbour")
    Node.objects.update(next_check_at=timezone.now())
    settings.SOUK_SHARED_MACHINE = True
    assert sweeps.sweep_checks() == 0
    settings.SOUK_SHARED_MACHINE = False
    assert sweeps.sweep_checks() == 1
    assert Node.objects.get(pk=other.pk).wanted_check_id is not None


@pytest.mark.parametrize(
    "odd", [{"memory_mib": 2**63}, {"cpu_count": 2**31}, {"disk_free_mib": 10**400}, {"engine_version": "e" * 81}]
)
def test_facts_that_no_column_holds_are_refused_and_break_no_sync(url, bob, odd):
    facts = {
        "agent_version": "0.1.0", "operating_system": "Debian", "kernel": "6", "cpu_model": "x", "cpu_count": 2,
        "memory_mib": 4096, "disk_free_mib": 10, "executor": "process",
        "devices": [{"uuid": bob.devices.all()[0].uuid, "index": 0, "kind": "cpu", "model": "x", "memory_mib": 9}],
    }  # fmt: skip
    body = message().model_dump(mode="json") | {"facts": facts | odd}
    answer = post(url, bob, json.dumps(body).encode())
    assert (answer.status_code, next(iter(odd)) in answer.text) == (400, True)
    assert sync(url, bob).node_state == "online"


def test_server_that_was_rolled_back_accepts_agents_that_are_ahead_of_it(url, alice, bob):
    """A newer agent's fields, at every depth: it is accepted, its lease goes on, and it can get an older version."""
    (lease,) = stage.place(stage.submit(alice))
    device = bob.devices.all()[0]
    facts = {
        "agent_version": "9.9.9", "operating_system": "Debian", "kernel": "6", "cpu_model": "x", "cpu_count": 2,
        "memory_mib": 4096, "disk_free_mib": 10, "executor": "process", "moon_phase": 0.5,
        "updates": {"mode": "auto", "channel": "early"},
        "devices": [{"uuid": device.uuid, "index": 0, "kind": "cpu", "model": "x", "memory_mib": 9, "colour": "red"}],
    }  # fmt: skip
    body = message(report(lease, AttemptState.PREPARING)).model_dump(mode="json")
    body["leases"][0]["mood"] = "good"
    body |= {"facts": facts, "load": {"node": {"cpu": 1.0}, "rooms": {}}, "weather": "fine"}
    Node.objects.filter(pk=bob.pk).update(wanted_version="0.1.0")
    answer = post(url, bob, json.dumps(body).encode(), **{HEADER_FEATURES: f"{FEATURE_UPDATES},telepathy"})
    assert answer.status_code == 200, answer.text
    assert SyncResponse.model_validate_json(answer.content).update.version == "0.1.0"
    seen = Node.objects.get(pk=bob.pk)
    assert (seen.agent_version, seen.update_mode) == ("9.9.9", "auto")
    assert "moon_phase" not in seen.facts
    lease.refresh_from_db()
    assert lease.reported_state == AttemptState.PREPARING
    body["facts"]["cpu_count"] = "many"
    wrong = post(url, bob, json.dumps(body).encode())
    assert (wrong.status_code, "cpu_count" in wrong.text) == (400, True), "what it knows must still be right"

"""Nobody is a node but who holds its key, for this request, now."""

from __future__ import annotations

import base64
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from rest_framework.request import Request
from rest_framework.test import APIClient, APIRequestFactory

from marketplace.accounts.models import Membership
from marketplace.foundation.ids import new_id
from marketplace.nodes import agent_auth
from marketplace.nodes.agent_auth import AgentAuthentication, authenticate_agent
from marketplace.nodes.errors import AgentUnauthenticated, ClockSkew
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import Node, Provider
from marketplace.nodes.offering import availability
from provider_agent.protocol import HEADER_NODE, HEADER_SIGNATURE, HEADER_TIME, REQUEST_WINDOW_SECONDS
from tests.integration.nodes.agent import Agent, device, facts, measurements
from tests.people import sign

pytestmark = pytest.mark.django_db

PATH = "/api/agent/v1/leases/1/logs?offset=0"
BODY = b"a line"


def test_a_signed_request_is_its_nodes(agent: Agent, node: Node) -> None:
    headers = agent.headers("POST", PATH, BODY)
    assert authenticate_agent("POST", PATH, headers, BODY).pk == node.pk
    lower = {name.lower(): value for name, value in headers.items()}  # as ASGI servers hand them on
    assert authenticate_agent("POST", PATH, lower, BODY).pk == node.pk


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", PATH, BODY),
        ("POST", PATH.replace("leases/1", "leases/2"), BODY),
        ("POST", PATH.replace("offset=0", "offset=1"), BODY),
        ("POST", PATH.partition("?")[0], BODY),
        ("POST", PATH, b"another line"),
        ("POST", PATH, b""),
    ],
)
def test_a_request_that_was_changed_is_refused(agent: Agent, node: Node, method: str, path: str, body: bytes) -> None:
    with pytest.raises(AgentUnauthenticated):
        authenticate_agent(method, path, agent.headers("POST", PATH, BODY), body)


@pytest.mark.parametrize(
    "change",
    [
        {HEADER_TIME: str(time.time_ns() // 1_000_000 + 5)},
        {HEADER_TIME: "soon"},
        {HEADER_TIME: "-1"},
        {HEADER_TIME: "9" * 400},
        {HEADER_TIME: "²"},
        {HEADER_TIME: ""},
        {HEADER_NODE: str(new_id())},
        {HEADER_NODE: "not-a-uuid"},
        {HEADER_NODE: ""},
        {HEADER_SIGNATURE: base64.b64encode(b"x" * 64).decode()},
        {HEADER_SIGNATURE: "%%%"},
        {HEADER_SIGNATURE: ""},
    ],
)
def test_a_header_that_was_changed_is_refused(agent: Agent, node: Node, change: dict[str, str]) -> None:
    with pytest.raises(AgentUnauthenticated):
        authenticate_agent("POST", PATH, agent.headers("POST", PATH, BODY) | change, BODY)


def test_a_missing_header_is_refused(agent: Agent, node: Node) -> None:
    for name in (HEADER_NODE, HEADER_TIME, HEADER_SIGNATURE):
        headers = agent.headers("POST", PATH, BODY)
        del headers[name]
        with pytest.raises(AgentUnauthenticated):
            authenticate_agent("POST", PATH, headers, BODY)


def test_one_node_cannot_sign_for_another(agent: Agent, node: Node, provider: Provider) -> None:
    mallory = Agent()
    mallory.enrol(provider, facts=facts(device("GPU-2")))
    headers = mallory.headers("POST", PATH, BODY) | {HEADER_NODE: str(node.pk)}
    with pytest.raises(AgentUnauthenticated):
        authenticate_agent("POST", PATH, headers, BODY)


@pytest.mark.parametrize("seconds", [-REQUEST_WINDOW_SECONDS - 10, REQUEST_WINDOW_SECONDS + 10])
def test_a_clock_that_is_off_gets_the_servers_time(agent: Agent, node: Node, seconds: int) -> None:
    headers = agent.headers("POST", PATH, BODY, time_ms=int((time.time() + seconds) * 1000))
    with pytest.raises(ClockSkew) as caught:
        authenticate_agent("POST", PATH, headers, BODY)
    server_time = datetime.fromisoformat(caught.value.details["server_time"])
    assert abs(server_time.timestamp() - time.time()) < 5


def test_a_time_is_read_up_to_its_most_digits_and_no_further(agent: Agent, node: Node) -> None:
    longest = 10**agent_auth.TIME_DIGITS_MAX - 1
    for time_ms, refusal in ((longest, ClockSkew), (longest + 1, AgentUnauthenticated), (-1, AgentUnauthenticated)):
        with pytest.raises(refusal):
            authenticate_agent("POST", PATH, agent.headers("POST", PATH, BODY, time_ms=time_ms), BODY)


def test_no_more_nodes_are_remembered_than_there_is_room_for(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_auth, "_cache", {new_id(): (time.monotonic(), node) for _ in range(3)})
    monkeypatch.setattr(agent_auth, "CACHE_ENTRIES_MAX", 3)
    agent_auth.look_up([node.pk])
    assert list(agent_auth._cache) == [node.pk]


@pytest.mark.parametrize(("others", "are_forgotten"), [(1, False), (2, False), (3, True), (4, True)])
def test_the_others_are_forgotten_only_for_want_of_room(
    node: Node, monkeypatch: pytest.MonkeyPatch, others: int, are_forgotten: bool
) -> None:
    monkeypatch.setattr(agent_auth, "_cache", {new_id(): (time.monotonic(), node) for _ in range(others)})
    monkeypatch.setattr(agent_auth, "CACHE_ENTRIES_MAX", 3)
    agent_auth.look_up([node.pk])
    assert len(agent_auth._cache) == (1 if are_forgotten else others + 1)


@pytest.mark.parametrize("seconds", [-REQUEST_WINDOW_SECONDS + 5, REQUEST_WINDOW_SECONDS - 5])
def test_a_clock_that_is_a_little_off_is_fine(agent: Agent, node: Node, seconds: int) -> None:
    headers = agent.headers("POST", PATH, BODY, time_ms=int((time.time() + seconds) * 1000))
    assert authenticate_agent("POST", PATH, headers, BODY).pk == node.pk


@pytest.mark.parametrize("sign_of", [-1, 1])
def test_the_window_ends_with_its_last_millisecond(agent: Agent, node: Node, sign_of: int) -> None:
    time_ms = time.time_ns() // 1_000_000
    headers = agent.headers("POST", PATH, BODY, time_ms=time_ms)
    last_ms = time_ms + sign_of * REQUEST_WINDOW_SECONDS * 1000

    def verify_at(received_ms: int) -> Node:
        received_at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=received_ms)
        return agent_auth.verify(node, "POST", PATH, headers, BODY, received_at=received_at)

    assert verify_at(last_ms).pk == node.pk
    with pytest.raises(ClockSkew):
        verify_at(last_ms + sign_of)


def test_a_node_is_remembered_for_ten_seconds(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([4.0, 4.0, 7.5, 14.0, 14.01])
    monkeypatch.setattr(agent_auth, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    agent_auth.look_up([node.pk])
    found = [agent_auth.remembered(node.pk) for _ in range(4)]
    assert [each and each.pk for each in found] == [node.pk, node.pk, node.pk, None]


def test_quarantined_nodes_are_let_in_and_retired_ones_are_not(agent: Agent, node: Node) -> None:
    availability.quarantine(node, actor="test", reason="suspicious")
    assert authenticate_agent("POST", PATH, agent.headers("POST", PATH, BODY), BODY).state == "quarantined"
    enrolment.retire(node)
    with pytest.raises(AgentUnauthenticated):
        authenticate_agent("POST", PATH, agent.headers("POST", PATH, BODY), BODY)


def test_a_known_node_costs_no_query(agent: Agent, node: Node, django_assert_num_queries: Any) -> None:
    authenticate_agent("POST", PATH, agent.headers("POST", PATH, BODY), BODY)
    with django_assert_num_queries(0):
        authenticate_agent("POST", PATH, agent.headers("POST", PATH, BODY), BODY)
    agent_auth.forget(node.pk)
    with django_assert_num_queries(1):
        authenticate_agent("POST", PATH, agent.headers("POST", PATH, BODY), BODY)


def test_what_a_caller_writes_to_its_node_nobody_else_sees(agent: Agent, node: Node) -> None:
    authenticate_agent("POST", PATH, agent.headers("POST", PATH, BODY), BODY).state = "changed"
    assert authenticate_agent("POST", PATH, agent.headers("POST", PATH, BODY), BODY).state == "online"


def test_the_endpoints_refuse_with_the_codes_that_agents_know(agent: Agent, node: Node) -> None:
    path, body = "/api/agent/v1/measurements", measurements().model_dump_json().encode()
    assert agent.post(path, body).status_code == 204
    refused = [
        agent.post(path, body, send=measurements(flops=9e17).model_dump_json().encode()),
        agent.post(path, body, send_to=path + "?x=1"),
        Client().post(path, body, content_type="application/json"),
    ]
    assert [(one.status_code, one.json()["code"]) for one in refused] == [(401, "agent_unauthenticated")] * 3
    late = agent.headers("POST", path, body, time_ms=1)
    answer = Client().post(path, body, content_type="application/json", headers=late)
    assert (answer.status_code, answer.json()["code"]) == (401, "clock_skew")
    assert answer.json()["details"]["server_time"]


def test_what_an_agent_does_bears_its_nodes_name(agent: Agent, node: Node) -> None:
    headers = {
        f"HTTP_{name.upper().replace('-', '_')}": value for name, value in agent.headers("GET", PATH, b"").items()
    }
    request = Request(APIRequestFactory().get(PATH, **headers))
    user, signed_by = AgentAuthentication().authenticate(request)
    assert (user.pk, signed_by.pk) == (f"node:{node.pk}", node.pk)
    assert user.is_authenticated and user.is_active


def test_a_persons_key_is_no_use_at_an_agents_endpoint(bob: Membership, node: Node) -> None:
    client: APIClient = sign(bob)
    assert client.post("/api/agent/v1/retire").status_code == 401


def test_an_agent_retires_its_own_node(agent: Agent, node: Node) -> None:
    assert agent.post("/api/agent/v1/retire").status_code == 204
    assert Node.objects.get(pk=node.pk).state == "retired"
    assert agent.post("/api/agent/v1/retire").status_code == 401

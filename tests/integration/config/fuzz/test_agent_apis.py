"""Agents and gateways send whatever their messages allow and forbid, signed as they sign: nothing breaks.

Half of the messages are completed to be believed: they name what exists, and their receipts, statements and proofs of
keys are signed over what they say.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from pydantic import ValidationError
from schemathesis import Case

from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import Check, FabricLink, LinkProbe
from provider_agent.protocol import UsageReceipt, sign_receipt, sign_request
from provider_agent.protocol.money.usage_statements import ServeStatement, sign_statement
from tests import stage
from tests.integration.config.fuzz.agent_schema import AGENT, CALLS, GATEWAY, SYNC, operations
from tests.integration.config.fuzz.asking import FAILURES, body_of, prepare, send, try_cases
from tests.integration.jobs.conftest import node_with_key, transport_key
from tests.integration.jobs.sync.syncing import serving
from tests.integration.nodes.agent import Agent

OPERATIONS = operations()
TOKEN = "gateways-token-of-the-fuzzing"
SECONDS_MAX = 30


class Market:
    """A job of Alice that runs on Bob's node, which is being checked; its agent sends."""

    def __init__(self) -> None:
        alice = stage.organisation("alice", usd_micros=100 * stage.DOLLAR)
        bob = stage.organisation("bob")
        for name in ("bobs-node", "bobs-other-node"):
            node_with_key(name, provider=bob, fabric="rack")
        job = stage.submit(alice)
        self.lease = stage.place(job)[0]
        stage.see_running(self.lease, seconds=60)
        self.node = self.lease.node
        self.stranger = Agent()
        check = Check.objects.create(node=self.node, seed="00" * 32, demanded_at=timezone.now())
        probe = LinkProbe.objects.create(link=FabricLink.objects.get(), listener=self.node, demanded_at=timezone.now())
        artifact = stage.checkpoint(job, self.lease, step=10, ms=1_000, state="uploading")
        self.ids = {
            "lease_id": str(self.lease.pk),
            "job_id": str(job.pk),
            "attempt_id": str(self.lease.attempt_id),
            "check_id": str(check.pk),
            "probe_id": str(probe.pk),
            "artifact_id": str(artifact.pk),
        }

    def believable(self, case: Case) -> None:
        """It names what exists, and is signed where it is to be signed."""
        case.path_parameters.update({name: self.ids[name] for name in case.path_parameters if name in self.ids})
        if case.query and "fence" in case.query:
            case.query["fence"] = self.lease.fence
        if isinstance(case.body, dict | list):
            case.body = self._completed(case.body)

    def _completed(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._completed(each) for each in value]
        if isinstance(value, float) and value.is_integer():
            return int(value)  # a whole number in a schema may be 1.0, in our messages it may not
        if not isinstance(value, dict):
            return value
        found = {name: self.ids.get(name) or self._completed(each) for name, each in value.items()}
        key = stage.receipt_key(self.node.name)
        try:
            if "receipt" in found:
                return sign_receipt(key, UsageReceipt.model_validate(found["receipt"])).model_dump(mode="json")
            if "statement" in found:
                return sign_statement(key, ServeStatement.model_validate(found["statement"])).model_dump(mode="json")
            if "receipt_proof" in found:
                _, token = enrolment.issue_token(self.node.provider, actor="test")
                proven = self.stranger.enrol_request(token).model_dump(mode="json")
                return {**found, **{name: proven[name] for name in PROVEN}}
        except (ValidationError, ValueError):
            pass  # it says what no message may say: it is sent as it is
        return found

    def headers_for(self, request: requests.PreparedRequest) -> dict[str, str]:
        """What authenticates the caller."""
        if request.path_url.startswith(GATEWAY):
            return {"Authorization": f"Bearer {TOKEN}"}
        place = (str(request.method), request.path_url, time.time_ns() // 1_000_000, body_of(request))
        return sign_request(transport_key(self.node.name), self.node.pk, *place)


PROVEN = ("protocol", "token", "transport_public_key", "receipt_address", "proof", "receipt_proof")


@pytest.fixture
def market(db: None, settings: Any) -> Market:
    settings.SOUK_GATEWAY_TOKEN = TOKEN
    return Market()


def routes(found: list[Any], before: str = "/") -> Iterator[str]:
    for each in found:
        if isinstance(each, URLResolver):
            yield from routes(each.url_patterns, before + str(each.pattern))
        elif isinstance(each, URLPattern):
            yield before + str(each.pattern)


def test_every_route_of_agents_and_gateways_is_asked() -> None:
    heads = [f"{each}/" for each in (AGENT, GATEWAY)]
    there = {route for route in routes(get_resolver().url_patterns) if route.startswith(tuple(heads))}
    asked = {name.split(" ")[1] for name in CALLS} - {SYNC.split(" ")[1]}
    assert len({_shape(route) for route in asked}) == len(asked)
    assert {_shape(route) for route in there} == {
        _shape(route.rsplit("/", 1)[0] + "/{step}") if "/checks/" in route else _shape(route) for route in asked
    }


def _shape(route: str) -> str:
    """Its parts; `*` for each that is given."""
    route = route.replace("^", "").replace("$", "").replace("(?P", "{(?P").replace("|", "").replace("/(", "/{(")
    return "/".join("*" if part[:1] in {"{", "<"} else part for part in route.split("/"))


@pytest.mark.parametrize("label", sorted(set(OPERATIONS) - {SYNC}))
def test_whatever_is_sent_is_answered(label: str, market: Market) -> None:
    client = Client(raise_request_exception=False)

    def check(case: Case, is_believable: bool) -> None:
        with transaction.atomic():
            if is_believable:
                market.believable(case)
            request = prepare(case)
            answer = send(client, request, market.headers_for(request))
            transaction.set_rollback(True)  # each finds what the first one found
        assert answer.status_code not in FAILURES, (request.path_url, request.body, answer.content)
        if answer.status_code >= 400:
            assert json.loads(answer.content)["code"], (request.path_url, request.body)

    try_cases(OPERATIONS[label], check)


def test_whatever_a_node_reports_is_answered(transactional_db: None) -> None:
    market = Market()
    with serving() as url, requests.Session() as session:

        def check(case: Case, is_believable: bool) -> None:
            if is_believable:
                market.believable(case)
            if isinstance(case.body, dict):
                case.body["wait_seconds"] = 0  # a held answer would be one that nothing happens for
            request = prepare(case, url)
            request.headers.update(market.headers_for(request))
            answer = session.send(request, timeout=SECONDS_MAX)
            assert answer.status_code not in FAILURES, (request.body, answer.content)

        try_cases(OPERATIONS[SYNC], check)

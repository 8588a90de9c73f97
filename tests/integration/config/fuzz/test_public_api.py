"""The public API is asked whatever its schema allows and forbids: each answer is one that the schema names.

SOUK_FUZZ_EXAMPLES is the number of requests for each operation; half of those with an id name something that exists.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from billing.models import Invoice
from marketplace.accounts import api_keys
from marketplace.accounts.models import Membership, Role
from marketplace.accounts.scopes import ROLE_SCOPES
from tests import stage

SCHEMA = schemathesis.openapi.from_path(Path(__file__).parents[4] / "docs" / "openapi.yaml")
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}
EXAMPLES = int(os.environ.get("SOUK_FUZZ_EXAMPLES", "100"))
SERVER = "http://testserver"
FAILURES = {500, 502, 504}  # 503 says what is not set up here: cards, a chain, releases
CHECKS = [status_code_conformance, response_schema_conformance, content_type_conformance]


@dataclass(frozen=True)
class Market:
    """What there is to ask for: the key of an owner who buys and provides, and an id for each name in a path."""

    key: str
    ids: dict[str, str]


@pytest.fixture
def market(db: None) -> Market:
    """Alice, who buys from herself: a job that runs on her node and has a checkpoint."""
    alice = stage.organisation("alice", usd_micros=100 * stage.DOLLAR)
    owner = Membership.objects.get(organisation=alice)
    node = stage.node("alices-node", provider=alice)
    job, leases = stage.running_job(alice)
    artifact = stage.checkpoint(job, leases[0], step=10, ms=1_000)
    issued, key = api_keys.issue(user=owner.user, organisation=alice, name="fuzz", scopes=ROLE_SCOPES[Role.OWNER])
    invoice = Invoice.objects.filter(owner_id=alice.id).first()
    ids = {
        "job_id": job.id,
        "node_id": node.id,
        "artifact_id": artifact.id,
        "key_id": issued.id,
        "user_id": owner.user_id,
        "invoice_id": invoice.id if invoice else job.id,
    }
    return Market(f"Bearer {key}", {name: str(value) for name, value in ids.items()})


def ask(client: Client, case: Case, key: str) -> Response:
    """Send a case in this thread and on this test's connection."""
    request = requests.Request(**case.as_transport_kwargs(SERVER, headers={"Authorization": key})).prepare()
    body = request.body or b""
    own = {"Content-Type", "Content-Length"}  # Django's client makes these
    answer = client.generic(
        str(request.method),
        request.path_url,
        body.encode() if isinstance(body, str) else body,
        content_type=request.headers.get("Content-Type", ""),
        headers={name: str(value) for name, value in request.headers.items() if name not in own},
    )
    content = b"".join(getattr(answer, "streaming_content", ())) if answer.streaming else answer.content
    headers = {name.lower(): [value] for name, value in answer.headers.items()}
    return Response(answer.status_code, headers, content, request, 0.0, verify=False)


def cases_of(operation: Any) -> st.SearchStrategy[Case]:
    """What the schema allows, and what it does not."""
    allowed = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    has_input = operation.body or any(True for _ in operation.iter_parameters())
    return allowed | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE) if has_input else allowed


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_every_answer_is_one_that_the_schema_names(label: str, market: Market) -> None:
    client = Client(raise_request_exception=False)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=cases_of(OPERATIONS[label]), exists=st.booleans())
    def check(case: Case, exists: bool) -> None:
        if exists:
            case.path_parameters.update({name: market.ids[name] for name in case.path_parameters if name in market.ids})
        with transaction.atomic():
            answer = ask(client, case, market.key)
            transaction.set_rollback(True)  # each finds what the first one found
        assert answer.status_code not in FAILURES, case.as_curl_command()
        case.validate_response(answer, checks=CHECKS)

    check()

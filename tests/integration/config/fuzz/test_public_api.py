"""The public API is asked whatever its schema allows and forbids: each answer is one that the schema names.

SOUK_FUZZ_EXAMPLES is the number of requests for each operation; half of those with an id name something that exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import schemathesis
from django.db import transaction
from django.test import Client
from schemathesis import Case
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
from tests.integration.config.fuzz.asking import FAILURES, prepare, send, try_cases

SCHEMA = schemathesis.openapi.from_path(Path(__file__).parents[4] / "docs" / "openapi.yaml")
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}
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


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_every_answer_is_one_that_the_schema_names(label: str, market: Market) -> None:
    client = Client(raise_request_exception=False)

    def check(case: Case, exists: bool) -> None:
        if exists:
            case.path_parameters.update({name: market.ids[name] for name in case.path_parameters if name in market.ids})
        with transaction.atomic():
            answer = send(client, prepare(case, Authorization=market.key))
            transaction.set_rollback(True)  # each finds what the first one found
        assert answer.status_code not in FAILURES, case.as_curl_command()
        case.validate_response(answer, checks=CHECKS)

    try_cases(OPERATIONS[label], check)

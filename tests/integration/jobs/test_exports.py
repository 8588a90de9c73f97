"""What a file says of a bill or of earnings is checked without a server; no byte of it can be changed unnoticed."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rest_framework.test import APIClient

from billing import prices
from billing.books import deposits
from billing.models import Asset
from billing.rails.registry import source_of
from jobs.client.verify.export import fingerprint, verify_export
from jobs.models import Lease
from marketplace.foundation import signing
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, Reason, export_bytes, sign_bytes
from tests import stage
from tests.integration.jobs.api.api_clients import API, client_of
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)

MALLORY = Ed25519PrivateKey.from_private_bytes(b"mallory signs whatever she likes")
Path = tuple[str | int, ...]


@pytest.fixture(params=["USD", "WETH"])
def lease(request: pytest.FixtureRequest, transactional_db: None) -> Lease:
    """Of a job that broke by the provider's fault after a checkpoint, and then was done on the same node."""
    alice = stage.organisation("alice", usd_micros=50 * DOLLAR)
    bob = stage.node("bobs-node")
    Node.objects.filter(pk=bob.pk).update(facts={"has_token_receipts": True})
    changes: dict[str, Any] = {}
    if request.param == "WETH":
        weth = Asset.objects.create(
            id=7, code="WETH", scale=18, kind="erc20", chain_id=31337, contract="0x" + "ab" * 20
        )
        prices.set_price(weth.pk, 3_123_456_789, actor="operator")
        deposits.credit(
            alice.id, 10**18, reference="31337:1:0", actor="chain", source=source_of("chain"), asset_id=weth.pk
        )
        changes = {"payment": {"asset": "WETH"}}
    job, (broken,) = stage.running_job(alice, **changes)
    stage.see_running(broken, seconds=100)
    for ms in (33_333, 66_666):
        stage.bill(broken, ms=ms)
    stage.checkpoint(job, broken, step=10, ms=36_001)
    stage.finish(broken, Reason.DEVICE_FAILED)
    (lease,) = stage.place(job)
    stage.send_report(lease, AttemptState.RUNNING)
    stage.see_running(lease, seconds=60)
    stage.bill(lease, ms=60_001)
    stage.finish(lease)
    return Lease.objects.select_related("attempt__job__organisation", "node__provider__organisation").get(pk=lease.pk)


@pytest.fixture
def bill(lease: Lease) -> dict[str, Any]:
    return fetched(client_of(lease.attempt.job.organisation), f"/jobs/{lease.attempt.job_id}/bill/export")


@pytest.fixture
def earned(lease: Lease) -> dict[str, Any]:
    return fetched(client_of(lease.node.provider.organisation), "/provider/earnings/export")


def fetched(client: APIClient, path: str) -> dict[str, Any]:
    answer = client.get(API + path)
    assert answer.status_code == 200, answer.content
    return dict(json.loads(answer.content))


def problem(document: Any, key: str | None = None) -> str | None:
    return verify_export(document, server_key=key).verification.problem


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict | list) and value:
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, name))
    else:
        yield path


def get(document: Any, path: Path) -> Any:
    for part in path:
        document = document[part]
    return document


def changed(document: Any, path: Path, value: Any) -> Any:
    copied = copy.deepcopy(document)
    get(copied, path[:-1])[path[-1]] = value
    return copied


def lies(value: Any) -> list[Any]:
    """The value with each of its bytes changed once, or something else of its kind."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, -value - 1]
    if isinstance(value, str):
        flips = [value[:i] + chr(ord(each) ^ 1) + value[i + 1 :] for i, each in enumerate(value)]
        return [*flips, value + "0", value[:-1]] if value else ["x"]
    return ["x", 1]


def resigned(document: Any) -> Any:
    """As if Mallory were the marketplace."""
    public = MALLORY.public_key().public_bytes_raw().hex()
    signature = sign_bytes(MALLORY, export_bytes(document["format"], document["body"]))
    return document | {"server_public_key": public, "signature": signature}


def test_a_true_bill_verifies_from_the_file_alone(bill: dict[str, Any], lease: Lease) -> None:
    key = signing.server_public_key_hex()
    found = verify_export(json.loads(json.dumps(bill, indent=2)), server_key=key)
    assert found.verification.problem is None
    assert (found.verification.receipts, found.verification.lines, found.is_pinned) == (3, 2, True)
    assert problem(bill) is None
    assert problem(bill, fingerprint(key)) is None
    published = APIClient().get(f"{API}/signing-key").json()
    assert published == {"public_key": key, "sha256": fingerprint(key)}


def test_what_the_provider_broke_is_recomputed_from_the_checkpoint(bill: dict[str, Any]) -> None:
    broken, done = bill["body"]["lines"]
    assert (broken["billable_ms"], broken["checkpoint_ms"], broken["charged_seq"]) == (36_001, 36_001, 2)
    assert (done["billable_ms"], done["checkpoint_ms"], done["charged_seq"]) == (60_001, None, 1)


@pytest.mark.parametrize("which", ["bill", "earned"])
def test_no_byte_of_any_field_can_be_changed(bill: dict[str, Any], earned: dict[str, Any], which: str) -> None:
    document = bill if which == "bill" else earned
    tried = 0
    for path in leaves(document):
        for lie in lies(get(document, path)):
            tried += 1
            assert problem(changed(document, path, lie)) is not None, (path, lie)
    assert tried > 2000


@pytest.mark.parametrize("which", ["bill", "earned"])
def test_no_field_can_be_taken_out_or_put_in(bill: dict[str, Any], earned: dict[str, Any], which: str) -> None:
    document = bill if which == "bill" else earned
    for path in leaves(document):
        copied = copy.deepcopy(document)
        del get(copied, path[:-1])[path[-1]]
        assert problem(copied) is not None, path
    assert problem(document | {"note": ""}) is not None
    assert problem(changed(document, ("body", "note"), "")) is not None


# Reported and not signed by any node: only the marketplace's own signature, with its key pinned, holds it to these.
TOLD = {
    *("node_name", "devices", "fault", "explanation", "reason", "state", "settlement_id", "settled_at", "attempt"),
    *("challenge_until", "source", "observed_at", "observed_ms", "provider_id", "ended_at", "available_from"),
    *("since", "until", "is_ended", "is_final"),
    "cap_units",  # of dollars: it binds only where it is reached; a token's stands in the node's terms too
}


@pytest.mark.parametrize("which", ["bill", "earned"])
def test_a_marketplace_that_lies_about_money_or_receipts_is_found_by_arithmetic(
    bill: dict[str, Any], earned: dict[str, Any], which: str
) -> None:
    """Signed anew, so that the signature fits: what the nodes signed and what follows from it still does not."""
    document = bill if which == "bill" else earned
    for path in leaves(document["body"]):
        value = get(document["body"], path)
        if path[-1] in TOLD or not path or value is None or value == "":
            continue
        more = value + 1 if isinstance(value, int) else _next(value)
        forged = resigned(changed(document, ("body", *path), more))
        assert problem(forged, signing.server_public_key_hex()) is not None  # the pin finds everything
        assert problem(forged) is not None, (path, value, more)


def _next(text: str) -> str:
    """The next amount, or the text with its last character changed."""
    return str(int(text) + 1) if text.isdigit() else text[:-1] + chr(ord(text[-1]) ^ 1)


@pytest.mark.parametrize(
    "lie",
    [
        None,
        [],
        {},
        {"format": "souk-bill-1"},
        {"format": "souk-bill-2", "server_public_key": "0" * 64, "signature": "A" * 86 + "==", "body": {}},
        {"format": "souk-bill-1", "server_public_key": "0" * 64, "signature": "A" * 86 + "==", "body": {}},
        {
            "format": "souk-bill-1",
            "server_public_key": "0" * 64,
            "signature": "A" * 86 + "==",
            "body": {"a": float("nan")},
        },
    ],
)
def test_what_is_no_export_is_refused_in_words(lie: Any) -> None:
    assert problem(lie)
    assert problem(resigned({"format": "souk-bill-1", "body": {}})) == "what was signed cannot be read: job_id is wrong"


def test_a_provider_sees_its_own_leases_and_nobody_elses(lease: Lease, earned: dict[str, Any]) -> None:
    body = earned["body"]
    assert {line["job_id"] for line in body["lines"]} == {str(lease.attempt.job_id)}
    asset = lease.payment.get("asset", "USD")
    paid = sum(int(line["paid_units"]) for line in body["lines"])
    assert body["paid_units"] == {asset: str(paid)} and paid == lease_paid(lease)
    carol = stage.node("carols-node").provider.organisation
    assert fetched(client_of(carol), "/provider/earnings/export")["body"]["lines"] == []
    alice = client_of(lease.attempt.job.organisation)
    assert alice.get(f"{API}/provider/earnings/export").json()["code"] == "no_provider"
    assert alice.get(f"{API}/jobs/{UUID(int=1)}/bill/export").status_code == 404


def lease_paid(lease: Lease) -> int:
    total = 0
    for each in Lease.objects.filter(attempt__job=lease.attempt.job_id):
        charged = int(each.charge_units or 0)
        total += charged - charged // 10
    return total


def test_a_mallory_cannot_read_alices_bill(lease: Lease) -> None:
    mallory = stage.organisation("mallory")
    assert client_of(mallory).get(f"{API}/jobs/{lease.attempt.job_id}/bill/export").status_code == 404


def test_a_time_that_makes_no_sense_is_refused(lease: Lease) -> None:
    bob = client_of(lease.node.provider.organisation)
    span = {"since": "2026-11-02T00:00:00Z", "until": "2026-11-01T00:00:00Z"}
    assert bob.get(f"{API}/provider/earnings/export", span).status_code == 400
    assert bob.get(f"{API}/provider/earnings/export", {"since": "yesterday"}).status_code == 400

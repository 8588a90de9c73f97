"""The appends through the endpoints that agents use: signed requests over HTTP, from the agent's own client."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from uuid import uuid4

import httpx
import pytest

from billing.charging import metering
from billing.models import ReceiptEvidence
from jobs.artifacts import inputs, volumes
from jobs.models import Artifact, Attempt, Job, Lease, StreamChunk
from jobs.running.assignments import make_assignment
from jobs.states import LeaseState
from provider_agent.client import Client
from provider_agent.errors import ClockSkewed, Refused
from provider_agent.protocol import (
    APPEND_BYTES_MAX,
    ArtifactBegin,
    ArtifactComplete,
    ArtifactFile,
    Assignment,
    sign_request,
)
from tests import stage
from tests.integration.jobs.conftest import node_with_key, transport_key
from tests.row_states import put_in_state

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.agent_urls")]


def call(live_server, node, verb):
    """Do something with the client of a node's agent."""

    async def go():
        client = Client(api_url=live_server.url, node_id=node.id, key=transport_key(node.name))
        try:
            return await verb(client)
        finally:
            await client.close()

    return asyncio.run(go())


@pytest.fixture
def mallory(transactional_db):
    return node_with_key("mallorys-node")


def files_of(folder) -> list[ArtifactFile]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [
        ArtifactFile(
            path=path.relative_to(folder).as_posix(),
            size=path.stat().st_size,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in found
    ]


async def ship(client: Client, lease: Lease, folder, **more):
    """What the agent's artifact shipper does."""
    begin = ArtifactBegin(files=files_of(folder), **more)
    uploads = await client.begin_artifact(lease.id, begin, fence=lease.fence)
    etags = {}
    for file in uploads.uploads:
        etags[file.path] = [
            await client.put_part(part.url, folder / file.path, offset=part.offset, size=part.size)
            for part in file.parts
        ]
    await client.complete_artifact(lease.id, uploads.artifact_id, ArtifactComplete(etags=etags), fence=lease.fence)
    return uploads


def test_logs_and_events_are_appended(live_server, lease):
    async def verb(client):
        first = await client.append(lease.id, "logs", offset=0, fence=lease.fence, data=b"hello\n")
        line = b'{"event":"step","step":1,"loss":2.5}\n'
        return first, await client.append(lease.id, "events", offset=0, fence=lease.fence, data=line), len(line)

    logs, events, length = call(live_server, lease.node, verb)
    assert (logs, events) == (6, length)
    assert Job.objects.get().progress["step"] == 1


def test_a_gap_is_answered_with_where_to_go_on(live_server, lease):
    async def verb(client):
        await client.append(lease.id, "logs", offset=0, fence=lease.fence, data=b"12345")
        return await client.append(lease.id, "logs", offset=100, fence=lease.fence, data=b"x")

    assert call(live_server, lease.node, verb) == 5


def test_the_last_byte_of_an_ended_attempt_completes_the_job_at_once(live_server, lease):
    stage.finish(lease, log_bytes=4)
    assert Job.objects.get().state == "running"
    call(live_server, lease.node, lambda c: c.append(lease.id, "logs", offset=0, fence=lease.fence, data=b"bye\n"))
    assert Job.objects.get().state == "completed"


def test_the_last_byte_of_an_attempt_that_is_over_concludes_nothing(live_server, lease):
    """It was lost between the node's report and its last bytes, and its lease is still being ended."""
    stage.finish(lease, log_bytes=4)
    put_in_state(Attempt.objects.all(), "lost")
    call(live_server, lease.node, lambda c: c.append(lease.id, "logs", offset=0, fence=lease.fence, data=b"bye\n"))
    assert Job.objects.get().state == "running"


def test_a_node_sees_what_it_earned_and_no_other_node_does(live_server, lease, mallory):
    stage.see_running(lease, seconds=60)
    stage.bill(lease, ms=30_000)
    assert call(live_server, lease.node, lambda c: c.earnings()).open_leases == 1
    assert call(live_server, mallory, lambda c: c.earnings()).open_leases == 0


def test_receipts_are_accepted_and_their_repeats_are_harmless(live_server, lease):
    stage.see_running(lease, seconds=60)
    signed = [stage.receipt(lease, ms=30_000)]
    for _ in range(2):
        assert call(live_server, lease.node, lambda c: c.send_receipts(lease.id, signed, fence=lease.fence)) == 1
    assert metering.newest(lease.id).billable_ms == 30_000


def test_a_stale_fence_is_refused_everywhere(live_server, lease, tmp_path):
    (tmp_path / "x").write_bytes(b"x")
    old = lease.fence - 1
    begin = ArtifactBegin(kind="output", files=files_of(tmp_path))
    signed = [stage.receipt(lease, ms=1)]
    for verb in (
        lambda c: c.append(lease.id, "logs", offset=0, fence=old, data=b"x"),
        lambda c: c.append(lease.id, "events", offset=0, fence=old, data=b"x"),
        lambda c: c.send_receipts(lease.id, signed, fence=old),
        lambda c: c.begin_artifact(lease.id, begin, fence=old),
    ):
        with pytest.raises(Refused) as refused:
            call(live_server, lease.node, verb)
        assert (refused.value.status, refused.value.refusal) == (409, "stale_fence")
    assert not StreamChunk.objects.exists()
    assert not Artifact.objects.exists()


def test_another_nodes_lease_is_not_found(live_server, lease, mallory):
    for verb in (
        lambda c: c.append(lease.id, "logs", offset=0, fence=lease.fence, data=b"forged"),
        lambda c: c.append(uuid4(), "logs", offset=0, fence=1, data=b"forged"),
        lambda c: c.get_artifact(lease.id, uuid4()),
    ):
        with pytest.raises(Refused) as refused:
            call(live_server, mallory, verb)
        assert refused.value.status == 404
    assert not StreamChunk.objects.exists()


def signed_post(live_server, node, path: str, body: bytes, *, time_ms: int | None = None, **changes: str):
    """POST with the signature of the node, then changed by Mallory."""
    time_ms = time_ms or int(time.time() * 1000)
    headers = sign_request(transport_key(node.name), node.id, "POST", path, time_ms, body) | changes
    return httpx.post(f"{live_server.url}{path}", content=body, headers=headers)


def test_a_request_that_was_changed_on_its_way_is_refused(live_server, lease, mallory):
    path = f"/api/agent/v1/leases/{lease.id}/logs?offset=0&fence={lease.fence}"
    good = sign_request(transport_key(lease.node.name), lease.node.id, "POST", path, int(time.time() * 1000), b"ab")
    for url, body, headers in (
        (path, b"aB", good),
        (path.replace("offset=0", "offset=1"), b"ab", good),
        (path.replace("logs", "events"), b"ab", good),
        (path, b"ab", good | {"Souk-Signature": good["Souk-Signature"][::-1]}),
        (path, b"ab", good | {"Souk-Node": str(mallory.id)}),
        (path, b"ab", {}),
    ):
        answer = httpx.post(f"{live_server.url}{url}", content=body, headers=headers)
        assert (answer.status_code, set(answer.json())) == (401, {"code", "message", "details"})
    assert not StreamChunk.objects.exists()
    assert httpx.post(f"{live_server.url}{path}", content=b"ab", headers=good).status_code == 200


def test_an_old_request_is_refused_with_the_servers_time(live_server, lease):
    path = f"/api/agent/v1/leases/{lease.id}/logs?offset=0&fence={lease.fence}"
    answer = signed_post(live_server, lease.node, path, b"x", time_ms=int(time.time() * 1000) - 120_000)
    assert answer.json()["code"] == ClockSkewed.code
    assert "server_time" in answer.json()["details"]


@pytest.mark.parametrize("query", ["", "?offset=0", "?offset=-1&fence=1", "?offset=x&fence=1", "?offset=²&fence=1"])
def test_a_request_without_its_numbers_is_refused(live_server, lease, query):
    from urllib.parse import quote

    path = f"/api/agent/v1/leases/{lease.id}/logs{quote(query, safe='?&=-')}"
    answer = signed_post(live_server, lease.node, path, b"x")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_a_body_that_is_too_large_is_refused(live_server, lease):
    path = f"/api/agent/v1/leases/{lease.id}/logs?offset=0&fence={lease.fence}"
    answer = signed_post(live_server, lease.node, path, b"x" * (APPEND_BYTES_MAX + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def test_a_body_that_is_no_message_is_refused(live_server, lease):
    path = f"/api/agent/v1/leases/{lease.id}/artifacts?fence={lease.fence}"
    answer = signed_post(live_server, lease.node, path, json.dumps({"kind": "checkpoint", "files": 3}).encode())
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    "odd",
    [{"step": 2**63}, {"step": -1}, {"step": True}, {"billable_ms": 2**63}, {"node_rank": 2**31}, {"size": 2**63}],
)
def test_a_checkpoint_with_a_number_that_no_column_holds_is_refused(live_server, lease, odd):
    file = {"path": "weights", "size": odd.get("size", 1), "sha256": "0" * 64}
    body = {"kind": "checkpoint", "step": 1, "files": [file], **{name: odd[name] for name in odd if name != "size"}}
    path = f"/api/agent/v1/leases/{lease.id}/artifacts?fence={lease.fence}"
    answer = signed_post(live_server, lease.node, path, json.dumps(body).encode())
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert not Artifact.objects.exists()


def test_a_checkpoint_goes_up_and_its_successor_comes_down(live_server, local_store, own_lease, tmp_path):
    folder = tmp_path / "step-00000010"
    (folder / "shards").mkdir(parents=True)
    (folder / "shards" / "0.distcp").write_bytes(b"weights" * 1000)
    (folder / ".metadata").write_bytes(b"")
    call(
        live_server, own_lease.node, lambda c: ship(c, own_lease, folder, kind="checkpoint", step=10, billable_ms=2000)
    )
    artifact = Artifact.objects.get()
    assert (artifact.state, artifact.step, artifact.size_bytes) == ("complete", 10, 7000)
    assert artifact.parts.get().billable_ms == 2000

    # The node is lost; Carol's goes on from there.
    from jobs.running import reports
    from provider_agent.protocol import Reason

    reports.lose(own_lease.id, Reason.NODE_SILENT, "silent")
    carol = node_with_key("carols-node")
    (second,) = stage.place(own_lease.attempt.job)
    assert second.attempt.resume_artifact_id == artifact.id
    described = call(live_server, carol, lambda c: c.get_artifact(second.id, artifact.id))
    assert (described.kind, described.step) == ("checkpoint", 10)
    for file in described.files:
        received = bytearray()
        call(live_server, carol, lambda c, file=file, into=received: c.download(file.url, into.extend))
        assert received == (folder / file.path).read_bytes()
        assert hashlib.sha256(received).hexdigest() == file.sha256


def test_an_input_comes_down_and_no_other_artifact_does(live_server, local_store, alice, bob):
    data = b"text " * 100
    files = [ArtifactFile(path="data/a.txt", size=len(data), sha256=hashlib.sha256(data).hexdigest())]
    artifacts = []
    for _ in range(2):
        artifact = inputs.announce_input(alice, files)
        (upload,) = inputs.begin_input(alice, artifact.id)
        etag = httpx.put(upload.parts[0].url, content=data).headers["ETag"].strip('"')
        artifacts.append(inputs.complete_input(alice, artifact.id, {"data/a.txt": [etag]}))
    mine, other = artifacts
    (lease,) = stage.place(stage.submit(alice, input_artifact=mine))
    described = call(live_server, bob, lambda c: c.get_artifact(lease.id, mine.id))
    assert [file.path for file in described.files] == ["data/a.txt"]
    with pytest.raises(Refused) as refused:
        call(live_server, bob, lambda c: c.get_artifact(lease.id, other.id))
    assert (refused.value.status, refused.value.refusal) == (404, "artifact_not_found")
    put_in_state(Lease.objects.all(), LeaseState.ENDED)
    with pytest.raises(Refused):
        call(live_server, bob, lambda c: c.get_artifact(lease.id, mine.id))


def test_a_volumes_files_come_down_in_the_version_that_was_pinned(live_server, local_store, alice, bob):
    bob.facts |= {"runtime_features": ["inputs"]}
    bob.save(update_fields=["facts"])
    spec = stage.spec_of(
        train={"model": "tiny-llama", "data": "corpus/text.jsonl"}, inputs={"corpus": {"volume": "corpus"}}
    )
    versions = []
    for data in (b'{"text": "one"}\n', b'{"text": "two"}\n'):
        files = [ArtifactFile(path="text.jsonl", size=len(data), sha256=hashlib.sha256(data).hexdigest())]
        artifact = inputs.announce_input(alice, files)
        (upload,) = inputs.begin_input(alice, artifact.id)
        etag = httpx.put(upload.parts[0].url, content=data).headers["ETag"].strip('"')
        inputs.complete_input(alice, artifact.id, {"text.jsonl": [etag]})
        versions.append(volumes.put_upload(alice, "corpus", artifact.id))
        if len(versions) == 1:
            job = stage.submit(alice, spec)
    (lease,) = stage.place(job)
    assignment = Assignment.model_validate_json(make_assignment(lease).payload)
    described = call(live_server, bob, lambda c: c.get_artifact(lease.id, assignment.inputs["corpus"]))
    received = bytearray()
    call(live_server, bob, lambda c: c.download(described.files[0].url, received.extend))
    assert (described.files[0].path, bytes(received)) == ("text.jsonl", b'{"text": "one"}\n')
    with pytest.raises(Refused):
        call(live_server, bob, lambda c: c.get_artifact(lease.id, versions[1].artifact_id))


def test_an_ended_lease_uploads_nothing_more(live_server, local_store, lease, tmp_path):
    (tmp_path / "x").write_bytes(b"x")
    begin = ArtifactBegin(kind="output", files=files_of(tmp_path))
    uploads = call(live_server, lease.node, lambda c: c.begin_artifact(lease.id, begin, fence=lease.fence))
    stage.finish(lease)
    done = ArtifactComplete(etags={})
    for verb in (
        lambda c: c.begin_artifact(lease.id, begin, fence=lease.fence),
        lambda c: c.complete_artifact(lease.id, uploads.artifact_id, done, fence=lease.fence),
    ):
        with pytest.raises(Refused):
            call(live_server, lease.node, verb)
    assert Artifact.objects.get().state != "complete"


def test_two_receipts_with_one_sequence_are_evidence_through_the_api_too(live_server, bob, lease):
    """The node gets an error with a code, keeps its accepted receipt, and both are kept as evidence against it."""
    stage.see_running(lease, seconds=100)
    first, other = (stage.receipt(lease, ms=ms) for ms in (1000, 2000))
    assert call(live_server, bob, lambda client: client.send_receipts(lease.pk, [first], fence=lease.fence)) == 1
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            call(live_server, bob, lambda client: client.send_receipts(lease.pk, [other], fence=lease.fence))
        assert refused.value.details["seq"] == 1
        assert "two different receipts" in str(refused.value)
    [evidence] = ReceiptEvidence.objects.filter(lease_id=lease.pk)
    assert {evidence.accepted["signature"], evidence.other["signature"]} == {first.signature, other.signature}
    newest = metering.newest(lease.pk)
    assert newest is not None and newest.billable_ms == 1000

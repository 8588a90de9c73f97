"""Logs, events, uploads and artifacts through the public API."""

from __future__ import annotations

import hashlib
from typing import Any

import httpx
import pytest
from django.test import Client
from django.utils import timezone

from jobs.models import Artifact, ArtifactPart, Lease, Stream
from jobs.running import streams
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Metric, Node
from tests import stage
from tests.integration.jobs.api.api_clients import API, client_of, post, quoted
from tests.row_states import create_in_state

pytestmark = pytest.mark.django_db(transaction=True)

DATA = b"a line of text\n" * 100


def test_the_log_is_read_from_any_offset(alice: Organisation, lease: Lease) -> None:
    streams.append(lease, Stream.LOG, fence=lease.fence, offset=0, data=b"first\nsecond\n")
    page = client_of(alice).get(f"{API}/jobs/{lease.attempt.job_id}/logs?attempt=1&offset=6").json()
    assert (page["text"], page["next_offset"], page["is_complete"]) == ("second\n", 13, False)
    assert (page["attempts"], page["job_state"]) == (1, "running")


def test_events_are_a_stream_of_their_own(alice: Organisation, lease: Lease) -> None:
    streams.append(lease, Stream.EVENT, fence=lease.fence, offset=0, data=b'{"event":"step","step":7}\n')
    client = client_of(alice)
    assert '"step":7' in client.get(f"{API}/jobs/{lease.attempt.job_id}/events").json()["text"]
    assert client.get(f"{API}/jobs/{lease.attempt.job_id}/logs").json()["text"] == ""
    assert client.get(f"{API}/jobs/{lease.attempt.job_id}").json()["progress"]["step"] == 7


@pytest.mark.parametrize(
    ("query", "status"), [("offset=-1", 400), ("attempt=one", 400), ("colour=red", 400), ("attempt=9", 404)]
)
def test_a_wrong_question_is_refused_by_name(alice: Organisation, lease: Lease, query: str, status: int) -> None:
    response = client_of(alice).get(f"{API}/jobs/{lease.attempt.job_id}/logs?{query}")
    assert response.status_code == status
    assert response.json()["code"] in {"invalid_request", "stream_not_found"}


def test_files_are_uploaded_completed_and_become_a_jobs_input(alice: Organisation, bob: Node, local_store: Any) -> None:
    client = client_of(alice)
    file = {"path": "data.txt", "size": len(DATA), "sha256": hashlib.sha256(DATA).hexdigest()}
    begun = post(client, "/uploads", {"files": [file]}, key="upload")
    assert begun.status_code == 201
    view = begun.json()
    again = post(client, "/uploads", {"files": [file]}, key="upload")
    assert (again.status_code, again.json()["artifact_id"]) == (201, view["artifact_id"])
    too_soon = post(client, f"/uploads/{view['artifact_id']}/complete", {"etags": {}})
    assert (too_soon.status_code, too_soon.json()["code"]) == (409, "upload_incomplete")
    etags: dict[str, list[str]] = {}
    for upload in view["uploads"]:
        for part in upload["parts"]:
            sent = httpx.put(part["url"], content=DATA[part["offset"] : part["offset"] + part["size"]], timeout=10)
            assert sent.is_success, sent.text
            etags.setdefault(upload["path"], []).append(sent.headers.get("ETag", ""))
    done = post(client, f"/uploads/{view['artifact_id']}/complete", {"etags": etags})
    assert (done.status_code, done.json()["state"], done.json()["file_count"]) == (200, "complete", 1)
    quote = quoted(client, files=["data.txt"])
    body = {
        "spec": quote["spec"],
        "quote_id": quote["quote_id"],
        "input_artifact_id": view["artifact_id"],
    }
    assert post(client, "/jobs", body).status_code == 201
    shown = client.get(f"{API}/artifacts/{view['artifact_id']}").json()
    assert httpx.get(shown["files"][0]["url"], timeout=10).content == DATA


def test_an_upload_that_was_refused_is_refused_again_under_its_key(alice: Organisation) -> None:
    client = client_of(alice)
    wrong = {"files": [{"path": "../data.txt", "size": 1, "sha256": "0" * 64}]}
    answers = [post(client, "/uploads", wrong, key="upload") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [400, 400]
    assert answers[0].json() == answers[1].json()
    assert not Artifact.objects.exists()


def test_an_upload_that_is_not_complete_is_shown_without_addresses(alice: Organisation) -> None:
    file = {"path": "data.txt", "size": 1, "sha256": "0" * 64}
    begun = post(client_of(alice), "/uploads", {"files": [file]}).json()
    shown = client_of(alice).get(f"{API}/artifacts/{begun['artifact_id']}").json()
    assert (shown["state"], shown["files"]) == ("uploading", [])


def test_a_job_file_that_names_files_needs_the_upload_of_its_own(alice: Organisation, bob: Node) -> None:
    client = client_of(alice)
    quote = quoted(client, files=["data.txt"])
    body = {"spec": quote["spec"], "quote_id": quote["quote_id"]}
    assert post(client, "/jobs", body).json()["code"] == "input_missing"
    mallorys = Artifact.objects.create(organisation=stage.organisation("mallory"), kind="input")
    refused = post(client, "/jobs", body | {"input_artifact_id": str(mallorys.id)})
    assert refused.json()["code"] == "unknown_input"


def test_mallory_sees_and_completes_no_upload_of_alices(alice: Organisation) -> None:
    artifact = Artifact.objects.create(organisation=alice, kind="input")
    ArtifactPart.objects.create(artifact=artifact, files=[])
    mallory = client_of(stage.organisation("mallory"))
    assert mallory.get(f"{API}/artifacts/{artifact.id}").json()["code"] == "artifact_not_found"
    assert post(mallory, f"/uploads/{artifact.id}/complete", {"etags": {}}).status_code == 404


def test_a_jobs_artifacts_are_listed_newest_first_without_addresses(alice: Organisation, lease: Lease) -> None:
    for step in (10, 20):
        artifact = create_in_state(
            Artifact,
            "complete",
            organisation=alice,
            job=lease.attempt.job,
            attempt=lease.attempt,
            kind="checkpoint",
            step=step,
            size_bytes=5,
        )
        ArtifactPart.objects.create(
            artifact=artifact, lease=lease, files=[{"path": "a", "size": 5, "sha256": "0" * 64}]
        )
    rows = client_of(alice).get(f"{API}/jobs/{lease.attempt.job_id}/artifacts").json()["results"]
    assert [(row["step"], row["file_count"], row["files"]) for row in rows] == [(20, 1, []), (10, 1, [])]


def test_every_path_of_the_room_is_in_the_published_description() -> None:
    text = Client().get("/api/schema?format=json").json()
    for path in ("quotes", "jobs", "jobs/{job_id}/bill", "jobs/{job_id}/logs", "uploads", "artifacts/{artifact_id}"):
        assert f"/api/v1/{path}" in text["paths"]
    assert "Candidate" in text["components"]["schemas"]
    submit = text["paths"]["/api/v1/jobs"]["post"]
    assert submit["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/SubmitRequest")
    assert "402" in submit["responses"]


def test_a_jobs_figures_are_its_own_nodes_words_and_its_customers_to_read(
    alice: Organisation, lease: Lease, bob: Node
) -> None:
    now = timezone.now().replace(second=0, microsecond=0)
    mallory = stage.node("mallorys-node")
    for node, value in ((bob, 1), (mallory, 9)):
        Metric.objects.create(node=node, lease_id=lease.id, at=now, seconds=60, values={"cpu_percent": [value, value]})
    path = f"{API}/jobs/{lease.attempt.job_id}/metrics"
    (point,) = client_of(alice).get(path).json()["points"]
    assert (point["attempt"], point["node_rank"], point["values"]) == (1, 0, {"cpu_percent": [1, 1]})
    assert client_of(stage.organisation("charlie")).get(path).status_code == 404
    assert client_of(alice).get(f"{path}?since=soon").status_code == 400


def test_a_jobs_curve_is_the_whole_run_and_its_customers_to_read(alice: Organisation, lease: Lease) -> None:
    path = f"{API}/jobs/{lease.attempt.job_id}/curve"
    assert client_of(alice).get(path).json() == {"stride": 1, "series": [], "has_more_names": False}
    lines = (
        b'{"event":"step","step":1,"loss":3.5,"metrics":{"accuracy":0.25}}\n{"event":"evaluated","step":1,"loss":3}\n'
    )
    streams.append(lease, Stream.EVENT, fence=lease.fence, offset=0, data=lines)
    body = client_of(alice).get(path).json()
    assert [series["name"] for series in body["series"]] == ["loss", "evaluation_loss", "accuracy"]
    figures = {"count": 1, "mean": 3.5, "lowest": 3.5, "highest": 3.5, "newest": 3.5}
    assert body["series"][0]["points"] == [{"attempt": 1, "first_step": 1, "last_step": 1, **figures}]
    assert client_of(stage.organisation("charlie")).get(path).status_code == 404
    assert "/api/v1/jobs/{job_id}/curve" in Client().get("/api/schema?format=json").json()["paths"]

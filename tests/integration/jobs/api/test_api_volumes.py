"""/api/v1/volumes: what Alice puts her jobs are given; Mallory sees nothing of it."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.artifacts import quotas
from jobs.models import Artifact, ArtifactPart, JobInput, VolumeVersion
from jobs.wire import VolumeView
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from tests import stage
from tests.integration.jobs.api.api_clients import API, client_of, post, submitted
from tests.integration.racing import race
from tests.row_states import create_in_state

pytestmark = pytest.mark.django_db(transaction=True)


def upload(owner: Organisation, state: str = "complete") -> Artifact:
    artifact = create_in_state(
        Artifact, state, organisation=owner, kind="input", size_bytes=7, completed_at=clock.now()
    )
    files = [{"path": "a", "size": 7, "sha256": "0" * 64}]
    ArtifactPart.objects.create(artifact=artifact, files=files, file_count=1, is_complete=state == "complete")
    return artifact


def put(client: Any, artifact: Artifact, name: str = "corpus", **more: Any) -> Any:
    body = {"name": name, "artifact_id": str(artifact.pk), **more}
    return post(client, "/volumes", body, key=str(uuid4()))


@pytest.fixture
def mallory(transactional_db: None) -> Organisation:
    return stage.organisation("mallory")


def test_a_volume_is_put_shown_listed_and_deleted(alice: Organisation) -> None:
    client = client_of(alice)
    first, second = upload(alice), upload(alice)
    assert put(client, first, source="data/").status_code == 201
    made = VolumeView.model_validate(put(client, second).json())
    assert [(each.number, each.artifact_id) for each in made.versions] == [(2, second.pk), (1, first.pk)]
    assert (made.versions[1].source, made.versions[1].superseded_at is not None) == ("data/", True)
    assert VolumeView.model_validate(client.get(f"{API}/volumes/corpus").json()) == made
    (listed,) = client.get(f"{API}/volumes").json()["results"]
    assert [(each["number"], each["file_count"], each["size_bytes"]) for each in listed["versions"]] == [(2, 1, 7)]
    assert quotas.kept_bytes(alice.pk) == 14, "each version counts for the quota"
    assert client.delete(f"{API}/volumes/corpus?version=1").status_code == 200
    assert quotas.kept_bytes(alice.pk) == 7
    assert client.delete(f"{API}/volumes/corpus").json()["versions"][0]["number"] == 2
    assert client.get(f"{API}/volumes/corpus").status_code == 404
    assert (client.delete(f"{API}/volumes/corpus").status_code, quotas.kept_bytes(alice.pk)) == (404, 0)


def test_a_job_is_given_it_and_counted(alice: Organisation, bob: Node) -> None:
    bob.facts |= {"runtime_features": ["inputs"]}
    bob.save(update_fields=["facts"])
    client, artifact = client_of(alice), upload(alice)
    put(client, artifact)
    job = submitted(client, inputs={"corpus": {"volume": "corpus"}})
    assert str(JobInput.objects.get().job_id) == job["job_id"]
    assert client.get(f"{API}/volumes/corpus").json()["versions"][0]["living_jobs"] == 1
    refused = client.delete(f"{API}/artifacts/{artifact.pk}")
    assert refused.json()["code"] == "artifact_in_use"


def test_of_another_organisation_nothing_is_seen_changed_or_taken(alice: Organisation, mallory: Organisation) -> None:
    mine, theirs = client_of(alice), client_of(mallory)
    artifact = upload(alice)
    put(mine, artifact)
    assert theirs.get(f"{API}/volumes").json()["results"] == []
    assert theirs.get(f"{API}/volumes/corpus").status_code == 404
    assert theirs.delete(f"{API}/volumes/corpus").status_code == 404
    assert put(theirs, artifact).json()["code"] == "artifact_not_found"
    assert put(theirs, upload(mallory), "corpus").json()["versions"][0]["number"] == 1
    assert VolumeVersion.objects.filter(volume__organisation=alice).count() == 1


def test_who_may_only_read_puts_and_deletes_nothing(alice: Organisation) -> None:
    put(client_of(alice), upload(alice))
    reader = client_of(alice, ["jobs:read"])
    assert reader.get(f"{API}/volumes/corpus").status_code == 200
    assert put(reader, upload(alice)).status_code == 403
    assert reader.delete(f"{API}/volumes/corpus").status_code == 403


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "Corpus"},
        {"name": "a" * 64},
        {"name": "a/b"},
        {"name": ""},
        {"job": "first"},
        {"artifact_id": None},
        {"artifact_id": "x"},
        {"source": "a" * 201},
        {"source": "\x1b[31m"},
        {"size": 1},
    ],
)
def test_bad_requests_are_refused_before_anything_is_written(alice: Organisation, changes: dict[str, Any]) -> None:
    body = {"name": "corpus", "artifact_id": str(upload(alice).pk)} | changes
    assert post(client_of(alice), "/volumes", body, key=str(uuid4())).status_code == 400
    assert not VolumeVersion.objects.exists()


def test_versions_that_cannot_be_are_refused(alice: Organisation) -> None:
    client = client_of(alice)
    put(client, upload(alice))
    for version, status in (("0", 400), ("x", 400), ("99999999999999999999", 400), ("7", 404), ("1", 409)):
        assert client.delete(f"{API}/volumes/corpus?version={version}").status_code == status
    for name in ("Corpus", "a" * 300, "%20"):
        assert client.get(f"{API}/volumes/{name}").status_code == 404


def test_a_job_without_a_result_makes_no_volume(alice: Organisation) -> None:
    answer = post(client_of(alice), "/volumes", {"name": "corpus", "job": "first"}, key=str(uuid4()))
    assert (answer.status_code, answer.json()["code"]) == (409, "result_not_ready")
    assert put(client_of(alice), upload(alice, "uploading")).json()["code"] == "input_not_ready"


def test_a_repeat_with_the_same_key_makes_one_version(alice: Organisation) -> None:
    client, body = client_of(alice), {"name": "corpus", "artifact_id": str(upload(alice).pk)}
    answers = [post(client, "/volumes", body, key="one").json() for _ in range(2)]
    assert answers[0] == answers[1]
    assert VolumeVersion.objects.count() == 1


def test_two_puts_at_once_make_two_versions_of_which_one_is_newest(alice: Organisation) -> None:
    clients = [(client_of(alice), upload(alice)) for _ in range(2)]
    answers = race(*[partial(put, client, artifact) for client, artifact in clients])
    assert [each.status_code for each in answers] == [201, 201]
    found = list(VolumeVersion.objects.order_by("number").values_list("number", "superseded_at"))
    assert [number for number, _ in found] == [1, 2]
    assert [at is None for _, at in found] == [False, True]


def test_a_page_of_volumes_takes_as_many_queries_as_one(alice: Organisation) -> None:
    client = client_of(alice)
    counts = []
    for number in range(4):
        put(client, upload(alice), f"corpus-{number}")
        if number in (0, 3):
            with CaptureQueriesContext(connection) as queries:
                assert len(client.get(f"{API}/volumes").json()["results"]) == number + 1
            counts.append(len(queries))
    assert counts[0] == counts[1]

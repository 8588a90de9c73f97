"""An artifact is complete when every byte of every node is there, and never before."""

from __future__ import annotations

import hashlib
import threading
from datetime import timedelta
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import httpx
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.utils import timezone

from jobs import lifecycle
from jobs.artifacts import downloads, inputs, prune, uploads
from jobs.artifacts.links import Link, open_link, url_for_link
from jobs.artifacts.store import key_for, prefix_for
from jobs.errors import (
    ArtifactClosed,
    ArtifactNotFound,
    BadManifest,
    LeaseOver,
    LinkRefused,
    ManifestChanged,
    StaleFence,
    UploadIncomplete,
)
from jobs.leases.unpaid import is_unpaid
from jobs.models import Artifact, ArtifactPart, Attempt, Lease
from jobs.running import reports
from marketplace.foundation.models import Event
from provider_agent.protocol import ArtifactBegin, ArtifactFile, AttemptState, Reason
from tests import stage
from tests.integration.jobs.conftest import node_with_key
from tests.integration.racing import wait_for_blocked
from tests.row_states import put_in_state

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.agent_urls")]

FILES = {"model.bin": b"weights" * 500, "sub/config.json": b"{}", "empty": b""}


@pytest.fixture(autouse=True)
def store(local_store):
    return local_store


@pytest.fixture
def gang(alice) -> list[Lease]:
    """Two nodes of one attempt; a fabric is one provider's."""
    owner = stage.organisation("bob")
    for name in ("one", "two"):
        node_with_key(name, fabric="rack", provider=owner)
    spec = stage.spec_of(
        resources={"gpus": 2, "nodes": 2, "kind": "any"}, budget={"max_total": "8.00"}, **stage.OWN_COMMAND
    )
    leases = stage.place(stage.submit(alice, spec))
    assert len(leases) == 2
    for lease in leases:
        stage.send_report(lease, AttemptState.RUNNING)
    return [Lease.objects.select_related("attempt__job", "node").get(pk=lease.pk) for lease in leases]


def entry(path: str, data: bytes) -> ArtifactFile:
    return ArtifactFile(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def announce(lease: Lease, files: dict[str, bytes] = FILES, **more):
    fields = {"kind": "checkpoint", "step": 10, "node_rank": lease.node_rank} | more
    begin = ArtifactBegin(files=[entry(path, data) for path, data in files.items()], **fields)
    return uploads.begin(lease, begin, fence=lease.fence)


def put(answer, files: dict[str, bytes] = FILES) -> dict[str, list[str]]:
    etags = {}
    for file in answer.uploads:
        data = files[file.path]
        got = [httpx.put(p.url, content=data[p.offset : p.offset + p.size]) for p in file.parts]
        etags[file.path] = [one.headers["ETag"].strip('"') for one in got]
    return etags


def complete(lease: Lease, answer, etags) -> Artifact:
    return uploads.complete(lease, answer.artifact_id, etags, fence=lease.fence)


def checkpoint(lease: Lease, step: int, files: dict[str, bytes] = FILES) -> Artifact:
    answer = announce(lease, files, step=step)
    return complete(lease, answer, put(answer, files))


def fetch(artifact: Artifact) -> dict[str, bytes]:
    return {file.path: httpx.get(file.url).content for file in downloads.remote_files(artifact)}


def test_a_checkpoint_that_is_there_in_full_is_complete(lease):
    artifact = checkpoint(lease, 10)
    assert (artifact.state, artifact.size_bytes) == ("complete", 3502)
    assert fetch(artifact) == FILES
    moves = Event.objects.filter(subject_kind="artifact", subject_id=artifact.id).order_by("id")
    assert list(moves.values_list("to_state", flat=True)) == ["uploading", "complete"]


def test_an_output_may_be_empty_and_a_checkpoint_may_not(lease):
    answer = announce(lease, {}, kind="output", step=None)
    assert complete(lease, answer, {}).state == "complete"
    with pytest.raises(BadManifest):
        announce(lease, {})


def test_announcing_again_asks_only_for_what_is_missing(lease):
    first = announce(lease)
    httpx.put(first.uploads[0].parts[0].url, content=FILES["model.bin"])
    again = announce(lease)
    assert again.artifact_id == first.artifact_id
    assert [file.path for file in again.uploads] == ["sub/config.json", "empty"]
    assert complete(lease, again, put(again)).state == "complete"
    assert announce(lease).uploads == []
    assert Artifact.objects.count() == ArtifactPart.objects.count() == 1


def test_completing_again_changes_nothing(lease):
    answer = announce(lease)
    etags = put(answer)
    complete(lease, answer, etags)
    events = Event.objects.count()
    assert complete(lease, answer, etags).state == "complete"
    assert Event.objects.count() == events


def test_an_artifact_of_which_a_file_is_missing_never_becomes_complete(lease):
    answer = announce(lease)
    etags = put(answer.model_copy(update={"uploads": answer.uploads[1:]}))
    with pytest.raises(UploadIncomplete) as refused:
        complete(lease, answer, etags)
    assert refused.value.details["paths"] == ["model.bin"]
    assert Artifact.objects.get().state == "uploading"
    with pytest.raises(ArtifactClosed):
        downloads.remote_files(Artifact.objects.get())


def test_bytes_with_another_hash_are_thrown_away_and_asked_for_anew(lease):
    answer = announce(lease)
    with pytest.raises(UploadIncomplete) as refused:
        complete(lease, answer, put(answer, FILES | {"model.bin": b"x" * 3500}))
    assert refused.value.details["paths"] == ["model.bin"]
    again = announce(lease)
    assert [file.path for file in again.uploads] == ["model.bin"]
    assert fetch(complete(lease, again, put(again))) == FILES


def test_a_step_that_is_announced_with_other_files_is_refused(lease):
    announce(lease)
    with pytest.raises(ManifestChanged):
        announce(lease, FILES | {"empty": b"no longer"})


def test_only_the_node_of_the_lease_can_complete_its_part(lease):
    answer = announce(lease)
    etags = put(answer)
    with pytest.raises(StaleFence):
        uploads.complete(lease, answer.artifact_id, etags, fence=lease.fence - 1)
    with pytest.raises(ArtifactNotFound):
        uploads.complete(lease, uuid4(), etags, fence=lease.fence)
    with pytest.raises(BadManifest):
        announce(lease, node_rank=1)


def test_the_meter_that_a_node_names_is_bounded_by_what_the_server_saw(lease):
    stage.see_running(lease, seconds=10)
    announce(lease, billable_ms=3_600_000)
    billable_ms = ArtifactPart.objects.get().billable_ms
    assert 10_000 <= billable_ms <= 15_100


def test_a_lost_attempt_completes_nothing_and_its_bytes_go(lease, store):
    answer = announce(lease)
    etags = put(answer)
    reports.lose(lease.id, Reason.NODE_SILENT, "silent")
    with pytest.raises(LeaseOver):
        complete(lease, answer, etags)
    assert prune.prune_all() > 0
    assert Artifact.objects.get().state == "abandoned"
    assert store.sizes(prefix_for(answer.artifact_id)) == {}
    with pytest.raises(LeaseOver):
        announce(lease)
    assert prune.prune_all() == 0


# --- several nodes


def test_a_gangs_checkpoint_is_complete_with_the_last_nodes_part(gang):
    one, two = gang
    first = announce(one, {"rank0.distcp": b"0", "common": b"same"})
    second = announce(two, {"rank1.distcp": b"1", "common": b"same"})
    assert first.artifact_id == second.artifact_id
    files = {"rank0.distcp": b"0", "rank1.distcp": b"1", "common": b"same"}
    assert complete(one, first, put(first, files)).state == "uploading"
    artifact = complete(two, second, put(second, files))
    assert (artifact.state, artifact.size_bytes) == ("complete", 10)
    assert fetch(artifact) == files


def test_a_checkpoint_of_a_later_generation_pays_all_again(gang):
    Attempt.objects.update(generation=1)
    Lease.objects.update(unpaid=[[0, None, 0]])
    for lease in gang:
        assert is_unpaid(Lease.objects.get(pk=lease.pk))
        lease.attempt.refresh_from_db()
        answer = announce(lease, generation=1)
        complete(lease, answer, put(answer))
    assert not any(map(is_unpaid, Lease.objects.all()))


def test_files_of_one_name_with_other_contents_are_distinguished_by_their_nodes(gang):
    artifact = None
    for lease in gang:
        files = {"result.txt": f"of {lease.node_rank}".encode()}
        answer = announce(lease, files, kind="output", step=None)
        artifact = complete(lease, answer, put(answer, files))
    assert fetch(artifact) == {"node-0/result.txt": b"of 0", "node-1/result.txt": b"of 1"}


def test_nodes_that_complete_at_once_make_it_complete_once(gang):
    ready = [(lease, answer, put(answer)) for lease, answer in ((lease, announce(lease)) for lease in gang)]
    start, failures = threading.Barrier(2), []

    def finish(lease, answer, etags) -> None:
        try:
            start.wait()
            complete(lease, answer, etags)
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    racers = [threading.Thread(target=finish, args=one) for one in ready]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert failures == []
    assert Artifact.objects.get().state == "complete"
    assert Event.objects.filter(subject_kind="artifact", to_state="complete").count() == 1


def test_who_announces_while_another_holds_the_job_waits_and_never_deadlocks(lease):
    failures: list[Exception] = []

    def announce_beside() -> None:
        try:
            announce(lease)
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    beside = threading.Thread(target=announce_beside)
    with transaction.atomic():
        lifecycle.lock(lease.attempt.job_id)
        beside.start()
        wait_for_blocked()
        announce(lease)
    beside.join()
    assert failures == []
    assert Artifact.objects.filter(kind="checkpoint").count() == 1


# --- pruning


def test_only_the_newest_checkpoints_are_kept(lease, store):
    artifacts = [checkpoint(lease, step, {"w": str(step).encode()}) for step in (10, 20, 30, 40)]
    assert stage.states_of(artifacts) == ["deleted", "deleted", "complete", "complete"]  # the job keeps two
    assert store.sizes(prefix_for(artifacts[0].id)) == {}
    assert store.sizes(prefix_for(artifacts[3].id)) == {key_for(artifacts[3].id, 0, 0): 2}


def test_the_checkpoint_that_an_attempt_starts_from_stays(lease):
    first = checkpoint(lease, 10)
    reports.lose(lease.id, Reason.NODE_SILENT, "silent")
    node_with_key("carols-node")
    (second,) = stage.place(lease.attempt.job)
    assert second.attempt.resume_artifact_id == first.id
    stage.send_report(second, AttemptState.RUNNING)
    second = Lease.objects.select_related("attempt__job", "node").get(pk=second.pk)
    later = [checkpoint(second, step) for step in (20, 30, 40)]
    assert stage.states_of([first, *later]) == ["complete", "deleted", "complete", "complete"]


def test_bytes_that_a_crash_left_behind_are_swept(lease, store):
    artifact = checkpoint(lease, 10)
    put_in_state(Artifact.objects.filter(pk=artifact.pk), "deleted")  # and then the power went
    assert store.sizes(prefix_for(artifact.id))
    prune.prune_all()
    assert store.sizes(prefix_for(artifact.id)) == {}
    assert prune.prune_all() == 0


def test_an_address_outlives_no_artifact(lease, store):
    answer = announce(lease)
    put(answer)
    url, data = answer.uploads[0].parts[0].url, FILES["model.bin"]
    reports.lose(lease.id, Reason.NODE_SILENT, "silent")
    prune.prune_all()
    refused = httpx.put(url, content=data)
    assert (refused.status_code, refused.json()["code"]) == (409, "artifact_closed")
    assert store.sizes(prefix_for(answer.artifact_id)) == {}


def test_bytes_of_an_artifact_that_ended_while_they_came_are_not_kept(lease, store):
    answer = announce(lease)
    half = len(FILES["model.bin"]) // 2

    def body():
        yield FILES["model.bin"][:half]
        reports.lose(lease.id, Reason.NODE_SILENT, "silent")
        prune.prune_all()
        yield FILES["model.bin"][half:]

    length = {"Content-Length": str(len(FILES["model.bin"]))}
    refused = httpx.put(answer.uploads[0].parts[0].url, content=body(), headers=length)
    assert (refused.status_code, refused.json()["code"]) == (409, "artifact_closed")
    assert store.sizes(prefix_for(answer.artifact_id)) == {}


# --- inputs


def test_an_input_is_complete_when_every_byte_is_there(alice):
    artifact = inputs.announce_input(alice, [entry("a", b"aaa"), entry("b", b"bb")])
    begun = inputs.begin_input(alice, artifact.id)
    with pytest.raises(UploadIncomplete):
        inputs.complete_input(alice, artifact.id, {})
    files = {"a": b"aaa", "b": b"bb"}
    etags = {
        file.path: [httpx.put(file.parts[0].url, content=files[file.path]).headers["ETag"].strip('"')] for file in begun
    }
    for _ in range(2):
        artifact = inputs.complete_input(alice, artifact.id, etags)
    assert fetch(artifact) == files


def test_another_organisations_input_is_not_found(alice):
    artifact = inputs.announce_input(alice, [entry("a", b"a")])
    mallory = stage.organisation("mallory")
    with pytest.raises(ArtifactNotFound):
        inputs.complete_input(mallory, artifact.id, {})


def test_an_input_that_nobody_finishes_is_given_up(alice):
    artifact = inputs.announce_input(alice, [entry("a", b"a")])
    assert prune.prune_all() == 0
    Artifact.objects.update(created_at=timezone.now() - timedelta(days=2))
    prune.prune_all()
    with pytest.raises(ArtifactClosed):
        inputs.complete_input(alice, artifact.id, {})


def test_an_input_that_is_complete_wants_no_bytes_and_one_given_up_takes_none(alice):
    artifact = inputs.announce_input(alice, [entry("a", b"a")])
    (begun,) = inputs.begin_input(alice, artifact.id)
    etag = httpx.put(begun.parts[0].url, content=b"a").headers["ETag"].strip('"')
    inputs.complete_input(alice, artifact.id, {"a": [etag]})
    assert inputs.begin_input(alice, artifact.id) == []
    late = inputs.announce_input(alice, [entry("b", b"b")])
    put_in_state(Artifact.objects.filter(pk=late.pk), "abandoned")
    with pytest.raises(ArtifactClosed):
        inputs.begin_input(alice, late.id)


@pytest.mark.parametrize(
    "wrong",
    [{"node_rank": 1}, {"step": None}, {"kind": "output"}],
    ids=["another node's rank", "a checkpoint without a step", "an output with one"],
)
def test_an_announcement_that_contradicts_itself_is_refused(lease, wrong):
    with pytest.raises(BadManifest):
        announce(lease, **wrong)
    assert not Artifact.objects.exists()


def test_a_checkpoint_that_was_given_up_is_neither_announced_nor_completed(lease):
    answer = announce(lease)
    put_in_state(Artifact.objects.all(), "abandoned")
    with pytest.raises(ArtifactClosed):
        announce(lease)
    with pytest.raises(ArtifactClosed):
        complete(lease, answer, {})


# --- the local store's addresses


def test_an_address_gives_the_right_that_it_names_and_no_other(alice, lease):
    answer = announce(lease, {"a": b"secret", "b": b"other"})
    one, two = (file.parts[0].url for file in answer.uploads)
    assert httpx.put(one, content=b"too long").json()["code"] == "upload_refused"
    assert httpx.put(one, content=iter([b"sec", b"ret"])).json()["code"] == "upload_refused"  # of unknown length
    assert httpx.get(one).status_code == 403
    assert httpx.put(one.replace("size=6", "size=7"), content=b"changed").json()["code"] == "link_refused"
    assert httpx.put(one.replace("until=", "until=9"), content=b"secret").status_code == 403
    assert httpx.put(one.split("?")[0], content=b"secret").status_code == 403
    assert httpx.put(one.split("?")[0] + "?" + two.split("?")[1], content=b"other").status_code == 403
    assert httpx.delete(one).status_code == 405
    assert httpx.put(one, content=b"secret").status_code == 200
    assert httpx.put(one, content=b"secret").status_code == 200  # a lost reply, sent again
    assert httpx.put(one, content=b"forged").json()["code"] == "already_stored"


def test_an_address_expires(lease, store):
    artifact = checkpoint(lease, 10)
    url = store.url_for_download(key_for(artifact.id, 0, 0), until=timezone.now() - timedelta(seconds=1))
    assert httpx.get(url).json()["code"] == "link_refused"


def test_what_customers_store_is_never_a_page_of_ours(lease):
    artifact = checkpoint(lease, 10, {"index.html": b"<script>steal()</script>"})
    answer = httpx.get(downloads.remote_files(artifact)[0].url)
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"] == "attachment"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["../../etc/passwd", "..%2f..%2fetc/passwd", "x/0/..%2f..%2fy", "%2fetc/passwd", "a%00b"]
)
def test_paths_that_leave_the_store_lead_nowhere(client, path):
    for method in (client.get, client.put):
        answer = method(f"/artifacts/{path}?part=1&of=1&size=1&until=9999999999&signature=x")
        assert answer.status_code in {400, 403, 404}


def test_not_even_our_own_signature_opens_a_path_that_is_no_key(store):
    link = Link("GET", "../../etc/passwd", timezone.now() + timedelta(hours=1))
    query = dict(parse_qsl(urlsplit(url_for_link("", link, store.secret)).query))
    with pytest.raises(LinkRefused):
        open_link("GET", link.key, query, store.secret)


def test_an_address_of_a_file_that_is_gone_leads_nowhere(lease, store):
    (first, *_) = downloads.remote_files(checkpoint(lease, 10))
    store.delete_prefix(prefix_for(Artifact.objects.get().id))
    assert httpx.get(first.url).status_code == 404


def test_an_address_takes_the_announced_size_and_nothing_else(lease):
    (upload, *_) = announce(lease).uploads
    url = upload.parts[0].url
    assert httpx.put(url, content=b"short").status_code == 400
    assert httpx.put(url, content=iter([FILES["model.bin"]])).status_code == 400, "a body of unknown length"
    assert httpx.post(url, content=b"x").status_code == 405
    assert httpx.put(url, content=FILES["model.bin"]).status_code == 200


def test_an_unknown_store_is_refused_with_the_known_ones(client, settings):
    settings.SOUK_ARTIFACT_STORE = "nowhere"
    with pytest.raises(ImproperlyConfigured, match="must be 'local' or 's3'"):
        client.get(f"/artifacts/{key_for(uuid4(), 0, 0)}")

"""The same artifacts over a real S3 API: large files in parts, interrupted and taken up again."""

from __future__ import annotations

import hashlib
import os
from datetime import timedelta

import httpx
import pytest

from jobs.artifacts import choice as stores
from jobs.artifacts import downloads, prune, uploads
from jobs.artifacts.s3 import make_client
from jobs.artifacts.store import UPLOAD_URL_SECONDS, prefix_for
from jobs.errors import UploadIncomplete
from jobs.models import Artifact, ArtifactPart
from jobs.running import reports
from marketplace.foundation import clock
from provider_agent.protocol import ArtifactBegin, ArtifactFile, Reason, UploadPart
from tests.contracts.artifact_stores.conftest import PART_BYTES, s3_endpoint  # noqa: F401 - a fixture

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def store(settings, s3_endpoint):  # noqa: F811
    settings.SOUK_ARTIFACT_STORE, settings.SOUK_S3_ENDPOINT, settings.SOUK_S3_BUCKET = "s3", s3_endpoint, "souk"
    settings.SOUK_S3_ACCESS_KEY, settings.SOUK_S3_SECRET_KEY = "alice", "not-a-secret"
    httpx.post(f"{s3_endpoint}/moto-api/reset")
    make_client(endpoint=s3_endpoint, region="", access_key="a", secret_key="b").create_bucket(Bucket="souk")
    stores._store_for.cache_clear()
    found = stores.get_store()
    found.part_bytes = PART_BYTES
    yield found
    stores._store_for.cache_clear()


def put(part: UploadPart, data: bytes) -> str:
    answer = httpx.put(part.url, content=data[part.offset : part.offset + part.size])
    assert answer.status_code == 200
    return answer.headers["ETag"].strip('"')


def test_a_large_checkpoint_that_was_interrupted_is_taken_up_and_comes_down_whole(store, lease):
    files = {"shard.distcp": os.urandom(2 * PART_BYTES + 123), ".metadata": b"small"}
    listed = [ArtifactFile(path=p, size=len(d), sha256=hashlib.sha256(d).hexdigest()) for p, d in files.items()]
    begin = ArtifactBegin(kind="checkpoint", step=10, files=listed)
    first = uploads.begin(lease, begin, fence=lease.fence)
    shard, metadata = first.uploads
    etags = {".metadata": [put(metadata.parts[0], files[".metadata"])]}
    early = [put(shard.parts[0], files["shard.distcp"])]
    with pytest.raises(UploadIncomplete):
        uploads.complete(lease, first.artifact_id, {**etags, "shard.distcp": early}, fence=lease.fence)

    upload_id = ArtifactPart.objects.get().files[0]["upload_id"]
    again = uploads.begin(lease, begin, fence=lease.fence)
    assert [file.path for file in again.uploads] == ["shard.distcp"]  # the small one is there
    assert ArtifactPart.objects.get().files[0]["upload_id"] == upload_id != ""
    etags["shard.distcp"] = early + [put(part, files["shard.distcp"]) for part in again.uploads[0].parts[1:]]
    artifact = uploads.complete(lease, again.artifact_id, etags, fence=lease.fence)
    assert artifact.state == "complete"
    for file in downloads.remote_files(artifact):
        content = httpx.get(file.url).content
        assert (content, hashlib.sha256(content).hexdigest()) == (files[file.path], file.sha256)


def test_a_file_of_the_wrong_size_never_completes(store, lease):
    file = ArtifactFile(path="a", size=5, sha256=hashlib.sha256(b"right").hexdigest())
    begin = ArtifactBegin(kind="output", files=[file])
    answer = uploads.begin(lease, begin, fence=lease.fence)
    httpx.put(answer.uploads[0].parts[0].url, content=b"too long for its address")
    with pytest.raises(UploadIncomplete):
        uploads.complete(lease, answer.artifact_id, {}, fence=lease.fence)
    assert Artifact.objects.get().state == "uploading"


def test_pruned_checkpoints_leave_the_bucket(store, lease):
    artifacts = []
    for step in (10, 20, 30):
        file = ArtifactFile(path="w", size=1, sha256=hashlib.sha256(b"w").hexdigest())
        answer = uploads.begin(lease, ArtifactBegin(kind="checkpoint", step=step, files=[file]), fence=lease.fence)
        etags = {"w": [put(answer.uploads[0].parts[0], b"w")]}
        artifacts.append(uploads.complete(lease, answer.artifact_id, etags, fence=lease.fence))
    assert store.sizes(prefix_for(artifacts[0].id)) == {}
    assert len(store.sizes(prefix_for(artifacts[2].id))) == 1
    assert prune.prune_all() == 0


def test_what_was_put_after_the_end_goes_once_no_address_is_left(store, lease, monkeypatch):
    file = ArtifactFile(path="w", size=1, sha256=hashlib.sha256(b"w").hexdigest())
    answer = uploads.begin(lease, ArtifactBegin(kind="checkpoint", step=10, files=[file]), fence=lease.fence)
    reports.lose(lease.id, Reason.NODE_SILENT, "silent")
    prune.prune_all()
    put(answer.uploads[0].parts[0], b"w")  # a bucket asks nobody
    assert len(store.sizes(prefix_for(answer.artifact_id))) == 1
    assert prune.prune_all() == 0
    late = clock.now() + timedelta(seconds=UPLOAD_URL_SECONDS) + prune.PUT_MAX + timedelta(minutes=1)
    monkeypatch.setattr(clock, "now", lambda: late)
    assert prune.prune_all() == 1
    assert store.sizes(prefix_for(answer.artifact_id)) == {}
    assert prune.prune_all() == 0

"""`souk volumes` against a marketplace with both stores: from folders, from a real S3 server, from what a job left."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from billing.books import deposits
from jobs.artifacts import downloads
from jobs.artifacts.s3 import make_client
from jobs.artifacts.store import Store
from jobs.client import cli
from jobs.client.errors import TransferFailed, UsageMistake
from jobs.client.gather import CHUNK_BYTES, gather_folders
from jobs.client.sdk import Souk
from jobs.client.upload import upload_files
from jobs.client.volumes import put as putting
from jobs.client.volumes.put import put_files
from jobs.client.volumes.s3 import S3Source, parse_address
from jobs.models import Artifact, ArtifactPart, VolumeVersion
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from tests import stage
from tests.integration.jobs.client.stored import PART_BYTES, Cut, alice, s3_endpoint, souk, store
from tests.row_states import create_in_state

__all__ = ["alice", "s3_endpoint", "souk", "store"]
pytestmark = pytest.mark.django_db(transaction=True)

LARGE = 3 * PART_BYTES + 17
SECRET = "a-secret-of-the-customers-bucket"


@pytest.fixture
def run(souk: Souk, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """A command with --json: its exit status, and what it printed."""

    def call(*words: object) -> tuple[int, Any]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main(["volumes", *[str(word) for word in words], "--json"])
        return int(left.value.code or 0), json.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def data(tmp_path: Path) -> dict[str, bytes]:
    """Files of this computer: empty, small, of several parts."""
    made = {"text.jsonl": b'{"text": "one"}\n', "shards/large.bin": os.urandom(LARGE), "empty": b""}
    for path, content in made.items():
        (tmp_path / "data" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / path).write_bytes(content)
    return made


@pytest.fixture
def bucket(s3_endpoint: str, souk: Souk, data: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> str:
    """The customer's own bucket with the same files below `data/`, beside others; its address."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "customer")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    client = owner_of_bucket(s3_endpoint)
    if "customers" in [each["Name"] for each in client.list_buckets()["Buckets"]]:
        for each in client.list_objects_v2(Bucket="customers").get("Contents", []):
            client.delete_object(Bucket="customers", Key=each["Key"])
    else:
        client.create_bucket(Bucket="customers")
    for path, content in data.items():
        client.put_object(Bucket="customers", Key=f"data/{path}", Body=content)
    client.put_object(Bucket="customers", Key="data/", Body=b"")  # as consoles make a folder
    client.put_object(Bucket="customers", Key="database/other", Body=b"not asked for")
    return "s3://customers/data"


def owner_of_bucket(endpoint: str) -> Any:
    return make_client(endpoint=endpoint, region="", access_key="customer", secret_key=SECRET)


def stored(version: VolumeVersion) -> dict[str, bytes]:
    found = downloads.remote_files(Artifact.objects.get(pk=version.artifact_id))
    return {file.path: httpx.get(file.url).content for file in found}


def test_a_folder_is_put_listed_shown_fetched_and_deleted(run, data: dict[str, bytes], tmp_path: Path) -> None:
    status, made = run("put", "corpus", tmp_path / "data")
    assert (status, made["name"], made["versions"][0]["number"]) == (0, "corpus", 1)
    assert made["versions"][0]["size_bytes"] == sum(len(each) for each in data.values())
    assert stored(VolumeVersion.objects.get()) == data
    (tmp_path / "data" / "new").write_bytes(b"another")
    assert run("put", "corpus", tmp_path / "data")[1]["versions"][0]["number"] == 2
    (listed,) = run("list")[1]
    assert [each["number"] for each in listed["versions"]] == [2]
    assert [each["number"] for each in run("show", "corpus")[1]["versions"]] == [2, 1]
    assert run("get", "corpus", "--version", 1, "--into", tmp_path / "old")[0] == 0
    assert {path: (tmp_path / "old" / path).read_bytes() for path in data} == data
    assert not (tmp_path / "old" / "new").exists()
    assert run("delete", "corpus", "--yes")[0] == 0
    assert set(Artifact.objects.values_list("state", flat=True)) == {"deleted"}
    assert run("show", "corpus")[1]["error"]["code"] == "volume_not_found"


def test_files_of_one_name_and_what_is_not_there_are_refused(run, data: dict[str, bytes], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for words, reason in (
        ((folder, folder / "text.jsonl"), "would both be 'text.jsonl'"),
        ((tmp_path / "nothing",), "no file and no folder"),
        (("s3://a/b", folder), "alone"),
        ((folder, "--job", "first"), "not both"),
        ((), "not both"),
    ):
        status, answer = run("put", "corpus", *words)
        assert (status, reason in answer["error"]["message"]) == (2, True), answer
    assert run("put", "Corpus", folder)[0] == 2
    assert not Artifact.objects.exists()


def test_the_same_files_again_are_not_sent_and_make_no_version(run, data: dict[str, bytes], tmp_path: Path) -> None:
    first = run("put", "corpus", tmp_path / "data")[1]
    again = run("put", "corpus", tmp_path / "data")[1]
    assert (again, Artifact.objects.count()) == (first, 1)


def test_a_full_volume_is_refused_before_anything_is_sent(
    run, data: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("put", "corpus", tmp_path / "data")[0] == 0
    monkeypatch.setattr(putting, "VERSIONS_MAX", 1)
    assert run("put", "corpus", tmp_path / "data")[0] == 0, "it holds these already"
    (tmp_path / "data" / "text.jsonl").write_text("another")
    status, told = run("put", "corpus", tmp_path / "data")
    assert status != 0
    assert "souk volumes delete corpus --version N" in json.dumps(told)
    assert Artifact.objects.count() == 1


def test_a_put_that_was_cut_off_sends_only_what_is_missing(souk: Souk, data: dict[str, bytes], tmp_path: Path) -> None:
    files = gather_folders([tmp_path / "data"]).files
    sent = 0

    def cut(count: int) -> None:
        nonlocal sent
        sent += count
        if sent > PART_BYTES + 1000:
            raise Cut

    with pytest.raises(Cut):
        upload_files(souk, files, on_bytes=cut)
    puts: list[str] = []
    souk.transport.http.event_hooks["request"].append(
        lambda request: puts.append(str(request.url)) if request.method == "PUT" else None
    )
    volume = put_files(souk, "corpus", files)
    assert (volume.versions[0].number, Artifact.objects.count()) == (1, 1)
    assert len(puts) == 4, "three of the large file's four parts, and the file after it"
    assert stored(VolumeVersion.objects.get()) == data


def test_several_parts_at_once_arrive_whole_and_are_counted_once(
    souk: Souk, data: dict[str, bytes], tmp_path: Path
) -> None:
    seen: list[int] = []
    put_files(souk, "corpus", gather_folders([tmp_path / "data"]).files, on_bytes=seen.append)
    assert stored(VolumeVersion.objects.get()) == data
    assert sum(seen) == sum(len(each) for each in data.values())


def test_objects_of_s3_stream_into_a_volume(run, bucket: str, s3_endpoint: str, data: dict[str, bytes]) -> None:
    status, made = run("put", "corpus", bucket, "--endpoint-url", s3_endpoint)
    assert (status, made["versions"][0]["source"]) == (0, bucket)
    assert stored(VolumeVersion.objects.get()) == data, "without the folder's marker and without database/"
    assert run("put", "one", f"{bucket}/text.jsonl", "--endpoint-url", s3_endpoint)[0] == 0
    assert stored(VolumeVersion.objects.get(volume__name="one")) == {"text.jsonl": data["text.jsonl"]}
    status, answer = run("put", "corpus", "s3://customers/nothing", "--endpoint-url", s3_endpoint)
    assert (status, "no object" in answer["error"]["message"]) == (2, True)


def test_no_piece_that_is_read_of_an_object_is_large(bucket: str, s3_endpoint: str, data: dict[str, bytes]) -> None:
    source = S3Source(parse_address(bucket), endpoint_url=s3_endpoint)
    found = {each.path: each for each in source.list_objects()}["shards/large.bin"]
    pieces = list(source.read(found.key, found.etag, 10, found.size - 10))
    assert max(len(each) for each in pieces) <= CHUNK_BYTES
    assert b"".join(pieces) == data["shards/large.bin"][10:]


def test_the_customers_keys_for_s3_never_reach_the_marketplace(
    souk: Souk, bucket: str, s3_endpoint: str, store: Store
) -> None:
    sent: list[str] = []

    def note(request: httpx.Request) -> None:
        body = "" if request.method == "PUT" else request.read().decode(errors="replace")
        sent.append(f"{request.url} {request.headers} {body}")

    souk.transport.http.event_hooks["request"].append(note)
    source = S3Source(parse_address(bucket), endpoint_url=s3_endpoint)
    files = source.hash_objects(source.list_objects(), on_bytes=lambda _: None)
    put_files(souk, "corpus", files, source=str(source.address))
    assert len(sent) > len(files)
    assert not [each for each in sent if SECRET in each or "AWS4-HMAC" in each.split(" ", 1)[1]]


def test_what_was_read_before_is_not_read_again(souk: Souk, bucket: str, s3_endpoint: str) -> None:
    address = parse_address(bucket)
    for is_first in (True, False):
        source = S3Source(address, endpoint_url=s3_endpoint)
        reads: list[str] = []
        source._s3.meta.events.register(
            "provide-client-params.s3.GetObject", lambda params, reads=reads, **_: reads.append(params["Key"])
        )
        source.hash_objects(source.list_objects(), on_bytes=lambda _: None)
        assert bool(reads) is is_first


def test_an_object_that_changes_meanwhile_ends_the_put(souk: Souk, bucket: str, s3_endpoint: str) -> None:
    source = S3Source(parse_address(bucket), endpoint_url=s3_endpoint)
    files = source.hash_objects(source.list_objects(), on_bytes=lambda _: None)
    owner_of_bucket(s3_endpoint).put_object(Bucket="customers", Key="data/text.jsonl", Body=b'{"text": "two"}\n')
    with pytest.raises(TransferFailed, match=r"text\.jsonl changed while it was read"):
        put_files(souk, "corpus", files)
    assert not VolumeVersion.objects.exists()


@pytest.mark.parametrize("store", ["local"], indirect=True)
def test_without_credentials_it_says_where_they_are_found(
    bucket: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(UsageMistake, match="AWS_PROFILE"):
        S3Source(parse_address(bucket), endpoint_url=s3_endpoint).list_objects()


@pytest.mark.parametrize("store", ["local"], indirect=True)
def test_what_a_job_left_becomes_a_volume_without_its_bytes(run) -> None:
    buyer = Organisation.objects.get(name="alice")
    deposits.credit(buyer.id, 10 * stage.DOLLAR, reference="for alice", actor="operator")
    stage.node("bobs")
    job, leases = stage.running_job(buyer, name="first")
    result = create_in_state(
        Artifact, "complete", organisation=buyer, job=job, kind="output", completed_at=clock.now(), size_bytes=3
    )
    ArtifactPart.objects.create(
        artifact=result, files=[{"path": "a", "size": 3, "sha256": "0" * 64}], file_count=1, is_complete=True
    )
    for lease in leases:
        stage.finish(lease)
    status, made = run("put", "tuned", "--job", "first")
    assert (status, made["versions"][0]["artifact_id"], made["versions"][0]["job_id"]) == (
        0,
        str(result.pk),
        str(job.pk),
    )
    assert Artifact.objects.count() == 1
    assert run("put", "tuned", "--job", "second")[0] == 2

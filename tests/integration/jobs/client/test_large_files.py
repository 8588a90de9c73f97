"""Files of many parts reach both stores whole, and an upload that was cut off is gone on with by the next one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import httpx
import pytest

from jobs.artifacts import downloads
from jobs.artifacts.store import Store
from jobs.client import upload
from jobs.client.errors import TransferFailed
from jobs.client.gather import LocalFile, local_file
from jobs.client.sdk import Souk
from jobs.client.upload import forget_upload, upload_files
from jobs.models import Artifact
from tests.integration.jobs.client.stored import PART_BYTES, Cut, alice, s3_endpoint, souk, store

__all__ = ["alice", "s3_endpoint", "souk", "store"]
pytestmark = pytest.mark.django_db(transaction=True)

FILES = 20
GIGABYTE = 10**9


@pytest.fixture
def files(tmp_path: Path) -> list[LocalFile]:
    """Twenty files: empty, small, of one part, of several."""
    sizes = [0, 1, PART_BYTES, 3 * PART_BYTES + 17, *[1000 + number for number in range(FILES - 4)]]
    (tmp_path / "data").mkdir()
    return [make_file(tmp_path, f"data/{number:02}.bin", size) for number, size in enumerate(sizes)]


def make_file(folder: Path, path: str, size: int) -> LocalFile:
    (folder / path).write_bytes(os.urandom(size))
    return local_file(path, folder / path)


def stored(artifact_id: UUID) -> dict[str, bytes]:
    found = downloads.remote_files(Artifact.objects.get(pk=artifact_id))
    return {file.path: httpx.get(file.url).content for file in found}


def test_twenty_files_of_up_to_four_parts_arrive_whole(souk: Souk, files: list[LocalFile]) -> None:
    seen: list[int] = []
    artifact_id = upload_files(souk, files, on_bytes=seen.append)
    assert stored(artifact_id) == {file.entry.path: file.source.read_bytes() for file in files}
    assert sum(seen) == sum(file.entry.size for file in files)


def test_an_upload_that_was_cut_off_sends_only_what_is_missing(souk: Souk, files: list[LocalFile]) -> None:
    sent = 0

    def cut(count: int) -> None:
        nonlocal sent
        sent += count
        if sent > 3 * PART_BYTES:
            raise Cut

    with pytest.raises(Cut):
        upload_files(souk, files, on_bytes=cut)
    puts: list[str] = []
    souk.transport.http.event_hooks["request"].append(
        lambda request: puts.append(str(request.url)) if request.method == "PUT" else None
    )
    seen: list[int] = []
    artifact_id = upload_files(souk, files, on_bytes=seen.append)
    assert stored(artifact_id) == {file.entry.path: file.source.read_bytes() for file in files}
    assert Artifact.objects.count() == 1
    assert (
        len(puts) == 3 + FILES - 4
    )  # of the large file the part that was cut off and the rest, and what comes after it
    assert sum(seen) == sum(file.entry.size for file in files)


def test_what_arrived_is_not_sent_again_until_a_job_has_it(souk: Souk, files: list[LocalFile]) -> None:
    first = upload_files(souk, files)
    assert upload_files(souk, files) == first
    forget_upload(souk, files)
    assert upload_files(souk, files) != first


def test_parts_that_the_store_lost_are_sent_again(souk: Souk, files: list[LocalFile], store: Store) -> None:
    large = [file for file in files if file.entry.size > PART_BYTES]
    with pytest.raises(Cut):
        upload_files(souk, large, on_bytes=cut_at(2 * PART_BYTES + 1))
    store.delete_prefix(f"{Artifact.objects.get().id}/")
    assert stored(upload_files(souk, large)) == {large[0].entry.path: large[0].source.read_bytes()}


def test_an_input_that_was_given_up_is_sent_as_a_new_one(souk: Souk, files: list[LocalFile]) -> None:
    with pytest.raises(Cut):
        upload_files(souk, files, on_bytes=cut_at(2 * PART_BYTES))
    Artifact.objects.update(state="abandoned")
    assert len(stored(upload_files(souk, files))) == FILES


@pytest.mark.parametrize(
    "store", ["local"], indirect=True
)  # S3 knows no SHA-256 of a whole file: who fetches it checks
def test_a_file_that_changes_while_it_is_sent_is_named(
    souk: Souk, files: list[LocalFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "ROUNDS_MAX", 2)
    files[3].source.write_bytes(os.urandom(files[3].entry.size))
    with pytest.raises(TransferFailed, match=r"data/03\.bin"):
        upload_files(souk, files)


@pytest.mark.parametrize("store", ["local"], indirect=True)  # the S3 of tests looks at no signature
def test_a_file_that_the_store_refuses_is_named_with_its_folder(souk: Souk, files: list[LocalFile]) -> None:
    def spoil(request: httpx.Request) -> None:
        if request.method == "PUT":
            request.url = request.url.copy_merge_params({"signature": "0"})

    souk.transport.http.event_hooks["request"].append(spoil)
    with pytest.raises(TransferFailed, match=r"data/0\d\.bin"):
        upload_files(souk, files[1:2])


def cut_at(size: int) -> Callable[[int], None]:
    sent = 0

    def cut(count: int) -> None:
        nonlocal sent
        sent += count
        if sent >= size:
            raise Cut

    return cut


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.soak  # one of tests/acceptance/test_large_files.py arrives, too
@pytest.mark.parametrize("store", ["s3", "local"], indirect=True)
def test_a_gigabyte_in_twenty_files_is_gone_on_with_and_arrives(souk: Souk, tmp_path: Path, store: Store) -> None:
    store.part_bytes = type(store).part_bytes
    large = GIGABYTE - (FILES - 1) * GIGABYTE // 40
    sizes = [large, *[GIGABYTE // 40] * (FILES - 1)]
    files = [make_sparse_file(tmp_path, f"{number:02}.bin", size) for number, size in enumerate(sizes)]
    with pytest.raises(Cut):
        upload_files(souk, files, on_bytes=cut_at(large // 2))
    seen: list[int] = []
    artifact_id = upload_files(souk, files, on_bytes=seen.append)
    assert sum(seen) == sum(sizes) >= GIGABYTE
    assert max(seen) >= large // 2 - 2 * store.part_bytes, "what the first try brought is not sent again"
    for file in downloads.remote_files(Artifact.objects.get(pk=artifact_id)):
        digest = hashlib.sha256()
        with httpx.stream("GET", file.url) as answer:
            for chunk in answer.iter_bytes():
                digest.update(chunk)
        assert digest.hexdigest() == file.sha256


def make_sparse_file(folder: Path, path: str, size: int) -> LocalFile:
    """Mostly zeros, so that making it takes no time; no two of its parts are alike."""
    with (folder / path).open("wb") as out:
        for offset in range(0, size, 1 << 24):
            out.seek(offset)
            out.write(os.urandom(64))
        out.truncate(size)
    return local_file(path, folder / path)

"""Large files of the store on a disk: putting their parts together takes longer than anybody waits for an answer."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from jobs.artifacts import local
from jobs.artifacts.links import Link
from jobs.artifacts.local import LocalStore
from jobs.artifacts.store import Stored, key_for
from jobs.errors import UploadBusy, UploadIncomplete
from marketplace.foundation import clock

PART_BYTES = 1000
DATA = os.urandom(3 * PART_BYTES + 17)
ASKED_AT_ONCE = 6


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path, base_url="http://souk.example", secret=b"secret", part_bytes=PART_BYTES)


@pytest.fixture
def key(store: LocalStore) -> str:
    """Of a file whose parts are all there."""
    key, until = key_for(uuid4(), 0, 0), clock.now() + timedelta(minutes=5)
    planned = store.plan_parts(len(DATA))
    for number, offset, size in planned:
        store.put_part(Link("PUT", key, until, number, len(planned), size), [DATA[offset : offset + size]])
    return key


def etags() -> list[str]:
    parts = (DATA[start : start + PART_BYTES] for start in range(0, len(DATA), PART_BYTES))
    return [hashlib.sha256(part).hexdigest() for part in parts]


def test_who_asks_again_before_the_answer_came_gets_the_same_one(
    store: LocalStore, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[Path]()

    def slowly(path: Path) -> Iterator[bytes]:
        read.append(path)
        time.sleep(0.2)
        yield path.read_bytes()

    monkeypatch.setattr(local, "_chunks_of", slowly)
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        asked = [pool.submit(store.finish_upload, key, len(DATA), etags()) for _ in range(ASKED_AT_ONCE)]
    assert {each.result() for each in asked} == {Stored(len(DATA), hashlib.sha256(DATA).hexdigest())}
    assert len(read) == len(etags()), "they were put together once"


def test_what_takes_longer_is_to_be_asked_for_later(
    store: LocalStore, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "ALONE_SECONDS_MAX", 0.1)
    other = os.open(tmp_path / "uploading" / key, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(UploadBusy) as caught:
        store.finish_upload(key, len(DATA), etags())
    assert (caught.value.status, caught.value.details) == (503, {"retry_after_seconds": local.RETRY_AFTER_SECONDS})
    os.close(other)  # as when its process is killed
    assert store.finish_upload(key, len(DATA), etags()).size == len(DATA)


def test_an_artifact_that_is_given_up_meanwhile_is_incomplete(
    store: LocalStore, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plainly = local._chunks_of

    def late(path: Path) -> Iterator[bytes]:
        store.delete(key)
        return plainly(path)

    monkeypatch.setattr(local, "_chunks_of", late)
    with pytest.raises(UploadIncomplete):
        store.finish_upload(key, len(DATA), etags())
    assert store.sizes(key.rpartition("/")[0] + "/") == {}


def test_what_nobody_sent_is_missing_however_often_it_is_asked_for(store: LocalStore) -> None:
    for _ in range(2):
        with pytest.raises(UploadIncomplete):
            store.finish_upload(key_for(uuid4(), 0, 0), len(DATA), etags())

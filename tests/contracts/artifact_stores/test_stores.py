"""What every artifact store does, shown by real PUTs and GETs without any key but the address."""

from __future__ import annotations

import hashlib
import os
from datetime import timedelta
from uuid import uuid4

import httpx
import pytest
from botocore.exceptions import ClientError

from jobs.artifacts.choice import get_store
from jobs.artifacts.store import Store, Upload, artifact_of, key_for, prefix_for
from jobs.errors import UploadIncomplete
from marketplace.foundation import clock
from tests.contracts.artifact_stores.conftest import PART_BYTES

pytestmark = [pytest.mark.urls("tests.agent_urls"), pytest.mark.django_db(transaction=True)]


def put(upload: Upload, data: bytes, *, only: set[int] | None = None) -> list[str]:
    """PUT the parts; returns their ETags."""
    etags = []
    for part in upload.parts:
        if only is None or part.number in only:
            answer = httpx.put(part.url, content=data[part.offset : part.offset + part.size])
            assert answer.status_code == 200, answer.text
            etags.append(answer.headers["ETag"].strip('"'))
    return etags


def fetch(store: Store, key: str, **headers: str) -> httpx.Response:
    url = store.url_for_download(key, until=clock.now() + timedelta(minutes=5))
    return httpx.get(url, headers=headers)


def store_file(store: Store, key: str, data: bytes):
    upload = store.begin_upload(key, len(data))
    return store.finish_upload(key, len(data), put(upload, data), upload_id=upload.upload_id)


@pytest.fixture
def key() -> str:
    return key_for(uuid4(), 0, 0)


@pytest.mark.parametrize("size", [0, 1, 70_000, PART_BYTES, 2 * PART_BYTES + 17], ids=str)
def test_a_file_comes_back_as_it_was_put(store: Store, key: str, size: int):
    data = os.urandom(size)
    stored = store_file(store, key, data)
    assert stored.size == size
    assert stored.sha256 in {None, hashlib.sha256(data).hexdigest()}
    answer = fetch(store, key)
    assert (answer.status_code, answer.content) == (200, data)


@pytest.mark.parametrize(("size", "asked"), [(0, 10), (5, 10), (70_000, 10), (2 * PART_BYTES + 17, PART_BYTES + 1)])
def test_the_beginning_of_a_file_is_read_without_an_address(store: Store, key: str, size: int, asked: int):
    data = os.urandom(size)
    with pytest.raises(UploadIncomplete):
        store.read(key, asked)
    store_file(store, key, data)
    assert store.read(key, asked) == data[:asked]


def test_parts_cover_the_file_without_gap_or_overlap(store: Store, key: str):
    size = 3 * PART_BYTES + 5
    parts = store.begin_upload(key, size).parts
    assert [part.number for part in parts] == [1, 2, 3, 4]
    assert [part.offset for part in parts] == [0, PART_BYTES, 2 * PART_BYTES, 3 * PART_BYTES]
    assert sum(part.size for part in parts) == size


def test_finishing_again_changes_nothing(store: Store, key: str):
    data = os.urandom(PART_BYTES + 1)
    upload = store.begin_upload(key, len(data))
    etags = put(upload, data)
    first = store.finish_upload(key, len(data), etags, upload_id=upload.upload_id)
    assert store.finish_upload(key, len(data), etags, upload_id=upload.upload_id) == first
    assert fetch(store, key).content == data


def test_a_file_that_was_put_needs_no_etags_again(store: Store, key: str):
    upload = store.begin_upload(key, 3)
    put(upload, b"abc")
    assert store.finish_upload(key, 3, (), upload_id=upload.upload_id).size == 3


def test_a_file_of_which_a_part_is_missing_is_not_there(store: Store, key: str):
    data = os.urandom(2 * PART_BYTES + 1)
    upload = store.begin_upload(key, len(data))
    etags = put(upload, data, only={1, 3})
    with pytest.raises(UploadIncomplete):
        store.finish_upload(key, len(data), [etags[0], "0" * 32, etags[1]], upload_id=upload.upload_id)
    assert store.sizes(prefix_for(artifact_of(key))) == {}


def test_a_file_that_nobody_put_is_not_there(store: Store, key: str):
    upload = store.begin_upload(key, 5)
    with pytest.raises(UploadIncomplete):
        store.finish_upload(key, 5, ["0" * 32], upload_id=upload.upload_id)
    assert fetch(store, key).status_code == 404


def test_an_interrupted_upload_goes_on_under_new_addresses(store: Store, key: str):
    data = os.urandom(2 * PART_BYTES)
    first = store.begin_upload(key, len(data))
    etags = put(first, data, only={1})
    again = store.begin_upload(key, len(data), upload_id=first.upload_id)
    assert again.upload_id == first.upload_id
    etags += put(again, data, only={2})
    assert store.finish_upload(key, len(data), etags, upload_id=first.upload_id).size == len(data)
    assert fetch(store, key).content == data


def test_too_few_parts_are_not_put_together(store: Store, key: str):
    data = os.urandom(2 * PART_BYTES)
    upload = store.begin_upload(key, len(data))
    etags = put(upload, data)
    with pytest.raises(UploadIncomplete):
        store.finish_upload(key, len(data), etags[:1], upload_id=upload.upload_id)
    assert store.finish_upload(key, len(data), etags, upload_id=upload.upload_id).size == len(data)


def test_an_upload_that_the_store_gave_up_begins_anew(store: Store, key: str):
    data = os.urandom(2 * PART_BYTES)
    first = store.begin_upload(key, len(data))
    put(first, data, only={1})
    store.delete_prefix(prefix_for(artifact_of(key)))
    again = store.begin_upload(key, len(data), upload_id=first.upload_id)
    store.finish_upload(key, len(data), put(again, data), upload_id=again.upload_id)
    assert fetch(store, key).content == data


def test_sizes_are_of_what_is_there(store: Store):
    artifact_id, other = uuid4(), uuid4()
    store_file(store, key_for(artifact_id, 0, 0), b"a")
    store_file(store, key_for(artifact_id, 1, 7), b"four")
    store_file(store, key_for(other, 0, 0), b"not mine")
    assert store.sizes(prefix_for(artifact_id)) == {key_for(artifact_id, 0, 0): 1, key_for(artifact_id, 1, 7): 4}
    assert store.sizes(prefix_for(artifact_id, 1)) == {key_for(artifact_id, 1, 7): 4}


def test_rank_one_is_no_prefix_of_rank_ten(store: Store):
    artifact_id = uuid4()
    store_file(store, key_for(artifact_id, 10, 0), b"ten")
    assert store.sizes(prefix_for(artifact_id, 1)) == {}


def test_a_deleted_prefix_is_gone_with_its_half_uploads(store: Store):
    artifact_id, other = uuid4(), key_for(uuid4(), 0, 0)
    key, half = key_for(artifact_id, 0, 0), key_for(artifact_id, 0, 1)
    store_file(store, key, b"a")
    store_file(store, other, b"stays")
    data = os.urandom(2 * PART_BYTES)
    upload = store.begin_upload(half, len(data))
    etags = put(upload, data)
    store.delete_prefix(prefix_for(artifact_id))
    store.delete_prefix(prefix_for(artifact_id))  # again is harmless
    assert fetch(store, key).status_code == 404
    # Amazon's S3 answers NoSuchUpload, which is UploadIncomplete here; moto breaks on an upload that it does not know.
    with pytest.raises((UploadIncomplete, ClientError)):
        store.finish_upload(half, len(data), etags, upload_id=upload.upload_id)
    assert store.sizes(prefix_for(artifact_id)) == {}
    assert fetch(store, other).content == b"stays"


def test_a_deleted_file_is_gone_and_can_be_put_anew(store: Store, key: str):
    store_file(store, key, b"damaged")
    store.delete(key)
    store.delete(key)
    assert fetch(store, key).status_code == 404
    store_file(store, key, b"whole..")
    assert fetch(store, key).content == b"whole.."


@pytest.mark.parametrize(
    ("asked", "content", "content_range"),
    [
        ("bytes=0-3", b"0123", "bytes 0-3/10"),
        ("bytes=4-", b"456789", "bytes 4-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
        ("bytes=8-99", b"89", "bytes 8-9/10"),
    ],
)
def test_a_range_is_served_alone(store: Store, key: str, asked: str, content: bytes, content_range: str):
    store_file(store, key, b"0123456789")
    answer = fetch(store, key, Range=asked)
    assert (answer.status_code, answer.content) == (206, content)
    assert answer.headers["Content-Range"] == content_range


def test_a_range_beyond_the_end_is_refused(store: Store, key: str):
    store_file(store, key, b"0123456789")
    assert fetch(store, key, Range="bytes=10-12").status_code == 416


def test_names_that_are_no_keys_reach_no_store(store: Store):
    for bad in ("../../etc/passwd", f"{uuid4()}/0/../../x", f"{uuid4()}/0/1", "", "/", str(uuid4())):
        with pytest.raises(ValueError, match="not a key"):
            store.begin_upload(bad, 1)
        with pytest.raises(ValueError, match=r"not a key|not the beginning"):
            store.delete(bad)
    for bad in ("", "/", "../", f"{uuid4()}/../", "0/"):
        with pytest.raises(ValueError, match="not the beginning"):
            store.delete_prefix(bad)


def test_the_settings_name_the_store(store: Store):
    assert get_store() is store


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES + 17], ids=str)
def test_what_this_server_writes_is_read_back_in_pieces(store: Store, key: str, size: int):
    data = os.urandom(size)
    with pytest.raises(UploadIncomplete):
        list(store.chunks(key))
    store.write(key, iter([data[:1000], data[1000:]]))
    pieces = list(store.chunks(key))
    assert b"".join(pieces) == data == fetch(store, key).content
    assert max(map(len, pieces), default=0) <= 1024 * 1024


@pytest.mark.parametrize("size", [3, 2 * PART_BYTES], ids=str)
def test_a_write_that_breaks_off_leaves_what_was_there(store: Store, key: str, size: int):
    def broken():
        yield os.urandom(size)
        raise OSError("the other disk is gone")

    with pytest.raises(OSError, match="gone"):
        store.write(key, broken())
    assert store.sizes(prefix_for(artifact_of(key))) == {}
    store_file(store, key, b"before")
    with pytest.raises(OSError, match="gone"):
        store.write(key, broken())
    assert b"".join(store.chunks(key)) == b"before"
    store.write(key, [b"after."])
    assert b"".join(store.chunks(key)) == b"after."

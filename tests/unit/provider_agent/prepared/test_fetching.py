"""Prepared data are fetched whole or not at all."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from provider_agent.lease.cache import intake, prepared
from provider_agent.lease.cache.prepared import keep_prepared, load_prepared
from runtimes.contract import MANIFEST_NAME, NEW_CACHE_NAME
from tests.unit.provider_agent.prepared.leases import ALICE, KEY, OTHER, Lease, digest_of


def test_what_the_assignment_names_lies_in_the_work_folder(lease: Lease) -> None:
    files = {f"tokens/{KEY}/tokens.int32": b"tokens", f"tokens/{KEY}/{MANIFEST_NAME}": b"{}"}
    lease.store.files = dict(files)
    lease.fetch()
    assert lease.fetched() == {}, "none is named"
    named = uuid4()
    keep_prepared(lease.folder, named)
    assert load_prepared(lease.folder) == named
    lease.fetch()
    assert lease.fetched() == files
    assert intake.load_fetched(lease.folder) == {f"tokens/{KEY}": hashlib.sha256(b"{}").hexdigest()}


def test_what_another_node_made_never_comes_into_the_nodes_cache(lease: Lease) -> None:
    intake.keep_fetched(lease.folder, {f"tokens/{KEY}": digest_of(lease.make(90))})
    lease.make(90, key=OTHER)
    intake.take_entries(lease.data, lease.folder, lease.work, bytes_max=100 * intake.MIB)
    assert [path.name for path in (lease.data.cache / ALICE / "tokens").iterdir()] == [OTHER]


def test_an_entry_that_the_node_has_is_not_fetched(lease: Lease) -> None:
    keep_prepared(lease.folder, uuid4())
    (lease.data.cache / ALICE / "tokens" / KEY).mkdir(parents=True)
    lease.store.files = {f"{kind}/{KEY}/{MANIFEST_NAME}": b"{}" for kind in ("tokens", "tokenizer")}
    lease.fetch()
    assert list(lease.fetched()) == [f"tokenizer/{KEY}/{MANIFEST_NAME}"]


FAULTS = {
    "other bytes": "unhandled errors",
    "other names": "is no file of prepared data",
    "too large": "too much for this lease's disk",
    "too long": "too much for this lease's disk",
    "too slow": "TimeoutError",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_leaves_nothing_and_fails_nothing(
    lease: Lease, fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep_prepared(lease.folder, uuid4())
    lease.store.files = {f"tokens/{KEY}/{MANIFEST_NAME}": b"{}", f"tokens/{KEY}/tokens.int32": b"tokens"}
    if fault == "other bytes":
        lease.store.announced = {f"tokens/{KEY}/tokens.int32": b"others"}
    elif fault == "other names":
        lease.store.files["../../../secret"] = b"more"
    elif fault == "too large":
        monkeypatch.setattr(prepared, "DISK_SHARE", 10**18)
    elif fault == "too long":
        monkeypatch.setattr(prepared, "PREPARED_BYTES_MAX", 7)
    else:
        monkeypatch.setattr(prepared, "FETCH_SECONDS_MAX", 0.05)

        async def stands_still(url: str, keep: Callable[[bytes], None]) -> None:
            await asyncio.sleep(60)

        monkeypatch.setattr(lease.store, "download", stands_still)
    with caplog.at_level("WARNING"):
        lease.fetch()
    assert not (lease.work / NEW_CACHE_NAME).exists()
    assert FAULTS[fault] in caplog.text


def test_a_lease_fetches_by_its_own_part_of_the_disk(lease: Lease) -> None:
    keep_prepared(lease.folder, uuid4())
    lease.store.files = {f"tokens/{KEY}/{MANIFEST_NAME}": b"{}"}
    lease.fetch(disk_share=1e-15)
    assert not lease.fetched()
    lease.fetch(disk_share=1.0)
    assert lease.fetched()


def test_what_could_not_be_removed_is_known_as_fetched(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_prepared(lease.folder, uuid4())
    lease.store.files = {f"tokens/{KEY}/{MANIFEST_NAME}": b"{}", f"tokens/{KEY}/tokens.int32": b"tokens"}
    lease.store.announced = {f"tokens/{KEY}/tokens.int32": b"others"}

    def fail(_: Path) -> None:
        raise OSError("the disk")

    monkeypatch.setattr(prepared, "remove_tree", fail)
    lease.fetch()
    assert intake.load_fetched(lease.folder) == {f"tokens/{KEY}": hashlib.sha256(b"{}").hexdigest()}

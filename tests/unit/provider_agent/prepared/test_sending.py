"""Prepared data are sent in the pauses between checkpoints."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

import pytest

from provider_agent.errors import JournalFailed
from provider_agent.journal import ArtifactEntry
from provider_agent.lease.cache import intake, prepared
from provider_agent.lease.cache.prepared import PreparedShipper
from provider_agent.lease.snapshot import take_snapshot
from provider_agent.system.removal import remove_tree
from runtimes.contract import MANIFEST_NAME, NEW_CACHE_NAME
from tests.unit.provider_agent.prepared.leases import ALICE, KEY, OTHER, PART_BYTES, PARTS, Lease, digest_of


def test_what_took_long_is_sent_once(lease: Lease) -> None:
    lease.make(90)
    lease.make(5, kind="tokenizer", key=OTHER)
    lease.send()
    assert lease.store.completed
    [begin] = lease.store.begun
    assert begin.kind == "prepared"
    assert [file.path for file in begin.files] == [f"tokens/{KEY}/{MANIFEST_NAME}", f"tokens/{KEY}/tokens.int32"]
    assert lease.store.on_their_way_most == 1, "what a checkpoint interrupts is one part"
    assert not lease.snapshot.exists()
    lease.send()
    assert len(lease.store.begun) == 1, "nor does the next agent send it"


@pytest.mark.parametrize("why", ["soon", "rank", "owner", "kind", "fetched", "no number"])
def test_other_entries_are_not_sent(lease: Lease, why: str) -> None:
    manifest = lease.make(59.9 if why == "soon" else 90, kind="own" if why == "kind" else "tokens")
    if why == "rank":
        lease.assignment.gang.node_rank = 1
    if why == "owner":
        (lease.folder / "cache-owner").unlink()
    if why == "fetched":
        intake.keep_fetched(lease.folder, {f"tokens/{KEY}": digest_of(manifest)})
    if why == "no number":
        manifest.write_text(json.dumps({"made_seconds": True}))
    lease.send()
    assert not lease.store.begun
    assert not lease.snapshot.exists()


def test_of_many_entries_those_are_sent_that_took_long_and_new_ones_first(lease: Lease) -> None:
    for number in range(6):
        lease.make(5, key=f"{number:064x}")
    there = [f"{number:064x}" for number in range(0x10, 0x15)]
    intake.keep_fetched(lease.folder, {f"tokens/{key}": digest_of(lease.make(90, key=key)) for key in there})
    lease.make(90, key="f" * 64)
    lease.send()
    assert lease.sent() == [f"tokens/{key}" for key in [*there[:3], "f" * 64]]


def test_what_was_fetched_and_made_anew_is_this_nodes_own(lease: Lease) -> None:
    """Under the same name: its content has a digest in the name, and the one that came was a bad one."""
    intake.keep_fetched(lease.folder, {f"tokens/{KEY}": digest_of(lease.make(90))})
    lease.make(91)
    lease.send()
    assert lease.sent() == [f"tokens/{KEY}"]
    intake.take_entries(lease.data, lease.folder, lease.work, bytes_max=100 * intake.MIB)
    assert (lease.data.cache / ALICE / "tokens" / KEY).is_dir()


def test_what_takes_longer_to_fetch_than_to_make_is_not_sent(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "FETCH_BYTES_PER_SECOND", 1.0)  # the entry has more than 90 bytes, and less than 900
    lease.make(90)
    lease.make(900, key=OTHER)
    lease.send()
    assert lease.sent() == [f"tokens/{OTHER}"]


def test_more_than_a_node_fetches_is_not_sent(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"{number:064x}" for number in range(3)]
    sizes = [sum(path.stat().st_size for path in lease.make(90, key=key).parent.iterdir()) for key in keys]
    monkeypatch.setattr(prepared, "PREPARED_BYTES_MAX", sizes[0] + sizes[1])
    lease.send()
    assert lease.sent() == [f"tokens/{key}" for key in keys[:2]]


def test_no_large_file_is_read_for_its_digest(lease: Lease) -> None:
    """60 GB, while the training reads its own data from the same disk."""
    manifest = lease.make(90)
    about = json.loads(manifest.read_text())
    about["files"][0]["sha256"] = "f" * 64
    manifest.write_text(json.dumps(about))
    lease.send()
    [begin] = lease.store.begun
    assert [file.sha256 for file in begin.files] == [digest_of(manifest), "f" * 64], "the server refuses it then"


LISTS: dict[str, Any] = {
    "elsewhere": [{"path": "../../../../secrets", "size": 1, "sha256": "0" * 64}],
    "a folder": [{"path": "deeper/tokens", "size": 1, "sha256": "0" * 64}],
    "absolute": [{"path": "/etc/passwd", "size": 1, "sha256": "0" * 64}],
    "another size": [{"path": "tokens.int32", "size": PART_BYTES * PARTS + 1, "sha256": "0" * 64}],
    "no file": [{"path": "others.int32", "size": 1, "sha256": "0" * 64}],
    "no digest": [{"path": "tokens.int32", "size": PART_BYTES * PARTS, "sha256": "no"}],
    "no path": [{"size": 1}],
    "no files": 3,
    "other things": [[], "x", None],
    "nothing": None,
}


@pytest.mark.parametrize("listed", LISTS.values(), ids=LISTS)
def test_a_manifest_of_other_files_sends_nothing(lease: Lease, listed: Any) -> None:
    (lease.folder / "secrets").write_text("x")  # where the first of them leads from the snapshot
    manifest = lease.make(90)
    (manifest.parent / "deeper").mkdir()
    (manifest.parent / "deeper" / "tokens").write_text("x")
    manifest.write_text(json.dumps({"made_seconds": 90} | ({"files": listed} if listed is not None else {})))
    lease.send()
    assert not lease.store.begun
    assert not lease.snapshot.exists(), "nor is it tried again"


TEXTS = {
    "empty": "",
    "deep": "[" * 100_000,
    "a huge number": '{"made_seconds": 1' + "0" * 400 + "}",
    "a list": "[]",
    "long": " " * 2 * intake.MIB,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_manifest_that_is_none_sends_nothing(lease: Lease, text: str) -> None:
    lease.make(90).write_text(text)
    lease.send()
    assert not lease.store.begun
    assert not lease.snapshot.exists()


@pytest.mark.parametrize("fault", ["links", "journal"])
def test_what_cannot_be_taken_leaves_nothing(lease: Lease, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lease.make(90)

    def refuse(*_: object, **__: object) -> None:
        raise OSError("not permitted") if fault == "links" else JournalFailed()

    if fault == "links":
        monkeypatch.setattr(os, "link", refuse)
    else:
        monkeypatch.setattr(lease.journal, "save_artifact", refuse)
    lease.send()
    assert not lease.store.begun, "nothing is copied: the disk is the training's"
    assert not lease.snapshot.exists()


def test_a_lease_that_is_forgotten_meanwhile_leaves_nothing(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    lease.make(90)
    begun: list[Any] = []

    def take_slowly(*arguments: Any, **named: Any) -> int:
        begun.append(arguments)
        time.sleep(0.3)
        return take_snapshot(*arguments, **named)

    monkeypatch.setattr(prepared, "take_snapshot", take_slowly)

    async def forget() -> None:
        sending = asyncio.create_task(PreparedShipper(lease.context, lease.record, lease.checkpoints).loop())
        while not begun:
            await asyncio.sleep(0.01)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await asyncio.to_thread(remove_tree, lease.folder)
        await asyncio.sleep(0.6)

    asyncio.run(forget())
    assert not lease.folder.exists()


def test_a_checkpoint_comes_first_and_no_part_is_sent_twice(lease: Lease) -> None:
    lease.make(90)
    while_waiting: list[int] = []

    def look() -> None:
        if len(lease.store.put) == 3 and not while_waiting:
            lease.checkpoints.has_waiting = True
            while_waiting.append(0)

            def shipped() -> None:
                while_waiting.append(sum(lease.store.put.values()))
                lease.checkpoints.has_waiting = False

            asyncio.get_running_loop().call_later(0.3, shipped)

    lease.store.on_part = look
    lease.send()
    assert lease.store.completed
    _, put_meanwhile = while_waiting
    assert put_meanwhile <= 4, "the part that was on its way may still arrive"
    assert len(lease.store.put) == PARTS + len(range(0, _manifest_size(lease), PART_BYTES))
    assert sum(lease.store.put.values()) <= len(lease.store.put) + 1, "but for the one that was interrupted"


def save_often(lease: Lease) -> None:
    """A checkpoint comes soon after each time that sending begins, and is away some time later."""

    def begin() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, setattr, lease.checkpoints, "has_waiting", True)
        loop.call_later(0.1, setattr, lease.checkpoints, "has_waiting", False)

    lease.store.on_begin = begin


def test_where_checkpoints_leave_no_time_it_is_given_up(
    lease: Lease, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(prepared, "INTERRUPTIONS_MAX", 4)
    lease.make(90)
    save_often(lease)
    lease.store.part_seconds = 60.0
    with caplog.at_level("WARNING"):
        lease.send()
    assert "no part of it is sent between two checkpoints" in caplog.text
    assert (len(lease.store.begun), lease.store.completed) == (4, False)
    assert not lease.snapshot.exists()
    lease.store.part_seconds = 0.0
    lease.send()
    assert len(lease.store.begun) == 4, "nor does the next agent begin again"


def test_where_some_parts_arrive_between_checkpoints_all_of_it_does(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "INTERRUPTIONS_MAX", 4)
    lease.make(90)
    save_often(lease)
    lease.store.part_seconds = 0.02
    lease.send()
    assert lease.store.completed
    assert len(lease.store.begun) > 4


def test_the_end_of_the_program_waits_for_nothing(lease: Lease) -> None:
    lease.make(90)

    def end() -> None:
        lease.entry.exit = {"code": 0}

    lease.store.on_part = end
    lease.send()
    assert not lease.store.completed


def test_a_snapshot_that_was_not_sent_goes_on_with_the_next_agent(lease: Lease) -> None:
    lease.make(90)
    lease.store.on_part = lambda: setattr(lease.entry, "stop_reason", "stopped")
    lease.send()
    assert not lease.store.completed
    lease.store.on_part, lease.entry.stop_reason = lambda: None, None
    lease.send()
    assert lease.store.completed
    assert lease.journal.load_artifacts(lease.id) == [
        ArtifactEntry(folder="prepared", kind="prepared", step=None, billable_ms=0, shipped=True)
    ]


def _manifest_size(lease: Lease) -> int:
    [manifest] = lease.work.glob(f"{NEW_CACHE_NAME}/*/*/{MANIFEST_NAME}")
    return manifest.stat().st_size

"""Prepared data are sent in the pauses between checkpoints, and fetched whole or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from provider_agent.config import DataFolder
from provider_agent.errors import JournalFailed
from provider_agent.journal import ArtifactEntry, Journal
from provider_agent.lease.cache import intake, prepared
from provider_agent.lease.cache.owners import keep_owner
from provider_agent.lease.cache.prepared import PreparedShipper, fetch_prepared, keep_prepared, load_prepared
from provider_agent.lease.snapshot import take_snapshot
from provider_agent.protocol import (
    ArtifactBegin,
    ArtifactComplete,
    ArtifactDownloads,
    ArtifactUploads,
    FileUpload,
    RemoteFile,
    UploadPart,
    prepared_mistake,
)
from provider_agent.system.removal import remove_tree
from runtimes.contract import MANIFEST_NAME, NEW_CACHE_NAME
from runtimes.node_cache import NodeCache

ALICE, KEY, OTHER = "a" * 32, "1" * 64, "2" * 64
PART_BYTES, PARTS = 10, 6
STARTED = b'{"event":"started","at":1}\n'


class Store:
    """The server, as far as prepared data need it: each part takes a moment, and `on_part` may look in between."""

    def __init__(self) -> None:
        self.artifact, self.completed = uuid4(), False
        self.begun: list[ArtifactBegin] = []
        self.put: Counter[str] = Counter()
        self.part_seconds = 0.03
        self.on_their_way = self.on_their_way_most = 0
        self.on_begin: Callable[[], None] = lambda: None
        self.on_part: Callable[[], None] = lambda: None
        self.files: dict[str, bytes] = {}
        self.announced: dict[str, bytes] = {}

    async def begin_artifact(self, lease: UUID, begin: ArtifactBegin, *, fence: int) -> ArtifactUploads:
        self.begun.append(begin)
        self.on_begin()
        uploads = []
        for file in begin.files:
            starts = range(0, max(file.size, 1), PART_BYTES)
            parts = [
                UploadPart(
                    number=number + 1,
                    offset=start,
                    size=min(PART_BYTES, file.size - start),
                    url=f"http://s/{file.path}/{number}?uploadId=first",
                )
                for number, start in enumerate(starts)
            ]
            uploads.append(FileUpload(path=file.path, parts=parts))
        return ArtifactUploads(artifact_id=self.artifact, uploads=uploads)

    async def put_part(self, url: str, path: Path, *, offset: int, size: int) -> str:
        self.on_their_way += 1
        self.on_their_way_most = max(self.on_their_way_most, self.on_their_way)
        try:
            await asyncio.sleep(self.part_seconds)
        finally:
            self.on_their_way -= 1
        self.put[url] += 1
        self.on_part()
        return "etag"

    async def complete_artifact(self, lease: UUID, artifact: UUID, complete: ArtifactComplete, *, fence: int) -> None:
        self.completed = True

    async def get_artifact(self, lease: UUID, artifact: UUID, *, is_damaged: bool = False) -> ArtifactDownloads:
        files = [
            RemoteFile(
                path=path,
                size=len(data),
                sha256=hashlib.sha256(self.announced.get(path, data)).hexdigest(),
                url=f"http://s/{path}",
            )
            for path, data in self.files.items()
        ]
        return ArtifactDownloads(artifact_id=artifact, kind="prepared", step=None, files=files)

    async def download(self, url: str, keep: Callable[[bytes], None]) -> None:
        path = url.removeprefix("http://s/")
        self.put[path] += 1
        keep(self.files[path])


class Lease:
    """A lease whose program runs, with what the shipper asks of it."""

    def __init__(self, root: Path, *, node_rank: int = 0) -> None:
        self.data = DataFolder(root)
        self.data.prepare()
        self.id, self.store = uuid4(), Store()
        self.folder = self.data.lease(self.id)
        self.work = self.folder / "work"
        self.work.mkdir(parents=True)
        keep_owner(self.folder, ALICE)
        self.events = STARTED
        assignment = SimpleNamespace(
            lease_id=self.id,
            fence=1,
            gang=SimpleNamespace(node_rank=node_rank, nodes=1),
            program=SimpleNamespace(command=None),
        )
        self.assignment: Any = assignment
        self.entry: Any = SimpleNamespace(
            lease_id=self.id, assignment=assignment, has_ended=False, exit=None, stop_reason=None
        )
        self.journal = Journal(self.data.journal)
        self.context: Any = SimpleNamespace(folder=self.data, journal=self.journal, client=self.store)
        self.record: Any = SimpleNamespace(
            entry=self.entry,
            folder=self.folder,
            work=self.work,
            first_events=lambda: self.events,
            last_events=lambda: self.events,
        )
        self.checkpoints: Any = SimpleNamespace(has_waiting=False)

    def make(self, seconds: float, *, kind: str = "tokens", key: str = KEY) -> Path:
        """What the program leaves; its manifest."""
        cache = NodeCache(None, self.work)
        made = cache.begin(kind, key)
        (made / "tokens.int32").write_bytes(bytes(PART_BYTES * PARTS))
        cache.complete(made, seconds=seconds)
        return made / MANIFEST_NAME

    @property
    def snapshot(self) -> Path:
        """What is on its way."""
        return self.folder / "snapshots" / "prepared"

    def sent(self) -> list[str]:
        """The entries that were announced, KIND/KEY, once each."""
        return sorted({file.path.rpartition("/")[0] for begin in self.store.begun for file in begin.files})

    def send(self, *, seconds: float = 20.0) -> None:
        """The shipper's loop, to its end."""
        shipper = PreparedShipper(self.context, self.record, self.checkpoints)
        asyncio.run(asyncio.wait_for(shipper.loop(), seconds))

    def fetch(self, *, disk_share: float = 1.0) -> None:
        cache = self.data.cache / ALICE
        cache.mkdir(parents=True, exist_ok=True)
        asyncio.run(fetch_prepared(self.context, self.assignment, self.work, cache=cache, disk_share=disk_share))

    def fetched(self) -> dict[str, bytes]:
        root = self.work / NEW_CACHE_NAME
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lease]:
    monkeypatch.setattr(prepared, "YIELD_SECONDS", 0.01)
    monkeypatch.setattr(prepared, "LOOK_SECONDS", 0.01)
    made = Lease(tmp_path / "data")
    yield made
    made.journal.close()


@pytest.mark.parametrize(
    "paths",
    [
        [],
        ["x"],
        [f"tokens/{KEY}/a"],
        [f"environment/{KEY}/{MANIFEST_NAME}"],
        [f"tokens/{KEY[1:]}/{MANIFEST_NAME}"],
        [f"tokens/{KEY}/{MANIFEST_NAME}", f"tokens/{KEY}/deeper/a"],
        [f"tokens/{KEY}/{MANIFEST_NAME}", f"tokens/{KEY}/.."],
        [f"tokens/{KEY}/{MANIFEST_NAME}", f"tokens/{KEY}/"],
        [f"tokens/{KEY}/{MANIFEST_NAME}", f"tokens/{KEY}/a.partial"],
        [f"tokens/{KEY}/{MANIFEST_NAME}", *(f"tokens/{KEY}/{n}" for n in range(16))],
        [f"tokens/{number:064x}/{MANIFEST_NAME}" for number in range(5)],
    ],
)
def test_other_names_are_no_prepared_data(paths: list[str]) -> None:
    assert prepared_mistake(paths)


def test_tokens_and_a_tokenizer_are_prepared_data() -> None:
    names = [f"tokens/{KEY}/{MANIFEST_NAME}", f"tokens/{KEY}/tokens.int32", f"tokenizer/{OTHER}/{MANIFEST_NAME}"]
    assert prepared_mistake(names) is None


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


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _manifest_size(lease: Lease) -> int:
    [manifest] = lease.work.glob(f"{NEW_CACHE_NAME}/*/*/{MANIFEST_NAME}")
    return manifest.stat().st_size

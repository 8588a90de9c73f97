"""A lease whose program runs, and the server as far as prepared data need it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

from provider_agent.config import DataFolder
from provider_agent.journal import Journal
from provider_agent.lease.cache.owners import keep_owner
from provider_agent.lease.cache.prepared import PreparedShipper, fetch_prepared
from provider_agent.protocol import (
    ArtifactBegin,
    ArtifactComplete,
    ArtifactDownloads,
    ArtifactUploads,
    FileUpload,
    RemoteFile,
    UploadPart,
)
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


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

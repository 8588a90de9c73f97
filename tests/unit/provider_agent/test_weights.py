"""Weights are fetched once a node, verified, shared read-only, and never half there."""

from __future__ import annotations

import asyncio
import hashlib
import http.server
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from provider_agent.client import CHUNK_BYTES, Client
from provider_agent.errors import ArtifactDamaged, ExecutorFailed, Retryable, UnsafePath
from provider_agent.lease.weights import WeightsCache
from provider_agent.protocol import ArtifactDownloads, RemoteFile

ARTIFACT = uuid4()
BIG = os.urandom(2 * CHUNK_BYTES + 1000)


class Store:
    """A real HTTP server of files, with ranges; it can break off after so many bytes."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []  # path, range
        self.break_after = 0
        self.has_ranges = True
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                data = store.files[self.path]
                given = self.headers.get("Range", "")
                store.asked.append((self.path, given))
                start = int(given.removeprefix("bytes=").rstrip("-")) if given and store.has_ranges else 0
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(data) - start))
                self.end_headers()
                end = start + store.break_after if store.break_after else len(data)
                self.wfile.write(data[start:end])

            def log_message(self, *_given: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()


class Line(Client):
    """The real client; only what the marketplace says of the artifact is put in its mouth."""

    def __init__(self, store: Store) -> None:
        super().__init__(api_url=store.url)
        self.store = store
        self.names: dict[str, str] = {}  # path in the artifact -> path at the store
        self.lies: dict[str, str] = {}  # path -> the digest that is reported instead

    async def get_artifact(self, lease_id: UUID, artifact_id: UUID, *, is_damaged: bool = False) -> ArtifactDownloads:
        files = [
            RemoteFile(
                path=path,
                size=len(self.store.files[at]),
                sha256=self.lies.get(path) or hashlib.sha256(self.store.files[at]).hexdigest(),
                url=at,
            )
            for path, at in self.names.items()
        ]
        return ArtifactDownloads(artifact_id=artifact_id, kind="output", step=None, files=files)


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    made.files = {"/big": BIG, "/config": b"{}"}
    yield made
    made.server.shutdown()
    made.server.server_close()


class Node:
    """Bob's node: its cache, and leases that use it."""

    def __init__(self, root: Path, store: Store) -> None:
        self.leases = root / "leases"
        self.cache = WeightsCache(root / "weights", self.leases)
        self.files = root / "weights" / "files"
        self.arriving = root / "weights" / "arriving"
        self.store = store
        self.progress: list[tuple[int, int]] = []

    def bring(
        self, *, names: dict[str, str] | None = None, lies: dict[str, str] | None = None, is_read_only: bool = True
    ) -> Path:
        """A new lease's view."""
        return self.run(lambda: self.bring_async(names=names, lies=lies, is_read_only=is_read_only))

    async def bring_async(
        self, *, names: dict[str, str] | None = None, lies: dict[str, str] | None = None, is_read_only: bool = True
    ) -> Path:
        line = Line(self.store)
        line.names = names or {"model/model.safetensors": "/big", "model/config.json": "/config"}
        line.lies = lies or {}
        lease = uuid4()
        folder = self.leases / str(lease)
        folder.mkdir(parents=True)
        try:
            return await self.cache.bring(
                line,
                lease,
                ARTIFACT,
                folder,
                report_progress=lambda *done: self.progress.append(done),
                is_read_only=is_read_only,
            )
        finally:
            await line.close()

    def run(self, work: Callable[[], Any]) -> Any:
        return asyncio.run(work())


@pytest.fixture
def node(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr("provider_agent.client.RETRY_SECONDS_MAX", 0.01)
    return Node(tmp_path, store)


def test_second_lease_shares_what_the_first_fetched(node: Node, store: Store) -> None:
    first, second = node.bring(), node.bring()
    assert len(store.asked) == 2
    assert (first / "model/model.safetensors").read_bytes() == BIG
    assert (first / "model/model.safetensors").samefile(second / "model/model.safetensors")
    assert (second / "model/config.json").stat().st_mode & 0o777 == 0o444
    assert node.progress[-1] == (len(BIG) + 2, len(BIG) + 2)


def test_leases_that_come_together_fetch_once(node: Node, store: Store) -> None:
    async def both() -> list[Path]:
        return await asyncio.gather(*(node.bring_async() for _ in range(4)))

    views = node.run(both)
    assert len(store.asked) == 2
    assert all((view / "model/model.safetensors").read_bytes() == BIG for view in views)


def test_same_file_under_two_names_is_kept_once(node: Node, store: Store) -> None:
    view = node.bring(names={"a.safetensors": "/big", "b.safetensors": "/big"})
    assert len(list(node.files.iterdir())) == 1
    assert (view / "a.safetensors").samefile(view / "b.safetensors")


def test_broken_transfer_goes_on_from_its_end(node: Node, store: Store) -> None:
    store.break_after = CHUNK_BYTES + 1000
    view = node.bring(names={"a": "/big"})
    assert [given for _, given in store.asked] == ["", f"bytes={CHUNK_BYTES}-"]
    assert (view / "a").read_bytes() == BIG


def test_store_without_ranges_sends_all_again(node: Node, store: Store) -> None:
    node.arriving.mkdir(parents=True)
    (node.arriving / hashlib.sha256(BIG).hexdigest()).write_bytes(BIG[:1000])
    store.has_ranges = False
    assert (node.bring(names={"a": "/big"}) / "a").read_bytes() == BIG


def test_killed_agent_leaves_nothing_half_used(node: Node, store: Store) -> None:
    store.break_after = CHUNK_BYTES
    store.has_ranges = False
    with pytest.raises((Retryable, ExceptionGroup)):
        node.bring(names={"a": "/big"})
    assert list(node.files.iterdir()) == []
    assert not list(node.leases.glob("*/inputs/a"))
    store.break_after, store.has_ranges = 0, True
    assert (node.bring(names={"a": "/big"}) / "a").read_bytes() == BIG
    assert store.asked[-1][1].startswith("bytes=")


def test_wrong_bytes_on_the_way_are_dropped_and_fetched_once_more(node: Node, store: Store) -> None:
    node.arriving.mkdir(parents=True)
    (node.arriving / hashlib.sha256(BIG).hexdigest()).write_bytes(b"x" * 1000)  # what a full disk or a liar left
    assert (node.bring(names={"a": "/big"}) / "a").read_bytes() == BIG
    assert list(node.arriving.iterdir()) == []


def test_file_that_is_not_what_was_promised_is_never_kept(node: Node) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        node.bring(names={"a": "/big"}, lies={"a": hashlib.sha256(b"else").hexdigest()})
    assert raised.group_contains(ArtifactDamaged)
    assert list(node.files.iterdir()) == []


@pytest.mark.parametrize("digest", ["../../../etc/x", "A" * 64, "0" * 63])
def test_digest_that_is_no_digest_names_no_file(node: Node, digest: str) -> None:
    with pytest.raises(ArtifactDamaged):
        node.bring(names={"a": "/big"}, lies={"a": digest})


def test_name_that_leaves_the_view_is_refused(node: Node) -> None:
    with pytest.raises(UnsafePath):
        node.bring(names={"../../out": "/big"})


def test_file_changed_by_a_program_is_fetched_anew(node: Node, store: Store) -> None:
    view = node.bring(names={"a": "/big"}, is_read_only=False)
    mine = view / "a"
    mine.chmod(0o644)
    mine.write_bytes(b"x" * len(BIG))  # Mallory's program runs as Bob's user, and nothing isolates it
    assert (node.bring(names={"a": "/big"}) / "a").read_bytes() == BIG


def test_longest_unused_goes_first_and_what_is_used_stays(node: Node, store: Store) -> None:
    store.files |= {f"/{name}": os.urandom(1000) for name in ("old", "new", "live", "next")}
    node.cache = WeightsCache(node.files.parent, node.leases, bytes_max=3000)
    digests = {name: hashlib.sha256(store.files[f"/{name}"]).hexdigest() for name in ("old", "new", "live", "next")}
    for age, name in ((300, "live"), (200, "old"), (100, "new")):
        view = node.bring(names={"a": f"/{name}"})
        os.utime(node.files / digests[name], (1_700_000_000 - age, 0))
        if name != "live":
            (view.parent / "weights.json").unlink()  # its lease has ended
    node.bring(names={"a": "/next"})
    assert {path.name for path in node.files.iterdir()} == {digests["live"], digests["new"], digests["next"]}


def test_more_than_there_is_room_for_is_refused(node: Node) -> None:
    node.cache = WeightsCache(node.files.parent, node.leases, bytes_max=1000)
    with pytest.raises(ExecutorFailed, match="no room"):
        node.bring(names={"a": "/big"})

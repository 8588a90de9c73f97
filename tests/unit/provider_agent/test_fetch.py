"""No file name leads out of its folder; bytes that are not what was promised have a cause with a name."""

from __future__ import annotations

import asyncio
import errno
import hashlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from provider_agent.errors import ArtifactDamaged, CheckpointDamaged, UnsafePath
from provider_agent.lease import preparation
from provider_agent.lease.endings import name_error
from provider_agent.lease.fetch import fetch_artifact, safe_join
from provider_agent.protocol import Reason, RemoteFile
from runtimes.contract import ExitCode, checkpoint_folder


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "", ".", "a\\..\\x", "a\0b", "..", "a/.."])
def test_name_that_leaves_its_folder_is_refused(path: str) -> None:
    with pytest.raises(UnsafePath):
        safe_join(Path("/data"), path)


@pytest.mark.parametrize("path", ["a", "a/b", "a/.hidden", "a/..b", "./a"])
def test_name_inside_is_joined(path: str) -> None:
    assert safe_join(Path("/data"), path).is_relative_to("/data")


@pytest.mark.parametrize(
    ("command", "reason", "code"),
    [(None, Reason.BAD_CHECKPOINT, ExitCode.BAD_CHECKPOINT), (["true"], Reason.INPUT_UNAVAILABLE, None)],
    ids=["our runtime", "a command"],
)
def test_a_damaged_checkpoint_of_our_runtime_is_a_bad_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str] | None, reason: Reason, code: ExitCode | None
) -> None:
    """Its uploader may put other bytes into a store that compares none; else no resume would ever end well."""

    error = failure_of(monkeypatch, tmp_path, command, ArtifactDamaged("__0_0.distcp does not match its SHA-256."))
    ending = name_error(error, has_started=False)
    assert (ending.reason, ending.exit_code) == (reason, code)
    assert "__0_0.distcp" in ending.message


def test_a_node_whose_disk_is_full_judges_no_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "no space left")
    error = failure_of(monkeypatch, tmp_path, None, ArtifactDamaged("a does not match its SHA-256."), full)
    assert name_error(error, has_started=False).reason == Reason.DISK_FULL


@pytest.mark.parametrize(("bodies", "is_damaged"), [([b"proxy's page", b"weights"], False), ([b"lies"] * 2, True)])
def test_what_arrives_damaged_is_fetched_once_more(tmp_path: Path, bodies: list[bytes], is_damaged: bool) -> None:
    """A proxy may put a page in its place; an uploader's own bytes are the same again."""
    sha256 = hashlib.sha256(b"weights").hexdigest()
    file = RemoteFile(path="a", size=7, sha256=sha256, url="https://store.example/a")

    async def get_artifact(*_: object, is_damaged: bool = False) -> SimpleNamespace:
        return SimpleNamespace(files=[file])

    async def download(_: str, keep: Callable[[bytes], None]) -> None:
        keep(bodies.pop(0))

    client: Any = SimpleNamespace(get_artifact=get_artifact, download=download)
    fetching = fetch_artifact(client, uuid4(), uuid4(), tmp_path)
    if is_damaged:
        with pytest.raises(ExceptionGroup) as caught:
            asyncio.run(fetching)
        assert caught.group_contains(ArtifactDamaged)
    else:
        asyncio.run(fetching)
        assert (tmp_path / "a").read_bytes() == b"weights"
    assert not bodies


def failure_of(
    monkeypatch: pytest.MonkeyPatch, work: Path, command: list[str] | None, *errors: Exception
) -> BaseException:
    """What fetching a checkpoint raises where its files fail like this."""

    async def fetch(*_: object) -> None:
        raise ExceptionGroup("of four files", errors)

    monkeypatch.setattr(preparation, "fetch_artifact", fetch)
    program = SimpleNamespace(command=command)
    assignment: Any = SimpleNamespace(lease_id=uuid4(), resume_artifact_id=uuid4(), program=program)
    context: Any = SimpleNamespace(client=None)
    with pytest.raises((CheckpointDamaged, ExceptionGroup)) as caught:
        asyncio.run(preparation._fetch_checkpoint(context, assignment, work))
    return caught.value


@pytest.mark.parametrize(
    ("saved", "arrives"),
    [(b"weights", []), (b"weight!", [b"weights"]), (b"weights and more", [b"weights"]), (None, [b"weights"])],
    ids=["the same", "other bytes", "longer", "a link"],
)
def test_what_the_node_saved_itself_is_not_fetched_where_its_bytes_are_the_same(
    tmp_path: Path, saved: bytes | None, arrives: list[bytes]
) -> None:
    file = RemoteFile(path="a", size=7, sha256=hashlib.sha256(b"weights").hexdigest(), url="https://store.example/a")
    folder = checkpoint_folder(tmp_path / "work" / "checkpoint", 20)
    folder.mkdir(parents=True)
    if saved is None:
        (tmp_path / "elsewhere").write_bytes(b"weights")
        (folder / "a").symlink_to(tmp_path / "elsewhere")
    else:
        (folder / "a").write_bytes(saved)

    async def get_artifact(*_: object) -> SimpleNamespace:
        return SimpleNamespace(files=[file], step=20)

    async def download(_: str, keep: Callable[[bytes], None]) -> None:
        keep(arrives.pop(0))

    context: Any = SimpleNamespace(client=SimpleNamespace(get_artifact=get_artifact, download=download))
    assignment: Any = SimpleNamespace(lease_id=uuid4(), resume_artifact_id=uuid4(), program=None)
    into, work = tmp_path / "arriving", tmp_path / "work"
    assert asyncio.run(preparation.fetch_checkpoint(context, assignment, into, saved_in=work)) == 20
    assert (into / "a").read_bytes() == b"weights"
    assert not (into / "a").is_symlink()
    assert not arrives
    assert saved is None or (folder / "a").read_bytes() == saved

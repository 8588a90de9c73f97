"""An output arrives over a slow line that breaks: what arrived is not sent again, and only standing still ends it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest

from provider_agent.context import AgentContext
from provider_agent.errors import Fatal, Unreachable
from provider_agent.journal import LeaseEntry
from provider_agent.lease import artifact_shipper
from provider_agent.lease.artifact_shipper import ArtifactShipper
from provider_agent.lease.endings import name_refusal
from provider_agent.protocol import ArtifactBegin, ArtifactComplete, ArtifactUploads, FileUpload, UploadPart
from tests.integration.provider_agent.conftest import Bob

T = TypeVar("T")
PART_BYTES, PARTS = 1000, 6


class Line:
    """The server, as far as an output needs it, behind a line with a speed that breaks after some parts."""

    def __init__(self, *, seconds: float = 0.0, breaks_after: tuple[int, ...] = ()) -> None:
        self.seconds, self.breaks_after = seconds, list(breaks_after)
        self.put: Counter[int] = Counter()
        self.upload, self.completed, self.forgets = "first", False, False

    async def begin_artifact(self, lease: UUID, begin: ArtifactBegin, *, fence: int) -> ArtifactUploads:
        (file,) = begin.files
        parts = [
            UploadPart(number=n + 1, offset=n * PART_BYTES, size=PART_BYTES, url=f"http://s/{n}?uploadId={self.upload}")
            for n in range(PARTS)
        ]
        return ArtifactUploads(artifact_id=uuid4(), uploads=[FileUpload(path=file.path, parts=parts)])

    async def put_part(self, url: str, path: Path, *, offset: int, size: int) -> str:
        await asyncio.sleep(self.seconds)
        if self.breaks_after and sum(self.put.values()) == self.breaks_after[0]:
            self.breaks_after.pop(0)
            raise Unreachable("the line broke")
        self.put[offset // PART_BYTES] += 1
        with path.open("rb") as source:
            source.seek(offset)
            return hashlib.md5(source.read(size), usedforsecurity=False).hexdigest()

    async def complete_artifact(self, lease: UUID, artifact: UUID, complete: ArtifactComplete, *, fence: int) -> None:
        if self.forgets:
            self.forgets = False
            raise Fatal("the store lost a part")
        ((_, etags),) = complete.etags.items()
        self.completed = len(etags) == PARTS


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are not repeated by themselves, and one part goes after the other."""

    async def once(call: Callable[[], Awaitable[T]]) -> T:
        return await call()

    monkeypatch.setattr(artifact_shipper, "with_retries", once)
    monkeypatch.setattr(artifact_shipper, "PARTS_PARALLEL_MAX", 1)
    monkeypatch.setattr(artifact_shipper, "OUTPUT_SECONDS_MAX", 1.0)
    monkeypatch.setattr(artifact_shipper, "SENT_PER_SECOND_LEAST", PART_BYTES / 0.8)  # a part is worth 0.8 s


def ship(bob: Bob, context: AgentContext, line: Line) -> None:
    entry = LeaseEntry(bob.assignment("true"), lease_until=datetime.now(UTC))
    context.journal.save_lease(entry)
    output = context.folder.lease(entry.lease_id) / "work" / "output"
    output.mkdir(parents=True)
    (output / "model").write_bytes(b"".join(bytes([n]) * PART_BYTES for n in range(PARTS)))
    client: Any = line
    asyncio.run(ArtifactShipper(replace(context, client=client), entry).ship_output(0))


def test_a_line_that_breaks_three_times_brings_each_part_once(bob: Bob, context: AgentContext) -> None:
    line = Line(breaks_after=(1, 3, 4))
    ship(bob, context, line)
    assert line.completed
    assert line.put == dict.fromkeys(range(PARTS), 1)


def test_a_slow_output_has_the_time_that_its_parts_are_worth(bob: Bob, context: AgentContext) -> None:
    line = Line(seconds=0.4)  # 2.4 s in all
    ship(bob, context, line)
    assert line.completed


def test_an_output_that_stands_still_is_the_nodes_failure_at_any_size(
    bob: Bob, context: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_shipper, "OUTPUT_BYTES_IN_TIME", 10)
    with pytest.raises(TimeoutError) as caught:
        ship(bob, context, Line(seconds=60))
    assert name_refusal(caught.value, 0).reason == "upload_failed"


def test_parts_that_the_store_lost_are_sent_again(bob: Bob, context: AgentContext) -> None:
    line = Line(breaks_after=(3,))
    line.forgets = True
    ship(bob, context, line)
    assert line.completed
    assert line.put == dict.fromkeys(range(PARTS), 2)


def test_parts_of_a_former_upload_do_not_count(bob: Bob, context: AgentContext) -> None:
    line = Line(breaks_after=(3,))
    put_part = line.put_part

    async def then_another_upload(url: str, path: Path, *, offset: int, size: int) -> str:
        try:
            return await put_part(url, path, offset=offset, size=size)
        except Unreachable:
            line.upload = "second"
            raise

    line.put_part = then_another_upload  # type: ignore[method-assign]
    ship(bob, context, line)
    assert line.completed
    assert [line.put[number] for number in (0, 1, 2, 5)] == [2, 2, 2, 1]

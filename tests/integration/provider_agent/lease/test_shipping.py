"""An output arrives over a slow line that breaks: what arrived is not sent again, and only standing still ends it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest

from provider_agent.context import AgentContext
from provider_agent.errors import Fatal, Unreachable
from provider_agent.journal import LeaseEntry
from provider_agent.lease import artifact_shipper, attempts
from provider_agent.lease.artifact_shipper import ArtifactShipper
from provider_agent.lease.endings import Ending, name_refusal
from provider_agent.lease.stop_signal import StopSignal
from provider_agent.protocol import (
    REASONS,
    ArtifactBegin,
    ArtifactComplete,
    ArtifactUploads,
    FileUpload,
    Reason,
    UploadPart,
)
from tests.integration.provider_agent.conftest import Bob

T = TypeVar("T")
PART_BYTES, PARTS = 1000, 6


class Line:
    """The server, as far as an output needs it, behind a line with a speed that breaks after some parts."""

    def __init__(
        self, *, seconds: float = 0.0, breaks_after: tuple[int, ...] = (), grows_old_after: int | None = None
    ) -> None:
        self.seconds, self.breaks_after, self.grows_old_after = seconds, list(breaks_after), grows_old_after
        self.begun = self.since_begun = 0
        self.put: Counter[int] = Counter()
        self.artifact, self.upload, self.completed, self.forgets = uuid4(), "first", False, False

    async def begin_artifact(self, lease: UUID, begin: ArtifactBegin, *, fence: int) -> ArtifactUploads:
        (file,) = begin.files
        self.begun, self.since_begun = self.begun + 1, 0
        parts = [
            UploadPart(number=n + 1, offset=n * PART_BYTES, size=PART_BYTES, url=f"http://s/{n}?uploadId={self.upload}")
            for n in range(PARTS)
        ]
        return ArtifactUploads(artifact_id=self.artifact, uploads=[FileUpload(path=file.path, parts=parts)])

    async def put_part(self, url: str, path: Path, *, offset: int, size: int) -> str:
        await asyncio.sleep(self.seconds)
        if self.breaks_after and sum(self.put.values()) == self.breaks_after[0]:
            self.breaks_after.pop(0)
            raise Unreachable("the line broke")
        if self.since_begun == self.grows_old_after:
            raise Fatal("the address is too old")
        self.since_begun += 1
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


def ship(bob: Bob, context: AgentContext, line: Line, *, paid_seconds: float = 60) -> None:
    entry = LeaseEntry(bob.assignment("true"), lease_until=datetime.now(UTC))
    context.journal.save_lease(entry)
    output = context.folder.lease(entry.lease_id) / "work" / "output"
    output.mkdir(parents=True)
    (output / "model").write_bytes(b"".join(bytes([n]) * PART_BYTES for n in range(PARTS)))
    client: Any = line
    asyncio.run(ArtifactShipper(replace(context, client=client), entry).ship_output(int(1000 * paid_seconds)))


def test_a_line_that_breaks_three_times_brings_each_part_once(bob: Bob, context: AgentContext) -> None:
    line = Line(breaks_after=(1, 3, 4))
    ship(bob, context, line)
    assert line.completed
    assert line.put == dict.fromkeys(range(PARTS), 1)


def test_an_output_has_more_time_with_each_part_and_as_long_as_was_paid_for(bob: Bob, context: AgentContext) -> None:
    line = Line(seconds=0.4)  # 2.4 s in all
    ship(bob, context, line)
    assert line.completed


def test_an_output_occupies_no_node_longer_than_was_paid_for(bob: Bob, context: AgentContext) -> None:
    line = Line(seconds=0.4)
    with pytest.raises(TimeoutError):
        ship(bob, context, line, paid_seconds=0.3)
    assert 0 < sum(line.put.values()) < PARTS


def test_an_output_may_take_what_a_slow_line_needs_for_its_bytes_up_to_a_limit(
    bob: Bob, context: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_shipper, "SENT_PER_SECOND_LEAST", 1000)
    ship(bob, context, line := Line(seconds=0.4), paid_seconds=0.3)
    assert line.completed
    monkeypatch.setattr(artifact_shipper, "SENDING_SECONDS_MAX", 0.1)
    with pytest.raises(TimeoutError, match=r"^6000 bytes in 1 files, of which \d parts had arrived after all the time"):
        ship(bob, context, Line(seconds=0.4), paid_seconds=0.3)


def test_addresses_that_grew_old_are_asked_for_again(bob: Bob, context: AgentContext) -> None:
    line = Line(grows_old_after=2)
    ship(bob, context, line)
    assert line.completed
    assert line.put == dict.fromkeys(range(PARTS), 1)
    assert line.begun == 3


def test_addresses_that_never_work_end_it(bob: Bob, context: AgentContext) -> None:
    line = Line(grows_old_after=0)
    with pytest.raises(Fatal):
        ship(bob, context, line)
    assert line.begun == 1


def test_an_output_that_stands_still_is_the_nodes_failure_at_any_size(
    bob: Bob, context: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_shipper, "HOLES_BYTES_IN_TIME", 0)
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


@pytest.mark.parametrize(("seconds", "state"), [(0.2, "succeeded"), (60, "cancelled")])
def test_who_is_stopped_while_its_output_is_sent_ends_soon(
    monkeypatch: pytest.MonkeyPatch, seconds: float, state: str
) -> None:
    monkeypatch.setattr(attempts, "CHECKPOINT_DRAIN_SECONDS_MAX", 0.5)

    async def send(billable_ms: int) -> None:
        await asyncio.sleep(seconds)

    async def stopped() -> Ending:
        signal = StopSignal(is_set=False)
        attempt: Any = SimpleNamespace(
            _shipper=SimpleNamespace(ship_output=send),
            _record=SimpleNamespace(stop=signal, billable_ms=lambda: 0),
            entry=SimpleNamespace(stop_reason=Reason.CANCELLED_BY_CUSTOMER),
        )
        asyncio.get_running_loop().call_later(0.1, signal.set)
        return await attempts.Attempt._ship_output(attempt, Ending(Reason.COMPLETED, "", 0))

    assert REASONS[asyncio.run(stopped()).reason].state == state

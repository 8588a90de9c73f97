"""Counted use that waits for the marketplace: on disk within GROUP_SECONDS, kept until the marketplace has it.

`append` never waits. A thread of its own writes what was appended meanwhile and syncs it once (group commit); only rows
that are durable are handed out, so no number can come to mean two things. What a kill -9 can lose is what was appended
in the last GROUP_SECONDS and the requests still under way: neither was sent to the marketplace, so nothing is billed
twice. A full or failing spool reports it (`trouble`): the gateway then takes no new requests, so that none is
unmetered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from jobs.gateway.accounting.segments import Line, NewRow, Segments

GROUP_SECONDS = 0.01
RETRY_SECONDS = 1.0
UNWRITTEN_ROWS_MAX = 20_000  # while the disk does not answer; the requests under way may still add to them

P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger(__name__)


class Spool:
    """One writer thread, one folder."""

    def __init__(self, folder: Path, *, bytes_max: int) -> None:
        self._segments = Segments(folder)
        self._bytes_max = bytes_max
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="spool")
        self._unwritten: list[NewRow] = []
        self._something = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._size = self._segments.size
        self._failure = ""
        self._is_closing = False
        self.appended = 0  # rows since the start

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self._size

    @property
    def unwritten(self) -> int:
        """Rows that are not on disk yet."""
        return len(self._unwritten)

    @property
    def damaged(self) -> int:
        """Rows that were unreadable at the start."""
        return self._segments.damaged

    @property
    def is_settled(self) -> bool:
        """Whether rows are handed out: the marketplace has reported up to which number it has them."""
        return self._segments.is_settled

    @property
    def trouble(self) -> str:
        """Why no new request should be taken; empty: none."""
        if self._failure or len(self._unwritten) > UNWRITTEN_ROWS_MAX:
            return self._failure or "the disk is too slow"
        return "the spool is full" if self._size > self._bytes_max else ""

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.create_task(self._write_on())

    async def flush(self) -> None:
        """Everything that was appended is on disk, if the disk lets it."""
        await self._write()

    async def close(self) -> None:
        """Everything that was appended is on disk."""
        self._is_closing = True
        self._something.set()
        if self._task is not None:
            await self._task
        await self._write()
        self._segments.close()
        self._disk.shutdown()

    def append(self, key: str, cost: int, rest: bytes) -> None:
        """Keep a row: its number is given when it is written."""
        self._unwritten.append((key, cost, rest))
        self.appended += 1
        if not self._something.is_set():
            self._something.set()

    async def read(self, rows_max: int, bytes_max: int) -> list[Line]:
        """The oldest durable rows that are not forgotten."""
        return await self._on_disk(self._segments.read, rows_max, bytes_max)

    async def acknowledge(self, seq: int) -> None:
        """The marketplace has every row up to `seq`, and none after it."""
        if self._segments.is_settled and self._segments.known <= seq < self._segments.next_seq:
            if seq > self._segments.known:
                await self._on_disk(self._segments.forget, seq)
        else:
            left = await self._on_disk(self._segments.settle, seq)
            logger.info("Numbered %d rows of use from %d on.", left, seq + 1)
        self._size = self._segments.size

    async def _write_on(self) -> None:
        while not self._is_closing:
            await self._something.wait()
            await asyncio.sleep(GROUP_SECONDS)  # more may come: one sync for all
            self._something.clear()
            if not await self._write():
                self._something.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def _write(self) -> bool:
        rows, self._unwritten = self._unwritten, []
        if not rows:
            return True
        try:
            await self._on_disk(self._segments.write, rows)
        except OSError as error:
            self._unwritten = rows + self._unwritten
            self._failure = f"cannot write: {error.strerror or error}"
            logger.error("The spool cannot be written: %s", error)
            return False
        self._failure, self._size = "", self._segments.size
        return True

    async def _on_disk(self, verb: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """In the one thread that touches the files; an OSError comes back."""
        return await asyncio.get_running_loop().run_in_executor(self._disk, partial(verb, *args, **kwargs))

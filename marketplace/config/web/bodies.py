"""Request bodies, read whole before a thread is taken, within bounds that depend on the address.

What is small lies in memory, what is larger in a file that nobody else can open. A body is as large as its route can
use: parts of uploads only where the address is signed for their size, so that no stranger fills the disk.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl

from jobs.api.agents import MANIFEST_BODY_BYTES_MAX
from jobs.artifacts.choice import get_store
from jobs.artifacts.links import open_link
from jobs.artifacts.local import LocalStore
from jobs.errors import LinkRefused

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

BODY_BYTES_MAX = 8 * 1024 * 1024  # of any route that is not named here; Django's own limit for forms is lower
DISCARDED_BYTES_MAX = 64 * 1024 * 1024  # of an upload that is refused: read, not kept, so that the refusal is read
SMALL_BYTES = 64 * 1024  # kept in memory, and in nobody's way
LARGE_BYTES_MAX = 2 * 1024**3  # of all larger bodies of one process, on disk
ARTIFACTS = "/artifacts/"
AGENTS = "/api/agent/"


class BodyTooLong(Exception):
    """More than its route can use."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"The request has more than {bytes_max} bytes.")


class BodiesFull(Exception):
    """The large bodies of other requests take all the room there is."""


class VisitorGone(Exception):
    """Nobody is there to be answered."""


@dataclass
class Body:
    """A whole body. `file` is read from its begin; `size` counts what came."""

    file: IO[bytes]
    size: int
    counted: int = 0  # of LARGE_BYTES_MAX


class BodyReader:
    """Reads the bodies of one process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.large_bytes = 0

    async def read(self, scope: Mapping[str, Any], receive: Receive) -> Body:
        """The whole body; raises BodyTooLong, BodiesFull, VisitorGone. Close it with `close`."""
        bytes_max, is_kept = bounds_of(scope)
        body = Body(BytesIO(), 0)
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise VisitorGone
                chunk = message.get("body", b"")
                body.size += len(chunk)
                if body.size > bytes_max:
                    raise BodyTooLong(bytes_max)
                if chunk and is_kept:
                    await self._keep(body, chunk)
                if not message.get("more_body"):
                    body.file.seek(0)
                    return body
        except BaseException:
            self.close(body)
            raise

    def close(self, body: Body) -> None:
        """Free what it takes; twice is as good as once."""
        body.file.close()
        self.large_bytes -= body.counted
        body.counted = 0

    async def _keep(self, body: Body, chunk: bytes) -> None:
        if body.size <= SMALL_BYTES:
            body.file.write(chunk)
            return
        if self.large_bytes + body.size - body.counted > LARGE_BYTES_MAX:
            raise BodiesFull
        self.large_bytes += body.size - body.counted
        body.counted = body.size
        if isinstance(body.file, BytesIO):
            small = body.file.getvalue()
            body.file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  `close` closes it
            chunk = small + chunk
        await asyncio.to_thread(body.file.write, chunk)


def bounds_of(scope: Mapping[str, Any]) -> tuple[int, bool]:
    """How many bytes the body may have, and whether they are kept: those of a refused upload are read for nothing."""
    path = scope["path"]
    if path.startswith(AGENTS):
        return MANIFEST_BODY_BYTES_MAX + 1, True  # one more, so that the view's own refusal names its limit
    if not path.startswith(ARTIFACTS):
        return BODY_BYTES_MAX, True
    store = get_store()
    if scope["method"] != "PUT" or not isinstance(store, LocalStore):
        return BODY_BYTES_MAX, False
    query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    try:
        size = open_link("PUT", path.removeprefix(ARTIFACTS), query, store.secret).size
    except LinkRefused:
        return DISCARDED_BYTES_MAX, False
    announced = dict(scope["headers"]).get(b"content-length")
    return (size, True) if announced in {None, str(size).encode()} else (DISCARDED_BYTES_MAX, False)

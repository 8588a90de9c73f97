"""Request bodies, read whole before a thread is taken, within bounds that depend on the address.

What is small lies in memory, what is larger in a file that nobody else can open. A body is as large as its route can
use: parts of uploads only where the address is signed for their size, so that no stranger fills the disk. Of the room
for larger ones half stays for signed uploads, and one visitor takes a share of it at most: who sends slowly what nobody
asked for is in their own way alone.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl

from django.conf import settings

from jobs.api.agents import MANIFEST_BODY_BYTES_MAX
from jobs.artifacts.choice import get_store
from jobs.artifacts.links import open_link
from jobs.artifacts.local import LocalStore
from jobs.errors import LinkRefused
from marketplace.foundation.addresses.client_address import read_trusted_proxies
from marketplace.foundation.addresses.forwarded import FORWARDED_HEADER, address_behind, counted_address

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

BODY_BYTES_MAX = 8 * 1024 * 1024  # of any route that is not named here; Django's own limit for forms is lower
DISCARDED_BYTES_MAX = 64 * 1024 * 1024  # of an upload that is refused: read, not kept, so that the refusal is read
SMALL_BYTES = 64 * 1024  # kept in memory, and in nobody's way
LARGE_BYTES_MAX = 2 * 1024**3  # of all larger bodies of one process, on disk
UNSIGNED_BYTES_MAX = LARGE_BYTES_MAX // 2  # of those that anybody may send, all together
UNSIGNED_ADDRESS_BYTES_MAX = LARGE_BYTES_MAX // 8  # and of one address
SIGNED_ADDRESS_BYTES_MAX = LARGE_BYTES_MAX // 2  # of parts of uploads from one address
ARTIFACTS = "/artifacts/"
AGENTS = "/api/agent/"
FORWARDED_NAME = FORWARDED_HEADER.lower().encode()


class BodyTooLong(Exception):
    """More than its route can use."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"The request has more than {bytes_max} bytes.")


class BodiesFull(Exception):
    """The large bodies of other requests take all the room there is, or those of this visitor their share of it."""


class VisitorGone(Exception):
    """Nobody is there to be answered."""


@dataclass(frozen=True)
class Bounds:
    """How many bytes a body may have, whether they are kept, and whether its address is signed for them."""

    bytes_max: int
    is_kept: bool = True  # those of a refused upload are read for nothing
    is_signed: bool = False


@dataclass
class Body:
    """A whole body. `file` is read from its begin; `size` counts what came."""

    file: IO[bytes]
    size: int
    visitor: tuple[bool, str] = (False, "")  # signed or not, and whose: what it is counted under
    counted: int = 0  # of LARGE_BYTES_MAX


class BodyReader:
    """Reads the bodies of one process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.large_bytes = self.unsigned_bytes = 0
        self._by_visitor: Counter[tuple[bool, str]] = Counter()

    async def read(self, scope: Mapping[str, Any], receive: Receive) -> Body:
        """The whole body; raises BodyTooLong, BodiesFull, VisitorGone. Close it with `close`."""
        bounds = bounds_of(scope)
        body = Body(BytesIO(), 0, visitor=(bounds.is_signed, address_of(scope)))
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise VisitorGone
                chunk = message.get("body", b"")
                body.size += len(chunk)
                if body.size > bounds.bytes_max:
                    raise BodyTooLong(bounds.bytes_max)
                if chunk and bounds.is_kept:
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
        self._count(body, -body.counted)

    async def _keep(self, body: Body, chunk: bytes) -> None:
        if body.size <= SMALL_BYTES:
            body.file.write(chunk)
            return
        self._require_room(body, body.size - body.counted)
        self._count(body, body.size - body.counted)
        if isinstance(body.file, BytesIO):
            small = body.file.getvalue()
            body.file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  `close` closes it
            chunk = small + chunk
        await asyncio.to_thread(body.file.write, chunk)

    def _require_room(self, body: Body, more: int) -> None:
        is_signed, _ = body.visitor
        of_visitor = SIGNED_ADDRESS_BYTES_MAX if is_signed else UNSIGNED_ADDRESS_BYTES_MAX
        is_full = self.large_bytes + more > LARGE_BYTES_MAX or self._by_visitor[body.visitor] + more > of_visitor
        if is_full or (not is_signed and self.unsigned_bytes + more > UNSIGNED_BYTES_MAX):
            raise BodiesFull

    def _count(self, body: Body, more: int) -> None:
        body.counted += more
        self.large_bytes += more
        self.unsigned_bytes += 0 if body.visitor[0] else more
        self._by_visitor[body.visitor] += more
        if not self._by_visitor[body.visitor]:
            del self._by_visitor[body.visitor]


def address_of(scope: Mapping[str, Any]) -> str:
    """Whose body it is: the connection's other end, or whom trusted proxies vouch for."""
    headers = [value.decode("latin-1") for name, value in scope["headers"] if name == FORWARDED_NAME]
    trusted = read_trusted_proxies(settings.SOUK_TRUSTED_PROXIES)
    return counted_address(address_behind((scope.get("client") or ("",))[0], ",".join(headers), trusted))


def bounds_of(scope: Mapping[str, Any]) -> Bounds:
    """What the body's route can use."""
    path = scope["path"]
    if path.startswith(AGENTS):
        return Bounds(MANIFEST_BODY_BYTES_MAX + 1)  # one more, so that the view's own refusal names its limit
    if not path.startswith(ARTIFACTS):
        return Bounds(BODY_BYTES_MAX)
    store = get_store()
    if scope["method"] != "PUT" or not isinstance(store, LocalStore):
        return Bounds(BODY_BYTES_MAX, is_kept=False)
    query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    try:
        size = open_link("PUT", path.removeprefix(ARTIFACTS), query, store.secret).size
    except LinkRefused:
        return Bounds(DISCARDED_BYTES_MAX, is_kept=False)
    announced = dict(scope["headers"]).get(b"content-length")
    if announced not in {None, str(size).encode()}:
        return Bounds(DISCARDED_BYTES_MAX, is_kept=False)
    return Bounds(size, is_signed=True)

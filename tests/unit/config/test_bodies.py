"""Bodies that come slowly take a bounded share of the room for all: of each visitor, and of what is not signed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from marketplace.config.web import bodies
from marketplace.config.web.bodies import BodiesFull, BodyReader

MIB = 1024**2
SECONDS_MAX = 10.0
MALLORY, ALICE = "192.0.2.1", "192.0.2.2"


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is 2 GiB elsewhere is 8 MiB."""
    monkeypatch.setattr(bodies, "LARGE_BYTES_MAX", 8 * MIB)
    monkeypatch.setattr(bodies, "UNSIGNED_BYTES_MAX", 4 * MIB, raising=False)
    monkeypatch.setattr(bodies, "UNSIGNED_ADDRESS_BYTES_MAX", 1 * MIB, raising=False)
    monkeypatch.setattr(bodies, "SIGNED_ADDRESS_BYTES_MAX", 4 * MIB, raising=False)


def scope_of(address: str, **headers: str) -> dict[str, Any]:
    given = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
    return {"path": "/api/v1/jobs", "method": "POST", "query_string": b"", "headers": given, "client": (address, 1)}


async def read(reader: BodyReader, size: int, scope: dict[str, Any]) -> int:
    """A body that comes at once."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"x" * size, "more_body": False}

    body = await reader.read(scope, receive)
    reader.close(body)
    return body.size


@asynccontextmanager
async def slow(reader: BodyReader, count: int, size: int, scope: dict[str, Any]) -> AsyncIterator[None]:
    """So many bodies that have come but for their last byte; those that are refused are not there any more."""

    def begin() -> asyncio.Task[Any]:
        came: list[bytes] = [b"x" * size]
        last = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if came:
                return {"type": "http.request", "body": came.pop(), "more_body": True}
            await last.wait()
            return {"type": "http.disconnect"}

        return asyncio.create_task(reader.read(scope, receive))

    tasks = [begin() for _ in range(count)]
    await asyncio.sleep(0.2)
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def run(scenario: Any) -> Any:
    return asyncio.run(asyncio.wait_for(scenario, SECONDS_MAX))


def test_who_sends_slowly_is_in_nobody_elses_way(tmp_path: Path) -> None:
    reader = BodyReader(tmp_path)

    async def scenario() -> None:
        async with slow(reader, 40, MIB // 4, scope_of(MALLORY)):
            assert reader.large_bytes == MIB
            with pytest.raises(BodiesFull):
                await read(reader, MIB // 4, scope_of(MALLORY))
            assert await read(reader, MIB, scope_of(ALICE)) == MIB
        assert (reader.large_bytes, reader.unsigned_bytes) == (0, 0)
        assert await read(reader, MIB, scope_of(MALLORY)) == MIB

    run(scenario())


def test_many_who_send_slowly_leave_room_for_signed_uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = BodyReader(tmp_path)

    async def scenario() -> None:
        scopes = [scope_of(f"192.0.2.{number}") for number in range(10, 20)]
        slows = [slow(reader, 8, MIB // 4, scope) for scope in scopes]
        for each in slows:
            await each.__aenter__()
        with pytest.raises(BodiesFull):
            await read(reader, MIB // 4, scope_of(ALICE))
        monkeypatch.setattr(bodies, "bounds_of", lambda _: bodies.Bounds(4 * MIB, is_signed=True))
        assert await read(reader, 4 * MIB, scope_of(ALICE)) == 4 * MIB
        for each in slows:
            await each.__aexit__(None, None, None)

    run(scenario())


def test_behind_a_proxy_each_visitor_has_a_share(tmp_path: Path, settings: Any) -> None:
    settings.SOUK_TRUSTED_PROXIES = "1"
    reader = BodyReader(tmp_path)
    proxy = "10.0.0.1"

    async def scenario() -> None:
        async with slow(reader, 40, MIB // 4, scope_of(proxy, X_Forwarded_For=f"{ALICE}, {MALLORY}")):
            with pytest.raises(BodiesFull):
                await read(reader, MIB // 4, scope_of(proxy, X_Forwarded_For=f"198.51.100.7, {MALLORY}"))
            assert await read(reader, MIB, scope_of(proxy, X_Forwarded_For=ALICE)) == MIB

    run(scenario())

"""Connections to an engine that wait for another request: not too many, not too long."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from provider_agent.tunnel import engine as engine_module
from provider_agent.tunnel.engine import Engine
from tests.fakes.tunnelled import run


@contextlib.asynccontextmanager
async def listening(path: Path) -> AsyncIterator[Engine]:
    """An engine that takes connections and says nothing."""
    server = await asyncio.start_unix_server(lambda _reader, _writer: None, path)
    async with server:
        made = Engine(path)
        yield made
        made.close()


def test_a_connection_that_waits_is_used_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with listening(tmp_path / "serve.sock") as engine:
            connection = await engine.connect()
            engine.give_back(connection)
            engine.sweep()
            assert engine.take_idle() is connection
            assert engine.take_idle() is None

    run(scenario())


def test_more_than_may_wait_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "IDLE_MAX", 1)

    async def scenario() -> None:
        async with listening(tmp_path / "serve.sock") as engine:
            first, second = await engine.connect(), await engine.connect()
            engine.give_back(first)
            engine.give_back(second)
            assert (first.is_gone, second.is_gone) == (False, True)
            engine.give_back(second)  # it is gone already
            assert engine.take_idle() is first

    run(scenario())


def test_what_waited_too_long_is_closed_and_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "IDLE_SECONDS_MAX", 0.0)

    async def scenario() -> None:
        async with listening(tmp_path / "serve.sock") as engine:
            taken, swept = await engine.connect(), await engine.connect()
            engine.give_back(taken)
            assert engine.take_idle() is None
            engine.give_back(swept)
            engine.sweep()
            assert taken.is_gone
            assert swept.is_gone

    run(scenario())

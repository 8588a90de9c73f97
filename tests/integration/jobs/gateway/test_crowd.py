"""The crowd sees what befalls its streams for what it is: without a gateway between, an engine's faults are bare."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.fakes.engine import EngineChild
from tests.integration.jobs.gateway.crowd import BROKEN, COMPLETE, CUT, ERROR, Crowd


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineChild]:
    with EngineChild() as child:
        yield child


@pytest.mark.parametrize(
    ("fault", "outcome"), [(None, COMPLETE), ("end", CUT), ("cut", BROKEN), ("error", ERROR), ("status", ERROR)]
)
def test_what_befalls_a_stream_is_seen_for_what_it_is(engine, fault, outcome):
    engine.heal()
    if fault is not None:
        engine.fail(fault, tokens=3)
    assert asyncio.run(Crowd(engine.base_url, "none", 4).stream()) == {outcome: 4}

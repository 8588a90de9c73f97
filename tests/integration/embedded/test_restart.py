"""`kill -9` of any child is noticed, and the child is started again."""

from __future__ import annotations

import os
import signal

import pytest

from tests.integration.embedded.marketplaces import Up, wait_for

pytestmark = pytest.mark.timeout(600)  # whole marketplaces start, on whatever else the computer does


@pytest.mark.parametrize("name", ["web", "sync", "worker", "beat", "redis", "postgres"])
def test_a_killed_child_is_replaced_and_all_is_well_again(running: Up, name: str) -> None:
    before = running.pid_of(name)
    assert before
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: running.pid_of(name) not in {None, before})
    wait_for(running.is_well)


def test_healthz_names_what_is_down(running: Up) -> None:
    """Stopped, not killed, so that nobody replaces it."""
    import httpx

    redis = running.pid_of("redis")
    assert redis
    os.kill(redis, signal.SIGSTOP)
    try:
        answer = httpx.get(f"{running.url}/healthz", timeout=30)
        assert (answer.status_code, answer.json()) == (503, {"status": "down", "down": ["redis"]})
    finally:
        os.kill(redis, signal.SIGCONT)
    wait_for(running.is_well)

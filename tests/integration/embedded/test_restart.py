"""`kill -9` of any child is noticed, and the child is started again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from marketplace.portal.install.wheel import build_wheel
from tests.integration.embedded.marketplaces import Up, clean_environment, free_port, wait_for
from tests.wheels import rebuild_wheel

# Whole marketplaces start, on whatever else the computer does.
pytestmark = [pytest.mark.own_servers, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("name", ["web", "sync", "gateway", "worker", "beat", "redis", "postgres"])
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


@pytest.mark.soak  # two whole starts
def test_a_server_rolled_back_starts_and_warns_that_its_agent_is_older(short_folder: Path) -> None:
    """What was published before stays what nodes receive."""
    newer = rebuild_wheel(build_wheel(short_folder / "dist"), short_folder, "9.0.0")
    data, port = short_folder / "data", free_port()
    without_chain = clean_environment(SOUK_CHAINS="[]")
    with Up(data, port, env=without_chain | {"SOUK_AGENT_WHEEL": str(newer)}) as up:
        assert up.is_well()
    with Up(data, port, env=without_chain) as again:
        assert again.is_well()
        _, output = again.stop()
    assert "WARNING" in output
    assert "is not above 9.0.0" in output
    assert "rollout back" in output

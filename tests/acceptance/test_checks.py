"""A node that joins has to prove what it sells, and its provider sees the result."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from examples.market import Market
from tests.acceptance.conftest import start_market

# In CI a real agent answers a check in tests/integration/nodes/test_agent_device_checks.py.
pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow, pytest.mark.soak]
CHECK_SECONDS_MAX = 240.0
FINDINGS = {"products", "work_seconds", "memory_blocks", "recall_seconds"}


@pytest.fixture
def market() -> Iterator[Market]:
    with start_market() as running:
        yield running


def test_node_that_joined_answers_its_first_check_and_every_number_is_shown(market: Market) -> None:
    provider = market.add_node("proven", price="1.10")
    with httpx.Client(
        base_url=f"{market.server}/api/v1/provider", headers={"Authorization": f"Bearer {provider.key}"}, timeout=20
    ) as api:
        (node,) = api.get("/nodes").json()["results"]
        check = wait_for_verdict(api, node["id"])
        found = {finding["what"]: finding for finding in check["findings"]}
        assert set(found) == FINDINGS
        # How fast it was depends on who else uses these cores; that it was right does not.
        assert found["products"]["measured"] == found["products"]["needed"]
        assert found["memory_blocks"]["measured"] == found["memory_blocks"]["needed"]
        (node,) = api.get("/nodes").json()["results"]
        assert node["checks_passed"] + node["checks_failed"] >= 1
        assert node["suspended_at"] is None
        reputation = api.get(f"/nodes/{node['id']}/reputation").json()
        assert {part["name"] for part in reputation["parts"]} == {"uptime", "attempts", "verification", "age"}


def wait_for_verdict(api: httpx.Client, node_id: str) -> dict[str, Any]:
    """The first check of the node that was answered."""
    until = time.monotonic() + CHECK_SECONDS_MAX
    while time.monotonic() < until:
        for check in api.get(f"/nodes/{node_id}/checks").json()["results"]:
            if check["findings"]:
                return dict(check)
        time.sleep(0.5)
    raise AssertionError("no check was answered")

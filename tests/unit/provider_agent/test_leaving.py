"""The order to leave counts for some minutes, whatever the clock says."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from provider_agent.lease.watchdog import LEAVING_SECONDS, has_to_leave


def test_a_node_without_the_order_stays(tmp_path: Path) -> None:
    assert not has_to_leave(tmp_path / "leaving")


@pytest.mark.parametrize(("age", "expected"), [(0, True), (540, True), (660, False), (-660, False), (10**9, False)])
def test_the_order_counts_for_ten_minutes(tmp_path: Path, age: int, expected: bool) -> None:
    leaving = tmp_path / "leaving"
    leaving.touch()
    assert LEAVING_SECONDS == 600
    at = time.time() - age
    os.utime(leaving, (at, at))
    assert has_to_leave(leaving) is expected

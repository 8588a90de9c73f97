"""A job that completed and left nothing is pointed out wherever its customer looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.jobs.client.conftest import Run
from tests.unit.jobs.client.fake_server import FakeMarketplace

LEFT_NOTHING = "The job completed and left no files"


@pytest.fixture
def completed(market: FakeMarketplace) -> FakeMarketplace:
    """Alice's job is over, and its output is empty."""
    market.job |= {"state": "completed"}
    market.output = {}
    return market


def test_show_warns_of_a_job_that_left_no_files(run: Run, completed: FakeMarketplace) -> None:
    ended = run("show", completed.job_id)
    assert (ended.status, LEFT_NOTHING in ended.err) == (0, True)
    assert run("show", completed.job_id, "--json").json["state"] == "completed"
    completed.output = {"model": b"m"}
    assert run("show", completed.job_id).err == ""


def test_download_says_that_there_is_nothing_to_fetch(run: Run, completed: FakeMarketplace) -> None:
    ended = run("download", completed.job_id)
    assert (ended.status, LEFT_NOTHING in ended.err) == (12, True)


def test_launch_warns_at_the_end_in_place_of_the_way_to_download(
    run: Run, completed: FakeMarketplace, job_file: Path
) -> None:
    completed.logs[1], completed.events[1] = b"", b""
    completed.complete.add(1)
    ended = run("launch", job_file, "--yes")
    assert (ended.status, LEFT_NOTHING in ended.err) == (0, True)
    assert "souk download" not in ended.out

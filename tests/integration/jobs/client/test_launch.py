"""plan and launch against a running marketplace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.client.transport import ATTEMPTS_MAX
from tests.unit.jobs.client.conftest import Run
from tests.unit.jobs.client.fake_answers import an_attempt
from tests.unit.jobs.client.fake_http import Fault
from tests.unit.jobs.client.fake_server import FakeMarketplace


def finish(market: FakeMarketplace, state: str = "completed") -> None:
    """A job that trains on Bob's node, which is lost, and ends on Carol's."""
    views = 0

    def move(market: FakeMarketplace) -> None:
        nonlocal views
        views += 1
        bob = an_attempt(1, "bob")
        if views == 2:
            market.job |= {
                "state": "running",
                "attempts": [bob],
                "progress": {"step": 5, "steps_total": 10, "loss": 3.5},
            }
            market.logs[1], market.events[1] = b"one\n", b'{"event": "started", "model": "tiny"}\n{"event": "st'
        if views == 3:
            lost = bob | {"state": "lost", "reason": "node_silent"}
            market.job |= {"state": "recovering", "attempts": [lost]}
            market.complete.add(1)
        if views == 4:
            carol = an_attempt(2, "carol", resumed_from_step=4)
            market.job |= {"state": "running", "attempts": [*market.job["attempts"], carol]}
            market.logs[2], market.events[2] = b"two\n", b'{"event": "checkpointed", "step": 8}\n'
        if views == 5:
            market.job |= {"state": state, "cost_so_far_usd_micros": 41_234}
            market.logs[2] += b"last line\n"
        if views == 6:
            market.complete.add(2)

    market.on_job = move


def test_plan_shows_candidates_prices_totals_and_why_one_is_chosen(run: Run, job_file: Path) -> None:
    ended = run("plan", job_file)
    assert ended.status == 0
    for text in (
        "bob",
        "carol",
        "$0.36",
        "5m",
        "$0.06",
        "$2.00",
        "bob is chosen: the cheapest to complete",
        "1 lacks 24 GB",
    ):
        assert text in ended.out
    assert "Others cost less an hour" in ended.out


def test_plan_as_json_is_the_quote(run: Run, job_file: Path) -> None:
    assert run("plan", job_file, "--json").json["cap_usd_micros"] == 2_000_000


def test_nothing_fits_says_why_and_the_nearest_fix(run: Run, market: FakeMarketplace, job_file: Path) -> None:
    market.is_fitting = False
    ended = run("plan", job_file)
    assert ended.status == 7
    assert "90 are above your price" in ended.out
    assert "+$0.05 per GPU-hour adds 9 nodes" in ended.out
    machine = run("launch", job_file, "--yes", "--json")
    assert machine.status == 7
    assert machine.json["error"]["code"] == "nothing_fits"
    assert "/api/v1/jobs" not in market.routes("POST")


def test_launch_sends_the_files_submits_and_watches_to_the_end(
    run: Run, market: FakeMarketplace, job_file: Path
) -> None:
    finish(market)
    ended = run("launch", job_file, "--yes")
    assert ended.status == 0
    assert market.uploaded == {"train.py": b"print('hello')", "data/a.txt": b"some text", "data/empty": b""}
    assert market.etags["train.py"] == ["train.py-1", "train.py-2", "train.py-3"]
    submitted = next(asked for asked in market.asked if asked.method == "POST" and asked.path == "/api/v1/jobs").json
    assert submitted["secrets"] == {"HF_TOKEN": "hf_secret"}
    assert submitted["input_artifact_id"] is not None
    assert ended.out.count("one\n") == ended.out.count("two\n") == ended.out.count("last line\n") == 1
    assert (
        "recovered after node_silent: attempt 2 on carol (2 x CPU share) goes on from the checkpoint of step 4"
        in ended.out
    )
    assert "started: model tiny" in ended.out
    assert "checkpointed: step 8" in ended.out
    assert "step 5/10, loss 3.500" in ended.out
    assert "$0.041234" in ended.out


def test_no_credential_goes_with_the_files(run: Run, market: FakeMarketplace, job_file: Path) -> None:
    run("launch", job_file, "--yes", "--detach")
    puts = [asked for asked in market.asked if asked.method == "PUT"]
    assert puts
    assert not any("authorization" in asked.headers for asked in puts)


@pytest.mark.parametrize(("state", "status"), [("failed", 8), ("cancelled", 9), ("paused", 11)])
def test_exit_status_shows_how_the_job_ended(
    run: Run, market: FakeMarketplace, job_file: Path, state: str, status: int
) -> None:
    finish(market, state)
    assert run("launch", job_file, "--yes").status == status


def test_launch_as_json_prints_one_object_a_line(run: Run, market: FakeMarketplace, job_file: Path) -> None:
    finish(market)
    ended = run("launch", job_file, "--yes", "--json")
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert {line["type"] for line in lines} == {"job", "event", "log"}
    assert "".join(line["text"] for line in lines if line["type"] == "log") == "one\ntwo\nlast line\n"
    assert [line["event"]["event"] for line in lines if line["type"] == "event"] == ["started", "checkpointed"]
    assert lines[-1]["type"] != "job" or lines[-1]["job"]["state"] == "completed"


def test_detached_launch_says_how_to_come_back(run: Run, market: FakeMarketplace, job_file: Path) -> None:
    ended = run("launch", job_file, "--yes", "--detach")
    assert ended.status == 0
    assert f"souk logs -f {market.job_id}" in ended.out
    assert f"souk cancel {market.job_id}" in ended.out


def test_lost_answer_to_a_submit_does_not_submit_twice(run: Run, market: FakeMarketplace, job_file: Path) -> None:
    market.faults.append(Fault("POST /jobs", times=2, is_after=True))
    assert run("launch", job_file, "--yes", "--detach").status == 0
    assert market.routes("POST").count("/api/v1/jobs") == 3
    assert market.effects.count("/jobs") == 1


def test_watching_survives_lost_connections_without_gap_or_repeat(
    run: Run, market: FakeMarketplace, job_file: Path
) -> None:
    finish(market)
    market.faults += [Fault("GET /jobs/", times=ATTEMPTS_MAX + 3), Fault("GET /jobs/", times=3, is_after=True)]
    ended = run("launch", job_file, "--yes")
    assert ended.status == 0
    assert ended.out.count("one\n") == ended.out.count("two\n") == ended.out.count("last line\n") == 1


def test_bad_job_file_is_refused_before_anything_is_sent(run: Run, market: FakeMarketplace, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("kind: train\nname: Tiny\nresorces: {}\n")
    for command in (["plan"], ["launch", "--yes"]):
        ended = run(*command, bad)
        assert ended.status == 3
        assert "line 3: resorces: unknown field; did you mean resources?" in ended.err
    assert run("plan", bad, "--json").json["error"]["details"]["errors"][1]["line"] == 1
    assert market.asked == []


def test_missing_secret_or_file_is_found_before_anything_is_sent(
    run: Run, market: FakeMarketplace, job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job_file.parent / "train.py").unlink()
    ended = run("launch", job_file, "--yes")
    assert (ended.status, "'train.py' does not exist" in ended.err) == (3, True)
    monkeypatch.delenv("HF_TOKEN")
    ended = run("launch", job_file, "--yes")
    assert (ended.status, "the environment variable HF_TOKEN is not set" in ended.err) == (3, True)
    assert market.asked == []


def test_missing_job_file_is_a_usage_mistake(run: Run, tmp_path: Path) -> None:
    ended = run("launch", tmp_path / "no.yaml")
    assert (ended.status, "cannot be read" in ended.err) == (2, True)


def test_launch_asks_unless_yes_is_given(run: Run, market: FakeMarketplace, job_file: Path) -> None:
    ended = run("launch", job_file)
    assert (ended.status, "add --yes" in ended.err) == (2, True)
    assert "/api/v1/jobs" not in market.routes("POST")


def test_too_little_money_says_what_to_do(run: Run, market: FakeMarketplace, job_file: Path) -> None:
    market.faults.append(Fault("POST /jobs", status=402))
    ended = run("launch", job_file, "--yes")
    assert ended.status == 6
    assert "Deposit the missing amount" in ended.err


def accept_ctrl_c() -> None:
    """Tests that a shell started in the background are deaf to it, and so would their children be."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_detaches_and_the_job_goes_on(market: FakeMarketplace, job_file: Path) -> None:
    market.job |= {"state": "running", "attempts": [an_attempt(1, "bob")]}
    market.logs[1] = b"it runs\n"
    command = [sys.executable, "-m", "jobs.client.cli", "launch", str(job_file), "--yes"]
    root = Path(__file__).parents[4]
    process = subprocess.Popen(
        command,
        cwd=root,
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=accept_ctrl_c,  # noqa: PLW1509 - the test's process has one thread that matters, and it waits here
    )
    try:
        deadline = time.monotonic() + 60
        while market.routes("GET").count(f"/api/v1/jobs/{market.job_id}") < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "it runs" in out
    assert f"Detached; the job goes on.\nsouk logs -f {market.job_id}" in err
    assert "Traceback" not in err
    assert not any("cancel" in path for path in market.routes("POST"))

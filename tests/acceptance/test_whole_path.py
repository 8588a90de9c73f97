"""A job file, all the way to a paid provider, and what happens when processes die on the way. No part is a fake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from examples.market import SOUK, Market, Party, kill_tree, run, run_json, wait_for
from tests.acceptance.customer import ENDS, TINY, launch, souk_of, wait_until
from tests.integration.runtimes.s3_server import BUCKET, running_s3

pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow]
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_an_own_script_that_knows_nothing_of_souk_goes_the_whole_path(
    market: Market, alice: Party, tmp_path: Path
) -> None:
    env = alice.env(market.server)
    lines = run([SOUK, "launch", str(EXAMPLES / "own-script.yaml"), "--yes", "--json"], env, seconds=300).splitlines()
    last = [json.loads(line) for line in lines if line.startswith("{")][-1]
    with souk_of(market, alice) as souk:
        (job,) = souk.jobs()
    assert job.state == "completed", (job.message, last)
    run([SOUK, "download", str(job.job_id), "--into", str(tmp_path / "out")], env)
    metrics = json.loads(next((tmp_path / "out").rglob("metrics.json")).read_text())
    assert metrics["loss"] < metrics["first_loss"]
    log = run([SOUK, "logs", str(job.job_id)], env)
    assert "step" in log
    bill = run_json([SOUK, "bill", str(job.job_id)], env)
    assert bill["verified"] is True
    assert 0 < bill["bill"]["total_usd_micros"] < 500_000


def test_cancel_stops_a_running_job_and_charges_what_was_used(market: Market, alice: Party) -> None:
    with souk_of(market, alice) as souk:
        # Far longer than the test, and within the budget of a node that was measured while the computer was busy.
        job = launch(souk, TINY | {"work": {"steps": 50_000}, "budget": {"max_total": "4.00"}})
        wait_until(souk, job, {"running"})
        wait_for("a first receipt", lambda: souk.job(job.job_id).cost_so_far_usd_micros, 60)
        souk.cancel(job.job_id)
        ended = wait_until(souk, job, ENDS)
        assert (ended.state, ended.reason) == ("cancelled", "cancelled_by_customer")
        bill = souk.bill(job.job_id)
        assert bill.is_final and 0 < bill.total_usd_micros < 1_000_000
        assert souk.balance().available_usd_micros == 5_000_000 - bill.total_usd_micros
        assert souk.balance().held_usd_micros == 0


def test_a_job_goes_on_while_its_agent_restarts(market: Market, alice: Party) -> None:
    with souk_of(market, alice) as souk:
        job = launch(souk, TINY)
        running = wait_until(souk, job, {"running"})
        name = running.attempts[-1].leases[0].node_name
        agent = market.agents[name]
        agent.send_signal(signal.SIGKILL)  # the agent alone: what it started lives on
        agent.wait(10)
        market.start_agent(name)
        ended = wait_until(souk, job, ENDS)
        assert ended.state == "completed"
        assert len(ended.attempts) == 1


COUNTS = """
import os, time
os.makedirs('results', exist_ok=True)
path = 'results/count.txt'
first = int(open(path).read()) if os.path.exists(path) else 0
print('counting from', first, flush=True)
for number in range(first + 1, 7):
    time.sleep(4)
    open(path, 'w').write(str(number))
"""


def test_an_own_script_goes_on_from_its_own_files_when_its_node_is_lost(
    market: Market, alice: Party, tmp_path: Path
) -> None:
    spec = {
        "kind": "command",
        "name": "counts",
        "resources": {"gpus": 1, "kind": "any", "isolation": "none"},
        "budget": {"max_total": "1.00"},
        "checkpoint": {"every": "2s", "path": "results"},
        "command": ["python", "-c", COUNTS],
    }
    with souk_of(market, alice) as souk:
        job = launch(souk, spec)
        wait_for("a checkpoint", lambda: [row for row in souk.artifacts(job.job_id) if row.state == "complete"], 120)
        name = souk.job(job.job_id).attempts[-1].leases[0].node_name
        kill_tree(market.agents[name])
        try:
            ended = wait_until(souk, job, ENDS, seconds=240)
        finally:
            market.start_agent(name)
    assert ended.state == "completed", ended.message
    assert len(ended.attempts) > 1
    log = run([SOUK, "logs", str(job.job_id)], alice.env(market.server))
    begun = [int(line.split()[-1]) for line in log.splitlines() if "counting from" in line]
    assert begun[-1] > 0, log
    run([SOUK, "download", str(job.job_id), "--into", str(tmp_path / "out")], alice.env(market.server))
    assert [each.read_text() for each in (tmp_path / "out").rglob("count.txt")] == ["6"]


def test_a_job_survives_the_death_of_worker_web_sync_and_redis(market: Market, alice: Party) -> None:
    with souk_of(market, alice) as souk:
        job = launch(souk, TINY)
        wait_until(souk, job, {"placed", "running"})
        ours = ["redis"] if "REDIS_URL" not in os.environ else []  # somebody else's Redis is not killed
        for name in ("worker", *ours, "sync", "web"):
            psutil.Process(market.operator["pids"][name]).kill()
        ended = wait_until(souk, job, ENDS, seconds=240)
        assert ended.state == "completed", ended.message
    with_ledger = run_json([SOUK, "ledger", "verify", "--data", market.operator["data"]], alice.env(market.server))
    assert with_ledger["is_true"], with_ledger


def test_a_job_that_fits_nowhere_is_refused_with_the_nearest_fix(market: Market, alice: Party, tmp_path: Path) -> None:
    job_file = tmp_path / "big.yaml"
    job_file.write_text(
        "kind: train\nname: big\nresources: {gpus: 8, kind: any, isolation: none}\nwork: {steps: 1}\n"
        "budget: {max_total: 1.00}\n"
        "train: {model: tiny-llama, data: python-docs}\n"
    )
    done = subprocess.run(
        [SOUK, "launch", str(job_file), "--yes"],
        env=alice.env(market.server),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 7
    assert "resources.gpus" in done.stdout + done.stderr
    with souk_of(market, alice) as souk:
        assert souk.jobs() == []


def test_a_training_reads_its_data_from_s3_with_its_own_secrets(market: Market, alice: Party, tmp_path: Path) -> None:
    with running_s3() as s3:
        s3.put({f"corpus/{number}.txt": b"The quick brown fox jumps over the lazy dog.\n" * 500 for number in range(3)})
        spec = TINY | {
            "network": "public",
            "work": {"steps": 20},
            "secrets": ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
            "env": {"AWS_ENDPOINT_URL_S3": s3.url},
            "train": {**TINY["train"], "data": [f"s3://{BUCKET}/corpus"]},
        }
        (tmp_path / "job.yaml").write_text(json.dumps(spec))
        keys = {"AWS_ACCESS_KEY_ID": "AKIAALICE", "AWS_SECRET_ACCESS_KEY": "alices-very-own-secret"}
        env = alice.env(market.server)
        run([SOUK, "launch", str(tmp_path / "job.yaml"), "--yes", "--json"], env | keys, seconds=300)
    with souk_of(market, alice) as souk:
        (job,) = souk.jobs()
    assert job.state == "completed", job.message
    assert len(s3.reads()) == 3
    assert all("Credential=AKIAALICE/" in each.headers["Authorization"] for each in s3.asked)
    log = run([SOUK, "logs", str(job.job_id)], env)
    assert f"data: fetched 0.1 MB of s3://{BUCKET}/corpus in" in log
    assert not [value for value in keys.values() if value in log]

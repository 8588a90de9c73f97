"""Two nodes of a rack train one model together.

The third joins them where the job file lets it. When one of two is lost, agent and all, the third takes its place, and
the other one never stops.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from examples.market import POLL_SECONDS, SOUK, Market, NodeOptions, Party, kill_tree, run, run_json, wait_for
from jobs.client.sdk import Souk
from jobs.wire import JobView
from tests.acceptance.customer import ENDS, TINY, launch, souk_of, wait_until
from tests.acceptance.gang_processes import launchers

pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow]

NAMES = ("trio-0", "trio-1", "trio-2")
STEPS = 400
PAIR: dict[str, Any] = {"gpus": 1, "nodes": 2, "kind": "any", "isolation": "none", "region": "trio"}


@pytest.fixture(scope="module")
def trio(market: Market) -> Party:
    return market.add_rack(NAMES, price="0.90", node=NodeOptions(devices=1, cores="", region="trio"))


def wait_for_checkpoint(souk: Souk, job: JobView) -> int:
    def look() -> int | None:
        steps = [
            each.step for each in souk.artifacts(job.job_id) if each.kind == "checkpoint" and each.state == "complete"
        ]
        return max((step for step in steps if step is not None), default=None)

    return wait_for("a checkpoint of both nodes", look, 180)


@pytest.mark.soak  # the other test has this gang, and one node more
def test_two_nodes_of_a_rack_train_one_model_together(
    market: Market, alice: Party, trio: Party, tmp_path: Path
) -> None:
    with souk_of(market, alice) as souk:
        job = launch(souk, TINY | {"resources": PAIR, "work": {"steps": 60}})
        ended = wait_until(souk, job, ENDS)
        assert ended.state == "completed", ended.message
        (attempt,) = ended.attempts
        names = {lease.node_name for lease in attempt.leases}
        assert len(names) == 2
        assert names < set(NAMES)
    env = alice.env(market.server)
    links = run_json([SOUK, "provider", "links"], trio.env(market.server))
    assert all(link["round_trip_us"] > 0 for link in links)
    assert all(link["bandwidth_bytes_per_second"] > 10_000_000 for link in links)
    run([SOUK, "download", str(job.job_id), "--into", str(tmp_path)], env)
    assert [path.stat().st_size > 0 for path in tmp_path.rglob("model.safetensors")] == [True], "written by one rank"
    bill = run_json([SOUK, "bill", str(job.job_id)], env)
    assert bill["verified"] is True
    charges = {line["node_name"]: line["charge_usd_micros"] for line in bill["bill"]["lines"]}
    assert set(charges) == names
    assert all(charge > 0 for charge in charges.values())


@pytest.mark.soak  # the server's tests and the runtime's have its two halves
def test_a_third_node_joins_two_that_train(market: Market, trio: Party) -> None:
    """The training has so many steps that growing is worth it, and ends early by its own rule."""
    grace = market.sign_up(f"grace-{secrets.token_hex(6)}")
    market.deposit(grace, "50.00")
    stops = {"evaluate_every": 800, "early_stop": {"patience": 1, "min_delta": 1000}}
    spec = TINY | {
        "resources": PAIR | {"nodes": "2..3"},
        "work": {"steps": 20_000},
        "budget": {"max_total": "40.00"},
        "train": TINY["train"] | stops,
    }
    with souk_of(market, grace) as souk:
        job = launch(souk, spec)
        step = wait_for_checkpoint(souk, job)
        (attempt,) = souk.job(job.job_id).attempts
        names = {lease.node_name for lease in attempt.leases[:2]}
        before = launchers(market, names)
        assert len(before) == 2
        (free,) = set(NAMES) - names
        # Equal nodes of one computer are measured as unequal; it is the slowest of them, and was not worth its price.
        run([market.agent_program, "price", "0.30", "--data", str(market.agent_folder(free))], dict(os.environ))

        def has_grown() -> JobView | None:
            view = souk.job(job.job_id)
            resumed = view.progress.get("resumed_from")
            return view if resumed and view.progress.get("step", 0) > resumed else None

        view = wait_for("steps of all three", has_grown, 240, poll_seconds_max=POLL_SECONDS)
        (grown,) = view.attempts[-1].generations
        assert (grown.reason, grown.grown_to) == ("grown", 3)
        assert grown.resumed_step >= step
        after = launchers(market, names)
        assert {name: each.pid for name, each in after.items()} == {name: each.pid for name, each in before.items()}
        ended = wait_until(souk, job, ENDS, 600)
        assert ended.state == "completed", ended.message
        (attempt,) = ended.attempts
        assert [lease.node_rank for lease in attempt.leases] == [0, 1, 2]
        assert {lease.node_name for lease in attempt.leases} == set(NAMES)
        assert "Generation 1 of the gang begins at step" in wait_for("the log", lambda: log_of(souk, job.job_id), 30)
    bill = run_json([SOUK, "bill", str(job.job_id)], grace.env(market.server))
    assert bill["verified"] is True
    assert {line["reason"] for line in bill["bill"]["lines"]} == {"completed"}
    assert [line["unpaid_ms"] for line in bill["bill"]["lines"]] == [0, 0, 0]
    assert all(line["charge_usd_micros"] > 0 for line in bill["bill"]["lines"])


def test_the_other_node_goes_on_with_a_third_one(market: Market, alice: Party, trio: Party) -> None:
    spec = TINY | {"resources": PAIR, "work": {"steps": STEPS}}
    with souk_of(market, alice) as souk:
        job = launch(souk, spec)
        step = wait_for_checkpoint(souk, job)
        (attempt,) = souk.job(job.job_id).attempts
        names = {lease.node_rank: lease.node_name for lease in attempt.leases}
        before = launchers(market, set(names.values()))
        assert set(before) == set(names.values())
        began = time.monotonic()
        kill_tree(market.agents[names[1]])
        before[names[1]].kill()

        def is_replaced() -> JobView | None:
            view = souk.job(job.job_id)
            return view if len(view.attempts[-1].leases) == 3 else None

        wait_for("another node in its place", is_replaced, 90, poll_seconds_max=POLL_SECONDS)
        replaced = time.monotonic() - began

        def has_stepped() -> JobView | None:
            view = souk.job(job.job_id)
            resumed = view.progress.get("resumed_from")
            return view if resumed and view.progress.get("step", 0) > resumed else None

        view = wait_for("steps of the next generation", has_stepped, 90, poll_seconds_max=POLL_SECONDS)
        print(f"replaced {replaced:.1f} s after the kill, stepping {time.monotonic() - began:.1f} s after it")
        assert view.progress["resumed_from"] >= step
        after = launchers(market, {names[0]})
        assert (after[names[0]].pid, after[names[0]].create_time()) == (
            before[names[0]].pid,
            before[names[0]].create_time(),
        )
        ended = wait_until(souk, job, ENDS, 400)
        assert ended.state == "completed", ended.message
        (attempt,) = ended.attempts
        assert [lease.node_rank for lease in attempt.leases] == [0, 1, 1]
        assert len({lease.node_name for lease in attempt.leases}) == 3
        steps = wait_for("the log", lambda: log_of(souk, job.job_id), 30)
        assert "Generation 1 of the gang begins at step" in steps
    bill = run_json([SOUK, "bill", str(job.job_id)], alice.env(market.server))
    assert bill["verified"] is True
    lines = {line["node_name"]: line for line in bill["bill"]["lines"]}
    assert lines[names[0]]["unpaid_ms"] > 0
    assert lines[names[1]]["reason"] in ("node_silent", "process_vanished")


def log_of(souk: Souk, job_id: UUID) -> str:
    return souk.stream(job_id, "logs", node_rank=0).text

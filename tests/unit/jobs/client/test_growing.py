"""What `souk plan` and `souk show` say of a training that grows."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from jobs.client.training_plan import plan_training
from jobs.client.views.job import job_view
from jobs.client.views.plan import plan_view
from jobs.spec import from_wire
from jobs.wire import JobView, QuoteView
from tests.unit.jobs.client.fake_answers import NOW, fitting_plan

GROWS: dict[str, Any] = {
    "kind": "train",
    "name": "grows",
    "resources": {"nodes": "2..4"},
    "work": {"steps": 100},
    "budget": {"max_total": 2},
    "train": {"global_batch_size": 10, "micro_batch_size": 4, "strategy": "ddp"},
}
ID = "01990000-0000-7000-8000-000000000000"


def printed(view: Any, capsys: pytest.CaptureFixture[str]) -> str:
    Console(width=400).print(view)
    return capsys.readouterr().out


def lease(rank: int, **more: Any) -> dict[str, Any]:
    return {
        "lease_id": ID,
        "node_id": ID,
        "node_name": f"node-{rank}",
        "node_rank": rank,
        "state": "active",
        "devices": 1,
        "device_model": "CPU",
        "rate_usd_micros_per_hour": 1,
        "billable_ms": 0,
        "charge_usd_micros": 0,
    } | more


def generation(number: int, reason: str, **more: Any) -> dict[str, Any]:
    return {"number": number, "at": NOW, "reason": reason, "resumed_step": 10 * number} | more


def test_a_plan_says_that_it_is_of_the_fewest_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    quote = QuoteView.model_validate(
        {
            "quote_id": ID,
            "spec_hash": "0" * 64,
            "plan": fitting_plan(),
            "price_ceiling_usd_micros": 1,
            "expected_usd_micros": 1,
            "expected_seconds": 1.0,
            "cap_usd_micros": 1,
            "expires_at": NOW,
            "signature": "0",
            "balance_usd_micros": 1,
        }
    )
    assert "This is of 2 nodes. It grows to up to 4" in printed(plan_view(quote, from_wire(GROWS)), capsys)
    fixed = from_wire(GROWS | {"resources": {"nodes": 2}})
    assert "It grows" not in printed(plan_view(quote, fixed), capsys)


def test_the_memory_that_is_reckoned_is_enough_for_every_size(tmp_path: Any) -> None:
    def memory(nodes: Any) -> int:
        plan = plan_training(from_wire(GROWS | {"resources": {"nodes": nodes}}), tmp_path)
        assert plan is not None and plan.memory is not None
        return plan.memory.peak

    assert memory("2..4") == max(memory(nodes) for nodes in (2, 3, 4)) > memory(2)
    plan = plan_training(from_wire(GROWS), tmp_path)
    assert plan is not None
    assert (plan.ranks, plan.nodes_max) == (2, 4)


def test_a_job_says_when_it_grew_and_who_is_to_join(capsys: pytest.CaptureFixture[str]) -> None:
    attempt = {
        "attempt_id": ID,
        "number": 1,
        "state": "running",
        "reason": "",
        "fault": "",
        "message": "",
        "exit_code": None,
        "resumed_from_step": None,
        "created_at": NOW,
        "running_at": NOW,
        "ended_at": None,
        "leases": [lease(0), lease(1), lease(2, is_joining=True)],
        "generations": [
            generation(1, "grown", grown_to=3),
            generation(2, "node_silent"),
            generation(3, "node_silent", shrunk_to=2),
        ],
    }
    body = {
        "job_id": ID,
        "name": "grows",
        "kind": "train",
        "state": "running",
        "reason": "",
        "message": "",
        "waiting_for": "",
        "is_cancelling": False,
        "progress": {},
        "cost_so_far_usd_micros": 0,
        "cap_usd_micros": 1,
        "created_at": NOW,
        "running_at": NOW,
        "ended_at": None,
        "attempts": [attempt],
    }
    out = printed(job_view(JobView.model_validate(body)), capsys)
    assert "node-0, node-1, node-2 (joins)" in out
    assert "attempt 1: grown to 3 nodes at step 10\n" in out.replace(" \n", "\n")
    assert "attempt 1: shrunk to 2 nodes at step 30 (node_silent)" in out
    assert "step 20" not in out

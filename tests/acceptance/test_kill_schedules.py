"""Gangs of three nodes whose nodes are killed and hang, each by a schedule drawn from a seed (kill_schedules.py).

Each job completes; its samples and losses are those of an undisturbed one; each lease is charged once, within its cap;
and where one node is lost, the launchers of the two others are the same processes until the end.

SOUK_KILL_SCHEDULES is the number of jobs, SOUK_KILL_SEED the first seed; `make soak` has 50. A failure names its seed.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import psutil
import pytest

from examples.market import POLL_SECONDS, SOUK, Market, MarketError, NodeOptions, Party, run_json, wait_for
from jobs.client.sdk import Souk
from jobs.wire import BillView, JobView
from runtimes.contract import MANIFEST_NAME
from tests.acceptance.customer import ENDS, TINY, launch, souk_of
from tests.acceptance.gang_processes import last_step, launchers, strike, work_folder
from tests.acceptance.gang_records import Training, read_training
from tests.acceptance.kill_schedules import (
    FIRST_MOMENTS,
    GANG_NODES,
    HARMLESS,
    LOSSES,
    SECOND_MOMENTS,
    Blow,
    Schedule,
    draw_schedule,
)

SCHEDULES = int(os.environ.get("SOUK_KILL_SCHEDULES", "1"))
FIRST_SEED = int(os.environ.get("SOUK_KILL_SEED", "1"))
SECONDS_MAX = 900
NODES = tuple(f"gang-{number}" for number in range(GANG_NODES + 2))  # two in reserve, for two losses
LISTED_SECONDS = 120
STEPS = 60
LOSS_TOLERANCE = 1e-3  # the ranks add up in another order after a loss; the loss falls by 1.5 meanwhile
METER_MARGIN = timedelta(seconds=10)  # an agent's clock begins a moment before the server sees a program run
SPEC: dict[str, Any] = TINY | {
    "resources": {"gpus": 1, "nodes": GANG_NODES, "kind": "any", "isolation": "none", "region": "kills"},
    "work": {"steps": STEPS},
    "train": TINY["train"]
    | {"global_batch_size": 6, "log_every": 1, "log_samples": True, "sample_every": -1, "seed": 1},
}

pytestmark = [pytest.mark.timeout(SECONDS_MAX * (SCHEDULES + 2)), pytest.mark.slow]


@pytest.fixture(scope="module")
def rack(market: Market) -> Party:
    return market.add_rack(NODES, price="0.90", node=NodeOptions(devices=1, cores="", region="kills"))


def test_fifty_schedules_have_every_blow_moment_and_rank() -> None:
    schedules = [draw_schedule(seed) for seed in range(1, 51)]
    blows = [blow for schedule in schedules for blow in schedule.blows]
    assert {blow.kind for blow in blows} == {*LOSSES, *HARMLESS}
    assert {blow.moment for blow in blows} == {*FIRST_MOMENTS, *SECOND_MOMENTS}
    assert {blow.node_rank for blow in blows} == set(range(GANG_NODES))
    assert sum(schedule.replaces_one for schedule in schedules) >= 20
    assert schedules == [draw_schedule(seed) for seed in range(1, 51)]


@pytest.mark.soak
def test_gangs_complete_whoever_is_killed_or_hangs(market: Market, alice: Party, rack: Party) -> None:
    market.deposit(alice, f"{1 + SCHEDULES}.00")
    with souk_of(market, alice) as souk:
        undisturbed = read_training(souk, until_end(souk, launch(souk, SPEC), lambda _: None))
        assert sorted(undisturbed.samples) == list(range(1, STEPS + 1))
        for seed in range(FIRST_SEED, FIRST_SEED + SCHEDULES):
            schedule = draw_schedule(seed)
            restore(market, rack)
            try:
                print(Disturbed(market, alice, souk, schedule).run(undisturbed), flush=True)
            except (AssertionError, MarketError) as error:
                again = f"SOUK_KILL_SEED={seed} SOUK_KILL_SCHEDULES=1 python -m pytest -s {__file__}"
                raise AssertionError(f"seed {seed}: {error}\n{schedule}\nalone: {again}") from error
    ledger = run_json([SOUK, "ledger", "verify", "--data", market.operator["data"]], alice.env(market.server))
    assert ledger["is_true"], ledger


class Disturbed:
    """One job, what is done to it, and what is to be true afterwards."""

    def __init__(self, market: Market, party: Party, souk: Souk, schedule: Schedule) -> None:
        self._market, self._party, self._souk, self._schedule = market, party, souk, schedule
        self._to_do, self._done = list(schedule.blows), list[tuple[Blow, str, float]]()
        self._due_at: float | None = None
        self._seen: dict[str, set[tuple[int, float]]] = defaultdict(set)  # node -> its launchers

    def run(self, undisturbed: Training) -> str:
        """A line about what happened; AssertionError where something is not as it should be."""
        balance, began = self._souk.balance(), time.monotonic()
        view = until_end(self._souk, launch(self._souk, SPEC), self._look)
        seconds = time.monotonic() - began
        assert view.state == "completed", (view.state, view.reason, view.message)
        bill = self._souk.bill(view.job_id)
        check_bill(bill, view)
        printed = run_json([SOUK, "bill", str(view.job_id)], self._party.env(self._market.server))
        assert printed["verified"] is True, printed
        left = self._souk.balance()
        assert left.available_usd_micros == balance.available_usd_micros - bill.total_usd_micros, (balance, left)
        assert left.held_usd_micros == 0, left
        training = read_training(self._souk, view)
        lost = [name for blow, name, _ in self._done if blow.is_loss]
        check_training(training, undisturbed, has_lost_events=bool(lost))
        is_single = self._schedule.replaces_one and len(lost) == 1
        if is_single:
            self._check_survivors(view, lost[0])
        elif all(blow.kind == "hung_rank" for blow, _, _ in self._done):
            assert [len(each.leases) for each in view.attempts] == [GANG_NODES], view.attempts
        blows = [(blow.kind, blow.moment, name) for blow, name, _ in self._done]
        ends = [(str(each.reason), len(each.leases)) for each in view.attempts]
        return (
            f"seed {self._schedule.seed}: {blows} of {len(self._schedule.blows)}; attempts and their leases {ends};"
            f" on from {training.resumed}, {training.undone} steps undone; stepping again after"
            f" {self._seconds_away(training)} s; {'survivors the same; ' if is_single else ''}"
            f"{bill.total_usd_micros} paid, {seconds:.0f} s"
        )

    def _look(self, view: JobView) -> None:
        """Strike when it is time, and note which launchers there are."""
        if not view.attempts:
            return
        names = {lease.node_rank: lease.node_name for lease in view.attempts[-1].leases}  # of each rank the last one
        found = launchers(self._market, set(NODES))
        for name, process in found.items():
            self._seen[name].add((process.pid, process.create_time()))
        if not self._to_do or len(names) < GANG_NODES:
            return
        blow, name = self._to_do[0], names[self._to_do[0].node_rank]
        if name not in found or names[0] not in found or not self._is_time(blow, view, found[names[0]]):
            return
        if blow.moment == "save" and not is_saving(found[name]):
            return
        self._done.append((self._to_do.pop(0), name, time.time()))
        strike(self._market, name, blow)
        self._due_at = None

    def _is_time(self, blow: Blow, view: JobView, leader: psutil.Process) -> bool:
        """Whether the blow is due, by the clock or by the steps of the gang's rank zero."""
        if self._due_at is None and self._has_come(blow, view):
            is_by_steps = blow.moment in ("step", "save")
            self._due_at = (
                last_step(leader) + blow.after_steps if is_by_steps else time.monotonic() + blow.after_seconds
            )
        if self._due_at is None:
            return False
        return (last_step(leader) if blow.moment in ("step", "save") else time.monotonic()) >= self._due_at

    def _has_come(self, blow: Blow, view: JobView) -> bool:
        if blow.moment == "preparing":
            return True
        is_replaced = len(view.attempts) > 1 or len(view.attempts[-1].leases) > GANG_NODES
        if blow.moment == "replacing":
            return is_replaced
        if self._done and self._done[-1][0].is_loss and not is_replaced:
            return False  # the node before is not missed yet
        artifacts = self._souk.artifacts(view.job_id)
        return any(each.kind == "checkpoint" and each.state == "complete" for each in artifacts)

    def _seconds_away(self, training: Training) -> list[float]:
        """From each loss to the end of the first step of a later start."""
        losses = [at for blow, _, at in self._done if blow.is_loss]
        return [round(next((step for step in training.stepped_at if step > at), at) - at, 1) for at in losses]

    def _check_survivors(self, view: JobView, lost: str) -> None:
        """The same attempt went on, with the leases and the launchers of the two others."""
        assert len(view.attempts) == 1, [(each.number, each.reason, each.message) for each in view.attempts]
        leases = view.attempts[0].leases
        assert len(leases) == GANG_NODES + 1, leases
        others = {lease.node_name for lease in leases} - {lost}
        assert len(others) == GANG_NODES, leases
        assert {name: len(self._seen[name]) for name in others} == dict.fromkeys(others, 1)


def restore(market: Market, rack: Party) -> None:
    """Every node's agent runs, and every node is listed again."""
    for name in NODES:
        if market.agents[name].poll() is not None:
            market.start_agent(name)
    with Souk(market.server, rack.key) as souk:
        wait_for(
            "all nodes to be listed",
            lambda: set(NODES) <= {offer.node_name for offer in souk.offers()} and not launchers(market, NODES),
            LISTED_SECONDS,
        )


def until_end(souk: Souk, job: JobView, look: Callable[[JobView], None]) -> JobView:
    """The job once it has ended; `look` is called with it several times a second until then."""

    def has_ended() -> JobView | None:
        view = souk.job(job.job_id)
        if view.state in ENDS:
            return view
        look(view)
        return None

    return wait_for("the job to end", has_ended, SECONDS_MAX, poll_seconds_max=POLL_SECONDS)


def is_saving(launcher: psutil.Process) -> bool:
    """Whether a checkpoint is being written on that node."""
    folders = list((work_folder(launcher) / "checkpoint").glob("step-*"))
    return any(not (folder / MANIFEST_NAME).exists() for folder in folders)


def check_bill(bill: BillView, view: JobView) -> None:
    """Each lease once, within its cap; what a rank's leases are paid for is no more than the time that passed."""
    assert bill.is_final
    assert len({line.lease_id for line in bill.lines}) == len(bill.lines)
    assert {line.lease_id for line in bill.lines} == {lease.lease_id for each in view.attempts for lease in each.leases}
    assert all(
        line.is_ended and line.cap_units is not None and line.charge_units <= line.cap_units for line in bill.lines
    )
    assert sum(line.charge_usd_micros for line in bill.lines) == bill.total_usd_micros
    assert bill.total_usd_micros + bill.released_usd_micros == bill.hold_usd_micros
    paid: dict[int, timedelta] = defaultdict(timedelta)
    rank_of = {lease.lease_id: lease.node_rank for each in view.attempts for lease in each.leases}
    for line in bill.lines:
        paid[rank_of[line.lease_id]] += timedelta(milliseconds=line.billable_ms)
    passed = (view.ended_at or datetime.max) - (view.running_at or view.created_at)
    assert max(paid.values()) <= passed + METER_MARGIN, (paid, passed)


def check_training(training: Training, undisturbed: Training, *, has_lost_events: bool) -> None:
    """Each step trained once on its own sequences, with the loss that it has undisturbed.

    The events of a node that was killed may lack the last moments before its last checkpoint.
    """
    assert training.twice == []
    if not has_lost_events:
        assert sorted(training.samples) == sorted(undisturbed.samples)
    assert max(training.samples) == max(undisturbed.samples)
    assert {step: undisturbed.samples[step] for step in training.samples} == training.samples
    worst = max(abs(loss - undisturbed.losses[step]) for step, loss in training.losses.items())
    assert worst <= LOSS_TOLERANCE, worst

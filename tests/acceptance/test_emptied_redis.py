"""Redis is emptied at any moment of a job, which ends as if nothing had happened: nothing that must last is in Redis.

SOUK_REDIS_SCHEDULES is the number of jobs, each with moments of its own; `make soak` has 50. A failure names its seed.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
import redis

from examples.market import SOUK, Market, Party, run_json
from jobs.client.sdk import Souk
from jobs.wire import JobView
from marketplace.config.embedded import redis as embedded_redis
from tests.acceptance.customer import ENDS, TINY, launch, souk_of

SCHEDULES = int(os.environ.get("SOUK_REDIS_SCHEDULES", "1"))
FIRST_SEED = int(os.environ.get("SOUK_REDIS_SEED", "1"))
SECONDS_BETWEEN_MAX = 6.0
SECONDS_MAX = 300
STEPS = 200

pytestmark = [pytest.mark.timeout(SECONDS_MAX * (SCHEDULES + 1)), pytest.mark.slow]


def end_of(souk: Souk, job: JobView, server: redis.Redis, dice: random.Random) -> tuple[JobView, int]:
    """The job once it has ended, and how often Redis was emptied until then."""
    emptied, until = 0, time.monotonic() + SECONDS_MAX
    while (view := souk.job(job.job_id)).state not in ENDS:
        assert time.monotonic() < until, view
        server.flushdb()
        emptied += 1
        time.sleep(dice.uniform(0, SECONDS_BETWEEN_MAX))
    return view, emptied


@pytest.mark.soak
def test_a_job_ends_as_ever_however_often_redis_is_emptied(market: Market, alice: Party) -> None:
    sockets = Path(market.operator["data"]) / "run"
    url = os.environ.get("REDIS_URL") or embedded_redis.url_for(sockets)
    spec = TINY | {"work": {"steps": STEPS}, "budget": {"max_total": "0.05"}}
    with souk_of(market, alice) as souk, redis.Redis.from_url(url) as server:
        for seed in range(FIRST_SEED, FIRST_SEED + SCHEDULES):
            before = souk.balance().available_usd_micros
            view, emptied = end_of(souk, launch(souk, spec), server, random.Random(seed))
            assert view.state == "completed", (seed, view)
            bill = souk.bill(view.job_id)
            assert bill.is_final, seed
            left = souk.balance()
            assert (left.available_usd_micros, left.held_usd_micros) == (before - bill.total_usd_micros, 0), seed
            ends = [str(attempt.reason) for attempt in view.attempts]
            print(f"seed {seed}: emptied {emptied} times; attempts {ends}, {bill.total_usd_micros} paid")
    with_ledger = run_json([SOUK, "ledger", "verify", "--data", market.operator["data"]], alice.env(market.server))
    assert with_ledger["is_true"], with_ledger

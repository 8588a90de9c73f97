"""What same-day pay costs a settlement: the provider's record is added up in it, however long that is.

One provider has so many released settlements in the last 90 days, and older ones before, for CUSTOMERS
customers; their rows are copies of a real one. Then jobs are settled for it, in turn with
SOUK_FAST_RELEASE_SECONDS on and off; `record_ms` is `ends_of` alone, `settle_ms` the whole verb, medians.

The database is the embedded PostgreSQL as `souk up` starts it, durable (fsync on).

    python -m benchmarks.challenge_windows [--settlements 1000 10000 50000] [--older-times 4] [--write]
"""

from __future__ import annotations

import argparse
import statistics
import time
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from benchmarks.record import publish
from benchmarks.setups.database import postgres_running, set_up

SETTLEMENTS = (1_000, 10_000, 50_000)
OLDER_TIMES = 4
CUSTOMERS = 50
SETTLED = 20  # each way
ROWS_PER_INSERT = 10_000
DOLLAR = 1_000_000
FEE_BPS = 1_000
FAST_SECONDS = 4 * 3600


def main() -> None:
    """Start a database, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settlements", type=int, nargs="+", default=list(SETTLEMENTS), help="of the last 90 days")
    parser.add_argument("--older-times", type=int, default=OLDER_TIMES, help="settlements before, for each of those")
    arguments, _ = parser.parse_known_args()
    with postgres_running(SOUK_PROBATION_DAYS="0"):
        figures = measure(sorted(arguments.settlements), arguments.older_times)
    publish("challenge_windows", figures)


def measure(sizes: list[int], older_times: int) -> dict[str, Any]:
    """A provider for each size."""
    set_up()
    from django.core.management import call_command

    call_command("migrate", interactive=False, verbosity=0)
    return {"older_times": older_times, "records": {str(size): run(size, older_times) for size in sizes}}


def run(size: int, older_times: int) -> dict[str, float]:
    """Build the record, then settle with and without looking at it."""
    from django.conf import settings
    from django.db import connection, transaction

    from billing.charging import challenge_windows
    from marketplace.foundation import clock

    provider, customers = uuid4(), [uuid4() for _ in range(CUSTOMERS)]
    build(provider, customers, size, size * (1 + older_times))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    record_ms: list[float] = []
    settle_ms: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * SETTLED):
        is_fast = number % 2 == 0
        settings.SOUK_FAST_RELEASE_SECONDS = FAST_SECONDS if is_fast else -1
        job_id = place(customers[0])
        if is_fast:
            started = time.perf_counter()
            with transaction.atomic():
                now = clock.now()
                [end] = challenge_windows.ends_of(job_id, {provider: DOLLAR}, now).values()
            record_ms.append(1000 * (time.perf_counter() - started))
            if end - now != timedelta(seconds=FAST_SECONDS):
                raise SystemExit(f"a record of {size} settlements was not enough")
        started = time.perf_counter()
        settle(job_id, provider)
        settle_ms[is_fast].append(1000 * (time.perf_counter() - started))
    return {
        "record_ms": round(statistics.median(record_ms), 1),
        "settle_ms": round(statistics.median(settle_ms[True]), 1),
        "settle_without_ms": round(statistics.median(settle_ms[False]), 1),
    }


def place(customer: UUID) -> UUID:
    """A job with a dollar set aside."""
    from billing.books import deposits
    from billing.charging import holds

    job_id = uuid4()
    deposits.credit(customer, DOLLAR, reference=str(job_id), actor="benchmark")
    holds.place_hold(owner_id=customer, job_id=job_id, amount=DOLLAR)
    return job_id


def settle(job_id: UUID, provider: UUID) -> Any:
    """All of it for one provider."""
    from billing.charging import settlement

    charge = settlement.LeaseCharge(uuid4(), provider, DOLLAR)
    return settlement.settle_job(job_id=job_id, charges=[charge], fee_bps=FEE_BPS)


def build(provider: UUID, customers: list[UUID], size: int, count: int) -> None:
    """`count` released settlements, of which `size` in the last 90 days, and the others in the years before."""
    from django.db import connection, transaction

    from billing.charging import challenge_windows
    from billing.models import Hold, Settlement, SettlementShare
    from marketplace.foundation import clock

    real = settle(place(customers[0]), provider)
    share, hold = real.shares.get(), real.hold
    now, days = clock.now(), challenge_windows.RECORD_DAYS
    for start in range(0, count, ROWS_PER_INSERT):
        copied: tuple[list[Hold], list[Settlement], list[SettlementShare]] = ([], [], [])
        for number in range(start, min(start + ROWS_PER_INSERT, count)):
            at = now - timedelta(days=2 + (days - 3) * number / size)
            ids = {"owner_id": customers[number % CUSTOMERS], "job_id": uuid4()}
            copied[0].append(_copy(hold, id=uuid4(), created_at=at, closed_at=at, **ids))
            copied[1].append(
                _copy(real, id=uuid4(), hold_id=copied[0][-1].pk, created_at=at, challenge_until=at, **ids)
            )
            copied[2].append(
                _copy(
                    share,
                    id=uuid4(),
                    settlement_id=copied[1][-1].pk,
                    lease_id=uuid4(),
                    challenge_until=at + timedelta(days=1),
                    released_at=at + timedelta(days=1),
                )
            )
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role = replica")  # no hold begins as captured
            Hold.objects.bulk_create(copied[0])
            Settlement.objects.bulk_create(copied[1])
            SettlementShare.objects.bulk_create(copied[2])


def _copy(row: Any, **changes: Any) -> Any:
    values = {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
    return type(row)(**values | changes)


if __name__ == "__main__":
    main()

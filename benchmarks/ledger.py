"""Money's speed: holds and settlements through the verbs that jobs use, transfers in batches, receipts.

Ours and bare SQL take turns in one run, by the same clients on the same database and tables, so that what the machine
does meanwhile hits both; the ratios are medians over the turns. Bare SQL is what somebody would write who needs only
the rows and the locks: hand-written statements through psycopg, prepared, sent without waiting for each answer
(pipeline), with no Django and no checks of ours but the database's. Goal: at least half of it, and no deadlock.

The database is the embedded PostgreSQL as `souk up` starts it, durable (fsync on), with the clients on the same cores.

    python -m benchmarks.ledger [--seconds 3] [--turns 3] [--write]
"""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from benchmarks.record import publish
from benchmarks.setups.database import postgres_running, set_up

CLIENTS = 16
BATCH = 100
PERCENTILE = 0.99
PROVIDERS = 50
RECEIPTS = 2_000  # signed before the clock runs
START_SECONDS_MAX = 120


class Turn(NamedTuple):
    """One turn of one client."""

    verb: str
    seconds: float
    providers: list[UUID]


def main() -> None:
    """Start a database, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3, help="of each turn")
    parser.add_argument("--turns", type=int, default=3, help="of each side")
    arguments, _ = parser.parse_known_args()
    with postgres_running():
        figures = measure(arguments.seconds, arguments.turns)
    publish("ledger", figures)


def measure(seconds: float, turns: int) -> dict[str, object]:
    """All figures, and the proof that the ledger is true after them."""
    set_up()
    from django.core.management import call_command

    call_command("migrate", interactive=False, verbosity=0)
    from billing.books.ledger import verify

    providers = open_books()
    figures: dict[str, object] = {"clients": CLIENTS, "batch": BATCH}
    spawn = multiprocessing.get_context("spawn")
    gate = spawn.Barrier(CLIENTS)
    with spawn.Pool(CLIENTS, initializer=enter, initargs=(gate,)) as pool:
        for name, size in (("hold_settle", 1), ("batched_transfers", BATCH)):
            figures |= compare(pool, name, size, seconds, turns, providers)
    figures["receipts_per_s"] = round(receipts(seconds))
    figures["deadlocks"] = deadlocks()
    started, report = time.perf_counter(), verify()
    if not report.is_true:
        raise SystemExit(f"the ledger is not true: {report.problems[:3]}")
    figures["verified_transfers"] = report.transfers
    figures["verify_s"] = round(time.perf_counter() - started, 1)
    return figures


def open_books() -> list[UUID]:
    """Providers, each with its accounts: a provider's first pay is not what is measured."""
    from billing.account_kinds import AccountKind
    from billing.books.chart_of_accounts import AccountName, open_accounts

    providers = [uuid4() for _ in range(PROVIDERS)]
    open_accounts([AccountName(AccountKind.PROVIDER_PENDING, provider) for provider in providers])
    open_accounts([AccountName(AccountKind.FEE_REVENUE), AccountName(AccountKind.OPERATOR_CASH)])
    return providers


def compare(pool: Any, name: str, size: int, seconds: float, turns: int, providers: list[UUID]) -> dict[str, object]:
    """Ours and bare in turns; medians of the rates, of the ratio turn by turn, and the 99th percentile of ours."""
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    latencies: dict[str, list[float]] = {"ours": [], "bare": []}
    for turn in range(turns + 1):
        for side, rate in rates.items():
            done = pool.map(take_turn, [Turn(f"{name}_{side}", seconds, providers)] * CLIENTS, chunksize=1)
            if turn:  # the first one warms up: connections, plans, pages
                rate.append(sum(len(one) * size / seconds for one in done))
                latencies[side] += [latency for one in done for latency in one]
    figures: dict[str, object] = {
        f"{name}_ratio": round(statistics.median(a / b for a, b in zip(rates["ours"], rates["bare"], strict=True)), 2)
    }
    for side, prefix in (("ours", name), ("bare", f"bare_{name}")):
        figures[f"{prefix}_per_s"] = round(statistics.median(rates[side]))
        figures[f"{prefix}_p50_ms"] = round(1000 * statistics.median(latencies[side]), 1)
        figures[f"{prefix}_p99_ms"] = round(1000 * sorted(latencies[side])[int(len(latencies[side]) * PERCENTILE)], 1)
    return figures


def enter(gate: Any) -> None:
    """Start of a client: import everything first; then every turn begins when all are there."""
    set_up()
    import billing.charging.settlement  # noqa: F401 - imported before the clock runs

    Client.wait = gate.wait


class Client:
    """What one client's process keeps between its turns."""

    wait: Callable[[float], int]
    verbs: dict[str, Callable[[], object]] = {}


def take_turn(turn: Turn) -> list[float]:
    """The seconds that each call took, until the time is over."""
    if not Client.verbs:
        Client.verbs = ours(turn.providers) | bare(turn.providers)
    verb = Client.verbs[turn.verb]
    Client.wait(START_SECONDS_MAX)
    latencies: list[float] = []
    end = time.perf_counter() + turn.seconds
    while (started := time.perf_counter()) < end:
        verb()
        latencies.append(time.perf_counter() - started)
    return latencies


def ours(providers: Sequence[UUID]) -> dict[str, Callable[[], object]]:
    """The verbs as jobs call them; one client, one customer."""
    from benchmarks.setups.ledger_bare import CHARGE, FEE_BPS, HOLD
    from billing.account_kinds import AccountKind
    from billing.books import deposits, ledger
    from billing.books.chart_of_accounts import open_account
    from billing.charging import holds, settlement
    from billing.transfer_codes import TransferCode

    customer = uuid4()
    deposits.credit(customer, 10**15, reference=str(customer), actor="benchmark")
    source = open_account(AccountKind.OPERATOR_CASH)
    targets = [open_account(AccountKind.PROVIDER_PENDING, provider) for provider in providers]
    group = [
        ledger.NewTransfer(source, targets[number % PROVIDERS], 1 + number, TransferCode.CORRECTION)
        for number in range(BATCH)
    ]

    def hold_and_settle() -> None:
        job_id, provider = uuid4(), secrets.choice(providers)
        holds.place_hold(owner_id=customer, job_id=job_id, amount=HOLD)
        charges = [settlement.LeaseCharge(uuid4(), provider, CHARGE)]
        settlement.settle_job(job_id=job_id, charges=charges, fee_bps=FEE_BPS)

    return {"hold_settle_ours": hold_and_settle, "batched_transfers_ours": lambda: ledger.post(group)}


def bare(providers: Sequence[UUID]) -> dict[str, Callable[[], object]]:
    """The same rows by hand; one client, one customer."""
    from benchmarks.setups.ledger_bare import Bare
    from billing.books import deposits

    customer = uuid4()
    deposits.credit(customer, 10**15, reference=str(customer), actor="benchmark")
    books = Bare(customer, providers)
    return {
        "hold_settle_bare": lambda: books.hold_and_settle(secrets.choice(providers)),
        "batched_transfers_bare": lambda: books.post_batch(BATCH),
    }


def receipts(seconds: float) -> float:
    """Receipts a second that one process verifies and stores, in appends as long as they may be."""
    from billing.charging import metering
    from provider_agent.protocol import RECEIPTS_PER_APPEND_MAX
    from tests.integration.billing.scenes import Meter

    appended, spent = 0, 0.0
    while spent < seconds:
        meter = Meter()
        made = [meter.read(1_000 * number) for number in range(1, RECEIPTS // 20)]
        started = time.perf_counter()
        for first in range(0, len(made), RECEIPTS_PER_APPEND_MAX):
            chunk = made[first : first + RECEIPTS_PER_APPEND_MAX]
            metering.accept_receipts(meter.terms, chunk, observed_ms=10**9)
        spent += time.perf_counter() - started
        appended += len(made)
    return appended / spent


def deadlocks() -> int:
    """How many the database has seen since it was made."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


if __name__ == "__main__":
    main()

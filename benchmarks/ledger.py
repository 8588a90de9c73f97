"""Money's speed: holds and settlements through the verbs that jobs use, and transfers in batches.

Goals (each on 2 cores): 250 hold + settle pairs a second, 20,000 transfers a second in batches. The database is the
embedded PostgreSQL as `souk up` starts it, durable (fsync on), with the clients on the same cores.

    python -m benchmarks.ledger [--seconds 8] [--write]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

from benchmarks.record import publish

CONNECTIONS = (1, 8)
BATCH = 1_000
PERCENTILE = 0.99
FEE_BPS = 1_000
HOLD, CHARGE = 1_000_000, 345_678
PROVIDERS = 50


def main() -> None:
    """Start a database, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8)
    arguments, _ = parser.parse_known_args()
    from marketplace.config.embedded import postgres

    with tempfile.TemporaryDirectory(prefix="souk-ledger-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o711)  # PostgreSQL runs as another user where we run as root
        database = postgres.start(folder / "postgres", socket_folder=folder / "run", log=folder / "log")
        try:
            os.environ.update(environment(postgres.url_for(folder / "run"), folder))
            figures = measure(arguments.seconds)
        finally:
            database.stop()
    publish("ledger", figures)


def environment(database_url: str, folder: Path) -> dict[str, str]:
    """What the settings ask for; nothing here touches Redis."""
    return {
        "DATABASE_URL": database_url,
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "SOUK_SECRET_KEY": secrets.token_hex(32),
        "SOUK_SIGNING_KEY": secrets.token_hex(32),
        "SOUK_DATA": str(folder),
        "DJANGO_SETTINGS_MODULE": "marketplace.config.settings",
    }


def measure(seconds: float) -> dict[str, object]:
    """All figures, and the proof that the ledger is true after them."""
    set_up()
    from django.core.management import call_command

    call_command("migrate", interactive=False, verbosity=0)
    from billing.ledger import verify

    providers = [uuid4() for _ in range(PROVIDERS)]
    figures: dict[str, object] = {}
    for connections in CONNECTIONS:
        pairs_per_s, latencies = in_parallel(connections, seconds, providers)
        figures[f"hold_settle_per_s_{connections}"] = round(pairs_per_s)
        figures[f"hold_settle_p50_ms_{connections}"] = round(1000 * statistics.median(latencies), 1)
        rank = int(len(latencies) * PERCENTILE)
        figures[f"hold_settle_p99_ms_{connections}"] = round(1000 * sorted(latencies)[rank], 1)
    figures["batched_transfers_per_s"] = round(batched(seconds, providers))
    figures["batch"] = BATCH
    report, started = verify(), time.perf_counter()
    if not report.is_true:
        raise SystemExit(f"the ledger is not true: {report.problems[:3]}")
    verify()
    figures["verified_transfers"] = report.transfers
    figures["verify_s"] = round(time.perf_counter() - started, 1)
    return figures


def in_parallel(connections: int, seconds: float, providers: list[UUID]) -> tuple[float, list[float]]:
    """Hold + settle pairs a second over all connections, and the seconds that each pair took."""
    spawn = multiprocessing.get_context("spawn")
    gate = spawn.Barrier(connections)
    with spawn.Pool(connections, initializer=enter, initargs=(gate.wait,)) as pool:
        done = pool.map(hold_and_settle, [(seconds, providers)] * connections, chunksize=1)
    return sum(len(latencies) / seconds for latencies in done), [one for latencies in done for one in latencies]


def enter(wait: Callable[[], int]) -> None:
    """Start of a process: import everything first, then wait until all have."""
    set_up()
    import billing.settlement  # noqa: F401 - imported before the clock runs

    wait()


def hold_and_settle(work: tuple[float, list[UUID]]) -> list[float]:
    """One client with a customer of its own, until the time is over; all pay the same providers and platform."""
    from billing import deposits, holds, settlement

    seconds, providers = work
    customer = uuid4()
    deposits.credit(customer, 10**15, reference=str(customer), actor="benchmark")
    latencies: list[float] = []
    end = time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        job_id, provider = uuid4(), providers[len(latencies) % len(providers)]
        holds.place_hold(owner_id=customer, job_id=job_id, amount=HOLD)
        charges = [settlement.LeaseCharge(uuid4(), provider, CHARGE)]
        settlement.settle_job(job_id=job_id, charges=charges, fee_bps=FEE_BPS)
        latencies.append(time.perf_counter() - started)
    return latencies


def batched(seconds: float, providers: list[UUID]) -> float:
    """Transfers a second in groups of BATCH from one connection, each group one transaction."""
    from billing import ledger
    from billing.chart import open_account
    from billing.kinds import AccountKind, TransferCode

    source = open_account(AccountKind.OPERATOR_CASH)
    targets = [open_account(AccountKind.PROVIDER_AVAILABLE, provider) for provider in providers]
    group = [
        ledger.NewTransfer(source, targets[number % len(targets)], 1 + number, TransferCode.CORRECTION)
        for number in range(BATCH)
    ]
    groups, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        ledger.post(group)
        groups += 1
    return groups * BATCH / (time.perf_counter() - started)


def set_up() -> None:
    """Django, from the environment."""
    import django

    django.setup()


if __name__ == "__main__":
    main()

"""A solvency report's cost: every account read, hashed and stored, and one owner's proof out of it.

The accounts are posted to beforehand, and sealed. `publish_s` is the whole verb: both sides added up by the database,
the tree built, the report signed, the chunks stored. `proof_ms` is the median over some owners, without HTTP; each
proof is checked, and `check_ms` is that.

The database is the embedded PostgreSQL as `souk up` starts it, durable (fsync on).

    python -m benchmarks.solvency [--accounts 10000 100000] [--write]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from typing import Any
from uuid import UUID, uuid4

from benchmarks.record import publish
from benchmarks.setups.database import postgres_running, set_up

ACCOUNTS = (10_000, 100_000)
TRANSFERS_PER_POST = 5_000
OWNERS_ASKED = 50
AMOUNT = 2_345_678


def main() -> None:
    """Start a database, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accounts", type=int, nargs="+", default=list(ACCOUNTS), help="how many are owed something")
    arguments, _ = parser.parse_known_args()
    with postgres_running():
        figures = measure(sorted(arguments.accounts))
    publish("solvency", figures)


def measure(sizes: list[int]) -> dict[str, Any]:
    """One report for each size; the accounts of the smaller ones are among those of the larger ones."""
    set_up()
    from django.core.management import call_command

    call_command("migrate", interactive=False, verbosity=0)
    owners: list[UUID] = []
    reports = {}
    for size in sizes:
        owners += open_and_fund(size - len(owners))
        reports[str(size)] = run(owners)
    return {"reports": reports, "memory_mib_max": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def run(owners: list[UUID]) -> dict[str, Any]:
    """Publish, prove, check."""
    from django.db import connection

    from billing.proofs.solvency import ProofPage, check_accounts, read_report
    from billing.solvency import publishing
    from billing.solvency.proving import prove

    started = time.perf_counter()
    report = publishing.publish()
    publish_s = time.perf_counter() - started
    if report is None:
        raise SystemExit("nothing was published")
    proofs, checks, sisters = [], [], 0
    for owner in owners[:: max(1, len(owners) // OWNERS_ASKED)]:
        started = time.perf_counter()
        document = prove(owner)
        proofs.append(time.perf_counter() - started)
        started = time.perf_counter()
        page = ProofPage.model_validate(document)
        if check_accounts(read_report(page.report), page.accounts, owner) != {("USD", "customer_available"): AMOUNT}:
            raise SystemExit("a proof does not hold")
        checks.append(time.perf_counter() - started)
        sisters = max(sisters, len(page.accounts[0].sisters))
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(pg_column_size(c.*)) FROM billing_solvencychunk c WHERE report_id = %s", [report.pk])
        [stored] = cursor.fetchone()
    return {
        "publish_s": round(publish_s, 2),
        "accounts_per_s": round(len(owners) / publish_s),
        "stored_mib": round(stored / 2**20, 2),
        "proof_ms": round(1000 * statistics.median(proofs), 1),
        "check_ms": round(1000 * statistics.median(checks), 2),
        "sisters_max": sisters,
    }


def open_and_fund(count: int) -> list[UUID]:
    """So many owners with one account each, sealed."""
    from billing.account_kinds import AccountKind
    from billing.books import hash_chain, ledger
    from billing.books.chart_of_accounts import AccountName, open_accounts
    from billing.transfer_codes import TransferCode

    owners = [uuid4() for _ in range(count)]
    for start in range(0, count, TRANSFERS_PER_POST):
        names = [AccountName(AccountKind.CUSTOMER_AVAILABLE, owner) for owner in owners[start:][:TRANSFERS_PER_POST]]
        [cash, *accounts] = open_accounts([AccountName(AccountKind.OPERATOR_CASH), *names])
        ledger.post([ledger.NewTransfer(cash, account, AMOUNT, TransferCode.CORRECTION) for account in accounts])
    hash_chain.chain_transfers()
    return owners


if __name__ == "__main__":
    main()

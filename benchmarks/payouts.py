"""A payout run's speed: everybody due is reserved, sent and confirmed; and the tree of a payout root.

Every provider is new and has earned from three leases, so that a part is kept in its reserve: the most work there is.
The rail is the one that pretends, which answers at once, so that only our own work is measured. A run begins with a
reconciliation, which is in `reserve_s`; `queries_per_provider` is what the run asked the database, divided.

The database is the embedded PostgreSQL as `souk up` starts it, durable (fsync on).

    python -m benchmarks.payouts [--providers 200 1000 5000] [--wallets 10000] [--write]
"""

from __future__ import annotations

import argparse
import time
from typing import Any
from uuid import UUID, uuid4

from benchmarks.record import publish
from benchmarks.setups.database import postgres_running, set_up

PROVIDERS = (200, 1_000, 5_000)
WALLETS = 10_000
LEASES_EACH = 3
LEASES_PER_JOB = 1_000
PAY = 2_345_678  # micro-USD a lease, with dust below the cent
FEE_BPS = 1_000
ROUNDS_MAX = 100  # of calls to the rail in one measurement


def main() -> None:
    """Start a database, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--providers", type=int, nargs="+", default=list(PROVIDERS), help="how many are due")
    parser.add_argument("--wallets", type=int, default=WALLETS, help="leaves of the tree")
    arguments, _ = parser.parse_known_args()
    with postgres_running(**SETTINGS):
        figures = measure(arguments.providers)
    publish("payouts", figures | tree_of(arguments.wallets))


SETTINGS = {
    "SOUK_BIND": "127.0.0.1",
    "SOUK_ALLOWED_HOSTS": "127.0.0.1",
    "SOUK_PAYOUT_RAILS": "fake",
    "SOUK_CHALLENGE_SECONDS": "0",
}


def measure(sizes: list[int]) -> dict[str, Any]:
    """One run for each size, and the proof that the ledger is true after them."""
    set_up()
    from django.core.management import call_command

    call_command("migrate", interactive=False, verbosity=0)
    from billing.books.ledger import verify

    figures: dict[str, Any] = {"leases_per_provider": LEASES_EACH, "runs": {str(size): run(size) for size in sizes}}
    report = verify()
    if not report.is_true:
        raise SystemExit(f"the ledger is not true: {report.problems[:3]}")
    return figures


def run(size: int) -> dict[str, float]:
    """So many providers become due, and are paid."""
    from django.db import connection
    from django.db.models import Sum

    from billing import dispatch
    from billing.models import FakeMovement, Payout
    from billing.payouts import submission  # noqa: F401 - its handler
    from billing.payouts.running import run_payouts

    providers = make_due(size)
    with Queries() as asked, connection.execute_wrapper(asked):
        started = time.perf_counter()
        made = run_payouts()
        reserve_s = time.perf_counter() - started
    started = time.perf_counter()
    for _ in range(ROUNDS_MAX):
        if not dispatch.dispatch_due():
            break
    send_s = time.perf_counter() - started
    mine = Payout.objects.filter(provider_id__in=providers, state="confirmed")
    paid = -(FakeMovement.objects.filter(payout_id__in=mine.values("pk")).aggregate(sum=Sum("amount"))["sum"] or 0)
    if made != size or mine.count() != size or paid != mine.aggregate(sum=Sum("amount"))["sum"]:
        raise SystemExit(f"{size} were due, {made} reserved, {mine.count()} confirmed")
    return {
        "reserve_s": round(reserve_s, 2),
        "reserved_per_s": round(size / reserve_s),
        "queries_per_provider": round(asked.count / size, 2),
        "send_s": round(send_s, 2),
        "sent_and_confirmed_per_s": round(size / send_s),
    }


class Queries:
    """Counts what goes to the database."""

    count = 0

    def __enter__(self) -> Queries:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __call__(self, execute: Any, *arguments: Any) -> Any:
        self.count += 1
        return execute(*arguments)


def make_due(size: int) -> list[UUID]:
    """Providers who earned by real settlements whose window is over, and want to be paid now."""
    from datetime import timedelta

    from billing.books import deposits
    from billing.charging import holds, settlement
    from billing.models import PayoutSettings
    from billing.models.ledger import USD_ASSET_ID
    from marketplace.foundation import clock

    providers, customer = [uuid4() for _ in range(size)], uuid4()
    deposits.credit(customer, size * LEASES_EACH * PAY, reference=str(customer), actor="benchmark")
    leases = [provider for provider in providers for _ in range(LEASES_EACH)]
    for start in range(0, len(leases), LEASES_PER_JOB):
        job_id, mine = uuid4(), leases[start : start + LEASES_PER_JOB]
        holds.place_hold(owner_id=customer, job_id=job_id, amount=len(mine) * PAY)
        charges = [settlement.LeaseCharge(uuid4(), provider, PAY) for provider in mine]
        settlement.settle_job(job_id=job_id, charges=charges, fee_bps=FEE_BPS)
    while settlement.release_pending():
        pass
    due_at = clock.now() - timedelta(seconds=1)
    PayoutSettings.objects.bulk_create(
        PayoutSettings(
            provider_id=provider,
            asset_id=USD_ASSET_ID,
            rail="fake",
            destination=f"fake:{provider}",
            minimum=1_000_000,
            due_at=due_at,
        )
        for provider in providers
    )
    return providers


def tree_of(wallets: int) -> dict[str, Any]:
    """The tree of one root over so many wallets, and one provider's proof out of it."""
    from eth_account import Account
    from web3 import Web3

    from billing.chain import merkle

    place: dict[str, Any] = {"chain_id": 31337, "contract": "0x" + "11" * 20, "token": "0x" + "22" * 20}
    totals = {Account.from_key(Web3.keccak(text=f"wallet {i}")).address: PAY * (i + 1) for i in range(wallets)}
    started = time.perf_counter()
    tree = merkle.tree(totals, **place)
    tree_s = time.perf_counter() - started
    wallet = next(iter(totals))
    leaf = merkle.leaf(wallet=wallet, cumulative=totals[wallet], **place)
    started = time.perf_counter()
    proof = tree.proof(leaf)
    return {
        "tree_wallets": wallets,
        "tree_s": round(tree_s, 3),
        "tree_leaves_per_s": round(wallets / tree_s),
        "proof_ms": round(1000 * (time.perf_counter() - started), 3),
        "proof_length": len(proof),
    }


if __name__ == "__main__":
    main()

"""A token whose price moves while Alice's job waits for a node of Bob's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

from billing import prices
from billing.account_kinds import AccountKind
from billing.books import deposits
from billing.books.balances import balance
from billing.models import Asset, Hold
from billing.rails.registry import source_of
from jobs.models import Job, Lease, PriceLock, Quote
from jobs.pricing.price_locks import price_of
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, Reason
from tests import stage

WETH = 7
START = 3_123_456_789  # micro-USD: $3,123.456789
FUNDS = 10**18
ASKS: dict[str, Any] = {"payment": {"asset": "WETH"}}
REQUOTES: dict[str, Any] = {"payment": {"asset": "WETH", "on_price_change": "requote"}}


def weth() -> Asset:
    made = Asset.objects.create(
        id=WETH, code="WETH", scale=18, kind=Asset.Kind.ERC20, chain_id=31337, contract="0x" + "ab" * 20
    )
    tick(START)
    return made


def alice(units: int = FUNDS) -> Organisation:
    made = stage.organisation("alice")
    deposits.credit(
        made.id, units, reference=f"31337:{uuid4()}:0", actor="chain", source=source_of("chain"), asset_id=WETH
    )
    return made


def node(name: str) -> Node:
    made = stage.node(name)
    Node.objects.filter(pk=made.pk).update(facts={"has_token_receipts": True})
    return made


def tick(usd_micros: int) -> None:
    """The market says this."""
    prices.set_price(WETH, usd_micros, actor="operator")


def moved(bps: int) -> int:
    return START * (10_000 + bps) // 10_000


def waiting(alice: Organisation, **spec: Any) -> Job:
    """A job that was submitted an hour ago."""
    job = stage.submit(alice, stage.spec_of(**(ASKS | spec)))
    Quote.objects.filter(pk=job.quote_id).update(created_at=clock.now() - timedelta(hours=1))
    return Job.objects.get(pk=job.pk)


def run(lease: Lease, *, ms: int) -> None:
    """It runs so long, saves what it has, and then the marketplace itself breaks it: it goes on elsewhere."""
    stage.send_report(lease, AttemptState.RUNNING)
    stage.see_running(lease, seconds=ms / 1000)
    stage.bill(lease, ms=ms)
    stage.checkpoint(lease.attempt.job, lease, step=10 * lease.attempt.number, ms=ms)
    stage.finish(lease, Reason.INTERNAL)


def run_once(job: Job, *, ms: int) -> Lease:
    """It is placed, runs, and recovers."""
    [lease] = stage.place(job)
    run(lease, ms=ms)
    job.refresh_from_db()
    return Lease.objects.get(pk=lease.pk)


def has(alice: Organisation, kind: AccountKind = AccountKind.CUSTOMER_AVAILABLE) -> int:
    return balance(alice.id, kind, asset_id=WETH)


def assert_covered(job: Job) -> None:
    """The open hold is what is due at the job's price, to the unit; it covers what ended and every live lease."""
    hold = Hold.objects.open().filter(job_id=job.pk).first()
    job.refresh_from_db()
    if hold is None:
        assert not Lease.objects.live().filter(attempt__job=job).exists()
        return
    assert int(hold.amount) == price_of(job).units_due(job.cap_usd_micros)
    leases = list(Lease.objects.filter(attempt__job=job))
    charged = sum(int(lease.charge_units or 0) for lease in leases)
    live = sum(int(lease.cap_units) for lease in leases if lease.state != "ended")
    assert charged + live <= int(hold.amount)
    usd = sum(lease.charge_usd_micros or 0 for lease in leases)
    usd += sum(lease.cap_usd_micros for lease in leases if lease.state != "ended")
    assert usd <= job.cap_usd_micros


def locks(job: Job) -> list[tuple[int, str]]:
    """The prices that took the place of its quote's, and why each did."""
    found = PriceLock.objects.filter(job=job).order_by("number")
    return [(int(lock.usd_micros_per_token), lock.reason) for lock in found]

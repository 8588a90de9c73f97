"""Bob has earned something, and the fake rail is on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from billing import tasks
from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import open_usd
from billing.charging import holds, settlement
from billing.charging.settlement import LeaseCharge
from billing.models import Asset, FakeMovement, Payout, PayoutSettings
from billing.payouts import preferences, rolling_reserve
from billing.payouts.preferences import DesiredSettings
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage
from tests.integration.billing.scenes import DOLLAR, fund

CENT = 10_000


def usd() -> Asset:
    open_usd()
    return Asset.objects.get(code="USD")


def earn(provider: UUID, amount: int = 10 * DOLLAR, *, leases: int = 1, fee_bps: int = 0) -> UUID:
    """A job of somebody's was settled and its challenge window is over; returns the job."""
    customer, job_id = fund(uuid4(), amount * leases), uuid4()
    holds.place_hold(owner_id=customer, job_id=job_id, amount=amount * leases)
    charges = [LeaseCharge(uuid4(), provider, amount) for _ in range(leases)]
    settlement.settle_job(job_id=job_id, charges=charges, fee_bps=fee_bps)
    settlement.release_pending()
    return job_id


def choose(provider: UUID, destination: str = "fake:bob", **more: Any) -> PayoutSettings:
    """The provider's settings, due now unless they are by hand."""
    row = preferences.choose(provider, usd(), DesiredSettings("fake", destination, **more), actor="bob@example.org")
    if row.due_at is not None:
        make_due(row)
    return row


def make_due(row: PayoutSettings) -> None:
    PayoutSettings.objects.filter(pk=row.pk).update(due_at=clock.now() - timedelta(seconds=1))


def send() -> None:
    """What the outbox's tick does, now, without the pause after a failure."""
    OutboxMessage.objects.filter(state=OutboxMessage.State.WAITING).update(next_at=clock.now(), lease_until=None)
    tasks.dispatch_due()


def spendable(provider: UUID) -> int:
    return ledger.balance(provider, AccountKind.PROVIDER_AVAILABLE)


def kept(provider: UUID) -> int:
    return ledger.balance(provider, AccountKind.PROVIDER_RESERVE)


def keep(provider: UUID, *, asset_id: int = 1) -> int:
    """What a payout does first: the reserve's part of what was earned; how much that was."""
    units = ledger.balance(provider, AccountKind.PROVIDER_AVAILABLE, asset_id=asset_id)
    return sum(rolling_reserve.keep({(provider, asset_id): units}).values())


def paid_outside(provider: UUID) -> int:
    """What the fake bank says that this provider got, all in all."""
    ids = Payout.objects.filter(provider_id=provider).values_list("pk", flat=True)
    return -sum(FakeMovement.objects.filter(payout_id__in=list(ids)).values_list("amount", flat=True))


def states(provider: UUID) -> list[str]:
    return list(Payout.objects.filter(provider_id=provider).order_by("created_at").values_list("state", flat=True))

"""Celery's tasks: each may run twice, or with nothing to do."""

from __future__ import annotations

from uuid import UUID, uuid4

from billing import tasks
from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.charging import holds, settlement
from billing.charging.settlement import LeaseCharge
from billing.models import Transfer
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true


def test_tasks_seal_and_release_and_may_run_again(alice: UUID, bob: UUID, job_id: UUID) -> None:
    holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), bob, 1000)], fee_bps=1000)
    for _ in range(2):
        tasks.release_pending()
        tasks.seal_transfers()
    assert ledger.balance(bob, AccountKind.PROVIDER_AVAILABLE) == 900
    assert not Transfer.objects.unchained().exists()
    assert_ledger_is_true()

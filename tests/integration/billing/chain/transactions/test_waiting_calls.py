"""What the contract refuses now and will take later waits: no hold is closed over pay that was refused meanwhile."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from billing.chain import escrow
from billing.chain.devchain.chain import DEVELOPMENT_KEYS
from billing.chain.keys import Role, SigningKey, key_for
from billing.chain.transactions import signing
from billing.models import ChainTransaction, EscrowHold, EscrowLease
from billing.states.chain import EscrowHoldState, TransactionState
from marketplace.foundation import clock
from provider_agent.protocol import ethereum
from tests.integration.billing.chain.escrows import SECONDS_HELD, delegate, open_job, receipt_of
from tests.integration.billing.chain.town import TOKEN, Town

DAY = 86_400
ROLE_DAYS = 2  # between proposal and grant


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the contract refuses is tried again without waiting, until it is given up."""
    monkeypatch.setattr(signing, "SIMULATION_SECONDS_FIRST", 0)
    monkeypatch.setattr(signing, "SIMULATIONS_MAX", 2)


def test_pay_waits_while_the_settlers_role_changes_hands(town: Town) -> None:
    """The role is taken away from a key that may be stolen; its successor comes two days later."""
    town.deposit("Alice", 20 * TOKEN)
    delegate(town, 10 * DAY)
    job_id, lease_id = open_job(town, deadline=int(clock.now().timestamp()) + 10 * DAY), uuid4()
    town.wallets["admin"] = SigningKey(ethereum.address_of(DEVELOPMENT_KEYS[3]), DEVELOPMENT_KEYS[3])
    settler = (Role.SETTLER.id, key_for(Role.SETTLER).address)
    town.call("admin", "revokeRole", *settler)
    end(town, job_id, lease_id, ms=100_000)
    assert not ChainTransaction.objects.filter(state=TransactionState.REFUSED).exists()
    town.call("admin", "proposeRole", *settler)
    town.pass_seconds(ROLE_DAYS * DAY + 60)
    town.call("admin", "grantRole", *settler)
    assert_paid_and_closed(town, job_id, lease_id, 1 * TOKEN)


def test_pay_waits_while_the_chain_stands_still(town: Town) -> None:
    """A rollup's sequencer stops while a job runs: by its newest block less time has passed than is billed."""
    town.deposit("Alice", 50 * TOKEN)
    delegate(town)
    job_id, lease_id = open_job(town, 50 * TOKEN), uuid4()
    end(town, job_id, lease_id, ms=(SECONDS_HELD + 1_000) * 1_000)
    assert not ChainTransaction.objects.filter(state=TransactionState.REFUSED).exists()
    town.pass_seconds(2_000)
    assert_paid_and_closed(town, job_id, lease_id, 30 * TOKEN)


def end(town: Town, job_id: UUID, lease_id: UUID, *, ms: int) -> None:
    """The job is over; what its node used is sent as often as anything is tried."""
    escrow.settle_lease(receipt_of(town, job_id, lease_id, 1, ms))
    escrow.end_hold(job_id)
    for _ in range(signing.SIMULATIONS_MAX + 1):
        ChainTransaction.objects.update(next_at=clock.now())
        town.follow()


def assert_paid_and_closed(town: Town, job_id: UUID, lease_id: UUID, amount: int) -> None:
    for _ in range(4):
        ChainTransaction.objects.update(next_at=clock.now())
        town.follow()
    hold = EscrowHold.objects.get(pk=job_id)
    assert (hold.state, hold.settled) == (EscrowHoldState.CLOSED, amount)
    lease = EscrowLease.objects.get(pk=lease_id)
    assert lease.paid + lease.fee == amount
    town.assert_books_match()

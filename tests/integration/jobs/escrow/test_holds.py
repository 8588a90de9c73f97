"""Nothing runs before the hold is final, on the terms that were signed; what does not open ends the job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from billing.account_kinds import AccountKind
from billing.chain import escrow as contracts
from billing.chain.wallets import wallet_owner
from billing.models import Account, Alert, ChainEvent, EscrowHold
from billing.states.chain import EscrowHoldState
from jobs import lifecycle, sweeps
from jobs.errors import HoldCannotGrow
from jobs.models import Job, Lease
from jobs.states import JobState
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from provider_agent.protocol import id_bytes32
from tests import stage
from tests.integration.billing.chain.town import Town
from tests.integration.jobs.escrow import scenes
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


def refreshed(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


def test_c18_no_lease_while_the_hold_is_mined_and_not_final(
    town: Town, alice: Organisation, bob: Node, settings: Any
) -> None:
    scenes.leave_unfinal(town, settings, blocks=3)
    job = scenes.submit(town, alice)
    assert "not sent yet" in job.waiting_for
    town.follow(2)
    sweeps.sweep_jobs()
    assert town.view("holds", town.key("Alice").address, id_bytes32(job.pk))[0] > 0  # it is mined
    sent = EscrowHold.objects.select_related("transaction").get(pk=job.pk).transaction
    assert sent is not None
    assert refreshed(job).waiting_for == f"the hold in the contract: transaction {sent.hash} waits for final blocks"
    assert stage.place(job) == [] and not Lease.objects.exists()
    with pytest.raises(HoldCannotGrow, match=r"larger budget\.max_total"):
        lifecycle.resume(job.pk, cap_usd_micros=9 * DOLLAR, actor="alice")
    town.mint("somebody", 1)  # two blocks and a coin's
    town.follow()
    assert len(stage.place(job)) == 1
    town.assert_books_match()


def test_a_wallet_that_withdraws_before_its_hold_opens_ends_its_job(town: Town, alice: Organisation, bob: Node) -> None:
    job = scenes.submit(town, alice)
    town.call("Alice", "withdraw", 9 * DOLLAR)
    scenes.rebroadcast(town)
    job.refresh_from_db()
    assert (job.state, job.reason) == (JobState.FAILED, "hold_failed")
    assert "InsufficientAvailable" in job.message and "souk escrow deposit" in job.message
    assert not Alert.objects.filter(kind="chain_transaction", closed_at=None).exists()
    scenes.assert_nothing_here(alice)
    town.assert_books_match()


def test_a_hold_that_failed_and_was_opened_by_the_customer_goes_back(
    town: Town, alice: Organisation, bob: Node
) -> None:
    view = scenes.quote(alice)
    signed = scenes.sign(town, view)
    job = lifecycle.submit(
        organisation=alice, user=None, spec=scenes.spec(), quote_id=view.quote_id, authorization=signed
    )
    town.call("Alice", "withdraw", 9 * DOLLAR)
    scenes.rebroadcast(town)
    town.deposit("Alice", 5 * DOLLAR)
    town.call("Alice", "openHold", contracts._struct(signed.authorization), signed.signature)
    scenes.pass_time(town)
    assert not ChainEvent.objects.filter(processed_at=None).exists()
    assert EscrowHold.objects.get(pk=job.pk).state == EscrowHoldState.CLOSED
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 6 * DOLLAR
    assert refreshed(job).state == JobState.FAILED and not Lease.objects.exists()
    town.assert_books_match()


def test_a_job_whose_id_a_stranger_used_first_is_held_and_runs(town: Town, alice: Organisation, bob: Node) -> None:
    town.deposit("Mallory", 5 * DOLLAR)
    view = scenes.quote(alice)
    hers = scenes.sign(town, view, signer="Mallory", customer=town.key("Mallory").address, max_amount=1)
    town.call("Mallory", "openHold", contracts._struct(hers.authorization), hers.signature)
    town.follow()
    job = lifecycle.submit(
        organisation=alice,
        user=None,
        spec=scenes.spec(),
        quote_id=view.quote_id,
        authorization=scenes.sign(town, view),
    )
    town.follow(2)
    sweeps.sweep_jobs()
    hold = EscrowHold.objects.get(pk=job.pk)
    assert (hold.state, hold.customer) == (EscrowHoldState.OPEN, town.key("Alice").address)
    assert len(stage.place(job)) == 1
    assert EscrowHold.objects.exclude(pk=job.pk).get().customer == town.key("Mallory").address
    [hers_held] = Account.objects.filter(kind=AccountKind.WALLET_HELD, job_id=job.pk).exclude(
        owner_id=wallet_owner(town.key("Alice").address)
    )
    assert hers_held.credits_posted == hers_held.debits_posted == 1  # moved with her hold
    town.assert_books_match()


def test_a_wallet_that_opens_other_terms_for_its_job_ends_it(town: Town, alice: Organisation, bob: Node) -> None:
    view = scenes.quote(alice)
    other = scenes.sign(town, view, max_amount=1)
    town.call("Alice", "openHold", contracts._struct(other.authorization), other.signature)
    job = lifecycle.submit(
        organisation=alice,
        user=None,
        spec=scenes.spec(),
        quote_id=view.quote_id,
        authorization=scenes.sign(town, view),
    )
    town.follow()
    sweeps.sweep_jobs()
    job.refresh_from_db()
    assert (job.state, job.reason) == (JobState.FAILED, "hold_failed")
    assert "on other terms" in job.message and not Lease.objects.exists()
    town.assert_books_match()


def test_a_job_that_is_cancelled_while_its_hold_opens_gets_it_back(
    town: Town, alice: Organisation, bob: Node, settings: Any
) -> None:
    job = scenes.submit(town, alice)
    lifecycle.cancel(job.pk, actor="alice")
    assert refreshed(job).state == JobState.CANCELLED
    town.follow()
    assert EscrowHold.objects.get(pk=job.pk).state == EscrowHoldState.OPEN
    scenes.pass_time(town)
    assert EscrowHold.objects.get(pk=job.pk).state == EscrowHoldState.CLOSED
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 10 * DOLLAR
    scenes.assert_split(job)
    town.assert_books_match()


def test_a_job_ends_before_the_deadline_that_its_wallet_signed(town: Town, alice: Organisation, bob: Node) -> None:
    job = scenes.submit(town, alice)
    signed = EscrowHold.objects.get(pk=job.pk).deadline
    assert job.deadline_at is not None and signed - job.deadline_at.timestamp() == 600
    Job.objects.filter(pk=job.pk).update(deadline_at=clock.now() - timedelta(seconds=1))
    sweeps.sweep_jobs()
    job.refresh_from_db()
    assert (job.state, job.reason) == (JobState.FAILED, "deadline_exceeded")
    scenes.pass_time(town)
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 10 * DOLLAR
    town.assert_books_match()

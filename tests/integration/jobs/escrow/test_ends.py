"""A hold is closed last: what is still to be settled from it is not given back before."""

from __future__ import annotations

from uuid import uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.chain import escrow as contracts
from billing.chain.contract import deploy, registry
from billing.chain.devchain import development
from billing.chain.devchain.chain import CHAIN_ID, DEVELOPMENT_KEYS
from billing.chain.keys import SigningKey
from billing.models import ChainEvent, ChainTransaction, EscrowHold
from billing.proofs.escrow import HoldAuthorization, sign_authorization
from billing.states.chain import EscrowHoldState
from jobs import sweeps
from jobs.bills.bill import make_bill
from jobs.models import Job
from jobs.states import JobState
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from provider_agent.protocol import Reason, charge, ethereum
from tests import stage
from tests.integration.billing.chain.town import Town
from tests.integration.jobs.escrow import scenes
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_receipt_that_the_contract_does_not_take_yet_keeps_the_hold_open(
    town: Town, alice: Organisation, bob: Node
) -> None:
    job, [lease] = scenes.running(town, alice)
    scenes.use(lease, seconds=900, ms=890_000)
    town.call("Bob", "revokeReceiptKey", bob.receipt_address)
    stage.finish(lease)
    job.refresh_from_db()
    scenes.pass_time(town)
    assert EscrowHold.objects.get(pk=job.pk).state == EscrowHoldState.OPEN
    assert not ChainTransaction.objects.filter(purpose="closeHold").exists()
    assert not make_bill(job).is_final
    scenes.delegate(town, bob)
    town.follow()
    ChainTransaction.objects.filter(purpose="settleLease").update(next_at=clock.now())
    scenes.pass_time(town)
    due = charge(2 * DOLLAR, 890_000)
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Bob") == due - due // 10
    assert EscrowHold.objects.get(pk=job.pk).state == EscrowHoldState.CLOSED
    assert make_bill(job).is_final
    town.assert_books_match()


def test_a_receipt_that_the_contract_never_takes_does_not_keep_the_customers_money(
    town: Town, alice: Organisation, bob: Node
) -> None:
    job, [lease] = scenes.running(town, alice)
    scenes.use(lease, seconds=900, ms=890_000)
    town.call("Bob", "revokeReceiptKey", bob.receipt_address)
    stage.finish(lease)
    job.refresh_from_db()
    scenes.rebroadcast(town)
    scenes.pass_time(town)
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 10 * DOLLAR
    bill = make_bill(job)
    assert not bill.is_final  # it charges what the contract did not take: an operator got an alert
    assert bill.escrow is not None and bill.escrow.settled_units == 0
    town.assert_books_match()


def test_a_broken_attempt_is_settled_before_the_next_one_begins(town: Town, alice: Organisation, bob: Node) -> None:
    job, [lease] = scenes.running(town, alice)
    scenes.use(lease, seconds=900, ms=300_000)
    stage.checkpoint(job, lease, step=10, ms=300_000)
    stage.finish(lease, Reason.NODE_DRAINED)
    job.refresh_from_db()
    assert job.state == JobState.RECOVERING
    town.follow(3)
    due = charge(2 * DOLLAR, 300_000)
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Bob") == due - due // 10
    assert EscrowHold.objects.get(pk=job.pk).state == EscrowHoldState.OPEN
    [again] = scenes.start(job)
    assert int(again.cap_units) == 2 * DOLLAR - due
    town.assert_books_match()


def test_a_hold_of_the_same_id_in_another_contract_changes_nothing(town: Town, alice: Organisation, bob: Node) -> None:
    """Mallory opens, in the contract of a token of her own, a hold under the id of Alice's job."""

    deployer = SigningKey(ethereum.address_of(DEVELOPMENT_KEYS[3]), DEVELOPMENT_KEYS[3])
    token = deploy.deploy_dev_token(CHAIN_ID, deployer, name="Other", symbol="OTH", decimals=6).contract
    made = deploy.deploy_escrow(CHAIN_ID, deployer, development.terms(token, deployer.address), {})
    other = registry.register_escrow(
        registry.register_token("OTH", CHAIN_ID, token), made.contract, deployed_block=made.block_number
    )
    theirs = Town(other, town.chain)
    theirs.deposit("Mallory", 5)
    job = scenes.submit(town, alice)
    hers = HoldAuthorization(
        job_id=job.pk,
        customer=theirs.key("Mallory").address,
        asset=token,
        max_amount=1,
        rate_ceiling_per_hour=1,
        deadline=int(clock.now().timestamp()) + 7200,
        nonce=uuid4().int,
    )
    signed = sign_authorization(theirs.secret("Mallory"), hers, contracts.domain_of(other))
    theirs.call("Mallory", "openHold", contracts._struct(hers), signed.signature)
    town.follow(2)
    sweeps.sweep_jobs()
    assert Job.objects.get(pk=job.pk).state == JobState.QUEUED
    assert len(stage.place(job)) == 1
    assert not ChainEvent.objects.filter(processed_at=None).exists()
    town.assert_books_match()
    theirs.assert_books_match()

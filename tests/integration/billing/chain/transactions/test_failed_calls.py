"""What our settler called for and did not come about is called for again; what others did first alarms nobody."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db.models import F

from billing.account_kinds import AccountKind
from billing.chain import escrow
from billing.chain.devchain import development
from billing.chain.errors import FinalBlockGone
from billing.chain.transactions import closing, retrying, signing
from billing.models import Alert, ChainBlock, ChainTransaction, EscrowHold, EscrowLease
from billing.states.chain import EscrowHoldState, TransactionState
from marketplace.foundation import clock
from marketplace.foundation.states import advance
from provider_agent.protocol import id_bytes32
from tests.integration.billing.chain.escrows import authorize, delegate, open_job, receipt_of
from tests.integration.billing.chain.town import TOKEN, Town, devchain_town
from tests.integration.billing.scenes import assert_ledger_is_true

HOUR = timedelta(hours=1)
WINDOW_SECONDS = 3600


@pytest.fixture
def windows(db: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    """A contract whose challenge window is an hour."""
    terms = development.terms
    monkeypatch.setattr(
        development, "terms", lambda *given: dataclasses.replace(terms(*given), challenge_seconds=WINDOW_SECONDS)
    )
    with devchain_town(settings) as made:
        yield made


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the contract refuses is tried again without waiting, until it is given up."""
    monkeypatch.setattr(signing, "SIMULATION_SECONDS_FIRST", 0)
    monkeypatch.setattr(signing, "SIMULATIONS_MAX", 2)


def two_hours_later() -> None:
    """So long ago was it that everything was tried."""
    ChainTransaction.objects.update(created_at=F("created_at") - 2 * HOUR)


def end_window(lease_id: UUID) -> None:
    """Our clock says that it is over, and the chain's does not."""
    EscrowLease.objects.filter(pk=lease_id).update(release_at=clock.now() - HOUR)


def settled(town: Town, ms: int = 100_000) -> tuple[UUID, UUID]:
    """A job of Alice's whose lease was settled: (job, lease)."""
    town.deposit("Alice", 20 * TOKEN)
    delegate(town)
    job_id, lease_id = open_job(town), uuid4()
    escrow.settle_lease(receipt_of(town, job_id, lease_id, 1, ms))
    town.follow(2)
    return job_id, lease_id


def give_up(town: Town) -> None:
    """What the contract refuses is tried until it is refused for good."""
    town.follow(signing.SIMULATIONS_MAX + 1)


def lose_nonce(one: ChainTransaction) -> None:
    """A transaction that is not ours took its nonce, and is final."""
    pretend(one, TransactionState.BROADCAST)
    closing.let_go(one)


def pretend(one: ChainTransaction, state: TransactionState) -> None:
    """It was sent and is so far, with a nonce of its own."""
    nonce = 9_000 + ChainTransaction.objects.exclude(nonce=None).count()
    advance(one, TransactionState.NONCED, nonce=nonce)
    advance(one, TransactionState.SIGNED, raw="0x00", hash=f"0x{nonce:064x}")
    advance(one, TransactionState.BROADCAST)
    if state != TransactionState.BROADCAST:
        advance(one, state)


def alarms() -> list[str]:
    return list(Alert.objects.open().filter(kind="chain_transaction").values_list("message", flat=True))


def test_pay_that_was_due_while_the_chain_stood_still_is_paid_when_it_goes_on(windows: Town) -> None:
    """A rollup's sequencer stops for a while: its newest block says that the window is still open."""
    town = windows
    _, lease_id = settled(town)
    end_window(lease_id)
    give_up(town)
    refused = ChainTransaction.objects.get(purpose="finalize")
    assert refused.state == TransactionState.REFUSED and "TooEarly" in refused.last_error
    assert len(alarms()) == 1
    assert town.chain is not None
    town.chain.ahead_seconds += 3 * WINDOW_SECONDS
    town.follow(3)
    assert EscrowLease.objects.get(pk=lease_id).pending == TOKEN  # not at once again: it was just refused
    two_hours_later()
    town.follow(3)
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Bob") == TOKEN * 9 // 10
    assert alarms() == []
    town.assert_books_match()
    assert_ledger_is_true()


def test_a_hold_whose_end_was_not_mined_is_closed_by_the_next_try(town: Town) -> None:
    """Without that, the customer's money would wait for the deadline that it signed: a year, maybe."""
    job_id, _ = settled(town)
    escrow.end_hold(job_id)
    escrow.sweep(town.contract.chain_id)
    hold = EscrowHold.objects.select_related("closing").get(pk=job_id)
    assert hold.closing is not None
    lose_nonce(hold.closing)
    town.follow(3)
    assert EscrowHold.objects.get(pk=job_id).state == EscrowHoldState.OPEN
    two_hours_later()
    town.follow(3)
    assert EscrowHold.objects.get(pk=job_id).state == EscrowHoldState.CLOSED
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 19 * TOKEN
    town.assert_books_match()


@pytest.mark.parametrize("how", ["its nonce was taken", "it reverted in its block"])
def test_no_hold_is_closed_over_a_claim_that_never_reached_the_contract(town: Town, how: str) -> None:
    """Else the provider's pay would go back to the customer: a thief of the settler's nonces could do that for her."""
    town.deposit("Alice", 20 * TOKEN)
    delegate(town)
    job_id, lease_id = open_job(town), uuid4()
    claim = escrow.settle_lease(receipt_of(town, job_id, lease_id, 1, 100_000))
    if how == "its nonce was taken":
        lose_nonce(claim)
    else:
        pretend(claim, TransactionState.MINED)
        advance(claim, TransactionState.REVERTED)
    escrow.end_hold(job_id)
    town.follow(4)
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Bob") == TOKEN * 9 // 10
    assert EscrowHold.objects.get(pk=job_id).state == EscrowHoldState.CLOSED
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 19 * TOKEN
    town.assert_books_match()
    assert_ledger_is_true()


def test_a_claim_that_fails_again_and_again_keeps_the_customers_money_no_longer(town: Town) -> None:
    town.deposit("Alice", 20 * TOKEN)
    delegate(town)
    job_id, lease_id = open_job(town), uuid4()
    escrow.settle_lease(receipt_of(town, job_id, lease_id, 1, 100_000))
    escrow.end_hold(job_id)
    for _ in range(retrying.CLAIM_TRIES_MAX + 1):
        for one in ChainTransaction.objects.filter(purpose="settleLease", state=TransactionState.PLANNED):
            lose_nonce(one)
        escrow.sweep(town.contract.chain_id)
    town.follow(2)
    assert ChainTransaction.objects.filter(purpose="settleLease").count() == retrying.CLAIM_TRIES_MAX
    assert EscrowHold.objects.get(pk=job_id).state == EscrowHoldState.CLOSED


def test_who_pays_itself_out_first_alarms_nobody(windows: Town) -> None:
    """Anybody may finalize: a provider that is quicker than we are made a critical alert of every lease."""
    town = windows
    _, lease_id = settled(town)
    assert town.chain is not None
    town.chain.ahead_seconds += 2 * WINDOW_SECONDS
    end_window(lease_id)
    escrow.sweep(town.contract.chain_id)  # ours is planned
    town.call("Bob", "finalize", town.key("Alice").address, id_bytes32(lease_id))
    give_up(town)
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Bob") == TOKEN * 9 // 10
    assert ChainTransaction.objects.get(purpose="finalize").state == TransactionState.REFUSED
    assert alarms() == []
    assert not Alert.objects.filter(kind="chain_transaction").exists()  # no mail either
    town.assert_books_match()


def test_what_was_refused_because_others_had_done_it_is_calm_once_that_is_final(windows: Town, settings: Any) -> None:
    """Final blocks come late: ours is given up before the books know why."""
    town = windows
    _, lease_id = settled(town)
    assert town.chain is not None
    town.chain.ahead_seconds += 2 * WINDOW_SECONDS
    end_window(lease_id)
    settings.SOUK_CHAINS = [settings.SOUK_CHAINS[0] | {"finality": "depth", "confirmations": 5}]
    escrow.sweep(town.contract.chain_id)
    town.call("Bob", "finalize", town.key("Alice").address, id_bytes32(lease_id))
    give_up(town)
    assert len(alarms()) == 1, [(one.purpose, one.state, one.last_error) for one in ChainTransaction.objects.all()]
    for _ in range(6):
        town.chain.mine_empty()
    town.follow(2)
    assert EscrowLease.objects.get(pk=lease_id).pending == 0
    assert alarms() == []
    town.assert_books_match()


def test_a_customer_that_revokes_and_opens_itself_alarms_nobody(town: Town) -> None:
    town.deposit("Alice", 20 * TOKEN)
    job_id = uuid4()
    signed = authorize(town, job_id)
    escrow.open_hold(town.asset_id, signed)
    town.call("Alice", "openHold", escrow._struct(signed.authorization), signed.signature)
    give_up(town)
    assert EscrowHold.objects.get(pk=job_id).state == EscrowHoldState.OPEN
    assert town.chain is not None
    town.chain.ahead_seconds += 7200 + 3600
    escrow.end_hold(job_id)
    escrow.sweep(town.contract.chain_id)
    town.call("Alice", "refundExpired", town.key("Alice").address, id_bytes32(job_id))
    give_up(town)
    assert EscrowHold.objects.get(pk=job_id).state == EscrowHoldState.CLOSED
    assert alarms() == []
    town.assert_books_match()


def test_a_provider_that_registers_its_key_itself_alarms_nobody(town: Town) -> None:
    from billing.proofs.escrow import ReceiptKeyDelegation, sign_delegation

    one = ReceiptKeyDelegation(
        provider=town.key("Bob").address,
        receipt_key=town.key("Bob's node").address,
        not_after=int(clock.now().timestamp()) + 86_400,
        nonce=7,
    )
    signed = sign_delegation(town.secret("Bob"), one, escrow.domain_of(town.contract))
    escrow.register_receipt_key(town.asset_id, signed)
    town.call("Bob", "registerReceiptKey", (one.provider, one.receipt_key, one.not_after, one.nonce), signed.signature)
    give_up(town)
    assert alarms() == []


def test_while_a_final_block_is_missing_no_hold_counts_as_open(town: Town) -> None:
    """What was final is gone, and the hold maybe with it: who ran its job would not be paid."""
    town.deposit("Alice", 20 * TOKEN)
    job_id = open_job(town)
    newest = ChainBlock.objects.filter(state=ChainBlock.State.FINAL).latest("number")
    true_hash = newest.hash
    ChainBlock.objects.filter(pk=newest.pk).update(hash="0x" + "99" * 32)
    with pytest.raises(FinalBlockGone):
        town.follow()
    assert not escrow.is_open(job_id)
    ChainBlock.objects.filter(pk=newest.pk).update(hash=true_hash)
    town.follow()
    assert escrow.is_open(job_id)

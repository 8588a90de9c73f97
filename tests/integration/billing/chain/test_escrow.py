"""A wallet's own money: held for a job on the chain, settled per lease, released, taken out. The books follow."""

from __future__ import annotations

import dataclasses
from typing import Any
from uuid import uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.chain import escrow
from billing.chain.devchain import development
from billing.chain.errors import AuthorizationRefused, ContractUnknown, ReceiptUnclaimable
from billing.chain.events import indexer
from billing.chain.keys import Role, key_for
from billing.chain.transactions import signing
from billing.errors import HoldConflict, HoldNotFound
from billing.models import Account, Alert, ChainTransaction, EscrowHold, EscrowLease
from billing.proofs.escrow import (
    HoldAuthorization,
    SignedHoldAuthorization,
    sign_authorization,
)
from billing.states.chain import EscrowHoldState, TransactionState
from marketplace.foundation import clock
from provider_agent.protocol import id_bytes32
from tests.integration.billing.chain.escrows import authorize, delegate, open_job, receipt_of
from tests.integration.billing.chain.town import TOKEN, Town, devchain_town
from tests.integration.billing.scenes import assert_ledger_is_true


def test_a_job_is_held_settled_finalized_and_closed(town: Town) -> None:
    town.deposit("Alice", 100 * TOKEN)
    delegate(town)
    job_id, lease_id = uuid4(), uuid4()
    signed = authorize(town, job_id, providers=[town.key("Bob").address, town.key("Mallory").address])
    hold = escrow.open_hold(town.asset_id, signed)
    assert hold.state == EscrowHoldState.REQUESTED
    assert not escrow.is_open(job_id)
    assert escrow.open_hold(town.asset_id, signed) == hold
    town.follow()
    assert escrow.is_open(job_id)
    town.assert_books_match()
    town.pass_seconds(100)
    escrow.settle_lease(receipt_of(town, job_id, lease_id, 1, 60_000))
    escrow.settle_lease(receipt_of(town, job_id, lease_id, 2, 90_000))
    escrow.close_hold(job_id)
    town.follow(3)
    lease = EscrowLease.objects.get(pk=lease_id)
    assert (lease.paid, lease.fee, lease.pending) == (810_000, 90_000, 0)
    assert EscrowHold.objects.get(pk=job_id).state == EscrowHoldState.CLOSED
    assert not escrow.is_open(job_id)
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Bob") == 810_000 == town.view("available", town.key("Bob").address)
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 99_100_000
    town.call("Bob", "withdraw", 810_000)
    town.follow()
    assert town.tokens_of(town.key("Bob").address) == 810_000
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Bob") == 0
    held = Account.objects.filter(kind=AccountKind.WALLET_HELD, job_id=job_id).get()
    assert held.available == 0
    assert not ChainTransaction.objects.exclude(state=TransactionState.FINAL).exists()
    town.assert_books_match()
    assert_ledger_is_true()


def test_stakes_slashes_and_compensation_are_booked(town: Town) -> None:
    town.mint("Bob", 50 * TOKEN)
    town.call("Bob", "stake", 50 * TOKEN)
    town.call("Bob", "requestUnstake", 5 * TOKEN)
    town.call("Bob", "unstake")
    offence = b"\x01" * 32
    town.wallets["settler"] = key_for(Role.SETTLER)
    town.call("settler", "slash", town.key("Bob").address, 3 * TOKEN, offence, b"\x02" * 32)
    town.call("settler", "compensate", town.key("Alice").address, 2 * TOKEN, offence)
    town.follow()
    assert town.owed(AccountKind.WALLET_STAKE, "Bob") == 42 * TOKEN == town.view("staked", town.key("Bob").address)
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 2 * TOKEN
    town.assert_books_match()
    assert_ledger_is_true()


def test_a_receipt_beyond_the_books_counting_is_not_claimed(town: Town) -> None:
    """The contract's sequence has 64 bits; what it would settle and we could never book is not sent to it."""
    town.deposit("Alice", 20 * TOKEN)
    delegate(town)
    job_id, lease_id = open_job(town), uuid4()
    planned = ChainTransaction.objects.count()
    for seq in (2**63, 2**64 - 1):
        with pytest.raises(ReceiptUnclaimable):
            escrow.settle_lease(receipt_of(town, job_id, lease_id, seq, 60_000))
    assert ChainTransaction.objects.count() == planned
    escrow.settle_lease(receipt_of(town, job_id, lease_id, escrow.SEQ_MAX, 60_000))
    town.follow(3)
    assert EscrowLease.objects.get(pk=lease_id).seq == 2**63 - 1
    town.assert_books_match()


def test_a_lease_that_a_stolen_key_settles_beyond_the_books_counting_is_reported(town: Town) -> None:
    town.deposit("Alice", 20 * TOKEN)
    delegate(town)
    job_id, lease_id, bob = open_job(town), uuid4(), uuid4()
    town.wallets["thief"] = key_for(Role.SETTLER)
    signed = receipt_of(town, job_id, lease_id, 2**64 - 1, 60_000)
    town.call("thief", "settleLease", escrow.receipt_struct(signed.receipt), signed.signature, [])
    town.buy_credits("Bob", bob, 25 * TOKEN)
    town.follow(indexer.ATTEMPTS_UNTIL_ALERT)
    assert ledger.balance(bob, AccountKind.CUSTOMER_AVAILABLE, asset_id=town.asset_id) == 25 * TOKEN
    [alert] = Alert.objects.open().filter(kind="chain_event")
    assert f"its receipt {2**64 - 1} is beyond" in alert.message
    assert not EscrowLease.objects.exists()


def test_a_development_chains_window_is_the_settings(db: None, settings: Any) -> None:
    settings.SOUK_CHALLENGE_SECONDS = 7200
    with devchain_town(settings) as town:
        assert town.view("challengeSeconds") == 7200
        town.deposit("Alice", 20 * TOKEN)
        delegate(town)
        job_id, lease_id = open_job(town), uuid4()
        escrow.settle_lease(receipt_of(town, job_id, lease_id, 1, 100_000))
        town.follow(2)
        assert town.owed(AccountKind.WALLET_PENDING, "Bob") == TOKEN
        town.call("Alice", "challenge", id_bytes32(lease_id), b"\x05" * 32)
        town.follow()
        assert EscrowLease.objects.get(pk=lease_id).is_challenged


def test_a_challenged_lease_is_divided_by_the_arbiter(db: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    terms = development.terms
    monkeypatch.setattr(development, "terms", lambda *given: dataclasses.replace(terms(*given), challenge_seconds=3600))
    with devchain_town(settings) as town:
        town.deposit("Alice", 20 * TOKEN)
        delegate(town)
        job_id, lease_id = open_job(town), uuid4()
        escrow.settle_lease(receipt_of(town, job_id, lease_id, 1, 100_000))
        town.follow(2)
        assert town.owed(AccountKind.WALLET_PENDING, "Bob") == TOKEN
        town.call("Alice", "challenge", id_bytes32(lease_id), b"\x05" * 32)
        town.follow()
        assert EscrowLease.objects.get(pk=lease_id).is_challenged
        town.wallets["arbiter"] = key_for(Role.SETTLER)
        town.call("arbiter", "resolve", town.key("Alice").address, id_bytes32(lease_id), 400_000, 600_000)
        town.follow()
        lease = EscrowLease.objects.get(pk=lease_id)
        assert (lease.paid, lease.fee, lease.refunded, lease.pending) == (360_000, 40_000, 600_000, 0)
        assert not lease.is_challenged
        town.assert_books_match()
        assert_ledger_is_true()


def test_a_challenge_that_nobody_decides_in_time_is_paid_to_the_provider(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = development.terms
    monkeypatch.setattr(
        development,
        "terms",
        lambda *given: dataclasses.replace(terms(*given), challenge_seconds=3600, dispute_seconds=7200),
    )
    with devchain_town(settings) as town:
        town.deposit("Alice", 20 * TOKEN)
        delegate(town)
        job_id, lease_id = open_job(town), uuid4()
        escrow.settle_lease(receipt_of(town, job_id, lease_id, 1, 100_000))
        town.follow(2)
        town.call("Alice", "challenge", id_bytes32(lease_id), b"\x05" * 32)
        town.follow()
        assert town.chain is not None
        town.chain.ahead_seconds += 3700
        town.call("Alice", "withdraw", 1)
        town.follow(2)
        assert EscrowLease.objects.get(pk=lease_id).pending == TOKEN  # the arbiter may still decide
        town.chain.ahead_seconds += 7200
        town.call("Alice", "withdraw", 1)
        town.follow(3)
        lease = EscrowLease.objects.get(pk=lease_id)
        assert (lease.paid, lease.fee, lease.refunded, lease.pending) == (900_000, 100_000, 0, 0)
        town.assert_books_match()


def test_a_hold_that_its_wallet_opened_itself_is_booked(town: Town) -> None:
    town.deposit("Alice", 20 * TOKEN)
    job_id = uuid4()
    signed = authorize(town, job_id)
    town.call("Alice", "openHold", escrow._struct(signed.authorization), signed.signature)
    town.follow()
    assert escrow.is_open(job_id)
    town.assert_books_match()


def test_a_stranger_who_uses_the_jobs_id_first_is_in_nobodys_way(town: Town) -> None:
    """Mallory sees Alice's authorization and opens a hold of her own under the job's id."""
    town.deposit("Alice", 20 * TOKEN)
    town.deposit("Mallory", 20 * TOKEN)
    job_id = uuid4()
    hers = HoldAuthorization(
        job_id=job_id,
        customer=town.key("Mallory").address,
        asset=town.token,
        max_amount=1,
        rate_ceiling_per_hour=1,
        deadline=int(clock.now().timestamp()) + 7200,
        nonce=1,
    )
    forged = sign_authorization(town.secret("Mallory"), hers, escrow.domain_of(town.contract))
    town.call("Mallory", "openHold", escrow._struct(hers), forged.signature)
    escrow.open_hold(town.asset_id, authorize(town, job_id))
    town.follow(2)
    assert escrow.is_open(job_id)
    assert EscrowHold.objects.get(pk=job_id).customer == town.key("Alice").address
    assert EscrowHold.objects.exclude(pk=job_id).get().customer == town.key("Mallory").address
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 10 * TOKEN
    town.assert_books_match()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"asset": "0x" + "11" * 20}, "token"),
        ({"deadline": 1}, "deadline"),
        ({"deadline": 2**40}, "deadline"),
        ({"signer": "Mallory"}, "not signed"),
    ],
)
def test_an_authorization_that_cannot_be_used_is_refused(town: Town, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(AuthorizationRefused, match=words):
        escrow.open_hold(town.asset_id, authorize(town, uuid4(), **changes))
    assert not EscrowHold.objects.exists()


def test_one_job_has_one_hold(town: Town) -> None:
    job_id = uuid4()
    signed: SignedHoldAuthorization = authorize(town, job_id)
    escrow.open_hold(town.asset_id, signed)
    with pytest.raises(HoldConflict):
        escrow.open_hold(town.asset_id, authorize(town, job_id, 5 * TOKEN))


def test_what_is_not_there_is_reported_as_missing(town: Town) -> None:
    with pytest.raises(ContractUnknown, match="no escrow contract"):
        escrow.open_hold(1, authorize(town, uuid4()))
    with pytest.raises(HoldNotFound):
        escrow.close_hold(uuid4())


def test_a_hold_without_money_behind_it_fails_and_the_operator_gets_an_alert(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing, "SIMULATION_SECONDS_FIRST", 0)
    job_id = uuid4()
    escrow.open_hold(town.asset_id, authorize(town, job_id))
    town.follow(signing.SIMULATIONS_MAX + 1)
    hold = EscrowHold.objects.get(pk=job_id)
    assert hold.state == EscrowHoldState.FAILED
    assert "InsufficientAvailable" in hold.reason
    assert hold.transaction.state == TransactionState.REFUSED
    assert hold.transaction.nonce is None
    assert Alert.objects.filter(kind="chain_transaction").count() == 1

"""A key that is changed strands nothing that it had planned, and a key that is forgotten has nothing given up."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import connection

from billing.chain import escrow, operating
from billing.chain.devchain.chain import DEVELOPMENT_KEYS
from billing.chain.errors import SignerMissing
from billing.chain.keys import Role, key_for
from billing.chain.reading import builds
from billing.chain.transactions import planning, retrying, rotating
from billing.models import Alert, ChainTransaction, EscrowHold, EscrowLease
from billing.states.chain import EscrowHoldState, TransactionState
from tests.integration.billing.chain.escrows import delegate, open_job, receipt_of
from tests.integration.billing.chain.town import TOKEN, Town

OLD_KEY, STRANGERS_KEY = "0x" + "a1" * 32, "0x" + "b2" * 32


def planned_by(settings: Any, key: str, town: Town) -> tuple[EscrowHold, ChainTransaction]:
    """A lease's claim, which this settler's key has planned and not sent; its job is over."""
    town.deposit("Alice", 20 * TOKEN)
    delegate(town)
    job_id = open_job(town)
    settings.SOUK_CHAIN_SETTLER_KEY = key
    claim = escrow.settle_lease(receipt_of(town, job_id, uuid4(), 1, 100_000))
    escrow.end_hold(job_id)
    return EscrowHold.objects.get(pk=job_id), claim


def test_what_an_old_key_had_planned_is_sent_by_the_new_one(town: Town, settings: Any) -> None:
    hold, claim = planned_by(settings, OLD_KEY, town)
    ChainTransaction.objects.filter(pk=claim.pk).update(attempts=7)  # the old key's role is gone already
    settings.SOUK_CHAIN_SETTLER_KEY = ""
    town.follow(4)
    claim.refresh_from_db()
    assert (claim.state, claim.signer, claim.attempts) == (TransactionState.FINAL, key_for(Role.SETTLER).address, 0)
    hold.refresh_from_db()
    assert (hold.state, hold.settled) == (EscrowHoldState.CLOSED, TOKEN)
    assert EscrowLease.objects.get().paid == 900_000
    town.assert_books_match()
    assert not Alert.objects.open().exists()


def test_a_key_that_the_contract_does_not_know_gets_nothing(town: Town, settings: Any) -> None:
    """The settler's key was forgotten in the environment: another one of ours would only be refused for it."""
    old = key_for(Role.SETTLER).address
    hold, claim = planned_by(settings, DEVELOPMENT_KEYS[0], town)
    settings.SOUK_CHAIN_KEY, settings.SOUK_CHAIN_SETTLER_KEY = STRANGERS_KEY, ""
    for _ in range(3):
        with pytest.raises(SignerMissing):
            town.follow()
    claim.refresh_from_db()
    assert (claim.state, claim.signer, claim.attempts) == (TransactionState.PLANNED, old, 0)
    settings.SOUK_CHAIN_SETTLER_KEY = DEVELOPMENT_KEYS[0]
    town.follow(4)
    hold.refresh_from_db()
    assert hold.state == EscrowHoldState.CLOSED


@pytest.mark.django_db(transaction=True)
def test_nothing_is_taken_from_a_key_that_somebody_signs_with(town: Town, settings: Any) -> None:
    """A worker that was not started again yet has the old key, and is about to sign."""
    _, claim = planned_by(settings, OLD_KEY, town)
    old = key_for(Role.SETTLER).address
    settings.SOUK_CHAIN_SETTLER_KEY = ""
    asked = connection.get_connection_params()
    names = ("host", "port", "user", "password", "dbname")
    with psycopg.connect(**{name: asked[name] for name in names if asked.get(name)}, autocommit=True) as other:
        word = f"signer:{town.contract.chain_id}:{old}"
        other.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", [planning.LOCK_CLASS, word])
        planning.dispatch(town.contract.chain_id)
        claim.refresh_from_db()
        assert (claim.state, claim.signer) == (TransactionState.PLANNED, old)
    town.follow(2)
    claim.refresh_from_db()
    assert claim.state == TransactionState.FINAL


def test_what_has_a_nonce_stays_with_its_key(town: Town, settings: Any) -> None:
    hold, claim = planned_by(settings, OLD_KEY, town)
    old = claim.signer
    ChainTransaction.objects.filter(pk=claim.pk).update(state="nonced", nonce=10**6)
    other = escrow.settle_lease(receipt_of(town, hold.pk, uuid4(), 1, 100_000))
    settings.SOUK_CHAIN_SETTLER_KEY = ""
    for _ in range(3):
        with pytest.raises(SignerMissing):
            town.follow()
    claim.refresh_from_db()
    other.refresh_from_db()
    assert (claim.state, claim.signer) == (TransactionState.NONCED, old)
    assert (other.state, other.signer) == (TransactionState.FINAL, key_for(Role.SETTLER).address)


def test_every_call_that_is_planned_has_its_roles(town: Town) -> None:
    offence, wallet = uuid4(), town.key("Bob").address
    calls = [
        operating.pause(town.contract),
        operating.unpause(town.contract),
        operating.sweep_surplus(town.contract, to=wallet),
        operating.slash(town.contract, offence_id=offence, wallet=wallet, amount=1, evidence_hash="0x" + "00" * 32),
        operating.compensate(town.contract, offence_id=offence, wallet=wallet, amount=1),
    ]
    assert all(rotating.MAY_CALL[call.function] == call.roles for call in calls)
    assert set(retrying._CAME_ABOUT) <= set(rotating.MAY_CALL)
    functions = {one.get("name") for one in builds.load(builds.ESCROW).abi if one["type"] == "function"}
    assert set(rotating.MAY_CALL) <= functions

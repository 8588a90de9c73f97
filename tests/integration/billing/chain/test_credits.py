"""Tokens in, by credits; tokens out, by roots that providers claim by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.chain import payout_roots
from billing.chain.devchain import development
from billing.chain.errors import ProofNotReady
from billing.chain.payout_rail import ChainPayouts
from billing.models import Alert, ChainEvent, ChainTransaction, Transfer
from billing.payouts.outcomes import apply_outcome
from billing.rails.payouts import Fate
from billing.states import PayoutState
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock
from marketplace.foundation.states import advance
from tests.integration.billing.chain.earning import earn, reserve, send
from tests.integration.billing.chain.town import TOKEN, Town, devchain_town
from tests.integration.billing.scenes import assert_ledger_is_true


def credit_of(town: Town, owner: UUID) -> int:
    return ledger.balance(owner, AccountKind.CUSTOMER_AVAILABLE, asset_id=town.asset_id)


def test_bought_credits_are_credited_once(town: Town) -> None:
    alice = uuid4()
    receipt = town.buy_credits("Alice", alice, 25 * TOKEN)
    town.follow(3)
    assert credit_of(town, alice) == 25 * TOKEN
    transfer = Transfer.objects.get(code=TransferCode.DEPOSIT, asset_id=town.asset_id)
    assert transfer.external_ref == ChainEvent.objects.select_related("block").get(name="CreditsBought").reference
    assert receipt.tx_hash in transfer.external_ref
    town.assert_books_match()
    assert_ledger_is_true()


def test_a_provider_is_paid_by_a_root_and_claims_it(town: Town) -> None:
    alice, bob, wallet = uuid4(), uuid4(), town.key("Bob").address
    town.buy_credits("Alice", alice, 100 * TOKEN)
    town.follow()
    earn(town, alice, bob, 70 * TOKEN)
    rail = ChainPayouts()
    first = reserve(town, bob, wallet, 30 * TOKEN)
    assert rail.find([first])[str(first.pk)].fate == Fate.ABSENT
    assert send(first) == Fate.UNDER_WAY
    with pytest.raises(ProofNotReady):
        payout_roots.prove(first.pk)
    town.follow(3)
    found = rail.find([first])[str(first.pk)]
    assert found.fate == Fate.CONFIRMED
    first.refresh_from_db()
    assert (first.state, first.external_id) == (PayoutState.CONFIRMED, found.external_id)
    second = reserve(town, bob, wallet, 40 * TOKEN)
    rail.submit([second])  # and the process dies before it has noted that it asked
    town.follow(3)
    assert rail.find([second])[str(second.pk)].fate == Fate.CONFIRMED
    proof = payout_roots.prove(first.pk)
    assert proof.cumulative == 70 * TOKEN

    town.call("Mallory", "claim", proof.wallet, proof.cumulative, proof.proof)

    assert town.tokens_of(wallet) == 70 * TOKEN
    town.follow()
    # The second payout is not confirmed in the books: its claim waits for that.
    assert ChainEvent.objects.get(name="Claimed").processed_at is None
    apply_outcome(second.pk, rail.find([second])[str(second.pk)])
    town.follow()
    assert ChainEvent.objects.get(name="Claimed").processed_at is not None
    assert ledger.balance(bob, AccountKind.PAYOUT_CLEARING, asset_id=town.asset_id) == 0
    town.assert_books_match()
    assert_ledger_is_true()


@pytest.fixture
def small_town(db: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    """Its contract takes roots that promise 100 tokens more a day."""
    monkeypatch.setattr(development, "ROOT_CAP", 100 * TOKEN)
    with devchain_town(settings) as made:
        yield made


def test_more_payouts_than_a_day_may_promise_go_out_over_the_days(small_town: Town) -> None:
    town, alice = small_town, uuid4()
    town.buy_credits("Alice", alice, 200 * TOKEN)
    town.follow()
    payouts = []
    for name in ("Bob", "Carol"):
        provider = uuid4()
        earn(town, alice, provider, 60 * TOKEN)
        payouts.append(advance(reserve(town, provider, town.key(name).address, 60 * TOKEN), PayoutState.SUBMITTED))
    ChainPayouts().submit(payouts)
    town.follow(4)
    fates = ChainPayouts().find(payouts)
    assert [fates[str(payout.pk)].fate for payout in payouts] == [Fate.CONFIRMED, Fate.UNDER_WAY]
    assert "ExceedsDailyCap" in Alert.objects.open().get(kind="chain_waits").message
    assert town.chain is not None
    town.chain.ahead_seconds += 86_400
    ChainTransaction.objects.filter(state="planned").update(next_at=clock.now())
    town.follow(3)
    assert [payout.fate for payout in ChainPayouts().find(payouts).values()] == [Fate.CONFIRMED, Fate.CONFIRMED]
    assert not Alert.objects.open().filter(kind="chain_waits").exists()
    for payout in payouts:
        proof = payout_roots.prove(payout.pk)
        town.call("Mallory", "claim", proof.wallet, proof.cumulative, proof.proof)
    town.follow()
    town.assert_books_match()
    assert_ledger_is_true()


def test_a_payout_is_accepted_while_the_chain_does_not_answer(town: Town, settings: Any) -> None:
    alice, bob = uuid4(), uuid4()
    town.buy_credits("Alice", alice, 100 * TOKEN)
    town.follow()
    earn(town, alice, bob, 60 * TOKEN)
    payout = reserve(town, bob, town.key("Bob").address, 60 * TOKEN)
    chains = settings.SOUK_CHAINS
    settings.SOUK_CHAINS = [chains[0] | {"rpc_urls": ["http://127.0.0.1:9"]}]
    assert send(payout) == Fate.UNDER_WAY
    settings.SOUK_CHAINS = chains
    town.follow(3)
    payout.refresh_from_db()
    assert payout.state == PayoutState.CONFIRMED

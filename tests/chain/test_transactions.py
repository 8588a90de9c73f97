"""P22 on a real node: nonces without gaps, each final once, whatever is killed and however little was offered."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from billing.chain.keys import Role, key_for
from billing.chain.reading.client import ChainClient
from billing.chain.transactions import fees, planning, sending, signing
from billing.chain.transactions.fees import Fees
from billing.models import Alert, ChainTransaction, Transfer
from billing.states.chain import TransactionState as State
from marketplace.foundation import states
from tests.chain.conftest import CONFIRMATIONS, Anvil
from tests.chain.sending import age, assert_P22, dispatch, plan
from tests.integration.billing.scenes import assert_ledger_is_true

pytestmark = pytest.mark.anvil


class Killed(BaseException):
    """As SIGKILL: nothing of ours catches it."""


def test_a_stuck_transaction_is_replaced_with_both_fees_an_eighth_higher(anvil: Anvil):
    anvil.rpc("evm_setAutomine", False)
    one = plan(anvil, 1)
    dispatch(anvil)
    one.refresh_from_db()
    assert one.state == State.BROADCAST
    age(3600)
    dispatch(anvil)
    other = ChainTransaction.objects.get(replaces=one)
    assert other.state == State.BROADCAST
    assert (other.nonce, other.data) == (one.nonce, one.data)
    old, new = Fees.from_json(one.fees), Fees.from_json(other.fees)
    assert new.max_fee * 1000 >= old.max_fee * 1125
    assert new.priority_fee * 1000 >= old.priority_fee * 1125
    anvil.mine(CONFIRMATIONS + 1)
    dispatch(anvil)
    dispatch(anvil)
    one.refresh_from_db()
    other.refresh_from_db()
    assert (one.state, other.state) == (State.REPLACED, State.FINAL)
    assert planning.outcome_of(one) == other
    assert_P22(anvil, one.nonce, 1)
    assert_ledger_is_true()


def test_what_cannot_be_made_dearer_is_reported_to_the_operator(anvil: Anvil, settings: Any):
    anvil.rpc("evm_setAutomine", False)
    one = plan(anvil, 1)
    dispatch(anvil)
    one.refresh_from_db()
    offered = Fees.from_json(one.fees).max_fee
    settings.SOUK_CHAINS = [settings.SOUK_CHAINS[0] | {"max_fee_gwei": f"{offered // 10**9}.{offered % 10**9:09d}"}]
    age(3600)
    dispatch(anvil)
    assert ChainTransaction.objects.count() == 1
    assert Alert.objects.filter(kind="chain_stuck").count() == 1
    anvil.mine(CONFIRMATIONS + 1)
    dispatch(anvil)
    assert Alert.objects.open().count() == 0


def test_a_restart_sends_the_same_bytes_again(anvil: Anvil, monkeypatch: pytest.MonkeyPatch):
    one = plan(anvil, 1)

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(ChainClient, "broadcast", die)
        dispatch(anvil)
    one.refresh_from_db()
    assert one.state == State.SIGNED
    raw = one.raw
    dispatch(anvil)
    one.refresh_from_db()
    assert (one.state, one.raw) == (State.BROADCAST, raw)
    anvil.mine(CONFIRMATIONS)
    dispatch(anvil)
    assert_P22(anvil, one.nonce, 1)


def test_a_transaction_whose_block_is_gone_goes_out_again(anvil: Anvil):
    one = plan(anvil, 1)
    dispatch(anvil)
    dispatch(anvil)
    one.refresh_from_db()
    assert one.state == State.MINED
    anvil.reorg(1)
    dispatch(anvil)
    one.refresh_from_db()
    assert one.state == State.BROADCAST
    anvil.mine(CONFIRMATIONS + 1)
    dispatch(anvil)
    assert_P22(anvil, one.nonce, 1)


@pytest.mark.parametrize("seed", range(3))
def test_P22_nonces_have_no_gap_and_each_is_final_once(anvil: Anvil, monkeypatch: pytest.MonkeyPatch, seed: int):
    """Killed before and after every broadcast and commit at random, mined or not, reorganised, replaced by fee."""
    chance = random.Random(seed)
    anvil.rpc("evm_setAutomine", False)
    first = anvil.client.nonce(key_for(Role.SETTLER).address)
    broadcast, advance = ChainClient.broadcast, states.advance

    def shaky(verb: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            if chance.random() < 0.1:
                raise Killed
            answer = verb(*given, **named)
            if chance.random() < 0.1:
                raise Killed
            return answer

        return call

    count = 12
    for number in range(count):
        plan(anvil, number)
    with monkeypatch.context() as patch:
        patch.setattr(ChainClient, "broadcast", shaky(broadcast))
        for module in (planning, sending, signing):
            patch.setattr(module, "advance", shaky(advance))
        for _ in range(40):
            with contextlib.suppress(Killed):
                dispatch(anvil)
            if chance.random() < 0.3:
                anvil.mine(chance.randint(1, 2))
            if chance.random() < 0.1:
                anvil.reorg(1)
            if chance.random() < 0.2:
                age(3600)
    for _ in range(12):
        dispatch(anvil)
        anvil.mine(2)
    dispatch(anvil)
    assert_P22(anvil, first, count)
    assert Transfer.objects.filter(code="gas").count() == count
    assert_ledger_is_true()


def test_a_key_that_is_used_elsewhere_signs_nothing_more(anvil: Anvil):
    plan(anvil, 1)
    dispatch(anvil)
    key = key_for(Role.SETTLER)
    anvil.wallets["thief"] = key
    anvil.call("thief", "cancelNonce", 1)
    anvil.call("thief", "cancelNonce", 2)
    two = plan(anvil, 2)
    dispatch(anvil)
    two.refresh_from_db()
    assert two.state == State.PLANNED
    assert Alert.objects.get(kind="chain_nonce").severity == "critical"


def test_a_reverted_transaction_is_final_paid_for_and_reported(anvil: Anvil, monkeypatch: pytest.MonkeyPatch):
    one = plan(anvil, 1)
    twin = planning.plan(
        chain_id=one.chain_id, role=Role.SETTLER, purpose=one.purpose, to=one.to, data=one.data, business_key="twin"
    )
    anvil.rpc("evm_setAutomine", False)
    dispatch(anvil)  # both look well: neither is mined
    anvil.mine(CONFIRMATIONS + 1)
    dispatch(anvil)
    one.refresh_from_db()
    twin.refresh_from_db()
    assert (one.state, twin.state) == (State.FINAL, State.REVERTED)
    assert twin.gas_cost > 0
    assert planning.has_failed(twin)
    assert Alert.objects.get(kind="chain_transaction").severity == "critical"
    dispatch(anvil)
    assert ChainTransaction.objects.count() == 2


def test_fees_of_a_replacement_are_never_below_an_eighth_more():
    for tip in (1, 7, 8, 999, 10**9):
        offer = fees.next_offer(Fees(tip, tip), 0, 0, limit=10**18)
        assert offer is not None
        assert offer.max_fee * 1000 >= tip * 1125
        assert offer.priority_fee * 1000 >= tip * 1125

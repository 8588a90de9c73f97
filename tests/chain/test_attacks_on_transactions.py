"""What others may do to our transactions: each is made once or reported as not made, and none stops the others."""

from __future__ import annotations

from typing import Any

import pytest
from eth_account import Account

from billing.chain.devchain.chain import DEVELOPMENT_KEYS
from billing.chain.errors import EndpointsUnreachable, SignerMissing
from billing.chain.keys import Role, key_for
from billing.chain.reading import builds
from billing.chain.reading.client import ChainClient
from billing.chain.transactions import planning, signing
from billing.chain_following import chains
from billing.models import Alert, ChainTransaction, Signer
from billing.states.chain import TransactionState as State
from marketplace.foundation.states import record_birth
from tests.chain.conftest import CONFIRMATIONS, Anvil
from tests.chain.sending import age, assert_P22, dispatch, plan
from tests.integration.billing.scenes import assert_ledger_is_true

pytestmark = pytest.mark.anvil


def limit_of(anvil: Anvil) -> int:
    return anvil.client.config.max_fee


def bury(anvil: Anvil) -> None:
    anvil.mine(CONFIRMATIONS + 1)
    dispatch(anvil)


def test_a_nonce_that_somebody_else_used_is_reported_and_its_purpose_failed(anvil: Anvil):
    """The thief's transaction has our nonce and a higher fee: ours can never be mined, and the count looks right."""
    anvil.rpc("evm_setAutomine", False)
    one = plan(anvil, 1)
    dispatch(anvil)
    one.refresh_from_db()
    thief = Account.from_key(DEVELOPMENT_KEYS[0])
    stolen = thief.sign_transaction(
        {
            "type": 2,
            "chainId": anvil.contract.chain_id,
            "nonce": one.nonce,
            "to": thief.address,
            "value": 1,
            "gas": 21_000,
            "maxFeePerGas": 40 * 10**9,
            "maxPriorityFeePerGas": 40 * 10**9,
        }
    )
    anvil.client.broadcast("0x" + bytes(stolen.raw_transaction).hex())
    anvil.mine()
    age(3600)
    dispatch(anvil)
    assert not Alert.objects.filter(kind="chain_nonce").exists(), "it may be mined again in another order"
    bury(anvil)
    assert Alert.objects.open().get(kind="chain_nonce").severity == "critical"
    assert not ChainTransaction.objects.filter(state__in=planning.SENT).exists()
    one.refresh_from_db()
    assert one.state == State.REPLACED
    assert planning.has_failed(one)

    two = plan(anvil, 2)
    dispatch(anvil)
    bury(anvil)
    two.refresh_from_db()
    assert (two.state, two.nonce) == (State.FINAL, (one.nonce or 0) + 1)
    assert_ledger_is_true()


def test_while_gas_costs_more_than_the_limit_nothing_is_sent_and_operators_know(anvil: Anvil):
    plan(anvil, 1)
    anvil.rpc("anvil_setNextBlockBaseFeePerGas", hex(limit_of(anvil) * 2))
    anvil.mine()
    dispatch(anvil)
    assert ChainTransaction.objects.get().state == State.PLANNED
    assert "the limit is 50 gwei" in Alert.objects.open().get(kind="chain_fees").message
    anvil.rpc("anvil_setNextBlockBaseFeePerGas", hex(10**9))
    anvil.mine()
    dispatch(anvil)
    assert ChainTransaction.objects.get().state == State.BROADCAST
    assert not Alert.objects.open().exists()


def test_R13_a_tenfold_base_fee_for_fifty_blocks_leaves_each_nonce_final_once(anvil: Anvil):
    anvil.rpc("evm_setAutomine", False)
    first = anvil.client.nonce(key_for(Role.SETTLER).address)
    for number in range(6):
        plan(anvil, number)
    dispatch(anvil)
    base_fee, _ = anvil.client.fee_now()
    for block in range(50):
        anvil.rpc("anvil_setNextBlockBaseFeePerGas", hex(base_fee * 10))
        anvil.mine()
        if block % 5 == 0:
            age(3600)
            dispatch(anvil)
    for _ in range(6):
        age(3600)
        dispatch(anvil)
        anvil.mine(CONFIRMATIONS)
    dispatch(anvil)
    assert_P22(anvil, first, 6)
    for one in ChainTransaction.objects.exclude(replaces=None).select_related("replaces"):
        assert one.replaces is not None
        for fee in ("max_fee", "priority_fee"):
            assert int(one.fees[fee]) * 1000 >= int(one.replaces.fees[fee]) * 1125


def test_what_became_too_cheap_before_it_was_sent_is_replaced_by_fee_like_the_rest(
    anvil: Anvil, monkeypatch: pytest.MonkeyPatch
):
    """Killed between signing and sending, and the base fee rises meanwhile: no node takes these bytes any more."""
    anvil.rpc("evm_setAutomine", False)
    first = anvil.client.nonce(key_for(Role.SETTLER).address)
    plan(anvil, 1)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ChainClient, "broadcast", die)
        dispatch(anvil)
    base_fee, _ = anvil.client.fee_now()
    anvil.rpc("anvil_setNextBlockBaseFeePerGas", hex(base_fee * 8))
    anvil.mine()
    dispatch(anvil)
    age(3600)
    dispatch(anvil)
    bury(anvil)
    bury(anvil)
    assert_P22(anvil, first, 1)


def test_a_key_without_coins_is_reported_and_goes_on_when_it_has_some(anvil: Anvil):
    first = anvil.client.nonce(key_for(Role.SETTLER).address)
    one = plan(anvil, 1)
    key = key_for(Role.SETTLER)
    coins = anvil.client.coins(key.address)
    anvil.rpc("anvil_setBalance", key.address, "0x0")
    assert chains.follow_chains() == 0
    assert Alert.objects.open().filter(kind="chain_tending").exists()
    anvil.rpc("anvil_setBalance", key.address, hex(coins))
    anvil.follow()
    anvil.mine(CONFIRMATIONS)
    anvil.follow()
    one.refresh_from_db()
    assert one.state == State.FINAL
    assert_P22(anvil, first, 1)
    assert not Alert.objects.open().filter(kind="chain_tending").exists()


def test_a_pause_puts_off_and_refuses_nothing(anvil: Anvil):
    """What is planned while the contract is paused waits for its end, however long that takes."""
    address = anvil.contract.address

    def call(function: str, *arguments: Any) -> ChainTransaction:
        return planning.plan(
            chain_id=anvil.contract.chain_id,
            role=Role.SETTLER,
            purpose=function,
            to=address,
            data=builds.encode(builds.ESCROW, function, list(arguments)),
            business_key=f"test:{function}",
        )

    call("pause")
    dispatch(anvil)
    one = call("proposeRoot", b"\1" * 32, 0)
    for _ in range(signing.SIMULATIONS_MAX + 1):
        ChainTransaction.objects.update(next_at=one.created_at)
        dispatch(anvil)
    one.refresh_from_db()
    assert (one.state, one.attempts) == (State.PLANNED, 0)
    assert "EnforcedPause" in Alert.objects.open().get(kind="chain_waits").message
    call("unpause")
    dispatch(anvil)
    ChainTransaction.objects.update(next_at=one.created_at)
    dispatch(anvil)
    one.refresh_from_db()
    assert one.state == State.BROADCAST
    assert not Alert.objects.open().exists()


def test_one_endpoint_cannot_have_a_transaction_given_up(anvil: Anvil):
    def refuses(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        if request["method"] != "eth_estimateGas":
            return answer
        return {"jsonrpc": "2.0", "id": answer["id"], "error": {"code": 3, "message": "execution reverted"}}

    one = plan(anvil, 1)
    anvil.proxy.tamper = refuses
    for _ in range(signing.SIMULATIONS_MAX + 1):
        ChainTransaction.objects.update(next_at=one.created_at)
        dispatch(anvil)
    one.refresh_from_db()
    assert (one.state, one.attempts) == (State.PLANNED, 0)
    anvil.proxy.tamper = None
    ChainTransaction.objects.update(next_at=one.created_at)
    dispatch(anvil)
    one.refresh_from_db()
    assert one.state == State.BROADCAST


def test_a_key_that_is_gone_stops_no_other_key(anvil: Anvil):
    lost = ChainTransaction.objects.create(
        chain_id=anvil.contract.chain_id, signer="0x" + "00" * 20, purpose="finalize", business_key="lost"
    )
    record_birth(lost)
    one = plan(anvil, 1)
    with pytest.raises(SignerMissing):
        dispatch(anvil)
    one.refresh_from_db()
    assert one.state == State.BROADCAST
    assert chains.follow_chains() == 0
    assert "There is no key for the address" in Alert.objects.open().get(kind="chain_tending").message


def test_words_that_nobody_knows_for_a_transaction_that_is_mined_stop_nothing(
    anvil: Anvil, monkeypatch: pytest.MonkeyPatch
):
    """It reached a node, the answer did not reach us, and the node's words for "I know" are its own."""
    one = plan(anvil, 1)
    broadcast = ChainClient.broadcast

    def mute(client: ChainClient, raw: str) -> None:
        broadcast(client, raw)
        raise EndpointsUnreachable(chain_id=1, configured=2, answered=0, needed=1, why="OldNonce", is_refusal=True)

    with monkeypatch.context() as patch:
        patch.setattr(ChainClient, "broadcast", mute)
        dispatch(anvil)
    one.refresh_from_db()
    assert one.state == State.BROADCAST


def test_what_a_node_forgot_is_sent_to_it_again(anvil: Anvil):
    anvil.rpc("evm_setAutomine", False)
    one = plan(anvil, 1)
    dispatch(anvil)
    one.refresh_from_db()
    anvil.rpc("anvil_dropTransaction", one.hash)
    age(31)
    dispatch(anvil)
    bury(anvil)
    bury(anvil)
    one.refresh_from_db()
    assert one.state == State.FINAL


def test_the_first_coins_of_a_key_are_booked_with_its_row_or_not_at_all(anvil: Anvil, monkeypatch: pytest.MonkeyPatch):
    plan(anvil, 1)

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(planning, "book_coins", die)
        dispatch(anvil)
    assert not Signer.objects.exists()
    dispatch(anvil)
    assert_ledger_is_true()

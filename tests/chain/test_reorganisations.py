"""P23 and C18 on a real node: what a reorganisation reverted was never credited, and never started a job."""

from __future__ import annotations

from uuid import uuid4

import pytest

from billing import breaker
from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.chain import escrow
from billing.chain.errors import FinalBlockGone
from billing.chain.events import indexer
from billing.models import Alert, ChainBlock, ChainEvent, ChainTransaction
from billing.states.chain import TransactionState
from tests.chain.conftest import CONFIRMATIONS, Anvil
from tests.integration.billing.chain.escrows import authorize
from tests.integration.billing.chain.town import TOKEN
from tests.integration.billing.scenes import assert_ledger_is_true

pytestmark = pytest.mark.anvil


def credited(anvil: Anvil, owner) -> int:
    return ledger.balance(owner, AccountKind.CUSTOMER_AVAILABLE, asset_id=anvil.asset_id)


@pytest.mark.parametrize("depth", range(1, CONFIRMATIONS + 1))
def test_P23_no_credit_remains_for_an_orphaned_event_a_reincluded_one_credits_once(anvil: Anvil, depth: int):
    alice = uuid4()
    anvil.mint("Alice", 50 * TOKEN)
    anvil.mine(CONFIRMATIONS)
    anvil.follow()
    receipt = anvil.call("Alice", "buyCredits", alice.bytes.rjust(32, b"\0"), 50 * TOKEN)
    raw = anvil.rpc("eth_getRawTransactionByHash", receipt.tx_hash)
    anvil.mine(depth - 1)
    anvil.follow()
    assert ChainEvent.objects.get(name="CreditsBought").block.state == ChainBlock.State.SEEN
    assert credited(anvil, alice) == 0

    anvil.reorg(depth)
    anvil.follow()
    assert ChainEvent.objects.get(name="CreditsBought").block.state == ChainBlock.State.ORPHANED
    anvil.mine(CONFIRMATIONS + 2)
    anvil.follow()
    assert credited(anvil, alice) == 0
    anvil.assert_books_match()

    anvil.rpc("eth_sendRawTransaction", raw)
    anvil.mine(CONFIRMATIONS)
    anvil.follow(3)
    assert credited(anvil, alice) == 50 * TOKEN
    assert ChainEvent.objects.filter(name="CreditsBought").count() == 2
    anvil.assert_books_match()
    assert_ledger_is_true()


def test_a_block_that_comes_back_is_seen_again(anvil: Anvil):
    """The indexer was cut off between two branches: what it called an orphan is the chain after all."""
    anvil.mine(CONFIRMATIONS)
    anvil.follow()
    ChainBlock.objects.filter(state=ChainBlock.State.SEEN).update(state=ChainBlock.State.ORPHANED)
    anvil.follow()
    assert ChainBlock.objects.filter(state=ChainBlock.State.SEEN).count() == CONFIRMATIONS


@pytest.mark.parametrize("depth", range(1, CONFIRMATIONS + 1))
def test_C18_a_hold_counts_only_when_it_is_final(anvil: Anvil, depth: int):
    anvil.deposit("Alice", 50 * TOKEN)
    anvil.mine(CONFIRMATIONS)
    anvil.follow()
    job_id = uuid4()
    escrow.open_hold(anvil.asset_id, authorize(anvil, job_id))
    anvil.follow()
    anvil.mine(depth - 1)
    anvil.follow()
    assert not escrow.is_open(job_id)

    anvil.reorg(depth)
    assert anvil.view("totalHeld") == 0
    anvil.follow()
    assert not escrow.is_open(job_id)
    one = ChainTransaction.objects.get(purpose="openHold")
    anvil.follow()
    anvil.mine(CONFIRMATIONS - 1)
    anvil.follow()
    assert not escrow.is_open(job_id)
    anvil.mine()
    anvil.follow(2)
    assert escrow.is_open(job_id)
    one.refresh_from_db()
    assert one.state == TransactionState.FINAL
    assert ChainTransaction.objects.filter(purpose="openHold").count() == 1
    anvil.assert_books_match()


def test_a_reorganisation_below_what_was_final_stops_everything_and_calls_a_person(anvil: Anvil):
    anvil.mine(CONFIRMATIONS + 2)
    anvil.follow()
    anvil.reorg(CONFIRMATIONS + 2)
    with pytest.raises(FinalBlockGone):
        indexer.follow(anvil.contract.chain_id)
    assert Alert.objects.get(kind="chain_indexer").severity == "critical"
    assert breaker.is_open()

"""Transactions that are planned, sent and grow old."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from billing.chain.keys import Role
from billing.chain.reading import builds
from billing.chain.transactions import planning
from billing.models import ChainTransaction, Signer
from billing.states.chain import TransactionState as State
from marketplace.foundation import clock
from tests.chain.conftest import Anvil


def plan(anvil: Anvil, number: int) -> ChainTransaction:
    """Something that can be sent any number of times: the settler gives up a nonce of its own."""
    return planning.plan(
        chain_id=anvil.contract.chain_id,
        role=Role.SETTLER,
        purpose="cancelNonce",
        to=anvil.contract.address,
        data=builds.encode(builds.ESCROW, "cancelNonce", [uuid4().int]),
        business_key=f"test:{number}",
    )


def dispatch(anvil: Anvil) -> None:
    planning.dispatch(anvil.contract.chain_id)


def age(seconds: int) -> None:
    """Everything was sent this long ago."""
    ChainTransaction.objects.filter(sent_at__isnull=False).update(sent_at=clock.now() - timedelta(seconds=seconds))


def assert_P22(anvil: Anvil, first: int, count: int) -> None:
    closed = ChainTransaction.objects.filter(state__in=[State.FINAL, State.REVERTED]).order_by("nonce")
    assert [one.nonce for one in closed] == list(range(first, first + count))
    signer = Signer.objects.get()
    assert signer.next_nonce == first + count == anvil.client.nonce(signer.address)
    assert not ChainTransaction.objects.filter(state__in=planning.SENT).exists()

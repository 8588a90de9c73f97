"""Events that do not fit what we know: each is refused or reported by its cause, and moves no money."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from billing.chain.errors import EventUnbooked
from billing.chain.events.effects import book
from billing.chain.transactions.closing import book_coins
from billing.models import Alert, Asset, ChainBlock, ChainEvent, EscrowContract, EscrowHold, EscrowLease, Transfer
from billing.states.chain import EscrowHoldState
from marketplace.foundation import clock
from tests.row_states import create_in_state

pytestmark = pytest.mark.django_db

CHAIN, ADDRESS, WALLET = 31337, "0x" + "5e" * 20, "0x" + "22" * 20
HASH = "0x" + "0" * 64


@pytest.fixture
def contract(db: None) -> EscrowContract:
    asset = Asset.objects.create(id=7, code="TUSD", scale=6, kind="erc20", chain_id=CHAIN, contract="0x" + "ab" * 20)
    return EscrowContract.objects.create(
        asset=asset,
        chain_id=CHAIN,
        address=ADDRESS,
        deployed_block=1,
        scanned_block=1,
        code_hash=HASH,
        fee_recipient=ADDRESS,
    )


def event(name: str, *, contract: str = ADDRESS, **arguments: Any) -> ChainEvent:
    """A final log of this contract."""
    block, _ = ChainBlock.objects.get_or_create(
        chain_id=CHAIN, number=7, hash=HASH, defaults={"parent_hash": HASH, "state": ChainBlock.State.FINAL}
    )
    number = ChainEvent.objects.count()
    return ChainEvent.objects.create(
        block=block, tx_hash=HASH, log_index=number, contract=contract, name=name, arguments=arguments
    )


def word(value: UUID) -> str:
    """An id as the contract has it."""
    return "0x" + value.bytes.rjust(32, b"\0").hex()


def assert_refused(name: str, why: str, **arguments: Any) -> None:
    with pytest.raises(EventUnbooked, match=why):
        book(event(name, **arguments))
    assert not Transfer.objects.exists()


def hold(contract: EscrowContract) -> EscrowHold:
    """An open one of 10 base units."""
    return create_in_state(
        EscrowHold,
        EscrowHoldState.OPEN,
        id=uuid4(),
        contract=contract,
        customer=WALLET,
        amount=10,
        rate_ceiling_per_hour=1,
        providers_root=HASH,
        deadline=1_790_000_000,
    )


def test_an_event_of_a_contract_that_is_not_ours_is_refused(contract: EscrowContract) -> None:
    with pytest.raises(EventUnbooked, match="is not ours"):
        book(event("Claimed", contract=WALLET))


def test_an_event_without_an_effect_moves_nothing(contract: EscrowContract) -> None:
    book(event("NonceCancelled", account=WALLET, nonce="1"))
    assert not Transfer.objects.exists()


def test_the_end_of_a_hold_or_lease_that_nobody_knows_is_refused(contract: EscrowContract) -> None:
    unknown = word(uuid4())
    nobodys = {"jobId": unknown, "customer": WALLET}
    assert_refused("HoldClosed", "no hold of this customer for this job", **nobodys, refunded="1", expired=False)
    assert_refused("LeaseChallenged", "no hold of this customer for this job", **nobodys, leaseId=unknown)
    mine = hold(contract)
    assert_refused(
        "LeaseChallenged", "nothing was settled for this lease", jobId=word(mine.pk), customer=WALLET, leaseId=unknown
    )


def test_the_end_of_another_wallets_hold_leaves_mine_alone(contract: EscrowContract) -> None:
    mine = hold(contract)
    assert_refused(
        "HoldClosed", "no hold of this customer", jobId=word(mine.pk), customer=ADDRESS, refunded="10", expired=False
    )
    mine.refresh_from_db()
    assert mine.state == EscrowHoldState.OPEN


def test_amounts_that_do_not_add_up_are_refused(contract: EscrowContract) -> None:
    opened = hold(contract)
    lease = EscrowLease.objects.create(
        id=uuid4(), hold=opened, provider=WALLET, seq=1, release_at=clock.now(), pending=5
    )
    assert_refused(
        "LeaseFinalized",
        r"3 \+ 1 \+ 0 is not the 5 that waits",
        jobId=word(opened.pk),
        customer=WALLET,
        leaseId=word(lease.pk),
        paid="3",
        fee="1",
    )
    assert_refused(
        "HoldClosed",
        "0 settled and 9 refunded are not the 10 held",
        jobId=word(opened.pk),
        customer=WALLET,
        refunded="9",
        expired=False,
    )
    lease.refresh_from_db()
    assert (lease.pending, lease.paid) == (5, 0)


def test_a_root_that_is_not_ours_is_reported_until_it_is_vetoed(contract: EscrowContract) -> None:
    root = "0x" + "9" * 64
    book(event("RootProposed", root=root, total="5", activeAt="1790000000"))
    alert = Alert.objects.get()
    assert (alert.kind, alert.closed_at) == ("chain_root", None)
    book(event("RootVetoed", root=root))
    alert.refresh_from_db()
    assert alert.closed_at is not None


def test_coins_that_did_not_come_are_not_booked(contract: EscrowContract) -> None:
    for amount in (0, -1):
        book_coins(CHAIN, amount, ref="nothing")
    assert not Transfer.objects.exists()

"""What strangers do in the contract is booked, whatever became of our own plans; it never floods the operators."""

from __future__ import annotations

from uuid import uuid4

from billing.account_kinds import AccountKind
from billing.chain import escrow
from billing.chain.contract import deploy, registry
from billing.chain.devchain import development
from billing.chain.devchain.chain import CHAIN_ID, DEVELOPMENT_KEYS
from billing.chain.keys import Role, SigningKey, key_for
from billing.models import Alert, ChainEvent, EscrowHold, EscrowLease
from billing.states.chain import EscrowHoldState
from marketplace.foundation.states import advance
from provider_agent.protocol import ethereum, id_bytes32
from tests.integration.billing.chain.escrows import authorize, delegate, open_job, receipt_of
from tests.integration.billing.chain.town import TOKEN, Town


def test_a_job_id_that_a_stranger_takes_after_we_gave_up_is_booked(town: Town) -> None:
    town.deposit("Alice", 20 * TOKEN)
    job_id = uuid4()
    signed = authorize(town, job_id)
    hold = escrow.open_hold(town.asset_id, signed)
    type(hold.transaction).objects.update(state="refused")
    advance(hold, EscrowHoldState.FAILED, reason="refused")
    other = authorize(town, job_id, amount=3 * TOKEN)
    town.call("Alice", "openHold", escrow._struct(other.authorization), other.signature)
    town.follow()
    assert not ChainEvent.objects.filter(processed_at=None).exists()
    hold.refresh_from_db()
    assert (hold.state, hold.amount) == (EscrowHoldState.FAILED, 3 * TOKEN)
    assert not escrow.is_open(job_id)
    assert town.owed(AccountKind.WALLET_HELD, "Alice", job_id) == 3 * TOKEN
    town.assert_books_match()
    assert EscrowHold.objects.count() == 1


def test_a_lease_of_the_same_id_in_another_contract_is_another_lease(town: Town) -> None:
    """Who has stolen the settler's key settles Bob's lease once more, in the contract of a token of his own."""
    deployer = SigningKey(ethereum.address_of(DEVELOPMENT_KEYS[3]), DEVELOPMENT_KEYS[3])
    token = deploy.deploy_dev_token(CHAIN_ID, deployer, name="Other", symbol="OTH", decimals=6).contract
    roles = {"SETTLER": key_for(Role.SETTLER).address}
    made = deploy.deploy_escrow(CHAIN_ID, deployer, development.terms(token, deployer.address), roles)
    other = registry.register_escrow(
        registry.register_token("OTH", CHAIN_ID, token), made.contract, deployed_block=made.block_number
    )
    theirs, lease_id = Town(other, town.chain, town.wallets), uuid4()
    for one in (town, theirs):
        one.deposit("Alice", 20 * TOKEN)
        delegate(one)
    mine, hers = open_job(town), open_job(theirs)
    escrow.settle_lease(receipt_of(town, mine, lease_id, 1, 100_000))
    town.follow(3)
    theirs.wallets["thief"] = key_for(Role.SETTLER)
    again = receipt_of(theirs, hers, lease_id, 1, 200_000)
    theirs.call("thief", "settleLease", escrow.receipt_struct(again.receipt), again.signature, [])
    theirs.call("thief", "finalize", theirs.key("Alice").address, id_bytes32(lease_id))
    town.follow(2)
    assert not ChainEvent.objects.filter(processed_at=None).exists()
    mine_here = EscrowLease.objects.get(pk=lease_id)
    assert (mine_here.hold_id, mine_here.paid, mine_here.fee) == (mine, 900_000, 100_000)
    assert [one.owed(AccountKind.WALLET_AVAILABLE, "Bob") for one in (town, theirs)] == [900_000, 1_800_000]
    assert [one.owed(AccountKind.WALLET_PENDING, "Bob") for one in (town, theirs)] == [0, 0]
    town.assert_books_match()
    theirs.assert_books_match()


def test_dust_for_made_up_accounts_is_one_alert(town: Town) -> None:
    for _ in range(3):
        town.buy_credits("Mallory", uuid4(), 1)
    town.follow()
    alert = Alert.objects.get(kind="chain_credits")
    assert alert.noticed == 3
    town.assert_books_match()

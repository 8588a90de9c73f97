"""What strangers do in the contract is booked, whatever became of our own plans; it never floods the operators."""

from __future__ import annotations

from uuid import UUID, uuid4

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.chain import escrow
from billing.chain.contract import deploy, registry
from billing.chain.devchain import development
from billing.chain.devchain.chain import CHAIN_ID, DEVELOPMENT_KEYS
from billing.chain.displacing import own_id
from billing.chain.keys import Role, SigningKey, key_for
from billing.models import Alert, ChainEvent, ChainTransaction, EscrowHold, EscrowLease, Signer
from billing.proofs.escrow import SignedHoldAuthorization
from billing.states.chain import EscrowHoldState
from marketplace.foundation.states import advance
from provider_agent.protocol import ethereum, id_bytes32, sign_receipt
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


def test_an_id_that_was_chosen_to_have_anothers_row_has_none(town: Town) -> None:
    """Mallory knows which id Alice's row would get beside hers, and opens a hold of that id, too."""
    for name in ("Alice", "Mallory"):
        town.deposit(name, 20 * TOKEN)
    job_id = uuid4()
    open_alone(town, "Mallory", job_id)
    open_alone(town, "Mallory", own_id(job_id, town.contract.address, town.key("Alice").address))
    open_alone(town, "Alice", job_id)
    town.follow()
    assert not ChainEvent.objects.filter(processed_at=None).exists()
    assert EscrowHold.objects.filter(state=EscrowHoldState.OPEN).count() == 3
    assert [town.owed(AccountKind.WALLET_HELD, name) for name in ("Alice", "Mallory")] == [10 * TOKEN, 20 * TOKEN]
    town.assert_books_match()


def test_a_customer_who_opened_after_a_stranger_has_the_jobs_id(town: Town) -> None:
    for name in ("Alice", "Mallory"):
        town.deposit(name, 20 * TOKEN)
    job_id = uuid4()
    open_alone(town, "Mallory", job_id)
    signed = open_alone(town, "Alice", job_id)
    town.follow()
    assert EscrowHold.objects.get(pk=job_id).customer == town.key("Mallory").address
    escrow.open_hold(town.asset_id, signed)
    assert escrow.is_open(job_id)
    assert EscrowHold.objects.get(pk=job_id).customer == town.key("Alice").address
    assert not ChainTransaction.objects.filter(purpose="openHold").exists()
    assert ledger.verify().problems == []
    escrow.end_hold(job_id)
    town.follow(4)
    assert EscrowHold.objects.get(pk=job_id).state == EscrowHoldState.CLOSED
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 20 * TOKEN
    assert ledger.verify().problems == []
    town.assert_books_match()


def test_a_job_whose_id_a_stranger_had_before_leaves_the_books_right(town: Town) -> None:
    for name in ("Alice", "Mallory"):
        town.deposit(name, 20 * TOKEN)
    job_id = uuid4()
    open_alone(town, "Mallory", job_id)
    town.follow()
    escrow.open_hold(town.asset_id, authorize(town, job_id))
    town.follow(2)
    assert escrow.is_open(job_id)
    assert ledger.verify().problems == []


def test_a_lease_id_that_a_stolen_key_used_first_is_free_for_its_job(town: Town) -> None:
    """Else its claim would seem settled already, and the hold would be closed over it."""
    for name in ("Alice", "Mallory"):
        town.deposit(name, 20 * TOKEN)
    delegate(town)
    hers, lease_id, her = uuid4(), uuid4(), town.key("Mallory").address
    open_alone(town, "Mallory", hers)
    job_id, settler = open_job(town), key_for(Role.SETTLER)
    town.wallets["thief"] = settler
    receipt = receipt_of(town, hers, lease_id, 9, 1_000).receipt.model_copy(update={"customer": her})
    false = sign_receipt(town.secret("Bob's node"), receipt, escrow.domain_of(town.contract))
    town.call("thief", "settleLease", escrow.receipt_struct(receipt), false.signature, [])
    town.follow()
    assert EscrowLease.objects.get(pk=lease_id).hold_id == hers
    escrow.settle_lease(receipt_of(town, job_id, lease_id, 1, 100_000))
    town.call("Mallory", "finalize", her, id_bytes32(lease_id))
    Signer.objects.filter(address=settler.address).update(next_nonce=town.client.nonce(settler.address))
    town.follow(4)
    lease = EscrowLease.objects.get(pk=lease_id)
    assert (lease.hold_id, lease.seq, lease.paid + lease.fee) == (job_id, 1, 1_000_000)
    assert EscrowLease.objects.exclude(pk=lease_id).get().hold_id == hers
    assert not ChainEvent.objects.filter(processed_at=None).exists()
    assert ledger.verify().problems == []
    town.assert_books_match()


def open_alone(town: Town, name: str, job_id: UUID) -> SignedHoldAuthorization:
    """Somebody opens a hold of this id without us."""
    signed = authorize(town, job_id, signer=name, customer=town.key(name).address)
    town.call(name, "openHold", escrow._struct(signed.authorization), signed.signature)
    return signed

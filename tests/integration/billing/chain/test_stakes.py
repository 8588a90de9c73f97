"""What the ledger has not got of a fine is slashed on the chain: once, within caps, and the customer gets its part."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.chain import operating, stakes
from billing.chain.keys import Role, key_for
from billing.chain.transactions import signing
from billing.charging import endings
from billing.charging.endings import Ending
from billing.contesting import offences
from billing.contesting.offences import Victim
from billing.models import Alert, EscrowHold, Offence, ReceiptEvidence, StakeSlash, UsageReceipt
from billing.models.ledger import USD_ASSET_ID
from billing.states.chain import STAKE_SLASH_MACHINE
from billing.states.chain import StakeSlashState as State
from marketplace.foundation import clock
from marketplace.foundation.state_triggers import edges_in_database, edges_of
from provider_agent.protocol import receipt_digest
from tests.integration.billing.chain.escrows import RATE, delegate, open_job, receipt_of
from tests.integration.billing.chain.staking import be_paid_to, fine, settle_down, stake, staked, terms_of
from tests.integration.billing.chain.town import TOKEN, Town, devchain_town
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, race

DAY = 86_400


@pytest.fixture(autouse=True)
def priced(settings: Any) -> None:
    settings.SOUK_TOKEN_PRICES = {"TUSD": "2.00"}


def escrow_job(town: Town, bob: UUID, alice: UUID, *, reason: str, fault: str) -> tuple[UUID, UUID]:
    """Bob's lease of a job that Alice's wallet pays has ended; its receipt names both wallets."""
    job_id, lease_id = open_job(town), uuid4()
    signed = receipt_of(town, job_id, lease_id, 1, 60_000)
    domain = offences_domain(town)
    UsageReceipt.objects.create(
        **signed.receipt.model_dump(), chain_id=domain.chain_id, contract=domain.verifying_contract,
        digest=receipt_digest(signed.receipt, domain), signature=signed.signature,
        signer=town.key("Bob's node").address,
    )  # fmt: skip
    endings.record_end(
        Ending(
            lease_id=lease_id, job_id=job_id, attempt=1, node_id=uuid4(), customer_id=alice, provider_id=bob,
            reason=reason, fault=fault, message="It broke.", reported_reason="", exit_code=None, observed_ms=60_000,
            checkpointed_ms=0, billable_ms=0, asset_id=town.asset_id, rate=RATE, charged=0, last_seen_at=clock.now(),
        )
    )  # fmt: skip
    return job_id, lease_id


def offences_domain(town: Town) -> Any:
    from billing.chain import escrow

    return escrow.domain_of(town.contract)


def test_an_escrow_jobs_offence_is_slashed_and_compensated_to_the_customers_wallet(town: Town) -> None:
    alice, bob = uuid4(), uuid4()
    town.deposit("Alice", 20 * TOKEN)
    delegate(town)
    stake(town, 50 * TOKEN)
    job_id, lease_id = escrow_job(town, bob, alice, reason="node_quarantined", fault="provider")
    assert offences.judge() == 1
    offence = Offence.objects.get()
    assert (offence.penalty, offence.taken) == (300_000, 0)  # half of 600,000 claimed
    assert stakes.wallets_of(bob, lease_id) == [town.key("Bob").address]
    before = town.owed(AccountKind.WALLET_AVAILABLE, "Alice")

    settle_down(town)

    row = StakeSlash.objects.get()
    assert (row.state, row.slashed, row.compensated) == (State.COMPENSATED, 300_000, 300_000)
    assert staked(town) == 50 * TOKEN - 300_000
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == before + 300_000
    assert stakes.covered(offence) == offence.penalty
    assert not Alert.objects.open().filter(kind__in=["offence_unpaid", "stake_slash"]).exists()
    assert EscrowHold.objects.get(pk=job_id).customer == row.customer
    town.assert_books_match()
    assert_ledger_is_true()


def test_contradictory_receipts_of_an_escrow_job_are_judged(town: Town) -> None:
    alice, bob = uuid4(), uuid4()
    town.deposit("Alice", 20 * TOKEN)
    stake(town, 50 * TOKEN)
    job_id, lease_id = escrow_job(town, bob, alice, reason="completed", fault="nobody")
    ReceiptEvidence.objects.create(
        job_id=job_id, lease_id=lease_id, seq=1, signer="0x" + "1" * 40, accepted_digest="0xaa", other_digest="0xbb",
        accepted={}, other={},
    )  # fmt: skip
    assert (offences.judge(), offences.judge()) == (1, 0)
    settle_down(town)
    assert staked(town) == 50 * TOKEN - 600_000  # all that it claimed


def test_p25_an_offence_is_slashed_once_on_the_chain_whoever_asks_how_often(town: Town) -> None:
    bob, offence_id = uuid4(), uuid4()
    be_paid_to(town, bob)
    stake(town, 50 * TOKEN)
    for _ in range(3):
        fine(bob, 3 * TOKEN, town.asset_id, offence_id)
        settle_down(town)
    assert staked(town) == 47 * TOKEN
    row = StakeSlash.objects.get()
    assert town.view("offences", offence_id.bytes.rjust(32, b"\0"))
    assert row.transaction.business_key == f"slash:{town.contract.pk}:{offence_id}"
    # Not even the slasher's own key can do it again.
    town.wallets["slasher"] = key_for(Role.SLASHER)
    with pytest.raises(Exception, match="OffenceKnown"):
        town.call("slasher", "slash", town.key("Bob").address, TOKEN, offence_id.bytes.rjust(32, b"\0"), b"\1" * 32)
    town.assert_books_match()


def test_p25_no_more_is_slashed_than_is_staked(town: Town) -> None:
    bob = uuid4()
    be_paid_to(town, bob)
    stake(town, 2 * TOKEN)
    offence = fine(bob, 5 * TOKEN, town.asset_id)
    settle_down(town)
    assert (staked(town), stakes.covered(offence)) == (0, 2 * TOKEN)
    assert Alert.objects.open().filter(kind="offence_unpaid").exists()
    later = fine(bob, 5 * TOKEN, town.asset_id)
    settle_down(town)
    assert not StakeSlash.objects.filter(offence=later).exists()


def test_an_offence_in_dollars_is_slashed_in_the_stakes_token_at_the_price_of_then(town: Town, settings: Any) -> None:
    bob = uuid4()
    be_paid_to(town, bob)
    stake(town, 50 * TOKEN)
    offence = fine(bob, 7 * DOLLAR + 1, USD_ASSET_ID)
    stakes.claim_due(town.contract.chain_id)
    settings.SOUK_TOKEN_PRICES = {"TUSD": "1.00"}  # what comes later changes nothing
    settle_down(town)
    row = StakeSlash.objects.get()
    assert (row.wanted, row.slashed) == (3_500_000, 3_500_000)
    assert [one["usd_micros"] for one in row.prices] == ["1000000", "2000000"]
    assert stakes.covered(offence) == offence.penalty
    town.assert_books_match()


def test_without_a_price_a_stake_in_another_asset_is_left_and_reported(town: Town, settings: Any) -> None:
    bob = uuid4()
    be_paid_to(town, bob)
    stake(town, 50 * TOKEN)
    fine(bob, 7 * DOLLAR, USD_ASSET_ID)
    settings.SOUK_TOKEN_PRICES = {}
    settle_down(town, 1)
    assert not StakeSlash.objects.exists()
    assert "has no price now" in Alert.objects.open().get(kind="stake_slash").message
    settings.SOUK_TOKEN_PRICES = {"TUSD": "2.00"}
    settle_down(town)
    assert staked(town) == 50 * TOKEN - 3_500_000


def test_stake_that_is_about_to_leave_is_slashed_within_the_wait(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms_of(monkeypatch, unstake_seconds=7 * DAY)
    with devchain_town(settings) as town:
        bob = uuid4()
        be_paid_to(town, bob)
        stake(town, 10 * TOKEN)
        town.call("Bob", "requestUnstake", 10 * TOKEN)
        town.follow()
        fine(bob, 4 * TOKEN, town.asset_id)
        settle_down(town)
        assert (staked(town), town.view("unstaking", town.key("Bob").address)[0]) == (6 * TOKEN, 6 * TOKEN)
        town.assert_books_match()


def test_stake_that_has_left_before_is_forgone_and_reported(town: Town) -> None:
    bob = uuid4()
    be_paid_to(town, bob)
    stake(town, 10 * TOKEN)
    fine(bob, 4 * TOKEN, town.asset_id)
    assert stakes.claim_due(town.contract.chain_id) == 1
    town.call("Bob", "requestUnstake", 10 * TOKEN)
    town.call("Bob", "unstake")
    settle_down(town)
    assert StakeSlash.objects.get().state == State.FORGONE
    assert Alert.objects.open().filter(kind="offence_unpaid").exists()
    town.assert_books_match()


def test_what_is_above_the_caps_is_left_or_waits_for_the_next_day(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms_of(monkeypatch, slash_cap_per_offence=4 * TOKEN, slash_daily_cap=5 * TOKEN)
    with devchain_town(settings) as town:
        bob = uuid4()
        be_paid_to(town, bob)
        stake(town, 50 * TOKEN)
        first = fine(bob, 9 * TOKEN, town.asset_id)
        settle_down(town)
        assert staked(town) == 46 * TOKEN  # an offence's cap
        assert stakes.covered(first) == 4 * TOKEN
        second = fine(bob, 3 * TOKEN, town.asset_id)
        settle_down(town)
        row = StakeSlash.objects.get(offence=second)
        assert (row.state, row.transaction) == (State.WAITING, None)
        assert "ExceedsDailyCap" in row.reason
        stakes.sweep(town.contract.chain_id)
        row.refresh_from_db()
        day = timedelta(days=1)
        assert row.next_at.time().isoformat() == "00:00:00" and clock.now() < row.next_at <= clock.now() + 2 * day
        town.chain.ahead_seconds += DAY
        town.chain.mine_empty()
        settle_down(town)
        assert staked(town) == 43 * TOKEN
        town.assert_books_match()


def test_a_slash_that_failed_is_sent_again_for_what_is_still_staked(town: Town) -> None:
    bob = uuid4()
    be_paid_to(town, bob)
    stake(town, 10 * TOKEN)
    fine(bob, 4 * TOKEN, town.asset_id)
    stakes.sweep(town.contract.chain_id)
    row = StakeSlash.objects.get()
    assert row.state == State.SENT
    # Bob is quicker: most of it is gone when our transaction is signed, and its simulation reverts.
    town.call("Bob", "requestUnstake", 9 * TOKEN)
    town.call("Bob", "unstake")
    for _ in range(signing.SIMULATIONS_MAX):
        type(row.transaction).objects.update(next_at=clock.now())
        town.follow()
    settle_down(town, 4)
    row.refresh_from_db()
    assert (row.state, row.slashed, staked(town)) == (State.SLASHED, TOKEN, 0)
    assert row.transaction.business_key.endswith("#2")
    town.assert_books_match()


def test_a_multisig_slasher_gets_what_to_send_and_what_it_sent_is_noted(town: Town, settings: Any) -> None:
    bob, key = uuid4(), settings.SOUK_CHAIN_KEY
    be_paid_to(town, bob)
    stake(town, 10 * TOKEN)
    fine(bob, 4 * TOKEN, town.asset_id)
    settings.SOUK_CHAIN_SETTLER_KEY = settings.SOUK_CHAIN_PUBLISHER_KEY = key
    settings.SOUK_CHAIN_KEY = ""
    settle_down(town)
    row = StakeSlash.objects.get()
    assert row.state == State.WAITING
    assert "--print" in Alert.objects.open().get(kind="stake_slash").message
    call = stakes.call_of(row)
    settings.SOUK_CHAIN_KEY = key
    town.wallets["multisig"] = key_for(Role.SLASHER)
    town.call("multisig", call.function, *call.arguments)
    settings.SOUK_CHAIN_KEY = ""
    town.follow()
    row.refresh_from_db()
    assert (row.state, row.slashed, row.transaction) == (State.SLASHED, 4 * TOKEN, None)
    assert staked(town) == 6 * TOKEN


def test_a_customer_without_a_known_wallet_is_compensated_when_it_has_named_one(town: Town) -> None:
    alice, bob = uuid4(), uuid4()
    be_paid_to(town, bob)
    stake(town, 10 * TOKEN)
    offence = fine(bob, 4 * DOLLAR, USD_ASSET_ID, victim=Victim(alice, uuid4(), uuid4()))
    settle_down(town)
    row = StakeSlash.objects.get()
    assert (row.state, stakes.to_compensate(row)) == (State.SLASHED, 2 * TOKEN)
    assert f"compensate {offence.pk}" in Alert.objects.open().get(kind="stake_slash").message
    operating.submit(stakes.compensation_of(row, town.key("Alice").address))
    town.follow(2)
    row.refresh_from_db()
    assert (row.state, row.compensated) == (State.COMPENSATED, 2 * TOKEN)
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 2 * TOKEN
    assert not Alert.objects.open().filter(kind="stake_slash").exists()
    town.assert_books_match()


def test_a_wallet_that_bob_was_paid_to_before_still_answers_for_him(town: Town) -> None:
    bob = uuid4()
    be_paid_to(town, bob, "Bob's new wallet")
    old, new = town.key("Bob").address, town.key("Bob's new wallet").address
    from billing.models import Payout

    Payout.objects.create(provider_id=bob, rail="chain", asset_id=town.asset_id, amount=1, destination=old)
    Payout.objects.create(
        provider_id=uuid4(), rail="chain", asset_id=town.asset_id, amount=1, destination="0x" + "9" * 40
    )
    assert stakes.wallets_of(bob) == [new, old]
    stake(town, 10 * TOKEN)
    fine(bob, 4 * TOKEN, town.asset_id)
    settle_down(town)
    assert staked(town) == 6 * TOKEN


@pytest.mark.django_db(transaction=True)
def test_many_sweeps_at_once_slash_once(settings: Any) -> None:
    with devchain_town(settings) as town:
        bob = uuid4()
        be_paid_to(town, bob)
        stake(town, 50 * TOKEN)
        fine(bob, 3 * TOKEN, town.asset_id)
        race([lambda: stakes.sweep(town.contract.chain_id)] * 4)
        settle_down(town)
        assert StakeSlash.objects.get().state == State.SLASHED
        assert staked(town) == 47 * TOKEN
        town.assert_books_match()


def test_the_database_holds_the_states_of_a_slash(db: None) -> None:
    assert edges_in_database("billing_stakeslash", STAKE_SLASH_MACHINE) == edges_of(STAKE_SLASH_MACHINE)

"""The coins that our keys pay gas with: booked as they come, held against the chain exactly, missed before they end."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from billing import breaker
from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.chain import coins, escrow
from billing.chain.keys import Role, key_for
from billing.chain.transactions import planning
from billing.errors import CorrectionRefused
from billing.models import Alert, Asset, ChainTransaction, Difference, StripeBooking, Transfer
from billing.reconciliation import correcting
from billing.reconciliation.coins import compare_coins
from billing.reconciliation.reconciling import reconcile
from billing.solvency import totals
from billing.states.chain import TransactionState
from billing.transfer_codes import TransferCode
from marketplace.foundation.models import Event
from tests.integration.billing.chain.escrows import authorize
from tests.integration.billing.chain.town import TOKEN, Town, devchain_town, give_coins
from tests.integration.billing.scenes import assert_ledger_is_true, race
from tests.people import operator

HOT = AccountKind.CHAIN_HOT_WALLET
COIN = 10**18


@pytest.fixture
def lone(town: Town, settings: Any) -> Town:
    """The settler's key is nobody else's, so that what it has is what it was given; it has sent one transaction."""
    settings.SOUK_PAYOUT_RAILS = ["chain"]
    town.deposit("Alice", 20 * TOKEN)
    escrow.open_hold(town.asset_id, authorize(town, uuid4()))
    town.follow(2)
    assert ChainTransaction.objects.get().state == TransactionState.FINAL
    return town


def coin() -> Asset:
    return Asset.objects.get(kind=Asset.Kind.NATIVE)


def booked() -> int:
    return -ledger.balance(None, HOT, asset_id=coin().pk)


def on_chain(town: Town) -> int:
    return town.client.coins(key_for(Role.SETTLER).address)


def test_what_the_keys_were_given_is_booked_with_block_and_address_once(lone: Town) -> None:
    address, before = key_for(Role.SETTLER).address, booked()
    assert before == on_chain(lone)
    give_coins(lone.client, address, 3 * COIN)
    assert reconcile(reason="by hand").is_clean
    assert booked() == before + 3 * COIN == on_chain(lone)
    ref = f"coins:{lone.contract.chain_id}:{lone.client.final()}:{address}"
    transfer = Transfer.objects.get(external_ref=ref)
    assert (transfer.amount, transfer.debit.kind, transfer.credit.kind) == (3 * COIN, HOT, AccountKind.OPERATOR_CASH)
    assert Event.objects.get(subject_kind=HOT).data["reference"] == ref
    report = reconcile(reason="by hand")
    position = report.positions.get(kind=HOT)
    assert position.ledger == position.outside == on_chain(lone)
    assert Transfer.objects.filter(external_ref__startswith="coins:").count() == 1
    assert_ledger_is_true()


def test_solvency_shows_the_keys_coins_as_the_operators_own(lone: Town) -> None:
    reconcile(reason="by hand")
    [one] = [row for row in totals.solvency()["assets"] if row["asset"] == coin().code]
    assert int(one["held"]) == on_chain(lone) > 0
    [mirror] = one["mirrors"]
    assert (mirror["kind"], mirror["ledger"]) == (HOT, mirror["outside"])
    assert int(one["own"]["operator_cash"]) + int(one["own"]["gas_expense"]) == on_chain(lone)
    assert one["is_balanced"] and one["is_covered"]


def test_gas_that_is_mined_and_not_booked_yet_is_no_difference(lone: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    escrow.open_hold(lone.asset_id, authorize(lone, uuid4()))
    monkeypatch.setattr(planning._Dispatcher, "_settle", lambda *_: 0)
    lone.follow()
    assert ChainTransaction.objects.filter(state=TransactionState.BROADCAST).count() == 1
    assert on_chain(lone) < booked()
    assert reconcile(reason="by hand").is_clean
    monkeypatch.undo()
    lone.follow()
    assert on_chain(lone) == booked()
    assert reconcile(reason="by hand").is_clean
    assert not Transfer.objects.filter(external_ref__startswith="coins:").exists()


def test_a_chain_whose_clock_is_ahead_makes_no_sum_wrong(lone: Town) -> None:
    lone.chain.ahead_seconds = 3600
    lone.deposit("Alice", TOKEN)
    lone.follow()
    assert reconcile(reason="by hand").is_clean


def test_coins_that_left_without_us_stop_payouts_until_they_are_booked(lone: Town) -> None:
    """Somebody else has the key: what it sends elsewhere is no gas of ours."""
    lone.wallets["thief"] = key_for(Role.SETTLER)
    lone.call("thief", "pause")
    report = reconcile(reason="by hand")
    difference = report.differences.get()
    assert (difference.kind, difference.account_kind, difference.explanation) == (Difference.Kind.POSITION, HOT, "")
    missing = difference.ledger - difference.outside
    assert missing == booked() - on_chain(lone) > 0
    assert breaker.is_open()
    address = key_for(Role.SETTLER).address
    gas, hot = open_accounts([AccountName(kind, asset_id=coin().pk) for kind in (AccountKind.GAS_EXPENSE, HOT)])
    ref = f"stolen:{address}"
    ledger.post([ledger.NewTransfer(gas, hot, missing, TransferCode.CORRECTION, external_ref=ref)])
    assert reconcile(reason="by hand").is_clean
    assert booked() == on_chain(lone)


def test_a_shortfall_of_coins_is_corrected_by_two_though_blocks_move_on(lone: Town) -> None:
    lone.wallets["thief"] = key_for(Role.SETTLER)
    lone.call("thief", "pause")
    olga, otto = operator("olga"), operator("otto")
    found = reconcile(reason="by hand").differences.get()
    assert found.ref == f"coins:{lone.contract.chain_id}:{key_for(Role.SETTLER).address}"
    proposed = correcting.propose(found.ref, against="chargeback_loss", why="The key was stolen.", by=olga)
    lone.chain.mine_empty()
    assert reconcile(reason="by hand").differences.get().ref == found.ref
    approved = correcting.approve(proposed.pk, by=otto)
    assert (approved.state, booked()) == ("approved", on_chain(lone))
    assert not StripeBooking.objects.exists()
    with pytest.raises(CorrectionRefused, match="reconcile"):
        correcting.propose(found.ref, against="chargeback_loss", why="The key was stolen.", by=otto)
    assert reconcile(reason="by hand").is_clean
    assert_ledger_is_true()


def test_theft_from_one_key_is_not_hidden_by_a_gift_to_another(lone: Town, settings: Any) -> None:
    from billing.chain.devchain.chain import DEVELOPMENT_KEYS

    settings.SOUK_CHAIN_PUBLISHER_KEY = DEVELOPMENT_KEYS[2]
    other = key_for(Role.PUBLISHER).address
    planning._Dispatcher(lone.client, key_for(Role.PUBLISHER))._signer()
    lone.wallets["thief"] = key_for(Role.SETTLER)
    lone.call("thief", "pause")
    give_coins(lone.client, other, COIN)
    report = reconcile(reason="by hand")
    assert key_for(Role.SETTLER).address in report.differences.get().ref
    assert Transfer.objects.filter(external_ref__startswith="coins:").get().external_ref.endswith(other)


def test_a_chain_that_cannot_be_asked_is_named_and_opens_nothing(lone: Town, settings: Any) -> None:
    settings.SOUK_CHAINS = [settings.SOUK_CHAINS[0] | {"rpc_urls": ["http://127.0.0.1:9"], "timeout_seconds": 0.2}]
    report = reconcile(reason="by hand")
    assert f"coins of chain {lone.contract.chain_id}" in report.unanswered
    assert not breaker.is_open()


@pytest.mark.django_db(transaction=True)
def test_many_who_look_at_once_book_it_once(settings: Any) -> None:
    with devchain_town(settings) as town:
        planning._Dispatcher(town.client, key_for(Role.SETTLER))._signer()
        before = booked()
        town.chain.mine_empty()  # a final block after the first booking
        town.chain.ahead_seconds = 60
        give_coins(town.client, key_for(Role.SETTLER).address, COIN)
        found = race([lambda: compare_coins(town.contract.chain_id)] * 4)
        assert not [one for one in found if isinstance(one, Exception)]
        assert booked() == before + COIN == on_chain(town)


def test_an_alert_is_open_while_a_keys_coins_do_not_last(lone: Town, settings: Any) -> None:
    [one] = coins.signers(lone.contract.chain_id)
    assert one.roles == ("settler", "publisher", "arbiter", "slasher", "pauser", "admin")
    assert one.transactions == one.coins // one.transaction_cost > 100
    assert coins.watch(lone.contract.chain_id) == 0
    settings.SOUK_CHAIN_TRANSACTIONS_MIN = one.transactions * 2
    assert coins.watch(lone.contract.chain_id) == 1
    assert Alert.objects.open().get(kind="chain_coins").severity == "warning"
    settings.SOUK_CHAIN_TRANSACTIONS_MIN = 100
    assert coins.watch(lone.contract.chain_id) == 0
    assert not Alert.objects.open().exists()


def test_a_key_without_any_coins_is_reported_as_critical(town: Town, settings: Any) -> None:
    settings.SOUK_CHAIN_PUBLISHER_KEY = "0x" + "77" * 32
    assert coins.watch(town.contract.chain_id) == 1
    assert Alert.objects.open().get().severity == "critical"

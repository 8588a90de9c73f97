"""Each event is booked once: by whom, how often, and however cut off."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.chain import wallets
from billing.chain.contract import deploy
from billing.chain.devchain import development
from billing.chain.devchain.chain import CHAIN_ID
from billing.chain.devchain.token import MINTED
from billing.chain.events import effects, indexer
from billing.chain.reading import builds
from billing.models import Alert, ChainBlock, ChainEvent
from tests.integration.billing.chain.town import TOKEN, Town, devchain_town
from tests.integration.billing.scenes import assert_ledger_is_true, race


class Killed(BaseException):
    """As SIGKILL: nothing of ours catches it."""


@pytest.mark.parametrize("seam", ["_store_block", "_store_events", "_book_one", "book"])
@pytest.mark.parametrize("is_before", [True, False])
def test_an_indexer_that_was_killed_goes_on_where_it_was(
    town: Town, monkeypatch: pytest.MonkeyPatch, seam: str, is_before: bool
) -> None:
    alice = uuid4()
    town.buy_credits("Alice", alice, 25 * TOKEN)
    verb = getattr(indexer, seam)

    def die(*given: Any) -> Any:
        if not is_before:
            verb(*given)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(indexer, seam, die)
        indexer.follow(CHAIN_ID)
    town.follow()
    town.follow()
    assert ledger.balance(alice, AccountKind.CUSTOMER_AVAILABLE, asset_id=town.asset_id) == 25 * TOKEN
    town.assert_books_match()
    assert_ledger_is_true()


def test_pages_are_small_and_no_block_is_skipped(town: Town, settings: Any) -> None:
    alice = uuid4()
    town.buy_credits("Alice", alice, 25 * TOKEN)
    settings.SOUK_CHAINS = [settings.SOUK_CHAINS[0] | {"blocks_per_query": 1}]
    town.follow(2)
    assert ledger.balance(alice, AccountKind.CUSTOMER_AVAILABLE, asset_id=town.asset_id) == 25 * TOKEN
    town.contract.refresh_from_db()
    assert town.chain is not None
    assert town.contract.scanned_block == town.chain.head


@pytest.mark.django_db(transaction=True)
def test_two_indexers_at_once_book_each_event_once(settings: Any) -> None:
    with devchain_town(settings) as town:
        alice = uuid4()
        town.buy_credits("Alice", alice, 25 * TOKEN)
        answers = race([partial(indexer.follow, CHAIN_ID)] * 4)
        assert not [answer for answer in answers if isinstance(answer, Exception)]
        race([partial(indexer.book, CHAIN_ID)] * 4)
        assert ledger.balance(alice, AccountKind.CUSTOMER_AVAILABLE, asset_id=town.asset_id) == 25 * TOKEN
        town.assert_books_match()


def test_the_same_call_on_another_contract_is_nothing_to_us(town: Town) -> None:
    """Mallory puts the same code there for herself, with a token of her own, and buys Alice credits in it."""
    token, hers, _ = development.build_town(CHAIN_ID)
    alice, mallory = uuid4(), town.key("Mallory")
    for name, to, arguments in (
        ("mint", token, [mallory.address, TOKEN]),
        ("approve", token, [hers, TOKEN]),
    ):
        deploy.send(town.client, mallory, data=builds.encode(builds.DEV_TOKEN, name, arguments), to=to, purpose=name)
    call = builds.encode(builds.ESCROW, "buyCredits", [alice.bytes.rjust(32, b"\0"), TOKEN])
    deploy.send(town.client, mallory, data=call, to=hers, purpose="buyCredits")
    town.follow()
    assert ledger.balance(alice, AccountKind.CUSTOMER_AVAILABLE, asset_id=town.asset_id) == 0
    assert not ChainEvent.objects.filter(name="CreditsBought").exists()


@pytest.mark.parametrize("amount", [1, 2**255, 2**256 - 1 - MINTED])
def test_amounts_up_to_256_bits_are_booked_to_the_unit(town: Town, amount: int) -> None:
    alice = uuid4()
    town.buy_credits("Alice", alice, amount)
    town.follow()
    assert ledger.balance(alice, AccountKind.CUSTOMER_AVAILABLE, asset_id=town.asset_id) == amount
    town.assert_books_match()
    assert_ledger_is_true()


def test_credits_for_no_organisation_are_booked_and_reported(town: Town) -> None:
    town.mint("Mallory", 5 * TOKEN)
    town.call("Mallory", "buyCredits", b"\xff" * 32, 5 * TOKEN)
    town.follow()
    owner = wallets.credit_owner("0x" + "ff" * 32)
    assert ledger.balance(owner, AccountKind.CUSTOMER_AVAILABLE, asset_id=town.asset_id) == 5 * TOKEN
    assert Alert.objects.filter(kind="chain_credits").count() == 1
    town.assert_books_match()


def test_an_event_that_does_not_fit_waits_and_holds_nobody_up(town: Town) -> None:
    alice = uuid4()
    town.buy_credits("Alice", alice, 5 * TOKEN)
    town.follow()
    block = ChainBlock.objects.filter(state=ChainBlock.State.FINAL).latest("number")
    odd = ChainEvent.objects.create(
        block=block,
        tx_hash="0x" + "12" * 32,
        log_index=0,
        contract=town.contract.address,
        name="Claimed",
        arguments={"account": town.key("Bob").address, "amount": "5", "cumulative": "5"},
    )
    town.buy_credits("Alice", alice, 5 * TOKEN)
    town.follow(indexer.ATTEMPTS_UNTIL_ALERT)
    odd.refresh_from_db()
    assert odd.processed_at is None
    assert "not the sum of payouts" in odd.last_error
    assert Alert.objects.filter(kind="chain_event").count() == 1
    assert ledger.balance(alice, AccountKind.CUSTOMER_AVAILABLE, asset_id=town.asset_id) == 10 * TOKEN
    town.assert_books_match()


def test_every_event_of_the_contract_has_its_row_or_moves_nothing() -> None:
    """Published events against the table: who adds one to the contract has to decide what it does to the books."""
    named = {one["name"] for one in builds.load(builds.ESCROW).abi if one["type"] == "event"}
    silent = {
        "UnstakeRequested",
        "ReceiptKeyRegistered",
        "ReceiptKeyRevoked",
        "NonceCancelled",
        "SurplusSwept",
        "Paused",
        "Unpaused",
        "EIP712DomainChanged",
        *(name for name in named if name.startswith(("Role", "DefaultAdmin"))),
    }
    assert named == set(effects.EFFECTS) | silent

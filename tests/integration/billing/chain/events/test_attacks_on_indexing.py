"""What a chain, its endpoints and its users may do to whoever reads it: nothing is lost, and nobody holds others up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.chain import escrow
from billing.chain.devchain import methods
from billing.chain.devchain.chain import CHAIN_ID
from billing.chain.errors import EndpointsDisagree
from billing.chain.events import indexer
from billing.chain_following import chains
from billing.models import Alert, ChainBlock, ChainEvent
from billing.states.chain import EscrowHoldState
from marketplace.foundation.states import advance
from tests.chain.proxy import Proxy
from tests.integration.billing.chain.escrows import authorize
from tests.integration.billing.chain.town import TOKEN, Town


@pytest.fixture
def proxy(town: Town, settings: Any) -> Iterator[Proxy]:
    """The chain's only endpoint, which may lie."""
    [chain] = settings.SOUK_CHAINS
    made = Proxy(chain["rpc_urls"][0])
    settings.SOUK_CHAINS = [chain | {"rpc_urls": [made.url]}]
    yield made
    made.close()


def credit_of(town: Town, owner: UUID) -> int:
    return ledger.balance(owner, AccountKind.CUSTOMER_AVAILABLE, asset_id=town.asset_id)


def odd_event(town: Town, number: int, name: str = "Claimed", **arguments: Any) -> ChainEvent:
    """One that can never be booked."""
    fields = {"account": "0x" + "22" * 20, "amount": "5", "cumulative": "5"} | arguments
    return ChainEvent.objects.create(
        block=ChainBlock.objects.filter(state=ChainBlock.State.FINAL).earliest("number"),
        tx_hash=f"0x{number:064x}",
        log_index=number,
        contract=town.contract.address,
        name=name,
        arguments=fields,
    )


def test_a_wallet_that_opens_a_hold_which_we_gave_up_stops_no_other_event(town: Town) -> None:
    """Our own transaction was refused for lack of money; Mallory pays in later and sends what she signed herself."""
    job_id, alice = uuid4(), uuid4()
    signed = authorize(town, job_id)
    hold = escrow.open_hold(town.asset_id, signed)
    advance(hold, EscrowHoldState.FAILED, reason="would_revert")
    town.deposit("Alice", 10 * TOKEN)
    town.call("Alice", "openHold", escrow._struct(signed.authorization), signed.signature)
    town.buy_credits("Bob", alice, 25 * TOKEN)
    town.follow()
    assert credit_of(town, alice) == 25 * TOKEN


@pytest.mark.parametrize(
    "arguments",
    [
        {"jobId": "0x" + "00" * 31 + "07", "deadline": str(2**64 - 1)},  # beyond the column
        {"jobId": "0x" + "00" * 31 + "07", "deadline": "soon"},
        {"jobId": "not hex", "deadline": "1"},
    ],
)
def test_an_event_that_breaks_its_verb_holds_nobody_up(town: Town, arguments: dict[str, str]) -> None:
    alice = uuid4()
    town.follow()
    fields = {"customer": "0x" + "22" * 20, "rateCeilingPerHour": "1", "providersRoot": "0x" + "00" * 32, **arguments}
    odd = odd_event(town, 1, "HoldOpened", **fields)
    town.buy_credits("Alice", alice, 25 * TOKEN)
    town.follow(indexer.ATTEMPTS_UNTIL_ALERT)
    odd.refresh_from_db()
    assert odd.processed_at is None
    assert odd.last_error
    assert Alert.objects.filter(kind="chain_event").count() == 1
    assert credit_of(town, alice) == 25 * TOKEN


def test_events_that_cannot_be_booked_starve_no_later_one(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexer, "EVENTS_PER_RUN_MAX", 3)
    alice = uuid4()
    town.follow(10)
    for number in range(3):
        odd_event(town, number)
    town.buy_credits("Alice", alice, 25 * TOKEN)
    town.follow(3)
    assert credit_of(town, alice) == 25 * TOKEN


def test_a_node_that_answers_small_questions_only_is_asked_small_ones(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ "query exceeds the range", "query returned more than 10000 results": there is no end to their sentences."""
    monkeypatch.setattr(methods, "BLOCKS_PER_QUERY_MAX", 2)
    alice = uuid4()
    town.buy_credits("Alice", alice, 25 * TOKEN)
    town.follow(2)
    assert credit_of(town, alice) == 25 * TOKEN
    town.contract.refresh_from_db()
    assert town.chain is not None
    assert town.contract.scanned_block == town.chain.head


def test_a_page_that_leaves_out_what_was_seen_before_is_not_believed(town: Town, proxy: Proxy, settings: Any) -> None:
    settings.SOUK_CHAINS = [settings.SOUK_CHAINS[0] | {"finality": "depth", "confirmations": 2}]
    alice = uuid4()
    town.buy_credits("Alice", alice, 25 * TOKEN)
    town.follow()
    assert ChainEvent.objects.get(name="CreditsBought").block.state == ChainBlock.State.SEEN
    town.mint("Bob", TOKEN)  # blocks on top

    def forgetful(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        is_page = request["method"] == "eth_getLogs" and "fromBlock" in request["params"][0]
        return answer | {"result": []} if is_page else answer

    proxy.tamper = forgetful
    with pytest.raises(EndpointsDisagree):
        indexer.follow(CHAIN_ID)
    proxy.tamper = None
    town.follow()
    assert credit_of(town, alice) == 25 * TOKEN


def test_a_chain_that_stands_still_is_reported(town: Town, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One endpoint that is frozen holds all of them back: the others' newer blocks are not believed alone."""
    monkeypatch.setattr(indexer, "FINAL_AGE_MAX", timedelta(days=-1))
    [chain] = settings.SOUK_CHAINS
    proxy = Proxy(chain["rpc_urls"][0])
    settings.SOUK_CHAINS = [chain | {"rpc_urls": [*chain["rpc_urls"], proxy.url], "is_development": False}]
    indexer.follow(CHAIN_ID)
    assert Alert.objects.open().get(kind="chain_stands_still").message.startswith("The newest final block")
    monkeypatch.setattr(indexer, "FINAL_AGE_MAX", timedelta(hours=1))
    indexer.follow(CHAIN_ID)
    assert not Alert.objects.open().exists()
    proxy.close()


def test_a_chain_of_nonsense_stops_no_other(town: Town, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    def nonsense(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        if request["method"] == "eth_getBlockByNumber" and answer["result"]:
            answer["result"]["timestamp"] = hex(2**80)
        return answer

    proxy.tamper = nonsense
    assert chains.follow_chains() == 0
    assert Alert.objects.open().filter(kind="chain_indexer").exists()

    def broken(chain_id: int) -> int:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(chains, "follow_chain", broken)
    assert chains.follow_chains() == 0


def test_a_final_block_that_falls_back_makes_no_second_rows(town: Town, proxy: Proxy) -> None:
    """An endpoint that restarts reports that nothing is final yet; what was final stays so."""
    town.follow()
    assert town.chain is not None
    before = ChainBlock.objects.count()

    def anew(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        if request["method"] == "eth_getBlockByNumber" and request["params"][0] == "finalized":
            answer["result"]["number"] = "0x0"
        return answer

    proxy.tamper = anew
    indexer.follow(CHAIN_ID)
    assert ChainBlock.objects.count() == before


def test_dust_costs_one_row_an_event_and_no_mail(town: Town, settings: Any, mailoutbox: list[Any]) -> None:
    settings.SOUK_ALERT_EMAILS = ["ops@souk.example"]
    town.mint("Mallory", 100)
    for _ in range(5):
        town.call("Mallory", "deposit", 1)
    town.follow()
    assert ChainEvent.objects.filter(name="Deposited").count() == 5
    assert not Alert.objects.exists()
    town.assert_books_match()

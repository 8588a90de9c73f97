"""The answer of a single endpoint is not trusted: nothing is credited on a lie, and nothing is lost by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.chain.devchain.chain import CHAIN_ID
from billing.chain.errors import ChainMisconfigured, EndpointsDisagree, EndpointsUnreachable
from billing.chain.events import indexer
from billing.chain.reading.client import client_of
from billing.chain_following import chains
from billing.models import Alert, ChainEvent
from tests.chain.proxy import Proxy
from tests.integration.billing.chain.town import TOKEN, Town


@pytest.fixture
def proxy(town: Town, settings: Any) -> Iterator[Proxy]:
    """A second endpoint, in front of the first, on a chain where two have to agree."""
    [chain] = settings.SOUK_CHAINS
    made = Proxy(chain["rpc_urls"][0])
    settings.SOUK_CHAINS = [
        chain | {"rpc_urls": [*chain["rpc_urls"], made.url], "is_development": False, "finality": "finalized"}
    ]
    yield made
    made.close()


def credit_of(town: Town, owner: UUID) -> int:
    return ledger.balance(owner, AccountKind.CUSTOMER_AVAILABLE, asset_id=town.asset_id)


def logs_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return answer["result"]


def raised(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Every amount of every log is a hundred times as much."""
    if request["method"] == "eth_getLogs":
        for log in logs_of(answer):
            if len(log["data"]) == 66:
                log["data"] = f"0x{int(log['data'], 16) * 100:064x}"
    return answer


def hidden(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """There are no logs at all."""
    return answer | {"result": []} if request["method"] == "eth_getLogs" else answer


def doubled(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """A deposit happened twice."""
    if request["method"] == "eth_getLogs" and logs_of(answer):
        forged = logs_of(answer)[-1] | {"logIndex": "0x63"}
        return answer | {"result": [*logs_of(answer), forged]}
    return answer


def other_blocks(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """The chain is another one."""
    if request["method"] == "eth_getBlockByNumber" and answer["result"]:
        answer["result"]["hash"] = "0x" + "ab" * 32
    return answer


@pytest.mark.parametrize("lie", [raised, hidden, doubled, other_blocks])
def test_a_lying_endpoint_stops_the_credit_until_it_answers_truly(town: Town, proxy: Proxy, lie: Any) -> None:
    alice = uuid4()
    town.buy_credits("Alice", alice, 25 * TOKEN)
    proxy.tamper = lie
    with pytest.raises(EndpointsDisagree):
        indexer.follow(CHAIN_ID)
    assert credit_of(town, alice) == 0
    assert not ChainEvent.objects.filter(name="CreditsBought").exists()
    assert Alert.objects.open().get(kind="chain_indexer").severity == "critical"
    proxy.tamper = None
    town.follow()
    assert credit_of(town, alice) == 25 * TOKEN
    assert not Alert.objects.open().filter(kind="chain_indexer").exists()
    town.assert_books_match()


def test_one_endpoint_alone_is_not_enough(town: Town, proxy: Proxy) -> None:
    alice = uuid4()
    town.buy_credits("Alice", alice, 25 * TOKEN)
    proxy.is_down = True
    with pytest.raises(EndpointsUnreachable, match="1 answered and 2 are needed"):
        indexer.follow(CHAIN_ID)
    assert chains.follow_chains() == 0
    assert credit_of(town, alice) == 0


def test_an_endpoint_of_another_chain_is_none(town: Town, proxy: Proxy) -> None:
    proxy.tamper = lambda request, answer: answer | {"result": "0x1"} if request["method"] == "eth_chainId" else answer
    with pytest.raises(EndpointsUnreachable, match="it is on the chain 1"):
        client_of(CHAIN_ID).head()


def test_an_endpoint_that_is_behind_only_delays(town: Town, proxy: Proxy) -> None:
    alice = uuid4()
    town.follow()
    assert town.chain is not None
    before = town.chain.head
    town.buy_credits("Alice", alice, 25 * TOKEN)

    def behind(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        if request["method"] == "eth_blockNumber":
            return answer | {"result": hex(before)}
        if request["method"] == "eth_getBlockByNumber" and request["params"][0] in {"finalized", "latest"}:
            answer["result"]["number"] = hex(before)
        return answer

    proxy.tamper = behind
    assert indexer.follow(CHAIN_ID) == 0
    proxy.tamper = None
    town.follow()
    assert credit_of(town, alice) == 25 * TOKEN


def test_blocks_that_carry_their_makers_signatures_are_read(town: Town, proxy: Proxy) -> None:
    alice = uuid4()
    town.buy_credits("Alice", alice, 25 * TOKEN)

    def signed_by_its_maker(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        if request["method"] == "eth_getBlockByNumber" and answer["result"]:
            answer["result"]["extraData"] = "0x" + "5a" * 97  # as Clique and Bor have it; elsewhere 32 bytes at most
        return answer

    proxy.tamper = signed_by_its_maker
    town.follow()
    assert credit_of(town, alice) == 25 * TOKEN


def test_a_call_is_one_question_to_each_endpoint(town: Town, proxy: Proxy) -> None:
    asked: list[str] = []

    def noted(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["method"])
        return answer

    town.view("totalLiabilities")
    proxy.tamper = noted
    town.view("totalLiabilities")
    assert asked == ["eth_blockNumber", "eth_call"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rpc_urls": []}, "rpc_urls"),
        ({"rpc_urls": ["http://127.0.0.1:1", "http://127.0.0.1:1"]}, "agree with itself"),
        ({"finality": "depth", "is_development": False}, "confirmations"),
        ({"max_fee_gwei": "-1"}, "max_fee_gwei"),
        ({"surprise": 1}, "surprise"),
        ({"rpc_urls": ["http://127.0.0.1:1"]}, "two endpoints"),
        ({"rpc_urls": ["http://10.0.0.1:1"], "is_development": True}, "known to everybody"),
    ],
)
def test_a_chain_that_cannot_be_used_is_refused_by_name(settings: Any, changes: dict[str, Any], words: str) -> None:
    settings.SOUK_CHAINS = [{"chain_id": 5, "name": "five", "rpc_urls": ["http://127.0.0.1:1", "http://a"]} | changes]
    with pytest.raises(ChainMisconfigured, match=words):
        client_of(5)

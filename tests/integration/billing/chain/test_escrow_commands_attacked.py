"""`souk escrow` by an endpoint that lies, hangs or dies, and by people who mistype: clear errors, sent once at most."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest

from jobs.client.errors import ChainFailed
from jobs.client.settings import settings_path
from jobs.client.wallet import chain_reader, chain_wallet
from jobs.client.wallet.chain_wallet import ChainWallet, encode_call
from jobs.client.wallet.key_file import Wallet
from jobs.client.wallet.sending import Sender
from tests.integration.billing.chain.escrow_shell import NOWHERE, Ended, Shells
from tests.integration.billing.chain.reading.lying_endpoint import DROP, LyingEndpoint, lying_endpoint
from tests.integration.billing.chain.town import TOKEN, devchain_town

WEI_MUCH = 10**18
TIP, SEND, GAS = "eth_maxPriorityFeePerGas", "eth_sendRawTransaction", "eth_estimateGas"
RECEIPT, BY_HASH, BLOCK = "eth_getTransactionReceipt", "eth_getTransactionByHash", "eth_getBlockByNumber"


@pytest.fixture
def people(
    db: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shells]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SOUK_SERVER", NOWHERE)
    monkeypatch.delenv("SOUK_API_KEY", raising=False)
    monkeypatch.setattr(chain_wallet, "POLL_SECONDS", 0.01)
    with devchain_town(settings) as town:
        yield Shells(town, tmp_path, capsys)


@pytest.fixture
def endpoint(people: Shells) -> Iterator[LyingEndpoint]:
    with lying_endpoint(people.rpc_url) as made:
        yield made


def by(endpoint: LyingEndpoint, people: Shells, *words: object, who: str = "Alice") -> Ended:
    """A command of somebody by this endpoint."""
    key = people.key_file(who)
    where = ["--contract", people.town.contract.address, "--rpc-url", endpoint.url, "--wallet-key-file", key]
    return people.run("escrow", *words, *where, "--yes", "--json")


def kept() -> list[Path]:
    return list((settings_path().parent / "transactions").glob("*.json"))


def test_an_endpoint_that_answers_nonsense_is_distinguished_from_a_crash(
    people: Shells, endpoint: LyingEndpoint
) -> None:
    people.town.deposit("Alice", 5 * TOKEN)
    before = people.town.client.nonce(people.town.key("Alice").address)
    methods = ["eth_chainId", "eth_getCode", "eth_call", GAS, BLOCK, "eth_getBalance", "eth_getTransactionCount"]
    for method, is_text in itertools.product(methods, (False, True)):
        endpoint.lies.clear()
        endpoint.say(method, "\x1b[2J0xzz" if is_text else {})
        ended = by(endpoint, people, "withdraw", "1")
        assert (ended.status, ended.json["error"]["code"]) == (6, "chain_failed"), (method, ended)
        assert f"answers {method} with something else" in ended.refusal, ended
        assert "\x1b" not in ended.out + ended.err
    assert not kept() and people.town.client.nonce(people.town.key("Alice").address) == before


def test_events_that_are_none_are_reported_as_none(people: Shells, endpoint: LyingEndpoint) -> None:
    wallet = people.town.key("Alice").address
    where = ["--contract", people.town.contract.address, "--rpc-url", endpoint.url, "--json"]
    short = [{"topics": ["0x" + "00" * 32] * 2}]
    lies: list[Any] = [None, {}, "0x", [None], [{}], [{"topics": ["0x12"] * 4}], [{"topics": "x" * 66}], short]
    for nonsense in lies:
        endpoint.say("eth_getLogs", nonsense)
        ended = people.run("escrow", "balance", "--wallet", wallet, *where)
        assert (ended.status, ended.json["held"]) == (0, None), ended
        assert "eth_getLogs" in ended.err, ended


def test_an_answer_without_an_end_ends(
    people: Shells, endpoint: LyingEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.drips = True
    endpoint.lies["*"] = lambda call, true: b" " * 1000
    with monkeypatch.context() as patch:
        patch.setattr(chain_reader, "ANSWER_SECONDS", 0.3)
        assert "does not end its answer" in by(endpoint, people, "withdraw", "1").refusal
    endpoint.drips = False
    monkeypatch.setattr(chain_reader, "ANSWER_BYTES_MAX", 999)
    assert "more than 999 bytes" in by(endpoint, people, "withdraw", "1").refusal
    endpoint.lies["*"] = lambda call, true: b"<html>"
    assert "HTTP 200, without JSON" in by(endpoint, people, "withdraw", "1").refusal
    endpoint.lies["*"] = lambda call, true: DROP
    assert "does not answer (RemoteProtocolError)" in by(endpoint, people, "withdraw", "1").refusal


@pytest.mark.parametrize("is_sent", [True, False])
def test_an_endpoint_that_dies_while_sending_leaves_the_hash_and_the_way_on(
    people: Shells, endpoint: LyingEndpoint, is_sent: bool
) -> None:
    people.town.deposit("Alice", 5 * TOKEN)

    def die(call: Any, true: Any) -> Any:
        if is_sent:
            true()
        endpoint.lies["*"] = lambda call, true: DROP
        return DROP

    endpoint.lies[SEND] = die
    ended = by(endpoint, people, "withdraw", "2")
    details = ended.json["error"]["details"]
    assert (ended.status, details["tx_hash"] in ended.refusal) == (6, True), ended
    assert "withdraw" in ended.refusal.lower() and "sends nothing twice" in ended.refusal
    assert [str(file) for file in kept()] == [details["kept_in"]]
    again = people.escrow("Alice", "withdraw", "2")
    assert (again.json["is_earlier"], again.json["tx_hash"]) == (True, details["tx_hash"])
    assert people.balance("Alice") == {"available": 3 * TOKEN, "in_wallet": 2 * TOKEN}


def test_an_endpoint_that_is_silent_for_a_moment_is_waited_for(people: Shells, endpoint: LyingEndpoint) -> None:
    people.town.deposit("Alice", 5 * TOKEN)
    left = [DROP, DROP]
    endpoint.lies[RECEIPT] = lambda call, true: left.pop() if left else true()
    assert (by(endpoint, people, "withdraw", "2").status, left) == (0, [])


def test_ctrl_c_while_it_is_waited_for_names_the_transaction(
    people: Shells, endpoint: LyingEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.town.deposit("Alice", 5 * TOKEN)

    def interrupt(*given: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ChainWallet, "wait", interrupt)
        ended = people.escrow("Alice", "withdraw", "2")
    error = ended.json["error"]
    assert (ended.status, error["code"]) == (130, "interrupted")
    assert error["details"]["tx_hash"] in error["message"] and "sends nothing twice" in error["message"]
    assert people.escrow("Alice", "withdraw", "2").json["tx_hash"] == error["details"]["tx_hash"]


def test_a_fee_that_an_endpoint_makes_up_is_not_paid(people: Shells, endpoint: LyingEndpoint) -> None:
    people.town.deposit("Alice", 5 * TOKEN)
    block = {"timestamp": "0x1", "baseFeePerGas": hex(WEI_MUCH)}
    for method, result in ((TIP, hex(WEI_MUCH)), (GAS, hex(10**12)), (BLOCK, block)):
        endpoint.lies.clear()
        endpoint.say(method, result)
        ended = by(endpoint, people, "withdraw", "2")
        assert (ended.status, "at most 0.05 are allowed" in ended.refusal) == (6, True), (method, ended)
    endpoint.lies.clear()
    assert "at most 0.0000001 are allowed" in by(endpoint, people, "withdraw", "2", "--max-fee", "0.0000001").refusal
    for no_fee in ("x", "-1", "0", "1e3"):
        assert by(endpoint, people, "withdraw", "2", f"--max-fee={no_fee}").status == 2
    assert SEND not in endpoint.asked and not kept()
    assert by(endpoint, people, "withdraw", "2", "--max-fee", "0.2").status == 0


def test_a_wallet_without_coins_is_asked_for_some_before_anything_is_signed(people: Shells) -> None:
    people.give_tokens("Alice", 5 * TOKEN)
    key = people.town.key("Alice")
    rich = Wallet(key.address, people.town.secret("Alice"))
    poor = "0x" + "12" * 32
    people.town.wallets["Poor"] = type(key)(_address(poor), poor)
    with ChainWallet(people.rpc_url, rich) as chain:
        transfer = encode_call("transfer(address,uint256)", [_address(poor), TOKEN])
        Sender(chain).send(people.town.token, transfer, what="give", notify=print)
    ended = people.escrow("Poor", "deposit", "1")
    assert (ended.status, "send it some. Nothing was sent" in ended.refusal) == (6, True), ended
    assert f"{_address(poor)} has 0 of the coins of chain 31337" in ended.refusal
    assert not kept()


def test_two_commands_of_one_wallet_never_keep_two_transactions(people: Shells) -> None:
    """Both have looked and found nothing kept; both have signed at the same nonce."""
    people.town.deposit("Alice", 5 * TOKEN)
    wallet = Wallet(people.town.key("Alice").address, people.town.secret("Alice"))
    gate = Barrier(2, timeout=30)

    class Slow(ChainWallet):
        def sign(self, contract: str, call: bytes) -> Any:
            signed = super().sign(contract, call)
            gate.wait()
            return signed

    def withdraw(units: int) -> str:
        with Slow(people.rpc_url, wallet) as chain:
            call = encode_call("withdraw(uint256)", [units])
            try:
                return Sender(chain).send(people.town.contract.address, call, what="w", notify=lambda _: None).tx_hash
            except ChainFailed as failed:
                return failed.message

    with ThreadPoolExecutor(2) as pool:
        ends = sorted(pool.map(withdraw, [TOKEN, 2 * TOKEN]))
    assert ends[0].startswith("0x") and "Another command is sending for this wallet" in ends[1], ends
    assert people.balance("Alice")["available"] in {4 * TOKEN, 3 * TOKEN}
    assert not kept()


def test_a_computer_behind_the_endpoint_that_lags_makes_nothing_twice(people: Shells, endpoint: LyingEndpoint) -> None:
    """The nonce is counted by one that knows the block, the transaction looked up at one that does not yet."""
    people.town.deposit("Alice", 5 * TOKEN)
    endpoint.lies[RECEIPT] = lambda call, true: DROP
    first = by(endpoint, people, "withdraw", "2").json["error"]["details"]["tx_hash"]
    behind = ["by hash", "its receipt"]

    def lag(call: Any, true: Any) -> Any:
        if not behind:
            return true()
        behind.pop()
        return {"jsonrpc": "2.0", "id": call["id"], "result": None}

    endpoint.lies = {BY_HASH: lag, RECEIPT: lag}
    again = by(endpoint, people, "withdraw", "2").json
    assert (again["is_earlier"], again["tx_hash"]) == (True, first)
    assert people.balance("Alice")["available"] == 3 * TOKEN


def test_a_receipt_of_another_transaction_is_none_of_this_one(people: Shells, endpoint: LyingEndpoint) -> None:
    other = people.town.deposit("Alice", 5 * TOKEN)
    endpoint.say(RECEIPT, {"transactionHash": other.tx_hash, "blockNumber": "0x1", "status": "0x1"})
    endpoint.refuse(SEND, "not today")
    assert "not today" in by(endpoint, people, "withdraw", "2").refusal
    endpoint.lies.pop(SEND)
    ended = by(endpoint, people, "withdraw", "2")
    assert "about another transaction" in ended.refusal and kept()


def test_a_token_whose_allowance_changes_by_way_of_nothing_only_is_paid_in(
    people: Shells, endpoint: LyingEndpoint
) -> None:
    """As USDT on Ethereum: an allowance that an interrupted deposit left must be 0 before it can be another."""
    people.give_tokens("Alice", 5 * TOKEN)
    approve = encode_call("approve(address,uint256)", [people.town.contract.address, 1])[:4].hex()
    view = encode_call("allowance(address,address)", [people.town.key("Alice").address, people.town.contract.address])

    def as_usdt(call: dict[str, Any], true: Any) -> Any:
        data = call["params"][0]["data"].removeprefix("0x")
        with ChainWallet(people.rpc_url, wallet) as chain:
            allowed = int.from_bytes(chain.read(people.town.token, view))
        if data.startswith(approve) and int(data[-64:], 16) and allowed:
            return {"jsonrpc": "2.0", "id": call["id"], "error": {"code": 3, "message": "execution reverted"}}
        return true()

    wallet = Wallet(people.town.key("Alice").address, people.town.secret("Alice"))
    with ChainWallet(people.rpc_url, wallet) as chain:
        left = encode_call("approve(address,uint256)", [people.town.contract.address, TOKEN])
        Sender(chain).send(people.town.token, left, what="allow", notify=lambda _: None)
    endpoint.lies[GAS] = as_usdt
    ended = by(endpoint, people, "deposit", "3")
    assert ended.status == 0, ended
    assert endpoint.asked.count(SEND) == 3
    assert people.balance("Alice") == {"available": 3 * TOKEN, "in_wallet": 2 * TOKEN}


def test_what_is_no_amount_is_refused_by_every_command_and_nothing_is_sent(people: Shells) -> None:
    people.town.deposit("Alice", 5 * TOKEN)
    before = people.town.client.nonce(people.town.key("Alice").address)
    where = ["--contract", people.town.contract.address, "--rpc-url", people.rpc_url, "--yes", "--json"]
    key = ["--wallet-key-file", people.key_file("Alice")]
    amounts = ["0", "-1", "1.0000001", "1e3", " ", "1,5", "\u0663", "0x10", str(2**256), "9" * 200]
    for command, amount in [*itertools.product(("deposit", "stake"), amounts), ("withdraw", "-1"), ("unstake", "0")]:
        ended = people.run("escrow", command, *where, *key, "--", amount)
        assert (ended.status, ended.json["error"]["code"]) == (2, "usage"), (command, amount, ended)
        assert "is no amount of TUSD" in ended.refusal
    assert people.town.client.nonce(people.town.key("Alice").address) == before


def test_more_than_there_is_is_reported_in_tokens(people: Shells) -> None:
    people.give_tokens("Alice", TOKEN)
    assert "has 1 TUSD, and 2.5 TUSD are needed. Nothing was sent" in people.escrow("Alice", "deposit", "2.5").refusal
    assert "less than that is available" in people.escrow("Alice", "withdraw", "2.5").refusal


def test_a_kept_transaction_that_is_damaged_stops_everything_and_says_where_it_lies(people: Shells) -> None:
    people.town.deposit("Alice", 5 * TOKEN)
    file = settings_path().parent / "transactions" / f"31337-{people.town.key('Alice').address.lower()}.json"
    file.parent.mkdir(parents=True)
    bad = ["", "{}", "[]", "null", json.dumps({"hash": 1}), "[" * 100_000, "\ufffd"]
    for text in bad:
        file.write_text(text)
        ended = people.escrow("Alice", "withdraw", "1")
        assert (ended.status, str(file) in ended.refusal) == (6, True), (text[:20], ended)
    file.unlink()
    assert people.escrow("Alice", "withdraw", "1").status == 0


def test_ids_that_are_none_are_refused_before_any_chain_is_asked(people: Shells) -> None:
    where = ["--contract", people.town.contract.address, "--rpc-url", NOWHERE, "--json"]
    for job in ("x", "123", str(uuid4())[:-1], "..", "0x" + "11" * 32):
        ended = people.run("escrow", "show", job, *where)
        assert (ended.status, ended.json["error"]["code"]) == (2, "usage"), ended


def _address(secret: str) -> str:
    from provider_agent.protocol import ethereum

    return ethereum.address_of(secret)

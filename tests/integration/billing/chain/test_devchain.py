"""The development chain: the same after a restart, on loopback only, and as nodes speak."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from eth_account import Account

from billing.chain.devchain.chain import CHAIN_ID, DEVELOPMENT_KEYS, DevChain, Refused
from billing.chain.devchain.rpc import BATCH_MAX, serve

RICH = Account.from_key(DEVELOPMENT_KEYS[0])
BOB = "0x" + "11" * 20


def transfer(nonce: int, **changes: Any) -> bytes:
    fields = {
        "type": 2,
        "chainId": CHAIN_ID,
        "nonce": nonce,
        "to": BOB,
        "value": 5,
        "gas": 21_000,
        "maxFeePerGas": 10**10,
        "maxPriorityFeePerGas": 10**9,
        "data": b"",
    }
    return bytes(RICH.sign_transaction(fields | changes).raw_transaction)


def hashes(chain: DevChain) -> list[bytes]:
    return [block.header["hash"] for block in chain.blocks]


def test_a_restart_keeps_every_hash_and_balance(tmp_path: Path) -> None:
    before = DevChain(tmp_path / "chain" / "journal.jsonl")
    for nonce in range(5):
        before.send(transfer(nonce))
    before.mine_empty()
    after = DevChain(tmp_path / "chain" / "journal.jsonl")
    assert hashes(after) == hashes(before)
    assert after.balance(bytes.fromhex(BOB[2:])) == 25
    after.send(transfer(5))
    assert hashes(DevChain(tmp_path / "chain" / "journal.jsonl")) == hashes(after)


# Reverts where no more than 100,000 gas are left, which it does not use: only a search finds what it takes.
WANTS_GAS_LEFT = "0x620186a05a11600e5760006000fd5b00"


@pytest.mark.parametrize(
    ("to", "data", "least", "most"),
    [(BOB, "0x", 21_000, 21_000), ("", "0x00", 53_000, 57_000), ("", WANTS_GAS_LEFT, 153_000, 200_000)],
    ids=["coins", "a contract", "a contract that wants gas left"],
)
def test_what_is_estimated_is_enough_and_little_more(to: str, data: str, least: int, most: int) -> None:
    chain = DevChain(None)
    sender, receiver = bytes.fromhex(RICH.address[2:]), bytes.fromhex(to[2:])
    estimated = chain.estimate({"from": sender, "to": receiver, "data": bytes.fromhex(data[2:])})
    assert least <= estimated <= most
    chain.send(transfer(0, to=to or b"", value=0, gas=estimated, data=data))
    assert chain.blocks[-1].receipts[0]["status"] == 1


def test_a_line_that_was_torn_by_a_crash_was_never_answered(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    before = DevChain(journal)
    before.send(transfer(0))
    with journal.open("ab") as file:
        file.write(b'{"time": 17')
    after = DevChain(journal)
    assert hashes(after) == hashes(before)
    after.send(transfer(1))
    assert DevChain(journal).head == 2


def test_a_later_nonce_waits_for_the_one_before_it() -> None:
    chain = DevChain()
    chain.send(transfer(1))
    assert chain.head == 0
    chain.send(transfer(0))
    assert chain.head == 2


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (transfer(0, chainId=1), "invalid chain id"),
        (transfer(0, value=10**30), "insufficient funds"),
        (b"\x02\xff", "not a transaction"),
    ],
)
def test_what_no_node_takes_is_refused_in_their_words(raw: bytes, words: str) -> None:
    chain = DevChain()
    with pytest.raises(Refused, match=words):
        chain.send(raw)
    assert chain.head == 0
    chain.send(transfer(0))
    for again, message in ((transfer(0), "already known"), (transfer(0, value=6), "nonce too low")):
        with pytest.raises(Refused, match=message):
            chain.send(again)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::"])
def test_it_listens_on_loopback_only(host: str) -> None:
    with pytest.raises(ValueError, match="loopback only"):
        serve(DevChain(), host=host)


@pytest.fixture
def url() -> Iterator[str]:
    server = serve(DevChain())
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def ask(url: str, body: Any) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(url, content=content).json()


def call(method: str, *params: Any, id: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": list(params)}


def test_a_batch_is_answered_in_its_order(url: str) -> None:
    answers = ask(url, [call("eth_chainId", id=7), call("nothing", id=8), call("eth_blockNumber", id=9)])
    assert [answer["id"] for answer in answers] == [7, 8, 9]
    assert [answers[0]["result"], answers[1]["error"]["code"], answers[2]["result"]] == ["0x7a69", -32601, "0x0"]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[" * 5000,
        [],
        [call("eth_chainId")] * (BATCH_MAX + 1),
        {"method": 5},
        call("eth_getBalance", "0x12"),
        call("eth_getLogs", {"blockHash": "0x" + "00" * 32}),
        call("eth_call", {"to": "x"}, "latest"),
        call("eth_getBalance", BOB, "0x99"),
    ],
)
def test_bad_calls_are_answered_with_an_error_and_the_chain_goes_on(url: str, body: Any) -> None:
    answer = ask(url, body)
    assert "error" in (answer[0] if isinstance(answer, list) else answer)
    assert ask(url, call("eth_chainId"))["result"] == "0x7a69"

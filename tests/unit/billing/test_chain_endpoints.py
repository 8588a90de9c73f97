"""Endpoints that answer badly: each costs no more than its time, and none of them is believed alone."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from billing.chain.config import ChainConfig
from billing.chain.errors import CallReverted, EndpointsDisagree, EndpointsUnreachable
from billing.chain.reading import transport
from billing.chain.reading.client import ChainClient

TIMEOUT = 1.0
Answer = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


def say(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in ({"Content-Length": str(len(body))} | headers).items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def result(handler: BaseHTTPRequestHandler, request: dict[str, Any], value: Any) -> None:
    say(handler, json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": value}).encode())


def honest(**answers: Any) -> Answer:
    """Chain 5 at block 7, and what else is answered."""
    known = {"eth_chainId": "0x5", "eth_blockNumber": "0x7"} | answers

    def answer(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        answer = known[request["method"]]
        if isinstance(answer, dict) and "code" in answer:
            say(handler, json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": answer}).encode())
        else:
            result(handler, request, answer)

    return answer


@contextmanager
def endpoint(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """(its address, the methods that were called)."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(request["method"])
            try:
                answer(self, request)
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *arguments: Any) -> None:
            """Silent."""

    socketserver.TCPServer.request_queue_size = 32
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def client_of(*urls: str) -> ChainClient:
    return ChainClient(ChainConfig(chain_id=5, name="five", rpc_urls=urls, timeout_seconds=TIMEOUT, max_fee_gwei="50"))


def drips(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
    """A byte at a time, each sooner than any timeout."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(TIMEOUT / 5)


def floods(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
    say(handler, json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": "0x5", "padding": "x" * 2**20}).encode())


def stops(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
    say(handler, b'{"jsonrpc": "2.0", "id": 0, "resu', Content_Length="100")
    handler.close_connection = True


def shows_a_page(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
    say(handler, b"<html>Just a moment...</html>", Content_Type="text/html")


def has_enough(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
    say(handler, b'{"jsonrpc": "2.0", "id": 0, "result": "0x5"}', 429, Retry_After="60")


def is_silent(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
    time.sleep(TIMEOUT * 3)


def is_negative(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
    result(handler, request, "0x5" if request["method"] == "eth_chainId" else "-0x1")


def is_beyond_numbers(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
    result(handler, request, "0x5" if request["method"] == "eth_chainId" else hex(2**70))


@pytest.mark.parametrize(
    "bad", [drips, floods, stops, shows_a_page, has_enough, is_silent, is_negative, is_beyond_numbers]
)
def test_an_endpoint_that_answers_badly_is_none_and_costs_its_time_only(
    monkeypatch: pytest.MonkeyPatch, bad: Answer
) -> None:
    monkeypatch.setattr(transport, "ANSWER_BYTES_MAX", 2**16)
    with endpoint(honest()) as (one, _), endpoint(honest()) as (two, _), endpoint(bad) as (three, _):
        started = time.monotonic()
        assert client_of(one, three, two).head() == 7
        assert time.monotonic() - started < TIMEOUT * 4
        with pytest.raises(EndpointsUnreachable, match="1 answered and 2 are needed"):
            client_of(one, three).head()


def test_a_redirect_leads_nowhere() -> None:
    """Only the configured endpoint is called, and not one that it names."""
    with endpoint(honest()) as (one, _), endpoint(honest()) as (other, asked):

        def redirects(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
            say(handler, b"", 307, Location=other)

        with endpoint(redirects) as (two, _), pytest.raises(EndpointsUnreachable, match="HTTP 307"):
            client_of(one, two).head()
        assert not asked


def test_a_silent_endpoint_is_waited_for_once_while_the_others_are_enough() -> None:
    with endpoint(honest()) as (one, _), endpoint(honest()) as (two, _), endpoint(is_silent) as (three, asked):
        client = client_of(three, one, two)
        started = time.monotonic()
        assert [client.head() for _ in range(10)] == [7] * 10
        assert len(asked) == 1
        assert time.monotonic() - started < TIMEOUT * 4


def test_what_is_secret_in_an_address_is_in_no_message() -> None:
    with endpoint(shows_a_page) as (one, _), endpoint(has_enough) as (two, _):
        client = client_of(f"{one}/v2/s3cret", f"{two}/?key=s3cret", "http://user:s3cret@127.0.0.1:9/v2/s3cret")
        with pytest.raises(EndpointsUnreachable) as caught:
            client.head()
    assert "s3cret" not in str(caught.value)
    assert str(caught.value).count("127.0.0.1") >= 3


REVERTS = {"code": 3, "message": "execution reverted", "data": "0x"}


def test_one_endpoint_alone_neither_refuses_a_transaction_nor_starves_it_of_gas() -> None:
    message = {"from": "0x" + "11" * 20, "to": "0x" + "22" * 20, "data": "0x"}
    fine = honest(eth_estimateGas="0xea60")
    for lie, expected in ((REVERTS, EndpointsDisagree), ("0x1", 60_000), (hex(2**62), EndpointsUnreachable)):
        with endpoint(honest(eth_estimateGas=lie)) as (one, _), endpoint(fine) as (two, _):
            client = client_of(one, two)
            if isinstance(expected, int):
                assert client.estimate(message, purpose="openHold") == expected
            else:
                with pytest.raises(expected):
                    client.estimate(message, purpose="openHold")
    refuses = honest(eth_estimateGas=REVERTS)
    with endpoint(refuses) as (one, _), endpoint(refuses) as (two, _), pytest.raises(CallReverted):
        client_of(one, two).estimate(message, purpose="openHold")


@pytest.mark.parametrize(("base_fee", "tip"), [(0, 0), (10**12, 10**12), (-1, -1)])
def test_what_gas_costs_is_not_for_one_endpoint_to_say(base_fee: int, tip: int) -> None:
    def fees(base_fee: int, tip: int) -> Answer:
        return honest(eth_getBlockByNumber={"baseFeePerGas": hex(base_fee)}, eth_maxPriorityFeePerGas=hex(tip))

    with endpoint(fees(base_fee, tip)) as (one, _), endpoint(fees(2 * 10**9, 10**8)) as (two, _):
        assert client_of(one, two).fee_now() == (2 * 10**9, 10**8)


@pytest.mark.parametrize("l1_fee", ["0x5", None])
def test_a_rollup_takes_its_parents_fee_too(l1_fee: str | None) -> None:
    """l1Fee stands beside what the gas costs, and the operator's books have both."""
    tx_hash = "0x" + "ab" * 32
    rollup_receipt = {
        "transactionHash": tx_hash,
        "blockNumber": "0x7",
        "blockHash": "0x" + "cd" * 32,
        "status": "0x1",
        "gasUsed": "0x10",
        "effectiveGasPrice": "0x2",
        "l1Fee": l1_fee,
    }
    answer = honest(eth_getTransactionReceipt=rollup_receipt)
    with endpoint(answer) as (one, _), endpoint(answer) as (two, _):
        receipt = client_of(one, two).receipt(tx_hash)
        assert receipt is not None
        assert receipt.cost == 32 + (5 if l1_fee else 0)


def test_a_receipt_of_another_transaction_is_none() -> None:
    other = {"transactionHash": "0x" + "ee" * 32, "blockNumber": "0x7", "blockHash": "0x" + "cd" * 32, "status": "0x1"}
    answer = honest(eth_getTransactionReceipt=other | {"gasUsed": "0x10", "effectiveGasPrice": "0x2"})
    with endpoint(answer) as (one, _), endpoint(answer) as (two, _), pytest.raises(EndpointsUnreachable):
        client_of(one, two).receipt("0x" + "ab" * 32)

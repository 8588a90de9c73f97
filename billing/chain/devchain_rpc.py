"""The development chain behind Ethereum's JSON-RPC over HTTP, on loopback only.

    python -m billing.chain.devchain_rpc --port 8545 --journal DATA/chain/journal.jsonl

It speaks what clients of contracts need (https://ethereum.org/developers/docs/apis/json-rpc), batches too. Everybody
who reaches it may move its clock: that is what a development chain is for, and why it listens nowhere else.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import json
import logging
import socket
import socketserver
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from billing.chain.devchain import CHAIN_ID, Block, DevChain, Refused

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
BATCH_MAX: Final = 100
LOGS_MAX: Final = 10_000
BLOCKS_PER_QUERY_MAX: Final = 10_000
PRIORITY_FEE: Final = 10**9
CLIENT_VERSION: Final = "souk-devchain/1"

Method = Callable[[DevChain, list[Any]], Any]

log = logging.getLogger(__name__)
_methods: dict[str, Method] = {}


def answer(chain: DevChain, request: Any) -> Any:
    """The response to one call or to a batch."""
    if isinstance(request, list):
        if not 1 <= len(request) <= BATCH_MAX:
            return _error(None, -32600, f"a batch has 1 to {BATCH_MAX} calls")
        return [answer(chain, one) if isinstance(one, dict) else _error(None, -32600, "not a call") for one in request]
    if not isinstance(request, dict) or not isinstance(request.get("method"), str):
        return _error(None, -32600, "not a call")
    return _answer_one(chain, request)


def _answer_one(chain: DevChain, request: dict[str, Any]) -> Any:
    method = _methods.get(request["method"])
    if method is None:
        return _error(request.get("id"), -32601, f"the method {request['method']} does not exist here")
    try:
        result = method(chain, list(request.get("params") or []))
    except Refused as refused:
        return _error(request.get("id"), refused.code, str(refused), refused.data)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        return _error(request.get("id"), -32602, f"invalid params: {error!r}")
    except Exception as error:  # one bad call must not end the connection of the others
        log.exception("A call failed.")
        return _error(request.get("id"), -32603, f"internal error: {error!r}")
    return {"jsonrpc": "2.0", "id": request.get("id"), "result": _wire(result)}


def serve(
    chain: DevChain, *, host: str = "127.0.0.1", port: int = 0, door: socket.socket | None = None
) -> ThreadingHTTPServer:
    """A server that is bound (or was given a listening socket) and not yet started.

    Raises ValueError for anything but a loopback address.
    """
    if door is not None:
        host, port = door.getsockname()[:2]
    if not ipaddress.ip_address(host).is_loopback:
        raise ValueError(f"the development chain listens on loopback only, not on {host}")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if not 0 < length <= BODY_BYTES_MAX:
                self.close_connection = True
                return self._send(413, _error(None, -32600, f"a body has 1 to {BODY_BYTES_MAX} bytes"))
            try:
                request = json.loads(self.rfile.read(length))
            except (ValueError, RecursionError):
                return self._send(200, _error(None, -32700, "not JSON"))
            return self._send(200, answer(chain, request))

        def _send(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Silent: a line a call would hide everything else."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        allow_reuse_address = True

        def server_bind(self) -> None:
            if door is not None:
                self.socket.close()
                self.socket = door
                self.server_address = (host, port)
                self.server_name, self.server_port = host, port
                return
            socketserver.TCPServer.server_bind(self)  # HTTPServer's own asks the DNS for a name
            self.server_name, self.server_port = host, self.socket.getsockname()[1]

    return Server((host, port), Handler)


def _method(name: str) -> Callable[[Method], Method]:
    def register(method: Method) -> Method:
        _methods[name] = method
        return method

    return register


@_method("eth_chainId")
def _chain_id(chain: DevChain, params: list[Any]) -> Any:
    return CHAIN_ID


@_method("net_version")
def _net_version(chain: DevChain, params: list[Any]) -> Any:
    return _Text(str(CHAIN_ID))


@_method("web3_clientVersion")
def _client_version(chain: DevChain, params: list[Any]) -> Any:
    return _Text(CLIENT_VERSION)


@_method("eth_syncing")
def _syncing(chain: DevChain, params: list[Any]) -> Any:
    return False


@_method("eth_accounts")
def _accounts(chain: DevChain, params: list[Any]) -> Any:
    return []  # it holds nobody's keys


@_method("eth_blockNumber")
def _block_number(chain: DevChain, params: list[Any]) -> Any:
    return chain.head


@_method("eth_gasPrice")
def _gas_price(chain: DevChain, params: list[Any]) -> Any:
    return chain.base_fee + PRIORITY_FEE


@_method("eth_maxPriorityFeePerGas")
def _priority_fee(chain: DevChain, params: list[Any]) -> Any:
    return PRIORITY_FEE


@_method("eth_feeHistory")
def _fee_history(chain: DevChain, params: list[Any]) -> Any:
    count = min(_number(params[0]), 1024)
    newest = _block(chain, params[1]).header["number"]
    oldest = max(0, newest - count + 1)
    headers = [chain.blocks[number].header for number in range(oldest, newest + 1)]
    following = chain.base_fee if newest == chain.head else chain.blocks[newest + 1].header["base_fee_per_gas"]
    return {
        "oldest_block": oldest,
        "base_fee_per_gas": [*(header["base_fee_per_gas"] for header in headers), following],
        "gas_used_ratio": [header["gas_used"] / header["gas_limit"] for header in headers],
        "reward": [[PRIORITY_FEE] * len(params[2]) for _ in headers] if len(params) > 2 and params[2] else [],
    }


@_method("eth_getBlockByNumber")
def _block_by_number(chain: DevChain, params: list[Any]) -> Any:
    number = _height(chain, params[0])
    return _show(chain.blocks[number], params[1:]) if 0 <= number <= chain.head else None


@_method("eth_getBlockByHash")
def _block_by_hash(chain: DevChain, params: list[Any]) -> Any:
    block = chain.block_by_hash(_bytes(params[0]))
    return _show(block, params[1:]) if block else None


@_method("eth_getTransactionByHash")
def _transaction(chain: DevChain, params: list[Any]) -> Any:
    found = chain.place(_bytes(params[0]))
    return _rename(found[0].transactions[found[1]]) if found else None


@_method("eth_getTransactionReceipt")
def _receipt(chain: DevChain, params: list[Any]) -> Any:
    found = chain.place(_bytes(params[0]))
    if found is None:
        return None
    block, index = found
    receipt = dict(block.receipts[index])
    receipt.pop("state_root")
    receipt["to"] = receipt["to"] or None
    return receipt | {"logs": _logs_of(block, index), "logs_bloom": b"\0" * 256}


@_method("eth_getTransactionCount")
def _transaction_count(chain: DevChain, params: list[Any]) -> Any:
    return chain.nonce(_address(params[0]), _maybe_height(chain, params[1:]))


@_method("eth_getBalance")
def _balance(chain: DevChain, params: list[Any]) -> Any:
    return chain.balance(_address(params[0]), _maybe_height(chain, params[1:]))


@_method("eth_getCode")
def _code(chain: DevChain, params: list[Any]) -> Any:
    return chain.code(_address(params[0]), _maybe_height(chain, params[1:]))


@_method("eth_getStorageAt")
def _storage(chain: DevChain, params: list[Any]) -> Any:
    return chain.storage(_address(params[0]), _number(params[1]), _maybe_height(chain, params[2:])).to_bytes(32, "big")


@_method("eth_call")
def _call(chain: DevChain, params: list[Any]) -> Any:
    return chain.call(_message(params[0]), _maybe_height(chain, params[1:]))


@_method("eth_estimateGas")
def _estimate(chain: DevChain, params: list[Any]) -> Any:
    return chain.estimate(_message(params[0]))


@_method("eth_sendRawTransaction")
def _send_raw(chain: DevChain, params: list[Any]) -> Any:
    return chain.send(_bytes(params[0]))


@_method("eth_getLogs")
def _logs(chain: DevChain, params: list[Any]) -> Any:
    wanted = params[0]
    if "blockHash" in wanted:
        block = chain.block_by_hash(_bytes(wanted["blockHash"]))
        if block is None:
            raise Refused("unknown block")
        blocks = [block]
    else:
        first = _height(chain, wanted.get("fromBlock", "latest"))
        last = min(_height(chain, wanted.get("toBlock", "latest")), chain.head)
        if last - first >= BLOCKS_PER_QUERY_MAX:
            raise Refused(f"query exceeds the range of {BLOCKS_PER_QUERY_MAX} blocks", code=-32005)
        blocks = chain.blocks[first : last + 1]
    addresses = wanted.get("address") or []
    allowed = {_address(one) for one in ([addresses] if isinstance(addresses, str) else addresses)}
    topics = [[one] if isinstance(one, str) else one for one in wanted.get("topics") or []]
    found = [
        entry
        for block in blocks
        for index in range(len(block.receipts))
        for entry in _logs_of(block, index)
        if (not allowed or entry["address"] in allowed) and _has_topics(entry["topics"], topics)
    ]
    if len(found) > LOGS_MAX:
        raise Refused(f"query returned more than {LOGS_MAX} results", code=-32005)
    return found


@_method("evm_mine")
def _mine(chain: DevChain, params: list[Any]) -> Any:
    chain.mine_empty()
    return 0


@_method("evm_increaseTime")
def _increase_time(chain: DevChain, params: list[Any]) -> Any:
    chain.ahead_seconds += _number(params[0])
    return chain.ahead_seconds


def _logs_of(block: Block, index: int) -> list[dict[str, Any]]:
    """A transaction's logs; their index counts through the whole block."""
    before = sum(len(receipt["logs"]) for receipt in block.receipts[:index])
    return [
        {name: value for name, value in entry.items() if name != "type"}
        | {"log_index": before + n, "removed": False, "data": _Data(entry["data"])}
        for n, entry in enumerate(block.receipts[index]["logs"])
    ]


def _has_topics(topics: list[bytes], wanted: list[list[str] | None]) -> bool:
    if len(wanted) > len(topics):
        return False
    return all(not options or topic in map(_bytes, options) for topic, options in zip(topics, wanted, strict=False))


def _show(block: Block, rest: list[Any]) -> dict[str, Any]:
    header = {name: value for name, value in block.header.items() if name != "coinbase"}
    header |= {"miner": block.header["coinbase"], "logs_bloom": int(header["logs_bloom"]).to_bytes(256, "big")}
    if rest and rest[0]:
        header["transactions"] = [_rename(one) for one in block.transactions]
    return header


def _rename(transaction: dict[str, Any]) -> dict[str, Any]:
    renamed = {("input" if name == "data" else name): value for name, value in transaction.items()}
    return renamed | {"to": renamed["to"] or None, "input": _Data(renamed["input"])}


def _block(chain: DevChain, tag: Any) -> Block:
    number = _height(chain, tag)
    if not 0 <= number <= chain.head:
        raise Refused("unknown block")
    return chain.blocks[number]


def _height(chain: DevChain, tag: Any) -> int:
    """What is mined here is final: nobody else mines."""
    if tag in {"latest", "safe", "finalized", "pending"}:
        return chain.head
    return 0 if tag == "earliest" else _number(tag)


def _maybe_height(chain: DevChain, rest: list[Any]) -> int | None:
    """None for the head, where calls see the present time."""
    if not rest or rest[0] in {"latest", "pending", "safe", "finalized", None}:
        return None
    number = _height(chain, rest[0])
    if not 0 <= number <= chain.head:
        raise Refused("unknown block")
    return number


def _message(call: dict[str, Any]) -> dict[str, Any]:
    return {
        "from": _address(call["from"]) if call.get("from") else b"\0" * 20,
        "to": _address(call["to"]) if call.get("to") else b"",
        "value": _number(call.get("value", 0)),
        "gas": _number(call["gas"]) if call.get("gas") else 0,
        "data": _bytes(call.get("data") or call.get("input") or "0x"),
    }


def _number(value: Any) -> int:
    return int(value, 16) if isinstance(value, str) else int(value)


def _bytes(value: str) -> bytes:
    return bytes.fromhex(value.removeprefix("0x"))


def _address(value: str) -> bytes:
    data = _bytes(value)
    if len(data) != 20:
        raise ValueError(f"{value!r} is no address")
    return data


class _Text(str):
    """Goes out as it is."""

    __slots__ = ()


class _Data(bytes):
    """Bytes that may be empty."""

    __slots__ = ()


def _wire(value: Any) -> Any:
    """As JSON-RPC writes it: numbers and bytes in hex, names in camel case."""
    if value is None or isinstance(value, bool | _Text | float):
        return value
    if isinstance(value, int):
        return hex(value)
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, dict):
        return {_camel(name): _wire(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_wire(one) for one in value]
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _error(id: Any, code: int, message: str, data: str | None = None) -> dict[str, Any]:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": id, "error": error}


def main() -> int:
    """Serve until it is told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8545)
    parser.add_argument("--fd", type=int, help="A socket that listens already, by its number.")
    parser.add_argument("--journal", type=Path)
    options = parser.parse_args()
    try:
        door = socket.socket(fileno=options.fd) if options.fd is not None else None
        server = serve(DevChain(options.journal), host=options.host, port=options.port, door=door)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"the development chain cannot start: {error}\n")
        return 1
    sys.stdout.write(f"the development chain {CHAIN_ID} answers on http://{options.host}:{server.server_port}\n")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever(poll_interval=5)
    return 0


if __name__ == "__main__":
    sys.exit(main())

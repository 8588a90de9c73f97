"""The development chain's methods, by the names of Ethereum's JSON-RPC; the answers are plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from billing.chain.devchain.chain import CHAIN_ID, Block, DevChain, Refused
from billing.chain.devchain.wire import (
    Text,
    address_of,
    bytes_of,
    logs_of,
    message_of,
    number_of,
    show_block,
    show_transaction,
)

LOGS_MAX: Final = 10_000
BLOCKS_PER_QUERY_MAX: Final = 10_000
PRIORITY_FEE: Final = 10**9
CLIENT_VERSION: Final = "souk-devchain/1"

Method = Callable[[DevChain, list[Any]], Any]

METHODS: dict[str, Method] = {}


def _method(name: str) -> Callable[[Method], Method]:
    def register(method: Method) -> Method:
        METHODS[name] = method
        return method

    return register


@_method("eth_chainId")
def _chain_id(chain: DevChain, params: list[Any]) -> Any:
    return CHAIN_ID


@_method("net_version")
def _net_version(chain: DevChain, params: list[Any]) -> Any:
    return Text(str(CHAIN_ID))


@_method("web3_clientVersion")
def _client_version(chain: DevChain, params: list[Any]) -> Any:
    return Text(CLIENT_VERSION)


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
    count = min(number_of(params[0]), 1024)
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
    return show_block(chain.blocks[number], params[1:]) if 0 <= number <= chain.head else None


@_method("eth_getBlockByHash")
def _block_by_hash(chain: DevChain, params: list[Any]) -> Any:
    block = chain.block_by_hash(bytes_of(params[0]))
    return show_block(block, params[1:]) if block else None


@_method("eth_getTransactionByHash")
def _transaction(chain: DevChain, params: list[Any]) -> Any:
    found = chain.place(bytes_of(params[0]))
    return show_transaction(found[0].transactions[found[1]]) if found else None


@_method("eth_getTransactionReceipt")
def _receipt(chain: DevChain, params: list[Any]) -> Any:
    found = chain.place(bytes_of(params[0]))
    if found is None:
        return None
    block, index = found
    receipt = dict(block.receipts[index])
    receipt.pop("state_root")
    receipt["to"] = receipt["to"] or None
    return receipt | {"logs": logs_of(block, index), "logs_bloom": b"\0" * 256}


@_method("eth_getTransactionCount")
def _transaction_count(chain: DevChain, params: list[Any]) -> Any:
    return chain.nonce(address_of(params[0]), _maybe_height(chain, params[1:]))


@_method("eth_getBalance")
def _balance(chain: DevChain, params: list[Any]) -> Any:
    return chain.balance(address_of(params[0]), _maybe_height(chain, params[1:]))


@_method("eth_getCode")
def _code(chain: DevChain, params: list[Any]) -> Any:
    return chain.code(address_of(params[0]), _maybe_height(chain, params[1:]))


@_method("eth_getStorageAt")
def _storage(chain: DevChain, params: list[Any]) -> Any:
    return chain.storage(address_of(params[0]), number_of(params[1]), _maybe_height(chain, params[2:])).to_bytes(
        32, "big"
    )


@_method("eth_call")
def _call(chain: DevChain, params: list[Any]) -> Any:
    return chain.call(message_of(params[0]), _maybe_height(chain, params[1:]))


@_method("eth_estimateGas")
def _estimate(chain: DevChain, params: list[Any]) -> Any:
    return chain.estimate(message_of(params[0]))


@_method("eth_sendRawTransaction")
def _send_raw(chain: DevChain, params: list[Any]) -> Any:
    return chain.send(bytes_of(params[0]))


@_method("eth_getLogs")
def _logs(chain: DevChain, params: list[Any]) -> Any:
    wanted = params[0]
    if "blockHash" in wanted:
        block = chain.block_by_hash(bytes_of(wanted["blockHash"]))
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
    allowed = {address_of(one) for one in ([addresses] if isinstance(addresses, str) else addresses)}
    topics = [[one] if isinstance(one, str) else one for one in wanted.get("topics") or []]
    found = [
        entry
        for block in blocks
        for index in range(len(block.receipts))
        for entry in logs_of(block, index)
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
    chain.ahead_seconds += number_of(params[0])
    return chain.ahead_seconds


def _has_topics(topics: list[bytes], wanted: list[list[str] | None]) -> bool:
    if len(wanted) > len(topics):
        return False
    return all(not options or topic in map(bytes_of, options) for topic, options in zip(topics, wanted, strict=False))


def _block(chain: DevChain, tag: Any) -> Block:
    number = _height(chain, tag)
    if not 0 <= number <= chain.head:
        raise Refused("unknown block")
    return chain.blocks[number]


def _height(chain: DevChain, tag: Any) -> int:
    """What is mined here is final: nobody else mines."""
    if tag in {"latest", "safe", "finalized", "pending"}:
        return chain.head
    return 0 if tag == "earliest" else number_of(tag)


def _maybe_height(chain: DevChain, rest: list[Any]) -> int | None:
    """None for the head, where calls see the present time."""
    if not rest or rest[0] in {"latest", "pending", "safe", "finalized", None}:
        return None
    number = _height(chain, rest[0])
    if not 0 <= number <= chain.head:
        raise Refused("unknown block")
    return number

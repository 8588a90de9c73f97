"""How the development chain's blocks, numbers and refusals look in JSON-RPC, and how requests are read."""

from __future__ import annotations

from typing import Any

from billing.chain.devchain.chain import Block


def logs_of(block: Block, index: int) -> list[dict[str, Any]]:
    """A transaction's logs; their index counts through the whole block."""
    before = sum(len(receipt["logs"]) for receipt in block.receipts[:index])
    return [
        {name: value for name, value in entry.items() if name != "type"}
        | {"log_index": before + n, "removed": False, "data": Data(entry["data"])}
        for n, entry in enumerate(block.receipts[index]["logs"])
    ]


def show_block(block: Block, rest: list[Any]) -> dict[str, Any]:
    header = {name: value for name, value in block.header.items() if name != "coinbase"}
    header |= {"miner": block.header["coinbase"], "logs_bloom": int(header["logs_bloom"]).to_bytes(256, "big")}
    if rest and rest[0]:
        header["transactions"] = [show_transaction(one) for one in block.transactions]
    return header


def show_transaction(transaction: dict[str, Any]) -> dict[str, Any]:
    renamed = {("input" if name == "data" else name): value for name, value in transaction.items()}
    return renamed | {"to": renamed["to"] or None, "input": Data(renamed["input"])}


def message_of(call: dict[str, Any]) -> dict[str, Any]:
    return {
        "from": address_of(call["from"]) if call.get("from") else b"\0" * 20,
        "to": address_of(call["to"]) if call.get("to") else b"",
        "value": number_of(call.get("value", 0)),
        "gas": number_of(call["gas"]) if call.get("gas") else 0,
        "data": bytes_of(call.get("data") or call.get("input") or "0x"),
    }


def number_of(value: Any) -> int:
    return int(value, 16) if isinstance(value, str) else int(value)


def bytes_of(value: str) -> bytes:
    return bytes.fromhex(value.removeprefix("0x"))


def address_of(value: str) -> bytes:
    data = bytes_of(value)
    if len(data) != 20:
        raise ValueError(f"{value!r} is no address")
    return data


class Text(str):
    """Goes out as it is."""

    __slots__ = ()


class Data(bytes):
    """Bytes that may be empty."""

    __slots__ = ()


def as_wire(value: Any) -> Any:
    """As JSON-RPC writes it: numbers and bytes in hex, names in camel case."""
    if value is None or isinstance(value, bool | Text | float):
        return value
    if isinstance(value, int):
        return hex(value)
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, dict):
        return {_camel(name): as_wire(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_wire(one) for one in value]
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def error_of(id: Any, code: int, message: str, data: str | None = None) -> dict[str, Any]:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": id, "error": error}

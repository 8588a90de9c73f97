"""An endpoint's answers as values that can be compared; others are refused with ValueError."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

NUMBER_MAX: Final = 2**63 - 1  # of a block; the database's own
TIME_MAX: Final = 2**37  # seconds: beyond it no calendar has a date


@dataclass(frozen=True)
class Header:
    """What of a block matters here."""

    number: int
    hash: str
    parent_hash: str
    timestamp: int


@dataclass(frozen=True, order=True)
class Log:
    """One log of a contract."""

    block_number: int
    log_index: int
    block_hash: str
    tx_hash: str
    tx_index: int
    address: str
    topics: tuple[bytes, ...]
    data: bytes

    def as_web3(self) -> dict[str, Any]:
        """In the shape in which web3 decodes it."""
        from hexbytes import HexBytes

        return {
            "address": self.address,
            "topics": [HexBytes(topic) for topic in self.topics],
            "data": HexBytes(self.data),
            "blockNumber": self.block_number,
            "blockHash": HexBytes(self.block_hash),
            "transactionHash": HexBytes(self.tx_hash),
            "transactionIndex": self.tx_index,
            "logIndex": self.log_index,
        }


@dataclass(frozen=True)
class Receipt:
    """What became of a mined transaction."""

    tx_hash: str
    block_number: int
    block_hash: str
    is_success: bool
    gas_used: int
    gas_price: int
    contract: str = ""
    l1_fee: int = 0  # what a rollup takes on top, for its place on the parent chain

    @property
    def cost(self) -> int:
        return self.gas_used * self.gas_price + self.l1_fee


def read_header(block: Any, number: int) -> Header:
    """The header of the requested block."""
    found = Header(int(block["number"]), as_hex(block["hash"]), as_hex(block["parentHash"]), int(block["timestamp"]))
    if found.number != number:
        raise ValueError(f"block {found.number} is not block {number}")
    if not 0 <= found.timestamp < TIME_MAX:
        raise ValueError(f"block {number} was made at {found.timestamp}")
    return found


def read_number(value: Any) -> int:
    """A block's number."""
    if not 0 <= int(value) <= NUMBER_MAX:
        raise ValueError(f"{value} is no block's number")
    return int(value)


def read_log(entry: Any) -> Log:
    """One entry of eth_getLogs."""
    if entry.get("removed"):
        raise ValueError("a removed log")
    return Log(
        block_number=read_number(entry["blockNumber"]),
        log_index=int(entry["logIndex"]),
        block_hash=as_hex(entry["blockHash"]),
        tx_hash=as_hex(entry["transactionHash"]),
        tx_index=int(entry["transactionIndex"]),
        address=str(entry["address"]),
        topics=tuple(bytes(topic) for topic in entry["topics"]),
        data=bytes(entry["data"]),
    )


def read_receipt(w3: Any, tx_hash: str) -> Receipt | None:
    """The receipt of this transaction; None while it is not mined."""
    from web3.exceptions import TransactionNotFound

    try:
        found = w3.eth.get_transaction_receipt(tx_hash)
    except TransactionNotFound:
        return None
    if as_hex(found["transactionHash"]) != tx_hash:
        raise ValueError(f"a receipt of another transaction than {tx_hash}")
    return Receipt(
        tx_hash=tx_hash,
        block_number=read_number(found["blockNumber"]),
        block_hash=as_hex(found["blockHash"]),
        is_success=int(found["status"]) == 1,
        gas_used=int(found["gasUsed"]),
        gas_price=int(found["effectiveGasPrice"]),
        contract=str(found.get("contractAddress") or ""),
        l1_fee=_read_quantity(found.get("l1Fee") or 0),
    )


def _read_quantity(value: Any) -> int:
    """A number that web3 does not know the field of."""
    number = int(value, 16) if isinstance(value, str) else int(value)
    if number < 0:
        raise ValueError(f"{value} is no quantity")
    return number


def as_hex(value: Any) -> str:
    """0x-hex of bytes."""
    return "0x" + bytes(value).hex()


def as_plain(value: Any) -> Any:
    """What a view returned, in types that compare by value."""
    if isinstance(value, list | tuple):
        return tuple(map(as_plain, value))
    return bytes(value) if isinstance(value, bytes) else value

"""The contracts as they were compiled: their interface, their bytes, and what their logs mean."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from billing.chain.reading.answers import Log

BUILD_FOLDER: Final = Path(__file__).parents[1] / "build"
ESCROW: Final = "GpuEscrow"
DEV_TOKEN: Final = "DevToken"  # noqa: S105  a coin, not a secret

ERC20_ABI: Final[list[dict[str, Any]]] = [
    {
        "type": "function",
        "name": name,
        "stateMutability": "view",
        "inputs": [{"name": "account", "type": "address"}] if takes else [],
        "outputs": [{"name": "", "type": kind}],
    }
    for name, kind, takes in (
        ("decimals", "uint8", False),
        ("symbol", "string", False),
        ("balanceOf", "uint256", True),
    )
]


@dataclass(frozen=True)
class Build:
    """One compiled contract."""

    name: str
    abi: list[dict[str, Any]]
    bytecode: str
    deployed_bytecode: str
    immutables: Mapping[str, list[dict[str, int]]]
    source_sha256: str

    def is_deployed_as(self, code: bytes) -> bool:
        """Whether this code is the build's, whatever values its constructor filled in (each the same wherever used)."""
        built = bytes.fromhex(self.deployed_bytecode.removeprefix("0x"))
        if len(built) != len(code):
            return False
        masked, seen = bytearray(code), bytearray(built)
        for places in self.immutables.values():
            values = {bytes(code[one["start"] : one["start"] + one["length"]]) for one in places}
            if len(values) != 1:
                return False
            for one in places:
                blank = bytes(one["length"])
                masked[one["start"] : one["start"] + one["length"]] = blank
                seen[one["start"] : one["start"] + one["length"]] = blank
        return masked == seen


@functools.cache
def load(name: str) -> Build:
    """A build by its name."""
    found = json.loads((BUILD_FOLDER / f"{name}.json").read_text())
    return Build(
        name=name,
        abi=found["abi"],
        bytecode=found["bytecode"],
        deployed_bytecode=found["deployed_bytecode"],
        immutables=found["immutable_references"],
        source_sha256=found["source_sha256"],
    )


@functools.cache
def interface(name: str) -> Any:
    """web3's contract of a build, without an endpoint: it encodes calls and decodes logs."""
    from web3 import Web3

    return Web3().eth.contract(abi=load(name).abi)


@functools.cache
def _events(name: str) -> dict[bytes, str]:
    from eth_utils.abi import event_abi_to_log_topic

    return {event_abi_to_log_topic(one): one["name"] for one in load(name).abi if one["type"] == "event"}  # type: ignore[arg-type]


def encode(name: str, function: str, arguments: list[Any]) -> str:
    """The 0x-hex data of a call."""
    return str(interface(name).encode_abi(function, args=arguments))


def decode_log(name: str, log: Log) -> tuple[str, dict[str, Any]] | None:
    """(event's name, its arguments with numbers as strings and bytes as 0x-hex); None for what is not its event."""
    known = _events(name).get(log.topics[0]) if log.topics else None
    if known is None:
        return None
    decoded = interface(name).events[known]().process_log(log.as_web3())
    return known, {argument: _plain(value) for argument, value in decoded["args"].items()}


def error_name(data: str) -> str:
    """The name of a custom error of the escrow contract by its answer's first bytes; empty for any other."""
    return _errors().get(data[2:10].lower(), "")


@functools.cache
def _errors() -> dict[str, str]:
    from eth_utils.abi import function_abi_to_4byte_selector

    found = [one | {"type": "function"} for one in load(ESCROW).abi if one["type"] == "error"]
    return {function_abi_to_4byte_selector(one).hex(): one["name"] for one in found}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return str(value)
    return "0x" + value.hex() if isinstance(value, bytes) else value

"""A chain in this process whose clock the test sets to the second: eth-tester on py-evm, reached through web3."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable
from functools import cache, wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from eth_account import Account
from eth_account.signers.local import LocalAccount
from eth_tester import EthereumTester, PyEVMBackend
from eth_tester.exceptions import TransactionFailed
from web3 import EthereumTesterProvider, Web3
from web3.contract import Contract
from web3.exceptions import ContractLogicError

from billing.chain.contract import compiling

TOKENS = Path(__file__).parent / "tokens"
GENESIS_AT = 2_000_000_000  # ahead of the computer's clock, so that every block is one second after the last
GAS_LIMIT = 8_000_000
GAS_PRICE = 10**10
ENOUGH_WEI = 10**24
ROLES = ("settler", "publisher", "arbiter", "slasher", "pauser")
FRAME_SLOTS = 70_000  # 560 KB: CPython rounds its chunk of frames up to 1 MB, and what is called has the rest
NAMES = ("alice", "anna", "bob", "ben", "mallory", *ROLES, "admin", "fee")

P = ParamSpec("P")
R = TypeVar("R")


class Event(NamedTuple):
    """One log: its name and arguments."""

    name: str
    args: dict[str, Any]


class Refused(Exception):
    """A transaction that would revert; the text is the custom error's name."""


@cache
def wallet(name: str) -> LocalAccount:
    """The wallet of a name; the same on every chain."""
    made: LocalAccount = Account.from_key(Web3.keccak(text=f"souk test wallet of {name}"))
    return made


def address(name: str) -> str:
    """The address of a name's wallet."""
    return str(wallet(name).address)


@cache
def build(name: str) -> Any:
    """A committed build: the escrow's and the development token's, or one of the hostile tokens'."""
    folder = compiling.BUILD if (compiling.BUILD / f"{name}.json").exists() else TOKENS / "built"
    return json.loads((folder / f"{name}.json").read_text())


def _roomy(function: Callable[P, R]) -> Callable[P, R]:
    """Whatever the depth of the caller, no frame of the call is the first of a chunk of frames.

    CPython maps a chunk of 16 KB when a frame does not fit, and unmaps it when that frame returns. Where py-evm's loop
    over opcodes happens to stand at such an edge, as it does under pytest, each opcode pays for both: half of all time.
    """

    def in_a_chunk_of_its_own(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    code = in_a_chunk_of_its_own.__code__
    in_a_chunk_of_its_own.__code__ = code.replace(co_stacksize=FRAME_SLOTS)
    return wraps(function)(in_a_chunk_of_its_own)


class Chain:
    """Transactions one at a time, each in a block of its own, one second after the last."""

    def __init__(self) -> None:
        state = {
            wallet(name).address: {"balance": ENOUGH_WEI, "nonce": 0, "code": b"", "storage": {}} for name in NAMES
        }
        raw = {bytes.fromhex(key[2:]): value for key, value in state.items()}
        backend = PyEVMBackend(PyEVMBackend.generate_genesis_params({"timestamp": GENESIS_AT}), raw)
        self.tester = EthereumTester(backend)
        self.w3 = Web3(EthereumTesterProvider(self.tester))
        self.chain_id = self.w3.eth.chain_id
        self.gas_used = 0
        self._events: dict[str, dict[bytes, Any]] = {}  # by address, then by topic
        self._errors: dict[bytes, str] = {}

    @_roomy
    def deploy(self, name: str, *args: Any, by: str = "admin") -> Contract:
        """Deploy a committed build; raises Refused when its constructor reverts."""
        made = build(name)
        factory = self.w3.eth.contract(abi=made["abi"], bytecode=made["bytecode"])
        data = factory.constructor(*args).data_in_transaction
        self._errors |= {_selector(entry): entry["name"] for entry in made["abi"] if entry["type"] == "error"}
        self._try_call({"from": address(by), "data": data, "gas": GAS_LIMIT})
        receipt = self._send(by, None, data)
        self.gas_used = receipt["gasUsed"]
        contract = self.w3.eth.contract(address=receipt["contractAddress"], abi=made["abi"])
        has_events = any(entry["type"] == "event" for entry in made["abi"])
        made_events = [event() for event in contract.events] if has_events else []
        self._events[contract.address] = {bytes.fromhex(event.topic[2:]): event for event in made_events}
        return contract

    def call(self, contract: Contract, who: str, function: str, *args: Any) -> Any:
        """What a function answers in the next block; raises Refused with its error's name."""
        data = contract.encode_abi(function, args)
        tx = {"from": address(who), "to": contract.address, "data": data, "gas": GAS_LIMIT}
        return self._try_call(tx)

    @_roomy
    def view(self, contract: Contract, function: str, *args: Any) -> Any:
        """What a view answers in the next block, decoded."""
        return contract.functions[function](*args).call({"from": address("admin")}, "pending")

    def do(self, contract: Contract, who: str, function: str, *args: Any) -> list[Event]:
        """Send a transaction; the contract's events. Raises Refused, with nothing changed, when it would revert."""
        data = contract.encode_abi(function, args)
        receipt = self._send(who, contract.address, data)
        if receipt["status"] != 1:
            self.call(contract, who, function, *args)
            raise AssertionError(f"{function} failed in its block and not after it")
        self.gas_used = receipt["gasUsed"]
        return list(self._decode(log for log in receipt["logs"] if log["address"] == contract.address))

    def gas(self, contract: Contract, who: str, function: str, *args: Any) -> int:
        """The gas of a transaction that succeeds."""
        self.do(contract, who, function, *args)
        return int(self.gas_used)

    def at(self, timestamp: int) -> None:
        """The next transaction is in a block of exactly this time."""
        self.tester.time_travel(timestamp)

    def next_time(self) -> int:
        """The time of the block that the next transaction is in."""
        return int(self.tester.get_block_by_number("pending")["timestamp"])

    def snapshot(self) -> Any:
        """The state now, to come back to."""
        return self.tester.take_snapshot()

    def revert(self, snapshot: Any) -> None:
        """Back to a snapshot."""
        self.tester.revert_to_snapshot(snapshot)

    @_roomy
    def _send(self, who: str, to: str | None, data: Any) -> Any:
        tx = {
            "chainId": self.chain_id,
            "nonce": self.w3.eth.get_transaction_count(address(who)),
            "gas": GAS_LIMIT,
            "gasPrice": GAS_PRICE,
            "value": 0,
            "data": data,
        } | ({"to": to} if to else {})
        signed = wallet(who).sign_transaction(tx)
        return self.w3.eth.get_transaction_receipt(self.w3.eth.send_raw_transaction(signed.raw_transaction))

    @_roomy
    def _try_call(self, tx: dict[str, Any]) -> bytes:
        try:
            return bytes(self.w3.eth.call(tx, "pending"))
        except (TransactionFailed, ContractLogicError) as failure:
            raise Refused(self._error_name(str(failure.args[0]))) from failure

    def _decode(self, logs: Iterable[Any]) -> Iterable[Event]:
        for log in logs:
            found = self._events.get(log["address"], {}).get(bytes(log["topics"][0]))
            if found:
                yield Event(found.event_name, dict(found.process_log(log)["args"]))

    def _error_name(self, text: str) -> str:
        """The custom error's name, or what a plain text says."""
        quoted = re.search(r"b(['\"]).*\1", text, re.DOTALL)
        if quoted:
            return self._errors.get(ast.literal_eval(quoted.group())[:4], text)
        return text.removeprefix("execution reverted: ").split(":")[0]


def _selector(entry: dict[str, Any]) -> bytes:
    return bytes(Web3.keccak(text=f"{entry['name']}({','.join(each['type'] for each in entry['inputs'])})")[:4])

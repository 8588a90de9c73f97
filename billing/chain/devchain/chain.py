"""A chain of one's own for development: one block a transaction, mined at once, kept in a file and replayed on start.

py-evm runs the transactions, so the contracts behave as on any chain. There is no mempool to speak of, no finality to
wait for and no other node: what needs those is tested against anvil. Everything follows from the file of raw
transactions and block times, so that a restart gives the same addresses, balances and hashes.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

CHAIN_ID: Final = 31337
GENESIS_TIME: Final = 1_700_000_000
GENESIS_BALANCE: Final = 10**24
BLOCK_GAS: Final = 30_029_122
CALL_STIPEND: Final = 2_300  # gas that an inner call with coins may spend beside its own
BLOCKS_MAX: Final = 200_000
QUEUED_MAX: Final = 256  # transactions that wait for an earlier nonce

# The first accounts of every development node ("test test test ... junk"). Everybody knows these keys.
DEVELOPMENT_KEYS: Final = (
    "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
    "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
    "0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
    "0x7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6",
)


class Refused(Exception):
    """The chain does not take this call; `code` and `data` as nodes give them."""

    def __init__(self, message: str, *, code: int = -32000, data: str | None = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


@dataclass(frozen=True)
class Block:
    """One mined block, its receipts and logs, as the backend's plain dictionaries."""

    header: dict[str, Any]
    transactions: list[dict[str, Any]]
    receipts: list[dict[str, Any]]


@dataclass
class DevChain:
    """The chain; every method may be called from any thread. Raises Refused."""

    journal: Path | None = None  # None: in memory only
    blocks: list[Block] = field(default_factory=list)
    ahead_seconds: int = 0  # how far its clock was set forward

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._backend = _new_backend()
        self._places: dict[bytes, tuple[int, int]] = {}
        self._by_hash: dict[bytes, int] = {}
        self._queued: dict[tuple[bytes, int], bytes] = {}
        self._keep()
        self._file = None
        if self.journal is not None:
            self._replay(self.journal)
            self._file = self.journal.open("ab")

    def send(self, raw: bytes) -> bytes:
        """Mine a signed transaction and return its hash; one with a later nonce waits for those before it."""
        with self._lock:
            transaction = self._decode(raw)
            sender, nonce = transaction.sender, transaction.nonce
            if bytes(transaction.hash) in self._places:
                raise Refused("already known")
            expected = self.nonce(sender)
            if nonce < expected:
                raise Refused(f"nonce too low: next nonce {expected}, tx nonce {nonce}")
            if nonce > expected:
                if len(self._queued) >= QUEUED_MAX:
                    raise Refused("txpool is full")
                self._queued[sender, nonce] = raw
                return bytes(transaction.hash)
            self._mine(raw, self._now())
            while (waiting := self._queued.pop((sender, self.nonce(sender)), None)) is not None:
                self._mine(waiting, self._now())
            return bytes(transaction.hash)

    def mine_empty(self) -> None:
        """One block without transactions: the chain's time advances."""
        with self._lock:
            self._mine(None, self._now())

    def call(self, message: dict[str, Any], number: int | None = None) -> bytes:
        """What a call would return; at the head it sees the present time."""
        with self._lock:
            computation = self._try(message, message.get("gas") or BLOCK_GAS, number)
            _raise_revert(computation)
            return bytes(computation.output)

    def estimate(self, message: dict[str, Any]) -> int:
        """The gas that it would take; raises Refused with the contract's answer where it would revert.

        Like geth, it tries what the call used and a little more, which inner calls keep back; seldom it has to search.
        """
        from eth.vm.spoof import SpoofTransaction

        with self._lock:
            limit = message.get("gas") or BLOCK_GAS
            computation = self._try(message, limit)
            _raise_revert(computation)
            used = limit - int(computation.get_gas_remaining())
            transaction = SpoofTransaction(self._unsigned(message | {"gas": limit}), from_=message["from"])
            if used == transaction.intrinsic_gas:
                return used
            enough = min((used + CALL_STIPEND) * 64 // 63, BLOCK_GAS)
            if not self._try(message, enough).is_error:
                return enough
            parent = self._pending_header()  # py-evm runs it one second after the header that it is given
            return int(self._backend.chain.estimate_gas(transaction, parent.copy(timestamp=parent.timestamp - 1)))

    def _try(self, message: dict[str, Any], gas: int, number: int | None = None) -> Any:
        """The computation of a call with so much gas, which changes nothing."""
        from eth.vm.spoof import SpoofTransaction

        header = self._pending_header() if number is None else self._header(number)
        vm = self._backend.chain.get_vm(header.copy(base_fee_per_gas=0))  # a read-only call is free
        transaction = SpoofTransaction(self._unsigned(message | {"gas": gas}), from_=message["from"])
        snapshot = vm.state.snapshot()
        computation = vm.state.costless_execute_transaction(transaction)
        vm.state.revert(snapshot)
        return computation

    def nonce(self, address: bytes, number: int | None = None) -> int:
        with self._lock:
            return int(self._state(number).get_nonce(address))

    def balance(self, address: bytes, number: int | None = None) -> int:
        with self._lock:
            return int(self._state(number).get_balance(address))

    def code(self, address: bytes, number: int | None = None) -> bytes:
        with self._lock:
            return bytes(self._state(number).get_code(address))

    def storage(self, address: bytes, slot: int, number: int | None = None) -> int:
        with self._lock:
            return int(self._state(number).get_storage(address, slot))

    def place(self, transaction_hash: bytes) -> tuple[Block, int] | None:
        """The block of a mined transaction, and its index there."""
        found = self._places.get(transaction_hash)
        return (self.blocks[found[0]], found[1]) if found else None

    def block_by_hash(self, block_hash: bytes) -> Block | None:
        number = self._by_hash.get(block_hash)
        return None if number is None else self.blocks[number]

    @property
    def head(self) -> int:
        return len(self.blocks) - 1

    @property
    def base_fee(self) -> int:
        return int(self._pending_header().base_fee_per_gas)

    def _now(self) -> int:
        return max(int(time.time()) + self.ahead_seconds, int(self.blocks[-1].header["timestamp"]) + 1)

    def _mine(self, raw: bytes | None, at: int) -> None:
        """Apply, remember on disk, then answer: what was answered survives the process."""
        self._apply(raw, at)
        if self._file is not None:
            line = json.dumps({"time": at, "raw": raw.hex() if raw else None})
            self._file.write(line.encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def _apply(self, raw: bytes | None, at: int) -> None:
        if len(self.blocks) >= BLOCKS_MAX:
            raise Refused(f"this development chain holds at most {BLOCKS_MAX} blocks; delete its file to begin anew")
        chain = self._backend.chain
        empty = chain.header
        chain.header = empty.copy(timestamp=at)
        if raw is not None:
            try:
                self._backend.send_raw_transaction(raw)
            except Exception as error:  # py-evm has many types for what it does not accept
                chain.header = empty
                raise Refused(_as_nodes_say(str(error))) from error
        # A node's random value would give another hash on each replay.
        chain.mine_block(coinbase=b"\0" * 20, mix_hash=len(self.blocks).to_bytes(32, "big"), blob_gas_used=0)
        self._keep()

    def _keep(self) -> None:
        """Read the newest block once, so that looking things up costs nothing later."""
        number = len(self.blocks)
        header = dict(self._backend.get_block_by_number(number, False))
        hashes = [bytes(one) for one in header["transactions"]]
        block = self._backend.chain.get_canonical_block_by_number(number)
        transactions, receipts = _describe(self._backend, block)
        self.blocks.append(Block(header, transactions, receipts))
        self._by_hash[bytes(header["hash"])] = number
        for index, one in enumerate(hashes):
            self._places[one] = (number, index)

    def _replay(self, journal: Path) -> None:
        """What the file holds; a torn last line was never answered, so it goes."""
        journal.parent.mkdir(parents=True, exist_ok=True)
        journal.touch(mode=0o600)
        whole = 0
        with journal.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                entry = json.loads(line)
                self._apply(bytes.fromhex(entry["raw"]) if entry["raw"] else None, entry["time"])
                whole += len(line)
        os.truncate(journal, whole)

    def _decode(self, raw: bytes) -> Any:
        try:
            transaction = self._backend.chain.get_vm().get_transaction_builder().decode(raw)
            chain_id = transaction.chain_id
        except Exception as error:
            raise Refused(f"not a transaction: {error}") from error
        if chain_id != CHAIN_ID:
            raise Refused(f"invalid chain id: have {chain_id}, want {CHAIN_ID}")
        return transaction

    def _unsigned(self, message: dict[str, Any]) -> Any:
        return self._backend.chain.create_unsigned_transaction(
            nonce=self.nonce(message["from"]),
            gas_price=0,
            gas=message["gas"],
            to=message.get("to") or b"",
            value=message.get("value", 0),
            data=message.get("data", b""),
        )

    def _pending_header(self) -> Any:
        return self._backend.chain.header.copy(timestamp=self._now())

    def _header(self, number: int) -> Any:
        return self._backend.chain.get_canonical_block_header_by_number(number)

    def _state(self, number: int | None) -> Any:
        return self._backend.chain.get_vm(self._header(self.head if number is None else number)).state


def _new_backend() -> Any:
    from eth_account import Account
    from eth_tester.backends.pyevm.main import PyEVMBackend

    rich = {"balance": GENESIS_BALANCE, "nonce": 0, "code": b"", "storage": {}}
    state = {bytes.fromhex(Account.from_key(key).address[2:]): dict(rich) for key in DEVELOPMENT_KEYS}
    parameters = PyEVMBackend.generate_genesis_params({"timestamp": GENESIS_TIME, "gas_limit": BLOCK_GAS})
    backend = PyEVMBackend(genesis_parameters=parameters, genesis_state=state)
    type(backend.chain).chain_id = CHAIN_ID  # its class is made anew for every backend
    return backend


def _describe(backend: Any, block: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    from eth_tester.backends.pyevm import serializers

    receipts = block.get_receipts(backend.chain.chaindb)
    transactions = [serializers.serialize_transaction(block, one, n, False) for n, one in enumerate(block.transactions)]
    described = [
        serializers.serialize_transaction_receipt(block, receipts, one, n, False, None)
        for n, one in enumerate(block.transactions)
    ]
    return transactions, described


def _raise_revert(computation: Any) -> None:
    if not computation.is_error:
        return
    from eth.exceptions import Revert

    error = computation.error
    if isinstance(error, Revert):
        answer = bytes(error.args[0]) if error.args and isinstance(error.args[0], bytes) else b""
        raise Refused("execution reverted", code=3, data="0x" + answer.hex())
    raise Refused(f"execution failed: {error or type(error).__name__}")


def _as_nodes_say(message: str) -> str:
    """py-evm's refusal with the text that clients search for."""
    lowered = message.lower()
    if "insufficient" in lowered or "balance" in lowered:
        return f"insufficient funds for gas * price + value: {message}"
    if "max_fee_per_gas" in lowered or "base fee" in lowered:
        return f"max fee per gas less than block base fee: {message}"
    return message

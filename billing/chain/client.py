"""Asks a chain, and believes only what its endpoints agree on; tells it transactions.

Every answer that money depends on is asked of all endpoints at a block that each of them has, and at least two that
answered must say the same (one is enough on a development chain only). A single different answer stops everything
about it: a lie can then delay, and cannot credit.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from billing.chain.config import ENDPOINTS_MIN, ChainConfig, chain_of
from billing.chain.errors import CallReverted, EndpointsDisagree, EndpointsUnreachable

ERROR_CHARACTERS_MAX: Final = 300
# What nodes say of a transaction that they have already, or of whose nonce they have a dearer one: told again, it is no
# failure. Whether ours was mined is asked by its hash.
ALREADY_KNOWN: Final = (
    "already known",
    "alreadyknown",
    "known transaction",
    "already imported",
    "nonce too low",
    "replacement transaction underpriced",
)

T = TypeVar("T")
log = logging.getLogger(__name__)


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

    @property
    def cost(self) -> int:
        return self.gas_used * self.gas_price


class ChainClient:
    """One chain through all of its endpoints. Raises EndpointsUnreachable and EndpointsDisagree."""

    def __init__(self, config: ChainConfig) -> None:
        self.config = config
        self._endpoints = [(url, _connect(url, config.timeout_seconds)) for url in config.rpc_urls]
        self._checked: set[str] = set()

    @property
    def needed(self) -> int:
        """How many endpoints have to say the same."""
        return 1 if self.config.is_development else ENDPOINTS_MIN

    def agree(self, subject: str, ask: Callable[[Any], T]) -> T:
        """The one answer of all endpoints that answer, of which there are enough."""
        answers = self._ask_all(ask)
        if any(answer != answers[0] for answer in answers[1:]):
            log.error("Endpoints disagree. chain_id=%s subject=%s", self.config.chain_id, subject)
            raise EndpointsDisagree(chain_id=self.config.chain_id, subject=subject)
        return answers[0]

    def head(self) -> int:
        """The highest block that every answering endpoint has."""
        return min(self._ask_all(lambda w3: int(w3.eth.block_number)))

    def final(self) -> int:
        """The highest block that cannot go away any more, as far as this chain is configured to be believed."""
        if self.config.finality == "finalized":
            return min(self._ask_all(lambda w3: int(w3.eth.get_block("finalized")["number"])))
        return max(0, self.head() - self.config.confirmations)

    def header(self, number: int) -> Header:
        """The block of this number on the chain that the endpoints follow."""
        return self.agree(f"block {number}", lambda w3: _header(w3.eth.get_block(number)))

    def logs(self, first: int, last: int, addresses: Sequence[str]) -> list[Log]:
        """Every log of these contracts in these blocks, in their order."""
        query = {"fromBlock": first, "toBlock": last, "address": list(addresses)}
        found = self.agree(f"logs of {first}-{last}", lambda w3: sorted(map(_log, w3.eth.get_logs(query))))
        allowed = {address.lower() for address in addresses}
        return [one for one in found if one.address.lower() in allowed and first <= one.block_number <= last]

    def logs_of_block(self, block_hash: str, addresses: Sequence[str]) -> list[Log]:
        """Every log of these contracts in one block, by its hash."""
        query = {"blockHash": block_hash, "address": list(addresses)}
        found = self.agree(f"logs of {block_hash}", lambda w3: sorted(map(_log, w3.eth.get_logs(query))))
        allowed = {address.lower() for address in addresses}
        return [one for one in found if one.address.lower() in allowed and one.block_hash == block_hash]

    def receipt(self, tx_hash: str) -> Receipt | None:
        """Of a mined transaction; None where the endpoints do not have it."""
        return self.agree(f"receipt of {tx_hash}", lambda w3: _receipt(w3, tx_hash))

    def nonce(self, address: str, block: int | None = None) -> int:
        """How many transactions of this address are mined, at a block that all have."""
        at = self.head() if block is None else block
        return self.agree(f"nonce of {address}", lambda w3: int(w3.eth.get_transaction_count(address, at)))

    def coins(self, address: str, block: int | None = None) -> int:
        """The address's balance of the chain's own coin."""
        at = self.head() if block is None else block
        return self.agree(f"balance of {address}", lambda w3: int(w3.eth.get_balance(address, at)))

    def code(self, address: str) -> bytes:
        at = self.head()
        return self.agree(f"code of {address}", lambda w3: bytes(w3.eth.get_code(address, at)))

    def read(self, address: str, abi: list[dict[str, Any]], function: str, *arguments: Any, at: int) -> Any:
        """What a view returns at one block."""
        return self.agree(
            f"{function} of {address}",
            lambda w3: _plain(w3.eth.contract(address, abi=abi).functions[function](*arguments).call({}, at)),
        )

    def estimate(self, message: dict[str, Any], *, purpose: str) -> int:
        """The gas that a call would take, by the first endpoint that answers; raises CallReverted with its reason."""
        from web3.exceptions import ContractLogicError

        def ask(w3: Any) -> int | CallReverted:
            try:
                return int(w3.eth.estimate_gas(message))
            except ContractLogicError as error:
                return CallReverted(purpose=purpose, why=_reason(error))

        answer = self._ask_first(ask)
        if isinstance(answer, CallReverted):
            raise answer
        return answer

    def fee_now(self) -> tuple[int, int]:
        """(base fee of the newest block, a priority fee that is usual now); only what we offer depends on it."""
        return self._ask_first(
            lambda w3: (int(w3.eth.get_block("latest")["baseFeePerGas"]), int(w3.eth.max_priority_fee))
        )

    def broadcast(self, raw: str) -> None:
        """Tell every endpoint; one that takes or knows it is enough. Raises EndpointsUnreachable with their reasons."""
        refusals = []
        taken = 0
        for url, w3 in self._endpoints:
            try:
                self._check(url, w3)
                w3.eth.send_raw_transaction(raw)
                taken += 1
            except Exception as error:
                if any(words in str(error).lower() for words in ALREADY_KNOWN):
                    taken += 1
                else:
                    refusals.append(_short(error))
        if not taken:
            raise self._unreachable(refusals, answered=0, needed=1)

    def _ask_all(self, ask: Callable[[Any], T]) -> list[T]:
        answers, failures = [], []
        for url, w3 in self._endpoints:
            try:
                self._check(url, w3)
                answers.append(ask(w3))
            except Exception as error:  # whatever goes wrong with one endpoint, the others are asked
                failures.append(_short(error))
        if len(answers) < self.needed:
            raise self._unreachable(failures, answered=len(answers), needed=self.needed)
        return answers

    def _ask_first(self, ask: Callable[[Any], T]) -> T:
        failures = []
        for url, w3 in self._endpoints:
            try:
                self._check(url, w3)
                return ask(w3)
            except Exception as error:
                failures.append(_short(error))
        raise self._unreachable(failures, answered=0, needed=1)

    def _check(self, url: str, w3: Any) -> None:
        """An endpoint of another chain is no endpoint of this one."""
        if url not in self._checked:
            found = int(w3.eth.chain_id)
            if found != self.config.chain_id:
                raise ValueError(f"it is on the chain {found}")
            self._checked.add(url)

    def _unreachable(self, failures: list[str], *, answered: int, needed: int) -> EndpointsUnreachable:
        return EndpointsUnreachable(
            chain_id=self.config.chain_id,
            configured=len(self._endpoints),
            answered=answered,
            needed=needed,
            why="; ".join(failures) or "too few are configured",
        )


@functools.lru_cache(maxsize=16)
def _client(config: ChainConfig) -> ChainClient:
    return ChainClient(config)


def client_of(chain_id: int) -> ChainClient:
    """The client of a configured chain; raises ChainUnknown."""
    return _client(chain_of(chain_id))


def _connect(url: str, timeout: float) -> Any:
    from web3 import HTTPProvider, Web3
    from web3.middleware import ExtraDataToPOAMiddleware

    provider = HTTPProvider(url, request_kwargs={"timeout": timeout}, exception_retry_configuration=None)
    w3 = Web3(provider)
    w3.middleware_onion.inject(ExtraDataToPOAMiddleware, layer=0)  # chains whose blocks carry their makers' signatures
    return w3


def _header(block: Any) -> Header:
    return Header(int(block["number"]), _hex(block["hash"]), _hex(block["parentHash"]), int(block["timestamp"]))


def _log(entry: Any) -> Log:
    if entry.get("removed"):
        raise ValueError("a removed log")
    return Log(
        block_number=int(entry["blockNumber"]),
        log_index=int(entry["logIndex"]),
        block_hash=_hex(entry["blockHash"]),
        tx_hash=_hex(entry["transactionHash"]),
        tx_index=int(entry["transactionIndex"]),
        address=str(entry["address"]),
        topics=tuple(bytes(topic) for topic in entry["topics"]),
        data=bytes(entry["data"]),
    )


def _receipt(w3: Any, tx_hash: str) -> Receipt | None:
    from web3.exceptions import TransactionNotFound

    try:
        found = w3.eth.get_transaction_receipt(tx_hash)
    except TransactionNotFound:
        return None
    return Receipt(
        tx_hash=_hex(found["transactionHash"]),
        block_number=int(found["blockNumber"]),
        block_hash=_hex(found["blockHash"]),
        is_success=int(found["status"]) == 1,
        gas_used=int(found["gasUsed"]),
        gas_price=int(found["effectiveGasPrice"]),
        contract=str(found.get("contractAddress") or ""),
    )


def _hex(value: Any) -> str:
    return "0x" + bytes(value).hex()


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return bytes(value) if isinstance(value, bytes) else value


def _reason(error: Any) -> str:
    """The contract's own error by its name, where it is one of ours."""
    from billing.chain import builds

    data = str(getattr(error, "data", "") or "")
    name = builds.error_name(data) if data.startswith("0x") else ""
    return name or _short(error)


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]

"""Reads a chain, and believes only what its endpoints agree on; broadcasts transactions.

Every call that money depends on goes to all endpoints, at a block that each of them has, and at least two
answers must be the same (one is enough on a development chain only). A single different answer stops everything
about it: a lie can then delay, and can neither credit nor make us give a transaction up. What we offer for gas is the
highest usual fee that the endpoints report and that we may pay.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from billing.chain.config import ENDPOINTS_MIN, ChainConfig, chain_of
from billing.chain.errors import CallReverted, EndpointsDisagree, EndpointsUnreachable
from billing.chain.reading import builds, transport
from billing.chain.reading.answers import (
    Header,
    Log,
    Receipt,
    as_plain,
    read_header,
    read_log,
    read_number,
    read_receipt,
)

ERROR_CHARACTERS_MAX: Final = 300
REST_SECONDS: Final = 30.0  # an endpoint that did not answer is left alone for so long, if the others are enough
GAS_MAX: Final = 2**24  # of one transaction (EIP-7825): an estimate beyond it is none
# Nodes' errors for a transaction that they have already, or whose nonce has one with a higher fee: after a repeat they
# are no failure. Whether ours was mined is looked up by its hash.
ALREADY_KNOWN: Final = (
    "already known",
    "alreadyknown",
    "known transaction",
    "already imported",
    "nonce too low",
    "replacement transaction underpriced",
)

__all__ = ["ChainClient", "Header", "Log", "Receipt", "client_of"]

T = TypeVar("T")
Failure = tuple[str, Exception]  # whose
log = logging.getLogger(__name__)


class ChainClient:
    """One chain through all of its endpoints. Raises EndpointsUnreachable and EndpointsDisagree."""

    def __init__(self, config: ChainConfig) -> None:
        self.config = config
        self._endpoints = [(url, transport.connect(url, config.timeout_seconds)) for url in config.rpc_urls]
        self._checked: set[str] = set()
        self._rests_until: dict[str, float] = {}

    @property
    def needed(self) -> int:
        """How many endpoints have to give the same answer."""
        return 1 if self.config.is_development else ENDPOINTS_MIN

    def agree(self, subject: str, ask: Callable[[Any], T]) -> T:
        """The one answer of all endpoints that answer; there have to be enough of them."""
        answers = self._ask_all(ask)
        if any(answer != answers[0] for answer in answers[1:]):
            log.error("Endpoints disagree. chain_id=%s subject=%s", self.config.chain_id, subject)
            raise EndpointsDisagree(chain_id=self.config.chain_id, subject=subject)
        return answers[0]

    def head(self) -> int:
        """The highest block that every answering endpoint has."""
        return min(self._ask_all(lambda w3: read_number(w3.eth.block_number)))

    def final(self) -> int:
        """The highest block that cannot go away any more, as far as this chain is configured to be believed."""
        if self.config.finality == "finalized":
            return min(self._ask_all(lambda w3: read_number(w3.eth.get_block("finalized")["number"])))
        return max(0, self.head() - self.config.confirmations)

    def header(self, number: int) -> Header:
        """The block of this number on the chain that the endpoints follow."""
        return self.agree(f"block {number}", lambda w3: read_header(w3.eth.get_block(number), number))

    def logs(self, first: int, last: int, addresses: Sequence[str]) -> list[Log]:
        """Every log of these contracts in these blocks, in their order."""
        query = {"fromBlock": first, "toBlock": last, "address": list(addresses)}
        found = self.agree(f"logs of {first}-{last}", lambda w3: sorted(map(read_log, w3.eth.get_logs(query))))
        allowed = {address.lower() for address in addresses}
        return [one for one in found if one.address.lower() in allowed and first <= one.block_number <= last]

    def logs_of_block(self, block_hash: str, addresses: Sequence[str]) -> list[Log]:
        """Every log of these contracts in one block, by its hash."""
        query = {"blockHash": block_hash, "address": list(addresses)}
        found = self.agree(f"logs of {block_hash}", lambda w3: sorted(map(read_log, w3.eth.get_logs(query))))
        allowed = {address.lower() for address in addresses}
        return [one for one in found if one.address.lower() in allowed and one.block_hash == block_hash]

    def receipt(self, tx_hash: str) -> Receipt | None:
        """Of a mined transaction; None where the endpoints do not have it."""
        return self.agree(f"receipt of {tx_hash}", lambda w3: read_receipt(w3, tx_hash))

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
        # web3 makes a class of every function that it is given, which takes longer than the call.
        alone = [one for one in abi if one["type"] == "function" and one["name"] == function]
        return self.agree(
            f"{function} of {address}",
            lambda w3: as_plain(w3.eth.contract(address, abi=alone).functions[function](*arguments).call({}, at)),
        )

    def estimate(self, message: dict[str, Any], *, purpose: str) -> int:
        """The gas that a call would take, the highest estimate; raises CallReverted if it reverts by all endpoints.

        Where it reverts by some only, one of them lags or lies: EndpointsDisagree, so that it is read again later.
        """
        from web3.exceptions import ContractLogicError

        def ask(w3: Any) -> int | CallReverted:
            try:
                gas = int(w3.eth.estimate_gas(message))
            except ContractLogicError as error:
                return CallReverted(purpose=purpose, why=_reason(error))
            if not 0 < gas <= GAS_MAX:
                raise ValueError(f"{gas} is no estimate")
            return gas

        answers = self._ask_all(ask)
        reverts = [answer for answer in answers if isinstance(answer, CallReverted)]
        if len(reverts) == len(answers):
            raise reverts[0]
        if reverts:
            raise EndpointsDisagree(chain_id=self.config.chain_id, subject=f"whether {purpose} would be refused")
        return max(answer for answer in answers if isinstance(answer, int))

    def fee_now(self) -> tuple[int, int]:
        """(base fee of the newest block, a priority fee that is usual now): the highest answer that we may pay."""
        answers = self._ask_all(
            lambda w3: (int(w3.eth.get_block("latest")["baseFeePerGas"]), int(w3.eth.max_priority_fee))
        )
        payable = [answer for answer in answers if 0 <= answer[0] < self.config.max_fee and answer[1] >= 0]
        return max(payable) if payable else min(answers)

    def broadcast(self, raw: str) -> None:
        """Send to all endpoints; one that takes or knows it is enough. Raises EndpointsUnreachable with all reasons."""
        refusals: list[Failure] = []
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
                    refusals.append((url, error))
        if not taken:
            raise self._unreachable(refusals, answered=0, needed=1)

    def _ask_all(self, ask: Callable[[Any], T]) -> list[T]:
        """The answers of all endpoints that answer; those that were silent lately are called where they are needed."""
        answers: list[T] = []
        failures: list[Failure] = []
        now = time.monotonic()
        resting = [one for one in self._endpoints if self._rests_until.get(one[0], 0.0) > now]
        for url, w3 in [one for one in self._endpoints if one not in resting] + resting:
            if (url, w3) in resting and len(answers) >= self.needed:
                break
            try:
                self._check(url, w3)
                answers.append(ask(w3))
            except Exception as error:  # whatever goes wrong with one endpoint, the others are called
                failures.append((url, error))
                if transport.is_silence(error):
                    self._rests_until[url] = time.monotonic() + REST_SECONDS
        if len(answers) < self.needed:
            raise self._unreachable(failures, answered=len(answers), needed=self.needed)
        return answers

    def _check(self, url: str, w3: Any) -> None:
        """An endpoint of another chain is no endpoint of this one."""
        if url not in self._checked:
            found = int(w3.eth.chain_id)
            if found != self.config.chain_id:
                raise ValueError(f"it is on the chain {found}")
            self._checked.add(url)

    def _unreachable(self, failures: list[Failure], *, answered: int, needed: int) -> EndpointsUnreachable:
        return EndpointsUnreachable(
            chain_id=self.config.chain_id,
            configured=len(self._endpoints),
            answered=answered,
            needed=needed,
            why="; ".join(_described_by(url, error) for url, error in failures) or "too few are configured",
            is_refusal=any(transport.is_refusal(error) for _, error in failures),
        )


@functools.lru_cache(maxsize=16)
def _client(config: ChainConfig) -> ChainClient:
    return ChainClient(config)


def client_of(chain_id: int) -> ChainClient:
    """The client of a configured chain; raises ChainUnknown."""
    return _client(chain_of(chain_id))


def _reason(error: Any) -> str:
    """The contract's own error by its name, where it is one of ours."""
    data = str(getattr(error, "data", "") or "")
    name = builds.error_name(data) if data.startswith("0x") else ""
    return name or _short(error)


def _described_by(url: str, error: Exception) -> str:
    """Whose failure it was, without what is secret in an endpoint's address: this goes into alerts and mail."""
    parts = urlsplit(url)
    text = str(error)
    for secret in (f"{parts.path}?{parts.query}" if parts.query else parts.path, parts.query, parts.password or ""):
        text = text.replace(secret, "...") if len(secret) > 1 else text
    return f"{parts.hostname}: {type(error).__name__}: {text}"[:ERROR_CHARACTERS_MAX]


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]

"""A wallet that speaks to a chain by JSON-RPC: reads, signs here, sends, waits. Needs only httpx and eth-account.

The endpoint is the user's own choice (`--rpc-url`): it sees the address and what is sent, and never the key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import httpx

from jobs.client.contract_errors import explain_refusal
from jobs.client.errors import ChainFailed
from jobs.client.transport import without_controls
from jobs.client.wallet import Wallet

READ_SECONDS: Final = 20.0
POLL_SECONDS: Final = 1.0
GAS_MARGIN_PERCENT: Final = 25  # what a call needs may grow until it is mined
TIP_WEI: Final = 10**9  # where the endpoint cannot say
MESSAGE_CHARACTERS_MAX: Final = 300
LOG_QUERIES_MAX: Final = 256  # of one search; endpoints differ in how many blocks they look through at once


@dataclass(frozen=True)
class SignedTransaction:
    """What goes out: these bytes may be sent any number of times, and count once."""

    hash: str
    raw: str
    nonce: int


class ChainReader:
    """One chain by one endpoint, without a wallet; raises ChainFailed, which says what to do."""

    def __init__(self, rpc_url: str, *, chain_id: int | None = None) -> None:
        self._url = rpc_url
        self._http = httpx.Client(timeout=READ_SECONDS, follow_redirects=False)
        self._asked = 0
        self.chain_id = int(self.ask("eth_chainId"), 16)
        if chain_id is not None and self.chain_id != chain_id:
            raise ChainFailed(f"{rpc_url} is chain {self.chain_id}, and the token is on chain {chain_id}.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def read(self, contract: str, call: bytes) -> bytes:
        """What a view answers."""
        return bytes.fromhex(self.ask("eth_call", {"to": contract, "data": "0x" + call.hex()}, "latest")[2:])

    def has_code(self, address: str) -> bool:
        """Whether a contract is there."""
        return bool(self.ask("eth_getCode", address, "latest").removeprefix("0x"))

    def time(self) -> int:
        """The newest block's, in unix seconds: what contracts compare with."""
        return int(self.ask("eth_getBlockByNumber", "latest", False)["timestamp"], 16)

    def logs(self, contract: str, topics: Sequence[str | None], *, first_block: int = 0) -> list[dict[str, Any]]:
        """A contract's events from `first_block` on, oldest first; ranges that the endpoint refuses are halved."""
        last = int(self.ask("eth_blockNumber"), 16)
        ranges, found = [(first_block, last)], list[dict[str, Any]]()
        for _ in range(LOG_QUERIES_MAX):
            if not ranges:
                return found
            first, until = ranges.pop()
            asked = {"address": contract, "topics": list(topics), "fromBlock": hex(first), "toBlock": hex(until)}
            try:
                found += self.ask("eth_getLogs", asked)
            except ChainFailed:
                if first >= until:
                    raise
                middle = (first + until) // 2
                ranges += [(middle + 1, until), (first, middle)]
        raise ChainFailed(
            "The chain's endpoint looks through too few blocks at once to search them all: give --from-block, the"
            " block from which on to search, or another --rpc-url."
        )

    def ask(self, method: str, *params: Any) -> Any:
        """The result of one call; a contract's refusal is told in words, its error's name in `details`."""
        self._asked += 1
        body = {"jsonrpc": "2.0", "id": self._asked, "method": method, "params": list(params)}
        try:
            answer = self._http.post(self._url, json=body).json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise ChainFailed(
                f"The chain's endpoint does not answer ({type(error).__name__}). Try another --rpc-url."
            ) from error
        if not isinstance(answer, dict) or "error" in answer or "result" not in answer:
            raise _refusal(method, answer.get("error") if isinstance(answer, dict) else answer)
        return answer["result"]


class ChainWallet(ChainReader):
    """One wallet on one chain; raises ChainFailed, which says what to do."""

    def __init__(self, rpc_url: str, wallet: Wallet, *, chain_id: int | None = None) -> None:
        self.wallet = wallet
        super().__init__(rpc_url, chain_id=chain_id)

    def estimate(self, contract: str, call: bytes) -> int:
        """The gas that a call would take; the endpoint tries it, so that a refusal is known before anything is sent."""
        request = {"from": self.wallet.address, "to": contract, "data": "0x" + call.hex()}
        return int(self.ask("eth_estimateGas", request), 16)

    def sign(self, contract: str, call: bytes) -> SignedTransaction:
        """A signed call, at the next nonce and twice the present base fee; it is tried by the endpoint first."""
        from provider_agent.protocol import ethereum

        gas = self.estimate(contract, call)
        base = int(self.ask("eth_getBlockByNumber", "latest", False).get("baseFeePerGas") or "0x0", 16)
        tip = self._tip()
        nonce = int(self.ask("eth_getTransactionCount", self.wallet.address, "pending"), 16)
        raw = ethereum.sign_transaction(
            self.wallet.key_hex,
            {
                "type": 2,
                "chainId": self.chain_id,
                "nonce": nonce,
                "to": contract,
                "value": 0,
                "data": "0x" + call.hex(),
                "gas": gas * (100 + GAS_MARGIN_PERCENT) // 100,
                "maxFeePerGas": 2 * base + tip,
                "maxPriorityFeePerGas": tip,
            },
        )
        return SignedTransaction(ethereum.transaction_hash(raw), raw, nonce)

    def send(self, signed: SignedTransaction) -> None:
        """Send the bytes; sending what the chain knows already is no failure."""
        try:
            self.ask("eth_sendRawTransaction", signed.raw)
        except ChainFailed:
            if self.ask("eth_getTransactionByHash", signed.hash) is None:
                raise

    def is_superseded(self, signed: SignedTransaction) -> bool:
        """Whether another transaction of the wallet took its nonce: then these bytes can never count."""
        mined = int(self.ask("eth_getTransactionCount", self.wallet.address, "latest"), 16)
        return mined > signed.nonce and self.ask("eth_getTransactionByHash", signed.hash) is None

    def wait(self, tx_hash: str, *, seconds: float, tell: Callable[[str], None]) -> int:
        """The block that it is in, once it is in one; raises ChainFailed when it failed there, or waits in vain."""
        until, told = time.monotonic() + seconds, False
        while time.monotonic() < until:
            receipt = self.ask("eth_getTransactionReceipt", tx_hash)
            if receipt is not None and receipt.get("blockNumber"):
                if int(receipt["status"], 16) != 1:
                    raise ChainFailed(
                        f"The chain refused transaction {tx_hash}; nothing moved but the gas.", {"is_mined": True}
                    )
                return int(receipt["blockNumber"], 16)
            if not told:
                tell(f"waiting for {tx_hash} ...")
                told = True
            time.sleep(POLL_SECONDS)
        raise ChainFailed(
            f"Transaction {tx_hash} is not in a block after {seconds:.0f} s. It may still come: look again."
        )

    def _tip(self) -> int:
        try:
            return int(self.ask("eth_maxPriorityFeePerGas"), 16)
        except ChainFailed:
            return TIP_WEI


def encode_call(signature: str, arguments: Sequence[Any]) -> bytes:
    """The data of a call, such as ("approve(address,uint256)", [spender, 5])."""
    from eth_abi.abi import encode

    types = signature[signature.index("(") + 1 : -1]
    return selector(signature) + bytes(encode(types.split(",") if types else [], arguments))


def selector(signature: str) -> bytes:
    """The four bytes that say which function a call is of."""
    from eth_utils.crypto import keccak

    return bytes(keccak(signature.encode()))[:4]


def _refusal(method: str, said: Any) -> ChainFailed:
    """What an endpoint's error says, in our words where a contract gave its reason."""
    about = said if isinstance(said, dict) else {"message": said}
    data = about.get("data")
    if isinstance(data, dict):  # some nodes wrap it once more
        data = data.get("data") or data.get("result")
    refusal = explain_refusal(data) if isinstance(data, str) else None
    if refusal is not None:
        return ChainFailed(f"The contract refuses: {refusal.sentence}", {"error": refusal.name})
    text = str(without_controls(str(about.get("message", said))))[:MESSAGE_CHARACTERS_MAX]
    return ChainFailed(f"The chain's endpoint refuses {method}: {text}")

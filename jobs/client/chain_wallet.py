"""A wallet that speaks to a chain by JSON-RPC: reads, signs here, sends, waits. Needs only httpx and eth-account.

The endpoint is the user's own choice (`--rpc-url`): it sees the address and what is sent, and never the key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx

from jobs.client.errors import ChainFailed
from jobs.client.wallet import Wallet

READ_SECONDS: Final = 20.0
POLL_SECONDS: Final = 1.0
GAS_MARGIN_PERCENT: Final = 25  # what a call needs may grow until it is mined
TIP_WEI: Final = 10**9  # where the endpoint cannot say
MESSAGE_CHARACTERS_MAX: Final = 300


@dataclass(frozen=True)
class SignedTransaction:
    """What goes out: these bytes may be sent any number of times, and count once."""

    hash: str
    raw: str


class ChainWallet:
    """One wallet on one chain; raises ChainFailed, which says what to do."""

    def __init__(self, rpc_url: str, wallet: Wallet, *, chain_id: int) -> None:
        self.wallet, self.chain_id = wallet, chain_id
        self._url = rpc_url
        self._http = httpx.Client(timeout=READ_SECONDS, follow_redirects=False)
        self._asked = 0
        found = int(self._ask("eth_chainId"), 16)
        if found != chain_id:
            raise ChainFailed(f"{rpc_url} is chain {found}, and the token is on chain {chain_id}.")

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def read(self, contract: str, call: bytes) -> bytes:
        """What a view answers."""
        return bytes.fromhex(self._ask("eth_call", {"to": contract, "data": "0x" + call.hex()}, "latest")[2:])

    def sign(self, contract: str, call: bytes) -> SignedTransaction:
        """A signed call, at the next nonce and twice the present base fee; it is tried by the endpoint first."""
        from provider_agent.protocol import ethereum

        request = {"from": self.wallet.address, "to": contract, "data": "0x" + call.hex()}
        gas = int(self._ask("eth_estimateGas", request), 16)
        base = int(self._ask("eth_getBlockByNumber", "latest", False).get("baseFeePerGas") or "0x0", 16)
        tip = self._tip()
        raw = ethereum.sign_transaction(
            self.wallet.key_hex,
            {
                "type": 2,
                "chainId": self.chain_id,
                "nonce": int(self._ask("eth_getTransactionCount", self.wallet.address, "pending"), 16),
                "to": contract,
                "value": 0,
                "data": "0x" + call.hex(),
                "gas": gas * (100 + GAS_MARGIN_PERCENT) // 100,
                "maxFeePerGas": 2 * base + tip,
                "maxPriorityFeePerGas": tip,
            },
        )
        return SignedTransaction(ethereum.transaction_hash(raw), raw)

    def send(self, signed: SignedTransaction) -> None:
        """Send the bytes; sending what the chain knows already is no failure."""
        try:
            self._ask("eth_sendRawTransaction", signed.raw)
        except ChainFailed:
            if self._ask("eth_getTransactionByHash", signed.hash) is None:
                raise

    def wait(self, tx_hash: str, *, seconds: float, tell: Callable[[str], None]) -> int:
        """The block that it is in, once it is in one; raises ChainFailed when it failed there, or waits in vain."""
        until, told = time.monotonic() + seconds, False
        while time.monotonic() < until:
            receipt = self._ask("eth_getTransactionReceipt", tx_hash)
            if receipt is not None and receipt.get("blockNumber"):
                if int(receipt["status"], 16) != 1:
                    raise ChainFailed(f"The chain refused transaction {tx_hash}; nothing moved but the gas.")
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
            return int(self._ask("eth_maxPriorityFeePerGas"), 16)
        except ChainFailed:
            return TIP_WEI

    def _ask(self, method: str, *params: Any) -> Any:
        self._asked += 1
        body = {"jsonrpc": "2.0", "id": self._asked, "method": method, "params": list(params)}
        try:
            answer = self._http.post(self._url, json=body).json()
        except (httpx.HTTPError, ValueError) as error:
            raise ChainFailed(
                f"The chain's endpoint does not answer ({type(error).__name__}). Try another --rpc-url."
            ) from error
        if not isinstance(answer, dict) or "error" in answer or "result" not in answer:
            said = answer.get("error") if isinstance(answer, dict) else answer
            text = str(said.get("message", said) if isinstance(said, dict) else said)[:MESSAGE_CHARACTERS_MAX]
            raise ChainFailed(f"The chain's endpoint refuses {method}: {text}")
        return answer["result"]


def encode_call(signature: str, arguments: Sequence[Any]) -> bytes:
    """The data of a call, such as ("approve(address,uint256)", [spender, 5])."""
    from eth_abi.abi import encode
    from eth_utils.crypto import keccak

    types = signature[signature.index("(") + 1 : -1]
    return bytes(keccak(signature.encode()))[:4] + bytes(encode(types.split(",") if types else [], arguments))

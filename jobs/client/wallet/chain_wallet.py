"""A wallet that speaks to a chain: prices a call, signs it here, sends it, waits. Its key never leaves the process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from jobs.client.errors import ChainFailed, ChainSilent
from jobs.client.wallet.chain_reader import ChainReader, as_number
from jobs.client.wallet.key_file import COIN, FEE_MAX, Wallet

POLL_SECONDS: Final = 1.0
SILENCES_MAX: Final = 3  # of the endpoint, while a transaction is waited for
LOOKS: Final = 3  # before a transaction counts as lost: endpoints are many computers that do not know the same
GAS_MARGIN_PERCENT: Final = 25  # what a call needs may grow until it is mined
TIP_WEI: Final = 10**9  # where the endpoint cannot say
RECEIPT: Final = "eth_getTransactionReceipt"


@dataclass(frozen=True)
class SignedTransaction:
    """What goes out: these bytes may be sent any number of times, and count once."""

    hash: str
    raw: str
    nonce: int


@dataclass(frozen=True)
class Price:
    """What a call takes: `gas` as it was tried; amounts in wei, the smallest unit of the chain's own coins."""

    gas: int
    fee_per_gas: int
    tip_per_gas: int

    @property
    def gas_limit(self) -> int:
        """With a margin."""
        return self.gas * (100 + GAS_MARGIN_PERCENT) // 100

    @property
    def most(self) -> int:
        """What is paid at the very most."""
        return self.gas_limit * self.fee_per_gas

    @property
    def shown(self) -> str:
        """The same in coins."""
        return show_coins(self.most)


class ChainWallet(ChainReader):
    """One wallet on one chain; raises ChainFailed, which says what to do."""

    def __init__(self, rpc_url: str, wallet: Wallet, *, chain_id: int | None = None, fee_max: int = FEE_MAX) -> None:
        self.wallet, self.fee_max = wallet, fee_max
        super().__init__(rpc_url, chain_id=chain_id)

    def estimate(self, contract: str, call: bytes) -> int:
        """The gas that a call would take; the endpoint tries it, so that a refusal is known before anything is sent."""
        request = {"from": self.wallet.address, "to": contract, "data": "0x" + call.hex()}
        return self.number("eth_estimateGas", request)

    def price(self, contract: str, call: bytes) -> Price:
        """What a call would take at twice the present base fee.

        Raises ChainFailed for more than the user allows, whoever says that it costs so much, and more than there is.
        """
        gas = self.estimate(contract, call)
        base = as_number(self.newest_block().get("baseFeePerGas") or "0x0", "eth_getBlockByNumber")
        tip = self._tip()
        price = Price(gas, 2 * base + tip, tip)
        if price.most > self.fee_max:
            raise ChainFailed(
                f"The endpoint wants up to {price.shown} of the chain's coins for gas, and at most"
                f" {show_coins(self.fee_max)} are allowed. Wait for a cheaper hour, try another --rpc-url, or allow"
                " more with --max-fee. Nothing was sent."
            )
        have = self.number("eth_getBalance", self.wallet.address, "latest")
        if have < price.most:
            raise ChainFailed(
                f"The wallet {self.wallet.address} has {show_coins(have)} of the coins of chain {self.chain_id}, and"
                f" gas may take {price.shown}: send it some. Nothing was sent."
            )
        return price

    def sign(self, contract: str, call: bytes) -> SignedTransaction:
        """A signed call at the next nonce and the present `price`, as whose refusals this raises."""
        from provider_agent.protocol import ethereum

        price = self.price(contract, call)
        nonce = self.number("eth_getTransactionCount", self.wallet.address, "pending")
        raw = ethereum.sign_transaction(
            self.wallet.key_hex,
            {
                "type": 2,
                "chainId": self.chain_id,
                "nonce": nonce,
                "to": contract,
                "value": 0,
                "data": "0x" + call.hex(),
                "gas": price.gas_limit,
                "maxFeePerGas": price.fee_per_gas,
                "maxPriorityFeePerGas": price.tip_per_gas,
            },
        )
        return SignedTransaction(ethereum.transaction_hash(raw), raw, nonce)

    def send(self, signed: SignedTransaction) -> None:
        """Send the bytes; sending what the chain knows already is no failure."""
        try:
            self.ask("eth_sendRawTransaction", signed.raw)
        except ChainFailed as failed:
            try:
                is_known = self.knows(signed.hash)
            except ChainFailed:
                raise failed from None
            if not is_known:
                raise

    def knows(self, tx_hash: str) -> bool:
        """Whether the endpoint has the transaction, in a block or on its way there."""
        return self.row("eth_getTransactionByHash", tx_hash) is not None

    def is_superseded(self, signed: SignedTransaction) -> bool:
        """Whether another transaction of the wallet took its nonce: then these bytes can never count.

        A computer behind the endpoint that lags must not make it so: it is looked for several times.
        """
        for look in range(LOOKS):
            mined = self.number("eth_getTransactionCount", self.wallet.address, "latest")
            if mined <= signed.nonce or self.knows(signed.hash) or self._receipt(signed.hash) is not None:
                return False
            if look + 1 < LOOKS:
                time.sleep(POLL_SECONDS)
        return True

    def wait(self, tx_hash: str, *, seconds: float, notify: Callable[[str], None]) -> int:
        """The block that it is in, once it is in one; raises ChainFailed when it failed there, or waits in vain."""
        until, has_notified, silences = time.monotonic() + seconds, False, 0
        while time.monotonic() < until:
            try:
                receipt = self._receipt(tx_hash)
            except ChainSilent:
                silences += 1
                if silences >= SILENCES_MAX:
                    raise
                receipt = None
            if receipt is not None and receipt.get("blockNumber"):
                if as_number(receipt.get("status"), RECEIPT) != 1:
                    raise ChainFailed(
                        f"The chain refused transaction {tx_hash}; nothing moved but the gas.", {"is_mined": True}
                    )
                return as_number(receipt["blockNumber"], RECEIPT)
            if not has_notified:
                notify(f"waiting for {tx_hash} ...")
                has_notified = True
            time.sleep(POLL_SECONDS)
        raise ChainFailed(f"Transaction {tx_hash} is not in a block after {seconds:.0f} s.")

    def _receipt(self, tx_hash: str) -> dict[str, Any] | None:
        found = self.row(RECEIPT, tx_hash)
        if found is not None and found.get("transactionHash") != tx_hash:
            raise ChainSilent("The chain's endpoint answers about another transaction. Try another --rpc-url.")
        return found

    def _tip(self) -> int:
        try:
            return self.number("eth_maxPriorityFeePerGas")
        except ChainSilent:
            raise
        except ChainFailed:  # a chain without tips
            return TIP_WEI


def show_coins(wei: int) -> str:
    """Whole coins, with three digits that count: "0.00123"."""
    return f"{Decimal(f'{Decimal(wei) / COIN:.3g}'):f}"


def encode_call(signature: str, arguments: Sequence[Any]) -> bytes:
    """The data of a call, such as ("approve(address,uint256)", [spender, 5])."""
    from eth_abi.abi import encode

    types = signature[signature.index("(") + 1 : -1]
    return selector(signature) + bytes(encode(types.split(",") if types else [], arguments))


def selector(signature: str) -> bytes:
    """The four bytes that say which function a call is of."""
    from eth_utils.crypto import keccak

    return bytes(keccak(signature.encode()))[:4]

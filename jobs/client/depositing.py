"""Pays tokens into the escrow contract, once (see `sending`): as credit, as the wallet's own balance, or as stake.

1. approve   the contract may take exactly this much, unless it may already
2. pay       buyCredits, deposit or stake
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from jobs.client.chain_wallet import ChainWallet, encode_call, selector
from jobs.client.errors import ChainFailed
from jobs.client.sending import MINED_SECONDS, Mined, Sender, Tell
from jobs.client.wallet import Wallet
from jobs.payment import show_units
from jobs.wire import AssetView

WORD: Final = 32  # bytes of one argument
BUY_CREDITS: Final = "buyCredits(bytes32,uint256)"


class Deposit:
    """One wallet's way into one token's escrow."""

    def __init__(self, rpc_url: str, wallet: Wallet, token: AssetView) -> None:
        assert token.chain_id is not None  # noqa: S101 - only tokens come here
        self.token = token
        self.chain = ChainWallet(rpc_url, wallet, chain_id=token.chain_id)
        self.sender = Sender(self.chain)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.chain.close()

    def pay(self, account: bytes, units: int, *, tell: Tell) -> Mined:
        """Buy credits of `units` for the account of 32 bytes; raises ChainFailed."""
        shown = show_units(units, asset=self.token.code, scale=self.token.scale)
        return pay_in(
            self.sender,
            (self.token.token, self.token.contract),
            units,
            call=(BUY_CREDITS, [account, units]),
            what=f"pay {shown} as credit",
            tell=tell,
        )

    def finish_earlier(self, *, tell: Tell) -> Mined | None:
        """Bring what was interrupted to its end; None unless that was a deposit of this kind."""
        found = self.sender.finish_earlier(tell=tell)
        if found is None or not found[0].is_like(self.token.contract, selector(BUY_CREDITS)):
            return None
        return found[1]


def pay_in(
    sender: Sender,
    token_and_contract: tuple[str, str],
    units: int,
    *,
    call: tuple[str, Sequence[Any]],
    what: str,
    tell: Tell,
) -> Mined:
    """Allow the contract to take `units`, then make the call that does; raises ChainFailed."""
    (token, contract), chain = token_and_contract, sender.chain
    address = chain.wallet.address
    have = int.from_bytes(chain.read(token, encode_call("balanceOf(address)", [address]))[:WORD])
    if have < units:
        raise ChainFailed(f"The wallet {address} has {have} base units of the token, and {units} are needed.")
    allowed = chain.read(token, encode_call("allowance(address,address)", [address, contract]))
    if int.from_bytes(allowed[:WORD]) < units:
        tell("allowing the escrow contract to take the amount ...")
        signed = chain.sign(token, encode_call("approve(address,uint256)", [contract, units]))
        chain.send(signed)
        chain.wait(signed.hash, seconds=MINED_SECONDS, tell=tell)
    return sender.send(contract, encode_call(*call), what=what, tell=tell)

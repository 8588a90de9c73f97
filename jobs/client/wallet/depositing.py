"""Pays tokens into the escrow contract, once (see `sending`): as credit, as the wallet's own balance, or as stake.

1. approve   the contract may take exactly this much, unless it may already
2. pay       buyCredits, deposit or stake
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from jobs.client.errors import ChainFailed, ChainSilent
from jobs.client.wallet.chain_wallet import ChainWallet, encode_call, selector
from jobs.client.wallet.escrow_contract import EscrowContract
from jobs.client.wallet.key_file import FEE_MAX, Wallet
from jobs.client.wallet.sending import Mined, Notify, Sender
from jobs.payment.terms import show_units
from jobs.wire import AssetView

WORD: Final = 32  # bytes of one argument
APPROVE: Final = "approve(address,uint256)"
BUY_CREDITS: Final = "buyCredits(bytes32,uint256)"


class Deposit:
    """Pays one wallet's tokens into the escrow contract of the token."""

    def __init__(self, rpc_url: str, wallet: Wallet, token: AssetView, *, fee_max: int = FEE_MAX) -> None:
        assert token.chain_id is not None  # noqa: S101 - only tokens come here
        self.token = token
        self.chain = ChainWallet(rpc_url, wallet, chain_id=token.chain_id, fee_max=fee_max)
        self.sender = Sender(self.chain)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.chain.close()

    def compare(self) -> None:
        """Raise ChainFailed unless the contract on the chain is an escrow of just this token."""
        EscrowContract(self.chain, self.token.contract).require_token(self.token.token, self.token.scale)

    def pay(self, account: bytes, units: int, *, notify: Notify) -> Mined:
        """Buy credits of `units` for the account of 32 bytes; raises ChainFailed."""
        return pay_in(
            self.sender,
            (self.token.token, self.token.contract),
            units,
            call=(BUY_CREDITS, [account, units]),
            what=f"pay {self._show(units)} as credit",
            notify=notify,
            show=self._show,
        )

    def finish_earlier(self, *, notify: Notify) -> Mined | None:
        """Bring what was interrupted to its end; None unless that was a deposit of this kind."""
        found = self.sender.finish_earlier(notify=notify)
        if found is None or not found[0].is_like(self.token.contract, selector(BUY_CREDITS)):
            return None
        return found[1]

    def _show(self, units: int) -> str:
        return show_units(units, asset=self.token.code, scale=self.token.scale)


def pay_in(
    sender: Sender,
    token_and_contract: tuple[str, str],
    units: int,
    *,
    call: tuple[str, Sequence[Any]],
    what: str,
    notify: Notify,
    show: Callable[[int], str],
) -> Mined:
    """Allow the contract to take `units`, then make the call that does; raises as Sender.send."""
    token, contract = token_and_contract
    address = sender.chain.wallet.address
    have = _number(sender, token, "balanceOf(address)", address)
    if have < units:
        raise ChainFailed(f"The wallet {address} has {show(have)}, and {show(units)} are needed. Nothing was sent.")
    allowed = _number(sender, token, "allowance(address,address)", address, contract)
    if allowed < units:
        notify("allowing the escrow contract to take the amount ...")
        _allow(sender, token_and_contract, units, allowed, notify=notify, show=show)
    return sender.send(contract, encode_call(*call), what=what, notify=notify)


def _allow(
    sender: Sender,
    token_and_contract: tuple[str, str],
    units: int,
    allowed: int,
    *,
    notify: Notify,
    show: Callable[[int], str],
) -> None:
    """One transaction; two for a token as USDT, which lets an amount be changed only by way of 0."""
    token, contract = token_and_contract
    call = encode_call(APPROVE, [contract, units])
    if allowed:
        try:
            sender.chain.estimate(token, call)
        except ChainSilent:
            raise
        except ChainFailed:
            sender.send(
                token, encode_call(APPROVE, [contract, 0]), what="allow the escrow contract nothing", notify=notify
            )
    sender.send(token, call, what=f"allow the escrow contract {show(units)}", notify=notify)


def _number(sender: Sender, token: str, view: str, *arguments: str) -> int:
    """What a token's view answers; one that says nothing is no token."""
    word = sender.chain.read(token, encode_call(view, arguments))
    if len(word) < WORD:
        raise ChainFailed(f"{token} does not answer as a token does: try another --rpc-url.")
    return int.from_bytes(word[:WORD])

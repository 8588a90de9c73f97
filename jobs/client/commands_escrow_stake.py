"""escrow: stake, unstake, revoke-key. A provider's collateral, and which keys speak for its wallet."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from jobs.client.errors import ChainFailed, UsageMistake
from jobs.client.escrow_desk import ALL, add_when, open_desk, require_address
from jobs.client.escrow_options import Amount, Sending
from jobs.client.option_groups import with_groups

REQUEST: Final = "requestUnstake(uint256)"


def register(escrow: typer.Typer) -> None:
    """Add this module's commands to the group."""
    for name, command in (("stake", stake), ("unstake", unstake), ("revoke-key", revoke_key)):
        escrow.command(name)(with_groups(command))


def stake(
    amount: Amount,
    *,
    way: Sending,
) -> None:
    """Provider: add to your stake, which is taken in part if you break the rules. It leaves after a wait only.

    Example: souk escrow stake 500 --asset USDC --rpc-url URL --wallet-key-file ~/payout.key
    """
    with open_desk(way) as desk:
        units = desk.parse(amount)
        done = desk.pay_in(units, "stake(uint256)", what=f"Stake {desk.show(units)}")
        staked = desk.contract.staked(desk.wallet)
        desk.tell(done, more={"staked": str(staked)}, hint=f"Staked in all: {desk.show(staked)}.")


def unstake(
    amount: Annotated[
        str, typer.Argument(metavar="[AMOUNT|all]", help="Ask for so much; without it, take what has waited.")
    ] = "",
    *,
    way: Sending,
) -> None:
    """Provider: ask for your stake back, and after the wait take it, with the same command without an amount.

    Asking again makes all that is leaving wait anew; until it is taken it can still be slashed.

    Examples: souk escrow unstake all --asset USDC --rpc-url URL --wallet-key-file ~/payout.key

    souk escrow unstake --asset USDC --rpc-url URL --wallet-key-file ~/payout.key
    """
    from jobs.client.escrow_contract import at

    with open_desk(way) as desk:
        done = desk.finish(REQUEST if amount else "unstake()")
        leaving, leaving_at = desk.contract.unstaking(desk.wallet)
        if done is None and amount:
            active = desk.contract.staked(desk.wallet) - leaving
            units = active if amount == ALL else desk.parse(amount)
            if not units:
                raise UsageMistake(f"{desk.wallet} has no stake that is not leaving already.")
            what = f"Ask for {desk.show(units)} of the stake of {desk.show(active)}"
            done = desk.call(REQUEST, [units], what=what)
        elif done is None:
            if not leaving:
                raise UsageMistake(f"Nothing of {desk.wallet}'s stake is leaving: say how much, or all.")
            try:
                done = desk.call("unstake()", [], what=f"Take out {desk.show(leaving)}")
            except ChainFailed as refused:
                add_when(refused, "TooEarly", at(leaving_at), "It can be taken from")
                raise
        leaving, leaving_at = desk.contract.unstaking(desk.wallet)
        staked = desk.contract.staked(desk.wallet)
        hint = f"Staked: {desk.show(staked)}."
        if leaving:
            hint += f" Of it {desk.show(leaving)} can be taken from {at(leaving_at):%Y-%m-%d %H:%M:%S} UTC on."
        more = {"staked": str(staked), "unstaking": str(leaving), "unstaking_at": leaving_at if leaving else None}
        desk.tell(done, more=more, hint=hint)


def revoke_key(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="The receipt key's; `souk provider delegate` showed it.")
    ],
    *,
    way: Sending,
) -> None:
    """Provider: take back that a node's receipt key speaks for your wallet, as when the node was broken into.

    What it signed and was not settled by then is not paid to you either.

    Example: souk escrow revoke-key 0xabcd... --asset USDC --rpc-url URL --wallet-key-file ~/payout.key
    """
    key = require_address(address)
    with open_desk(way) as desk:
        call = ("revokeReceiptKey(address)", [key])
        done = desk.finish(*call)
        if done is None:
            if not desk.contract.receipt_key_until(desk.wallet, key):
                raise UsageMistake(f"{key} does not speak for {desk.wallet} in this contract.")
            done = desk.call(*call, what=f"Take back that {key} signs for the wallet")
        desk.tell(done, more={"receipt_key": key})

"""escrow: stake, unstake, revoke-key. A provider's collateral, and which keys sign for its wallet."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from jobs.client.commands.escrow_options import Amount, Sending
from jobs.client.commands.escrow_session import ALL, add_when, open_session, require_address
from jobs.client.commands.option_groups import with_groups
from jobs.client.errors import ChainFailed, UsageMistake

REQUEST: Final = "requestUnstake(uint256)"


def register(escrow: typer.Typer) -> None:
    """Add this module's commands to the group."""
    for name, command in (("stake", stake), ("unstake", unstake), ("revoke-key", revoke_key)):
        escrow.command(name)(with_groups(command))


def stake(
    amount: Amount,
    *,
    options: Sending,
) -> None:
    """Provider: add to your stake. Offences are fined from it, and it can be withdrawn only after a wait.

    Example: souk escrow stake 500 --asset USDC --rpc-url URL --wallet-key-file ~/payout.key
    """
    with open_session(options) as session:
        units = session.parse(amount)
        done = session.pay_in(units, "stake(uint256)", what=f"Stake {session.show(units)}")
        staked = session.contract.staked(session.wallet)
        session.report(done, more={"staked": str(staked)}, hint=f"Staked in all: {session.show(staked)}.")


def unstake(
    amount: Annotated[
        str, typer.Argument(metavar="[AMOUNT|all]", help="Request this amount; without it, withdraw after the wait.")
    ] = "",
    *,
    options: Sending,
) -> None:
    """Provider: request your stake back; after the wait, withdraw it by the same command without an amount.

    Asking again makes all that is leaving wait anew; until it is taken it can still be slashed.

    Examples: souk escrow unstake all --asset USDC --rpc-url URL --wallet-key-file ~/payout.key

    souk escrow unstake --asset USDC --rpc-url URL --wallet-key-file ~/payout.key
    """
    from jobs.client.wallet.escrow_contract import at

    with open_session(options) as session:
        done = session.finish(REQUEST if amount else "unstake()")
        leaving, leaving_at = session.contract.unstaking(session.wallet)
        if done is None and amount:
            active = session.contract.staked(session.wallet) - leaving
            units = active if amount == ALL else session.parse(amount)
            if not units:
                raise UsageMistake(f"{session.wallet} has no stake that is not leaving already.")
            what = f"Ask for {session.show(units)} of the stake of {session.show(active)}"
            done = session.call(REQUEST, [units], what=what)
        elif done is None:
            if not leaving:
                raise UsageMistake(f"Nothing of {session.wallet}'s stake is leaving: say how much, or all.")
            try:
                done = session.call("unstake()", [], what=f"Take out {session.show(leaving)}")
            except ChainFailed as refused:
                add_when(refused, "TooEarly", at(leaving_at), "It can be taken from")
                raise
        leaving, leaving_at = session.contract.unstaking(session.wallet)
        staked = session.contract.staked(session.wallet)
        hint = f"Staked: {session.show(staked)}."
        if leaving:
            hint += f" Of it {session.show(leaving)} can be taken from {at(leaving_at):%Y-%m-%d %H:%M:%S} UTC on."
        more = {"staked": str(staked), "unstaking": str(leaving), "unstaking_at": leaving_at if leaving else None}
        session.report(done, more=more, hint=hint)


def revoke_key(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="The receipt key's; `souk provider delegate` showed it.")
    ],
    *,
    options: Sending,
) -> None:
    """Provider: revoke a node's receipt key, so that it no longer signs for your wallet: if the node was broken into.

    What it signed and was not settled by then is not paid to you either.

    Example: souk escrow revoke-key 0xabcd... --asset USDC --rpc-url URL --wallet-key-file ~/payout.key
    """
    key = require_address(address)
    with open_session(options) as session:
        call = ("revokeReceiptKey(address)", [key])
        done = session.finish(*call)
        if done is None:
            if not session.contract.receipt_key_until(session.wallet, key):
                raise UsageMistake(f"{key} does not sign for {session.wallet} in this contract.")
            done = session.call(*call, what=f"Revoke the receipt key {key}")
        session.report(done, more={"receipt_key": key})

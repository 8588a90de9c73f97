"""provider pay-to, payouts, pay-out, claim: how what was earned reaches its owner."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.client.errors import UsageMistake
from jobs.client.options import Json, Server, open_souk

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.wire import AssetView, PayoutView

PAYOUTS = 30
PAYOUTS_MAX = 10_000
CLAIM_SECONDS = 600.0
WALLET_RAIL = "chain"

AssetCode = Annotated[str, typer.Option("--asset", help="USD, or a token; `souk assets` lists them.")]
KeyFile = Annotated[
    Path | None, typer.Option("--wallet-key-file", help="A wallet's private key, 64 hex characters, mode 600.")
]


def register(provider: typer.Typer) -> None:
    """Add this module's commands below `souk provider`."""
    for name, command in (("pay-to", pay_to), ("payouts", payouts), ("pay-out", pay_out), ("claim", claim)):
        provider.command(name)(command)


def pay_to(
    destination: Annotated[
        str, typer.Argument(metavar="[DESTINATION]", help="A connected account's id; for tokens the wallet's address.")
    ] = "",
    *,
    asset: AssetCode = "USD",
    rail: Annotated[str, typer.Option("--rail", help="stripe, chain or fake; `chain` for tokens.")] = "",
    schedule: Annotated[str, typer.Option("--schedule", help="daily, weekly or manual.")] = "daily",
    wallet_key_file: KeyFile = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Say where your earnings go; a later change waits a day before it is used.

    A wallet agrees by its signature, made here: its key is sent nowhere, and need not be on any node.

    Examples: souk provider pay-to acct_123 --rail stripe; souk provider pay-to --asset USDC --wallet-key-file ~/w.key
    """
    from jobs.client.output import console, print_json

    rail = rail or (WALLET_RAIL if wallet_key_file else "stripe")
    with open_souk(server) as souk:
        signature = ""
        if wallet_key_file is not None:
            destination, signature = _sign(souk, asset, wallet_key_file, destination)
        if not destination:
            raise UsageMistake("Where to? Give an account's id, or --wallet-key-file for a wallet.")
        chosen = souk.choose_payout(
            asset=asset, rail=rail, destination=destination, schedule=schedule, signature=signature
        )
    if as_json:
        print_json(chosen)
        return
    text = f"{chosen.asset} goes to {chosen.destination} by {chosen.rail}, {chosen.schedule}."
    if chosen.next_from is not None:
        text += f" From {chosen.next_from:%Y-%m-%d %H:%M} UTC on: to {chosen.next_destination}."
    console().print(text, markup=False)


def payouts(
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=PAYOUTS_MAX, help="At most so many.")] = PAYOUTS,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List your payouts, newest first, each with its cause where it failed.

    Example: souk provider payouts
    """
    from rich.markup import escape

    from jobs.client.output import console, print_json, table

    with open_souk(server) as souk:
        found, scales = souk.payouts(limit=limit), _scales(souk)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            str(each.id),
            f"{each.created_at:%Y-%m-%d %H:%M}",
            _show(each, scales),
            each.rail,
            escape(each.destination),
            each.state,
            escape(each.last_error),
        )
        for each in found
    ]
    columns = ("payout", "when (UTC)", "amount", "by", "to", "state", "why not")
    console().print(table("", columns, rows, right=columns[2:3]))


def pay_out(*, asset: AssetCode = "USD", server: Server = None, as_json: Json = False) -> None:
    """Pay out now what is there, instead of on the day of the schedule.

    Example: souk provider pay-out --asset USDC
    """
    from jobs.client.output import console, print_json

    with open_souk(server) as souk:
        made, scales = souk.request_payout(asset), _scales(souk)
    if as_json:
        print_json(made)
        return
    console().print(f"{_show(made, scales)} to {made.destination} by {made.rail}: {made.state}.", markup=False)


def claim(
    payout: Annotated[
        str, typer.Argument(metavar="[PAYOUT]", help="A payout's id; without it the newest in the token.")
    ] = "",
    *,
    asset: AssetCode = "",
    rpc_url: Annotated[
        str, typer.Option("--rpc-url", envvar="SOUK_RPC_URL", help="An endpoint of the token's chain, of your choice.")
    ] = "",
    wallet_key_file: KeyFile = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Take a payout in tokens out of the escrow contract; without a wallet, print the transaction that does.

    Whoever sends it pays the gas, and the money goes to the payout's wallet all the same. One claim takes everything
    that was ever promised to the wallet and not yet taken.

    Examples: souk provider claim --asset USDC; souk provider claim --asset USDC --rpc-url URL --wallet-key-file ~/w.key
    """
    from jobs.client.chain_wallet import ChainWallet
    from jobs.client.output import console, notice, print_json
    from jobs.client.wallet import read_wallet

    with open_souk(server) as souk:
        proof = souk.payout_proof(_choose(souk, payout, asset).id)
    if wallet_key_file is None or not rpc_url:
        if as_json:
            print_json(proof)
            return
        console().print(f"chain {proof.chain_id}\nto    {proof.contract}\ndata  {proof.call_data}", markup=False)
        notice(f"Send it from any wallet: {proof.wallet} gets what is promised to it. Or add --rpc-url and a key file.")
        return
    wallet = read_wallet(wallet_key_file)
    chain = ChainWallet(rpc_url, wallet, chain_id=proof.chain_id)
    try:
        signed = chain.sign(proof.contract, bytes.fromhex(proof.call_data.removeprefix("0x")))
        chain.send(signed)
        block = chain.wait(signed.hash, seconds=CLAIM_SECONDS, tell=notice)
    finally:
        chain.close()
    if as_json:
        print_json({"tx_hash": signed.hash, "block": block, "wallet": proof.wallet})
        return
    console().print(f"Claimed for {proof.wallet} in transaction {signed.hash}, block {block}.", markup=False)


def _sign(souk: Souk, asset: str, key_file: Path, destination: str) -> tuple[str, str]:
    """The wallet, and its signature of a text that is made here: what a server sends is never signed."""
    from jobs.client.wallet import read_wallet
    from provider_agent.protocol import payout_wallet_text, sign_payout_wallet

    wallet = read_wallet(key_file)
    if destination and destination.lower() != wallet.address.lower():
        raise UsageMistake(f"The key is that of {wallet.address}, and not of {destination}.")
    version = next((each.version for each in souk.payout_settings() if each.asset == asset), 0)
    text = payout_wallet_text(souk.me().organisation.id, asset, wallet.address, change=version + 1)
    return wallet.address, sign_payout_wallet(wallet.key_hex, text)


def _choose(souk: Souk, payout: str, asset: str) -> PayoutView:
    known = [each for each in souk.payouts(limit=PAYOUTS_MAX) if each.rail == WALLET_RAIL]
    found = [each for each in known if (not payout or str(each.id) == payout) and (not asset or each.asset == asset)]
    if not found:
        raise UsageMistake("There is no such payout in tokens; `souk provider payouts` lists all.")
    if not payout and not asset and len({each.asset for each in found}) > 1:
        raise UsageMistake("You were paid in several tokens: say which, with --asset.")
    return found[0]


def _scales(souk: Souk) -> dict[str, AssetView]:
    return {each.code: each for each in souk.assets()}


def _show(each: PayoutView, known: dict[str, AssetView]) -> str:
    from jobs.payment import show_units

    asset = known.get(each.asset)
    return show_units(each.amount, asset=each.asset, scale=asset.scale) if asset else f"{each.amount} {each.asset}"

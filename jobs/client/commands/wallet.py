"""provider delegate, and assets: what jobs are paid in, and to which wallet on chain."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.client.commands.options import Json, Server, open_souk
from jobs.client.errors import UsageMistake

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.wire import AssetView, NodeView

PANEL = "Account"
DAYS = 365
DAYS_MAX = 3650
SECONDS_PER_DAY = 86_400
NONCE_BITS = 128


def register(app: typer.Typer, provider: typer.Typer) -> None:
    """Add this module's commands."""
    app.command(rich_help_panel=PANEL)(assets)
    provider.command("delegate")(delegate)


def assets(server: Server = None, as_json: Json = False) -> None:
    """List what a job may be paid in: dollars, and the tokens that this marketplace takes.

    Example: souk assets
    """
    from rich.markup import escape

    from jobs.client.output import ago, console, money, print_json, table

    with open_souk(server) as souk:
        found = souk.assets()
    if as_json:
        print_json(found)
        return
    rows = [
        (
            escape(asset.code),
            escape(", ".join(asset.modes)),
            money(asset.usd_micros_per_token),
            escape(asset.price_source),
            ago(asset.price_observed_at),
            "" if asset.chain_id is None else str(asset.chain_id),
        )
        for asset in found
    ]
    columns = ("asset", "modes", "price", "source", "seen", "chain")
    console().print(table("", columns, rows, right=columns[2:3]))
    for asset in found:
        for name, address in (("token", asset.token), ("escrow contract", asset.contract)):
            if address.strip("0x"):  # whole and on a line of its own: it is there to be compared and copied
                console().print(f"{asset.code} {name}: {address}", markup=False, soft_wrap=True)


def delegate(
    *,
    wallet_key_file: Annotated[
        Path, typer.Option("--wallet-key-file", help="Your payout wallet's private key, 64 hex characters, mode 600.")
    ],
    asset: Annotated[str, typer.Option("--asset", help="The token that you are paid in, such as TUSD.")],
    node: Annotated[
        list[str] | None, typer.Option("--node", help="A node's name; may be repeated (default: all of yours).")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=32, max=DAYS_MAX, help="How many days it is valid.")] = DAYS,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Let your nodes' receipt keys sign for your payout wallet, so that the escrow contract pays it.

    The wallet signs here, on your own computer: its key is neither sent nor ever put on a node.

    Example: souk provider delegate --asset TUSD --wallet-key-file ~/payout.key --node rack-1
    """
    from billing.proofs.escrow import ReceiptKeyDelegation, sign_delegation
    from jobs.client.output import console, print_json
    from jobs.client.wallet.key_file import read_wallet
    from provider_agent.protocol import ReceiptDomain

    wallet = read_wallet(wallet_key_file)
    with open_souk(server) as souk:
        paid_in = _find_asset(souk.assets(), asset)
        assert paid_in.chain_id is not None  # noqa: S101 - _find_asset has raised otherwise
        domain = ReceiptDomain(chain_id=paid_in.chain_id, verifying_contract=paid_in.contract)
        made = []
        for each in _choose_nodes(souk, node):
            delegation = ReceiptKeyDelegation(
                provider=wallet.address,
                receipt_key=each.receipt_address,
                not_after=int(time.time()) + days * SECONDS_PER_DAY,
                nonce=secrets.randbits(NONCE_BITS),
            )
            made.append(souk.delegate(each.id, paid_in.code, sign_delegation(wallet.key_hex, delegation, domain)))
    if as_json:
        print_json(made)
        return
    for row in made:
        text = f"{row.node_name}: {row.receipt_address} signs for {row.wallet} until {row.not_after:%Y-%m-%d}"
        console().print(f"{text}, on chain {row.chain_id}, contract {row.contract}.", markup=False)


def _find_asset(known: list[AssetView], code: str) -> AssetView:
    """The token; raises UsageMistake where it is none, or has no contract that could pay a wallet."""
    found = next((asset for asset in known if asset.code == code), None)
    tokens = ", ".join(asset.code for asset in known if asset.chain_id is not None) or "none"
    if found is None or found.chain_id is None:
        raise UsageMistake(f"{code} is no token that this marketplace takes; it takes: {tokens}.")
    if not found.contract.strip("0x"):
        raise UsageMistake(f"This marketplace has no escrow contract for {code}: no wallet is needed.")
    return found


def _choose_nodes(souk: Souk, names: list[str] | None) -> list[NodeView]:
    nodes = [each for each in souk.nodes() if each.state != "retired"]
    if not names:
        if not nodes:
            raise UsageMistake("You have no nodes yet. `souk provider add-node` begins it.")
        return nodes
    unknown = sorted(set(names) - {each.name for each in nodes})
    if unknown:
        raise UsageMistake(f"You have no node called {', '.join(unknown)}. `souk provider nodes` lists them.")
    return [each for each in nodes if each.name in names]

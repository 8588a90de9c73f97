"""balance, transfers, deposit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.client.errors import ChainFailed, UsageMistake
from jobs.client.options import Json, Server, ask, find_job, open_souk

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.wire import AssetBalanceView, AssetView

PANEL = "Account"
TRANSFERS = 30
TRANSFERS_MAX = 10_000
POLL_SECONDS = 1.0
CREDIT_SECONDS = 1800  # for the chain to be final, at most
SHOWN = {
    "available": "available",
    "promotion": "given credit",
    "held": "held for jobs",
    "provider_pending": "earned, pending",
    "provider_available": "earned, available",
    "provider_reserve": "earned, kept back",
    "payout_clearing": "on its way out",
}
ALWAYS_SHOWN = ("available", "held")


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    for command in (balance, transfers, deposit):
        app.command(rich_help_panel=PANEL)(command)


def balance(server: Server = None, as_json: Json = False) -> None:
    """Show what is available, what is held for jobs, and what was earned, of every asset.

    Example: souk balance --json
    """
    from jobs.client.output import console, print_json

    with open_souk(server) as souk:
        found = souk.balance()
    if as_json:
        print_json(found)
        return
    console().print("\n\n".join(_describe(each) for each in found.assets), markup=False)


def transfers(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only this job's.", show_default=False)] = None,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=TRANSFERS_MAX, help="At most so many.")] = TRANSFERS,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List every movement of your money, newest first: from where, to where, why, and what it changed.

    Examples: souk transfers; souk transfers my-job --limit 100 --json
    """
    from jobs.client.output import console, print_json, table
    from jobs.payment import show_units

    with open_souk(server) as souk:
        found = souk.transfers(job_id=find_job(souk, job) if job else None, limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            f"{each.created_at:%Y-%m-%d %H:%M:%S}",
            each.code if each.mode == "single" else f"{each.code} ({each.mode})",
            show_units(each.amount, asset=each.asset, scale=each.scale),
            show_units(each.change, asset=each.asset, scale=each.scale) if each.change else "within",
            f"{each.debit_kind} -> {each.credit_kind}",
            str(each.job_id or "")[:8],
        )
        for each in found
    ]
    columns = ("when (UTC)", "why", "amount", "yours by", "from -> to", "job")
    console().print(table("", columns, rows, right=columns[2:4]))


def deposit(
    amount: Annotated[str, typer.Argument(metavar="AMOUNT", help="Such as 25 or 2.50, in the token.")],
    *,
    asset: Annotated[str, typer.Option("--asset", help="The token, such as USDC; `souk assets` lists them.")],
    rpc_url: Annotated[
        str, typer.Option("--rpc-url", envvar="SOUK_RPC_URL", help="An endpoint of the token's chain, of your choice.")
    ],
    wallet_key_file: Annotated[
        Path, typer.Option("--wallet-key-file", help="Your wallet's private key, 64 hex characters, mode 600.")
    ],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the balance has it.")] = True,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Pay tokens from your wallet into the escrow contract, as credit of your organisation.

    The wallet signs here: its key is sent nowhere. A deposit that was interrupted is finished by the next one, before
    anything new is sent.

    Example: souk deposit 25 --asset USDC --rpc-url https://rpc.example --wallet-key-file ~/wallet.key
    """
    from jobs.client.depositing import Deposit
    from jobs.client.output import notice, print_json
    from jobs.client.wallet import read_wallet
    from jobs.payment import parse_units, show_units
    from provider_agent.protocol import id_bytes32

    wallet = read_wallet(wallet_key_file)
    with open_souk(server) as souk:
        token = _find_token(souk, asset)
        try:
            units = parse_units(amount, scale=token.scale)
        except ValueError as error:
            raise UsageMistake(f"{amount!r} is no amount of {token.code}: {error}") from error
        shown = show_units(units, asset=token.code, scale=token.scale)
        organisation = souk.me().organisation
        if not yes and not ask(f"Pay {shown} from {wallet.address} for {organisation.name}?", as_json=as_json):
            raise typer.Abort
        with Deposit(rpc_url, wallet, token) as way:
            earlier = way.finish_earlier(tell=notice)
            made = earlier or way.pay(id_bytes32(organisation.id), units, tell=notice)
        result = {**made.as_json(), "is_earlier": earlier is not None, "is_credited": False}
        if wait:
            wait_for_credit(souk, made.reference, seconds=CREDIT_SECONDS)
            result["is_credited"] = True
    if as_json:
        print_json(result)
        return
    what = "An earlier deposit was finished; nothing new was sent." if earlier else f"{shown} paid."
    where = "It is in your balance." if wait else "It is in your balance once the chain is final: `souk balance`."
    notice(f"{what} Transaction {made.tx_hash}. {where}")


def wait_for_credit(souk: Souk, reference: str, *, seconds: float) -> None:
    """Until the marketplace has credited the transaction; raises ChainFailed."""
    until = time.monotonic() + seconds
    while not any(each.reference.startswith(reference) for each in souk.deposits()):
        if time.monotonic() > until:
            raise ChainFailed(f"{reference} is not credited after {seconds:.0f} s; `souk balance` will show it later.")
        time.sleep(POLL_SECONDS)


def _find_token(souk: Souk, code: str) -> AssetView:
    known = souk.assets()
    found = next((each for each in known if each.code == code), None)
    tokens = ", ".join(each.code for each in known if each.contract.strip("0x")) or "none"
    if found is None or found.chain_id is None or not found.contract.strip("0x"):
        raise UsageMistake(f"{code} cannot be deposited here; what can: {tokens}.")
    return found


def _describe(each: AssetBalanceView) -> str:
    from jobs.payment import show_units

    lines = [each.asset]
    for name, words in SHOWN.items():
        units = getattr(each, name)
        if units or name in ALWAYS_SHOWN:
            lines.append(f"  {words:<18} {show_units(units, asset=each.asset, scale=each.scale)}")
    return "\n".join(lines)

"""balance, transfers, topup, deposit."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.client.commands.options import (
    FEE_COINS_MAX,
    Json,
    KeyFile,
    MaxFee,
    RpcUrl,
    Server,
    Yes,
    ask,
    find_job,
    open_souk,
)
from jobs.client.errors import ChainFailed, PaymentFailed, UsageMistake

if TYPE_CHECKING:
    from uuid import UUID

    from jobs.client.sdk import Souk
    from jobs.wire import AssetBalanceView, AssetView
    from jobs.wire.topups import TopUpView

PANEL = "Account"
TRANSFERS = 30
TRANSFERS_MAX = 10_000
POLL_SECONDS = 1.0
CREDIT_SECONDS = 1800  # for the chain to be final, at most
PAGE_SECONDS = 60  # for the payment processor to make its page, at most
PAY_SECONDS = 3600  # for somebody to pay there, at most
UNDER_WAY = ("requested", "open")
USD_SCALE = 6
CENT = 10_000  # micro-USD
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
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
    for command in (balance, transfers, topup, deposit):
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
    from jobs.payment.terms import show_units

    with open_souk(server) as souk:
        found = souk.transfers(job_id=find_job(souk, job) if job else None, limit=limit)
    if as_json:
        print_json(found)
        return
    if not found:
        console().print("Nothing has moved yet. `souk topup` or `souk deposit` brings money in.", markup=False)
        return
    rows = [
        (
            f"{each.created_at:%Y-%m-%d %H:%M:%S}",
            each.code if each.mode == "single" else f"{each.code} ({each.mode})",
            show_units(each.amount, asset=each.asset, scale=each.scale),
            show_units(each.change, asset=each.asset, scale=each.scale) if each.change else "within",
            f"{each.debit_kind} -> {each.credit_kind}",
            str(each.job_id or ""),
        )
        for each in found
    ]
    columns = ("when (UTC)", "why", "amount", "yours by", "from -> to", "job")
    console().print(table("", columns, rows, right=columns[2:4]))


def topup(
    amount: Annotated[str, typer.Argument(metavar="AMOUNT", help="Dollars, such as 25 or 2.50.")],
    *,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the payment has arrived.")] = True,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    save_card: Annotated[bool, typer.Option("--save-card", help="Keep the card for automatic top-ups.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Pay in by card: prints the payment processor's page, opens it, and waits until the money is there.

    The card's number is given to the payment processor only. With --no-wait, and with --json, no browser is opened.

    Examples: souk topup 25; souk topup 25 --no-wait --json
    """
    from jobs.client.output import console, notice, print_json
    from jobs.payment.terms import show_units

    units = _dollars(amount)
    with open_souk(server) as souk:
        made = _wait_for_page(souk, souk.request_top_up(units, save_card=save_card))
        if made.state == "open" and wait:
            notice(f"Pay {show_units(units, asset='USD', scale=USD_SCALE)} here: {made.checkout_url}")
            if browser and not as_json and sys.stdout.isatty():
                _open_page(made.checkout_url)
            made = _wait_for_payment(souk, made)
    if made.state not in (*UNDER_WAY, "succeeded"):
        raise PaymentFailed(made.message or f"The payment is {made.state}: nothing was charged.", _about(made.id))
    if as_json:
        print_json(made)
    elif made.state != "succeeded":
        console().print(made.checkout_url, markup=False)
    else:
        until = made.spendable_at
        later = f" It can be spent from {until:%Y-%m-%d %H:%M} UTC on." if until and until > datetime.now(UTC) else ""
        shown = show_units(made.amount_usd_micros, asset="USD", scale=USD_SCALE)
        fake = " FAKE: nobody was charged." if made.is_fake else ""
        console().print(f"{shown} arrived.{later}{fake}", markup=False)


def deposit(
    amount: Annotated[str, typer.Argument(metavar="AMOUNT", help="Such as 25 or 2.50, in the token.")],
    *,
    asset: Annotated[str, typer.Option("--asset", help="The token, such as USDC; `souk assets` lists them.")],
    rpc_url: RpcUrl,
    wallet_key_file: KeyFile,
    max_fee: MaxFee = FEE_COINS_MAX,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the balance has it.")] = True,
    yes: Yes = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Pay tokens from your wallet into the escrow contract, as credit of your organisation.

    The wallet signs here: its key is sent nowhere. A deposit that was interrupted is finished by the next one, before
    anything new is sent.

    Example: souk deposit 25 --asset USDC --rpc-url https://rpc.example --wallet-key-file ~/wallet.key
    """
    from jobs.client.output import notice, print_json
    from jobs.client.wallet.depositing import Deposit
    from jobs.client.wallet.key_file import read_wallet, require_fee
    from jobs.payment.terms import parse_units, show_units
    from provider_agent.protocol import id_bytes32

    wallet, fee_max = read_wallet(wallet_key_file), require_fee(max_fee)
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
        with Deposit(rpc_url, wallet, token, fee_max=fee_max) as sending:
            sending.compare()
            earlier = sending.finish_earlier(notify=notice)
            made = earlier or sending.pay(id_bytes32(organisation.id), units, notify=notice)
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


def _dollars(text: str) -> int:
    from jobs.payment.terms import parse_units

    try:
        units = parse_units(text.strip().removeprefix("$"), scale=USD_SCALE)
    except ValueError as error:
        raise UsageMistake(f"{text!r} is no amount of dollars: {error}") from error
    if units % CENT:
        raise UsageMistake(f"{text!r} is no amount of dollars: a card pays whole cents.")
    return units


def _wait_for_page(souk: Souk, made: TopUpView) -> TopUpView:
    """Until the payment processor has made its page, or refused; raises PaymentFailed."""
    until = time.monotonic() + PAGE_SECONDS
    while made.state == "requested" or (made.state == "open" and not made.checkout_url):
        if time.monotonic() > until:
            raise PaymentFailed("The payment processor has made no page yet; try again later.", _about(made.id))
        time.sleep(POLL_SECONDS)
        made = souk.top_up(made.id)
    return made


def _wait_for_payment(souk: Souk, made: TopUpView) -> TopUpView:
    """Until it has ended one way or the other; raises PaymentFailed."""
    until = time.monotonic() + PAY_SECONDS
    while made.state in UNDER_WAY:
        if time.monotonic() > until:
            message = "Nothing was paid yet. The page stays open for a while; `souk balance` shows what arrives."
            raise PaymentFailed(message, _about(made.id))
        time.sleep(POLL_SECONDS)
        made = souk.top_up(made.id)
    return made


def _open_page(url: str) -> None:
    """In a browser, where it is a page that a browser may be sent to: encrypted, or on this computer."""
    import webbrowser
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK):
        webbrowser.open(url)


def _about(top_up_id: UUID) -> dict[str, str]:
    """What an error says of which top-up it was."""
    return {"top_up": str(top_up_id)}


def _find_token(souk: Souk, code: str) -> AssetView:
    """The token; raises UsageMistake where it is none, or another contract than it used to be is named for it."""
    from jobs.client.wallet.known_contracts import KnownContract, remember_contract

    known = souk.assets()
    found = next((each for each in known if each.code == code), None)
    tokens = ", ".join(each.code for each in known if each.contract.strip("0x")) or "none"
    if found is None or found.chain_id is None or not found.contract.strip("0x"):
        raise UsageMistake(f"{code} cannot be deposited here; what can: {tokens}.")
    if (contract := KnownContract.of(found)) is not None:
        remember_contract(souk.transport.server, code, contract)
    return found


def _describe(each: AssetBalanceView) -> str:
    from jobs.payment.terms import show_units

    lines = [each.asset]
    for name, words in SHOWN.items():
        units = getattr(each, name)
        if units or name in ALWAYS_SHOWN:
            lines.append(f"  {words:<18} {show_units(units, asset=each.asset, scale=each.scale)}")
    return "\n".join(lines)

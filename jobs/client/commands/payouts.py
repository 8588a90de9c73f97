"""provider pay-to, payouts, pay-out, claim, statement: how what was earned reaches its owner."""

from __future__ import annotations

import calendar
import re
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.client.commands.options import FEE_COINS_MAX, Json, MaxFee, RpcUrl, Server, open_souk
from jobs.client.errors import TermsRefused, UsageMistake

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.wire import AssetView, PayoutView, ProofView

PAYOUTS = 30
PAYOUTS_MAX = 10_000
WALLET_RAIL = "chain"
FORMATS = ("csv", "pdf", "json")

AssetCode = Annotated[str, typer.Option("--asset", help="USD, or a token; `souk assets` lists them.")]
KeyFile = Annotated[
    Path | None, typer.Option("--wallet-key-file", help="A wallet's private key, 64 hex characters, mode 600.")
]


def register(provider: typer.Typer) -> None:
    """Add this module's commands below `souk provider`."""
    for name, command in (
        ("pay-to", pay_to),
        ("payouts", payouts),
        ("pay-out", pay_out),
        ("claim", claim),
        ("statement", statement),
    ):
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
    """Set where your earnings go; a later change takes effect after three days, and all owners get a mail.

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
    """List your payouts, newest first, each with its cause where it failed; and a change of destination that waits.

    Example: souk provider payouts
    """
    from rich.markup import escape

    from jobs.client.output import console, notice, print_json, table

    with open_souk(server) as souk:
        found, scales, chosen = souk.payouts(limit=limit), _scales(souk), souk.payout_settings()
    for each in chosen:
        if each.next_from is not None:
            notice(
                f"From {each.next_from:%Y-%m-%d %H:%M} UTC on, {each.asset} goes to {each.next_destination} by"
                f" {each.next_rail}, and until then to {each.destination}. Was that none of you? Then"
                f" `souk provider pay-to {each.destination} --rail {each.rail} --asset {each.asset}` stops it."
            )
    if as_json:
        print_json(found)
        return
    if not found:
        rest = "" if any(each.destination for each in chosen) else " `souk provider pay-to` says where it is to go."
        console().print(f"Nothing was paid out yet.{rest}", markup=False)
        return
    rows = [
        (
            str(each.id),
            f"{each.created_at:%Y-%m-%d %H:%M}",
            _show(each, scales),
            each.rail,
            escape(each.destination),
            _state(each),
            escape(_why_not(each)),
        )
        for each in found
    ]
    columns = ("payout", "when (UTC)", "amount", "by", "to", "state", "why not")
    console().print(table("", columns, rows, right=columns[2:3]))


def pay_out(*, asset: AssetCode = "USD", server: Server = None, as_json: Json = False) -> None:
    """Pay out the available balance now, instead of on the schedule.

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
        str, typer.Argument(metavar="[PAYOUT]", help="A payout's id or how it begins; without it the newest.")
    ] = "",
    *,
    asset: AssetCode = "",
    rpc_url: RpcUrl = "",
    wallet_key_file: KeyFile = None,
    max_fee: MaxFee = FEE_COINS_MAX,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Take a payout in tokens out of the escrow contract; without a wallet, print the transaction that does.

    Whoever sends it pays the gas, and the money goes to the payout's wallet all the same. One claim takes everything
    that was ever promised to the wallet and not yet taken.

    Examples: souk provider claim --asset USDC; souk provider claim --asset USDC --rpc-url URL --wallet-key-file ~/w.key
    """
    from jobs.client.output import console, notice, print_json
    from jobs.client.wallet.claiming import claim as send_claim
    from jobs.client.wallet.claiming import claim_call
    from jobs.client.wallet.key_file import read_wallet, require_fee

    wallet = read_wallet(wallet_key_file) if wallet_key_file else None
    fee_max = require_fee(max_fee)
    with open_souk(server) as souk:
        chosen = _choose(souk, payout, asset)
        proof = souk.payout_proof(chosen.id)
        _require_known(souk, chosen.asset, proof)
    if wallet is None or not rpc_url:
        if as_json:
            print_json(proof)
            return
        data = "0x" + claim_call(proof).hex()
        console().print(f"chain {proof.chain_id}\nto    {proof.contract}\ndata  {data}", markup=False)
        notice(f"Send it from any wallet: {proof.wallet} gets what is promised to it. Or add --rpc-url and a key file.")
        return
    mined, is_earlier = send_claim(proof, rpc_url, wallet, fee_max=fee_max, notify=notice)
    if as_json:
        print_json({**mined.as_json(), "wallet": proof.wallet, "is_earlier": is_earlier})
        return
    lead = "An earlier command was finished, and nothing new was sent: claimed" if is_earlier else "Claimed"
    console().print(f"{lead} for {proof.wallet} in transaction {mined.tx_hash}, block {mined.block}.", markup=False)


def statement(
    *,
    month: Annotated[str, typer.Option("--month", help="Such as 2026-11 (default: this month).")] = "",
    format: Annotated[str, typer.Option("--format", help="csv, pdf or json.")] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file (default: stdout).", show_default=False)
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Fetch every movement of what you earned in a month: opening balance + lines = closing balance, by asset.

    Months are UTC's. Without --format the file's name says it, and csv is meant where it does not.

    Examples: souk provider statement --month 2026-11 --output november.pdf

    souk provider statement --month 2026-11 > november.csv
    """
    from jobs.client.output import notice
    from jobs.client.whole_file import save_whole

    first, last = _month(month)
    wanted = _format(format, output, as_json=as_json)
    with open_souk(server) as souk:
        if output is None:
            if wanted == "pdf" and sys.stdout.isatty():
                raise UsageMistake("A PDF is nothing for a terminal: add --output FILE.")
            souk.save_statement(first, last, format=wanted, into=sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return
        save_whole(output, lambda into: souk.save_statement(first, last, format=wanted, into=into))
    notice(f"{output}: {first} to {last}.")


def _sign(souk: Souk, asset: str, key_file: Path, destination: str) -> tuple[str, str]:
    """The wallet, and its signature of a text that is made here: what a server sends is never signed."""
    from jobs.client.wallet.key_file import read_wallet
    from provider_agent.protocol import payout_wallet_text, sign_payout_wallet

    wallet = read_wallet(key_file)
    if destination and destination.lower() != wallet.address.lower():
        raise UsageMistake(f"The key is that of {wallet.address}, and not of {destination}.")
    version = next((each.version for each in souk.payout_settings() if each.asset == asset), 0)
    text = payout_wallet_text(souk.me().organisation.id, asset, wallet.address, change=version + 1)
    return wallet.address, sign_payout_wallet(wallet.key_hex, text)


def _choose(souk: Souk, payout: str, asset: str) -> PayoutView:
    known = [each for each in souk.payouts(limit=PAYOUTS_MAX) if each.rail == WALLET_RAIL]
    found = [
        each
        for each in known
        if (not payout or str(each.id).startswith(payout.lower())) and (not asset or each.asset == asset)
    ]
    if not found:
        raise UsageMistake("There is no such payout in tokens; `souk provider payouts` lists all.")
    if not payout and not asset and len({each.asset for each in found}) > 1:
        raise UsageMistake("You were paid in several tokens: say which, with --asset.")
    return found[0]


def _require_known(souk: Souk, code: str, proof: ProofView) -> None:
    """Raise where the proof is for another contract than the token's, or that than it used to be."""
    from jobs.client.wallet.known_contracts import KnownContract, remember_contract

    asset = next((each for each in souk.assets() if each.code == code), None)
    known = KnownContract.of(asset) if asset else None
    if known is None or (known.chain_id, known.contract.lower()) != (proof.chain_id, proof.contract.lower()):
        raise TermsRefused(
            f"The proof is for {proof.contract}, which is not the contract of {code} in `souk assets`."
            " Nothing was signed: ask the marketplace which one is right."
        )
    remember_contract(souk.transport.server, code, known)


def _month(text: str) -> tuple[date, date]:
    """Its first day and its last."""
    today = datetime.now(UTC).date()
    found = re.fullmatch(r"([0-9]{4})-([0-9]{2})", text or f"{today:%Y-%m}")
    try:
        first = date(int(found[1]), int(found[2]), 1) if found else None
    except ValueError:
        first = None
    if first is None:
        raise UsageMistake(f"--month: {text!r} is no month such as 2026-11.")
    if first > today:
        raise UsageMistake(f"--month: {text} has not begun.")
    return first, first.replace(day=calendar.monthrange(first.year, first.month)[1])


def _format(text: str, output: Path | None, *, as_json: bool) -> str:
    if as_json and text not in ("", "json"):
        raise UsageMistake(f"--json and --format {text} do not go together.")
    suffix = output.suffix.removeprefix(".").lower() if output else ""
    wanted = text or ("json" if as_json else suffix if suffix in FORMATS else "csv")
    if wanted not in FORMATS:
        raise UsageMistake(f"--format: {wanted!r} is none of {', '.join(FORMATS)}.")
    return wanted


def _state(each: PayoutView) -> str:
    """A payout by Stripe that was confirmed is not at the bank yet: how far it came."""
    words = {
        "": each.state,
        "refused": "not at your bank",
        "sent_back": "not at your bank",
        "left_at_stripe": "left at Stripe",
        "sent": "on its way to your bank",
        "paid": "at your bank",
    }
    return words.get(each.bank_state, each.state) if each.state == "confirmed" else each.state


def _why_not(each: PayoutView) -> str:
    if each.state != "confirmed" or each.bank_message == "":
        return each.last_error
    again = f" Next try: {each.bank_next_at:%Y-%m-%d %H:%M} UTC." if each.bank_next_at else ""
    return f"{each.bank_message}{again}"


def _scales(souk: Souk) -> dict[str, AssetView]:
    return {each.code: each for each in souk.assets()}


def _show(each: PayoutView, known: dict[str, AssetView]) -> str:
    from jobs.payment.terms import show_units

    asset = known.get(each.asset)
    return show_units(each.amount, asset=each.asset, scale=asset.scale) if asset else f"{each.amount} {each.asset}"

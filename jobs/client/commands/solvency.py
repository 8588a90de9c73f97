"""solvency: what a marketplace owes and holds, and whether what it owes you is counted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.client.commands.options import Json, Server, open_souk
from jobs.client.errors import SolvencyDoesNotVerify, UsageMistake

if TYPE_CHECKING:
    from jobs.client.verify.solvency import Checked

PANEL = "Account"

Verify = Annotated[
    bool, typer.Option("--verify", help="Verify on this computer that your own accounts are counted in it.")
]
File = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="With --verify: check an exported proof. No server, no key."),
]
Export = Annotated[
    Path | None, typer.Option("--export", metavar="FILE", help="With --verify: keep the proof in this file, as JSON.")
]
Number = Annotated[int | None, typer.Option("--report", min=1, help="The report of this number (default: the newest).")]
ServerKey = Annotated[
    str | None,
    typer.Option(
        "--server-key",
        metavar="HEX",
        help="The marketplace's public key, or its SHA-256, that must have signed.",
        show_default=False,
    ),
]
RpcUrl = Annotated[
    str,
    typer.Option("--rpc-url", envvar="SOUK_RPC_URL", help="Ask this endpoint of a chain for the contract's balance."),
]


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command(rich_help_panel=PANEL)(solvency)


def solvency(
    *,
    verify: Verify = False,
    file: File = None,
    export: Export = None,
    report: Number = None,
    server_key: ServerKey = None,
    rpc_url: RpcUrl = "",
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show what the marketplace owes and holds, by its newest signed report; needs no account.

    Signature, sums, and that each report names the one that you saw before are checked here. With --verify you also get
    the proof of your own accounts: each must lead to the published root and sum, and be what your transfers add up to.
    What is not true ends with status 10.

    Examples: souk solvency --json

    souk solvency --verify --export proof.json

    souk solvency --verify --file proof.json --server-key 5f1c...

    souk solvency --rpc-url https://rpc.example
    """
    from billing.proofs.solvency import SolvencyBroken
    from jobs.client.verify import solvency as solvency_check

    if (file or export) and not verify:
        raise UsageMistake("--file and --export go with --verify.")
    if file and (export or report or server):
        raise UsageMistake("--file takes a file alone.")
    try:
        if file:
            checked = solvency_check.check_file(file, server_key=server_key)
        elif verify:
            with open_souk(server) as souk:
                checked = solvency_check.check_own(souk, number=report, server_key=server_key)
        else:
            checked = solvency_check.check_public(server, number=report, server_key=server_key)
        if rpc_url:
            checked.places = solvency_check.look_on_chain(checked, rpc_url)
    except SolvencyBroken as broken:
        raise SolvencyDoesNotVerify(f"It does not verify: {broken}") from broken
    if export:
        _write(export, checked.proof)
    _print_result(checked, verify=verify, as_json=as_json)


def _print_result(checked: Checked, *, verify: bool, as_json: bool) -> None:
    from jobs.client.output import console, notice, print_json

    if as_json:
        print_json(checked.as_json())
        return
    report, screen = checked.report, console()
    screen.print(
        f"Report {report.number} of {report.at:%Y-%m-%d %H:%M} UTC, up to transfer {report.transfers.seq}.",
        markup=False,
    )
    screen.print(f"Commitment {checked.commitment}", markup=False)
    screen.print(_sums(checked))
    for line in _where(checked):
        screen.print(line, markup=False)
    if verify:
        screen.print(_own(checked), markup=False)
    for remark in checked.remarks:
        notice(remark)
    if not verify:
        notice("Whether what it owes you is counted: souk solvency --verify")


def _sums(checked: Checked) -> Any:
    from jobs.client.output import table
    from jobs.payment.terms import show_units

    columns = ("asset", "owed in all", "customers", "providers", "in dispute", "the platform's own", "held", "accounts")
    rows = []
    for one in checked.report.assets:
        own = sum(map(int, one.own.values()))
        amounts = (one.owed, one.owed_to_customers, one.owed_to_providers, one.in_dispute, own, one.held)
        shown = [show_units(int(units), asset=one.asset, scale=one.scale) for units in amounts]
        rows.append((one.asset, *shown, str(one.leaves)))
    return table("", columns, rows, right=columns[1:])


def _where(checked: Checked) -> list[str]:
    """Where a token's money can be looked at, and what was found there."""
    from jobs.payment.terms import show_units

    lines = []
    for one in checked.report.assets:
        place = one.chain
        if place is None:
            continue
        found = checked.places.get(one.asset)
        if found is None:
            at = "" if place.block is None else f" --block {place.block}"
            lines.append(
                f"{one.asset}: chain {place.chain_id}, escrow contract {place.contract}. Ask it with --rpc-url, or:"
                f" cast call {place.token} 'balanceOf(address)(uint256)' {place.contract}{at}"
            )
            continue
        has, owes = (
            show_units(units, asset=one.asset, scale=one.scale) for units in (found.balance, found.liabilities)
        )
        lines.append(
            f"{one.asset}: the contract {place.contract} has {has} and owes {owes}"
            f" {f'at block {found.block}' if found.block is not None else 'now'}, by chain {place.chain_id} itself."
        )
    return lines


def _own(checked: Checked) -> str:
    from jobs.payment.terms import show_units

    scales = {one.asset: one.scale for one in checked.report.assets}
    parts = [
        f"{show_units(amount, asset=asset, scale=scales[asset])} in {kind}"
        for (asset, kind), amount in sorted(checked.proven.items())
    ]
    if not parts:
        text = "Nothing was owed to you"
    else:
        text = f"Counted as owed to you: {', '.join(parts)}. Accounts proven: {len(checked.proof['accounts'])}"
    if checked.transfers is None:
        return f"{text}. Compare that with what you know of."
    return f"{text}. It is what your {checked.transfers} transfers up to then add up to."


def _write(path: Path, proof: dict[str, Any]) -> None:
    import json

    try:
        path.write_text(json.dumps(proof, indent=1) + "\n")
    except OSError as error:
        raise UsageMistake(f"{path} cannot be written: {error.strerror}") from error

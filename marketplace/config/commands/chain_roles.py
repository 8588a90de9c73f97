"""`souk chain`, the verbs of the contract's roles: decide, slash, compensate, veto, pause, sweep.

Each is sent by our key of the role, if it has that role in the contract; else, and with --print, what a multisig has to
send is printed. A repeat sends nothing twice.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from jobs.client.commands.option_groups import with_groups
from marketplace.config.commands.chain_calls import CallOptions, exit_on_error, make_call
from marketplace.config.commands.chain_setup import Data, Json, contract_named, fail, set_up

if TYPE_CHECKING:
    from billing.models import StakeSlash

app = typer.Typer()

Code = Annotated[str, typer.Argument(help="The token's code.")]
OffenceId = Annotated[UUID, typer.Argument(help="Of the page Offences in the admin.")]


@app.command("disputes")
def list_disputes(as_json: Json = False, data: Data = None) -> None:
    """What customers challenged on the chain, with the bill, and until when the arbiter can decide it.

    Example: souk chain disputes
    """
    set_up(data)
    from billing.chain.contract import challenges

    cases = exit_on_error(lambda: [one.as_json() for one in challenges.open_cases()])
    if as_json:
        typer.echo(json.dumps(cases, indent=2))
        return
    for case in cases:
        _show_case(case)
    if not cases:
        typer.echo("Nothing is challenged.")


@app.command("resolve")
@with_groups
def resolve_lease(
    lease: Annotated[UUID, typer.Argument(help="The challenged lease.")],
    to_provider: Annotated[
        str, typer.Option(help="In tokens; the fee comes out of it, and the customer gets the rest. Left out: show.")
    ] = "",
    *,
    options: CallOptions,
) -> None:
    """Decide a challenge as the arbiter; without --to-provider show evidence, bill and receipts.

    Example: souk chain resolve 0198c7f2-... --to-provider 0.4
    """
    set_up(options.data)
    from billing.chain import operating
    from billing.chain.contract import challenges
    from billing.money import parse_amount

    case = exit_on_error(lambda: challenges.case_of(lease))
    if not to_provider:
        if options.as_json:
            typer.echo(json.dumps(case.as_json(), indent=2))
        else:
            _show_case(case.as_json())
        return
    asset = case.lease.hold.contract.asset
    try:
        amount = parse_amount(to_provider, scale=asset.scale)
    except ValueError as error:
        fail(str(error))
    if amount > case.lease.pending:
        fail(f"{asset.show(amount)} is more than the {asset.show(case.lease.pending)} that waits.")
    if not options.as_json:
        _show_case(case.as_json())
    make_call(operating.resolve(case.lease, to_provider=amount), options)


@app.command("veto")
@with_groups
def veto_root(
    code: Code,
    root: Annotated[str, typer.Argument(help="The proposed root, 0x and 64 digits.")],
    *,
    options: CallOptions,
) -> None:
    """Drop a proposed payout root before it opens, as the arbiter or the pauser.

    Example: souk chain veto USDC 0x66...
    """
    set_up(options.data)
    from billing.chain import operating

    contract = contract_named(code)
    make_call(exit_on_error(lambda: operating.veto(contract, root)), options)


@app.command("pause")
@with_groups
def pause_contract(code: Code, *, options: CallOptions) -> None:
    """Stop money from coming in and from being promised; nothing that goes out stops.

    Example: souk chain pause USDC
    """
    set_up(options.data)
    from billing.chain import operating

    contract = contract_named(code)
    if exit_on_error(lambda: operating.is_paused(contract)):
        fail(f"The contract for {code} is paused already.")
    make_call(operating.pause(contract), options)


@app.command("unpause")
@with_groups
def unpause_contract(code: Code, *, options: CallOptions) -> None:
    """Let money in again.

    Example: souk chain unpause USDC
    """
    set_up(options.data)
    from billing.chain import operating

    contract = contract_named(code)
    if not exit_on_error(lambda: operating.is_paused(contract)):
        fail(f"The contract for {code} is not paused.")
    make_call(operating.unpause(contract), options)


@app.command("slash")
@with_groups
def slash_stake(offence: OffenceId, *, options: CallOptions) -> None:
    """Take of the provider's stake what a fine did not find, now; the scheduled task does it by itself with a key.

    Example: souk chain slash 0198c7f2-... --print
    """
    set_up(options.data)
    from billing.chain import stakes
    from billing.chain.config import chains
    from billing.states.chain import StakeSlashState

    exit_on_error(lambda: [stakes.claim_due(chain_id) for chain_id in chains()])
    row = _slash_of(offence)
    if row.state not in {StakeSlashState.WAITING, StakeSlashState.SENT}:
        fail(f"The slash for the offence {offence} is {row.state}.")
    call = exit_on_error(lambda: stakes.call_of(row))
    if not call.arguments[1]:
        fail(f"{row.wallet} has nothing staked any more.")
    make_call(call, options)


@app.command("compensate")
@with_groups
def compensate_customer(
    offence: OffenceId,
    to: Annotated[str, typer.Option(help="The customer's wallet, where it is not known.")] = "",
    *,
    options: CallOptions,
) -> None:
    """Pay the customer's part of a slashed stake out of the pool, to its wallet's balance in the contract.

    Example: souk chain compensate 0198c7f2-... --to 0xA1b2...
    """
    set_up(options.data)
    from billing.chain import stakes
    from billing.chain.wallets import checksummed

    row = _slash_of(offence)
    try:
        wallet = checksummed(to) if to else row.customer
    except ValueError as error:
        fail(str(error))
    if not wallet:
        fail("The customer's wallet is not known: ask for it, and give it with --to.")
    if row.customer and wallet != row.customer:
        fail(f"The job was paid by {row.customer}, and its part goes back there.")
    if not stakes.to_compensate(row):
        fail(f"Nothing of the slash for the offence {offence} is left to compensate: it is {row.state}.")
    make_call(stakes.compensation_of(row, wallet), options)


@app.command("sweep-surplus")
@with_groups
def sweep_surplus(
    code: Code,
    to: Annotated[str, typer.Option(help="Where it goes.")],
    *,
    options: CallOptions,
) -> None:
    """Send away, as the contract's admin, what was given to the contract and is owed to nobody.

    Example: souk chain sweep-surplus USDC --to 0xA1b2...
    """
    set_up(options.data)
    from billing.chain import operating
    from billing.chain.wallets import checksummed

    contract = contract_named(code)
    try:
        wallet = checksummed(to)
    except ValueError as error:
        fail(str(error))
    make_call(operating.sweep_surplus(contract, to=wallet), options)


def _show_case(case: dict[str, Any]) -> None:
    for name, value in case.items():
        if not isinstance(value, list):
            typer.echo(f"{name:18} {value}")
    for receipt in case["receipts"]:
        typer.echo(f"  receipt {receipt['seq']:>6}  {receipt['billable_ms']:>12} ms  {receipt['amount']}")
    typer.echo("")


def _slash_of(offence: UUID) -> StakeSlash:
    from billing.models import StakeSlash

    row = StakeSlash.objects.select_related("contract__asset", "offence").filter(offence_id=offence).first()
    if row is None:
        fail(f"No stake is to be slashed for the offence {offence}: it found all, or its provider has no stake.")
    return row

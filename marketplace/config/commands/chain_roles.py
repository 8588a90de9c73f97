"""`souk chain`, the verbs of the contract's roles: decide, slash, compensate, veto, pause, sweep.

Each is sent by our key of the role, if the contract says that it has it; else, and with --print, what a multisig has to
send is printed. A repeat sends nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from marketplace.config.commands.chain_setup import Data, Json, contract_named, fail, set_up

if TYPE_CHECKING:
    from billing.chain.operating import Call
    from billing.models import StakeSlash

app = typer.Typer()

Print = Annotated[bool, typer.Option("--print", help="Send nothing: print the call, for a multisig.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is mined, at most five minutes.")]
Code = Annotated[str, typer.Argument(help="The token's code.")]
OffenceId = Annotated[UUID, typer.Argument(help="Of the page Offences in the admin.")]


@app.command("disputes")
def list_disputes(as_json: Json = False, data: Data = None) -> None:
    """What customers challenged on the chain, with the bill, and until when the arbiter can decide it.

    Example: souk chain disputes
    """
    set_up(data)
    from billing.chain import challenges

    cases = _guarded(lambda: [one.as_json() for one in challenges.open_cases()])
    if as_json:
        typer.echo(json.dumps(cases, indent=2))
        return
    for case in cases:
        _show_case(case)
    if not cases:
        typer.echo("Nothing is challenged.")


@app.command("resolve")
def resolve_lease(  # noqa: PLR0917  Typer reads the options from the parameters
    lease: Annotated[UUID, typer.Argument(help="The challenged lease.")],
    to_provider: Annotated[
        str, typer.Option(help="In tokens; the fee comes out of it, and the customer gets the rest. Left out: show.")
    ] = "",
    print_only: Print = False,
    wait: Wait = True,
    as_json: Json = False,
    data: Data = None,
) -> None:
    """Decide a challenge as the arbiter; without --to-provider show evidence, bill and receipts.

    Example: souk chain resolve 0198c7f2-... --to-provider 0.4
    """
    set_up(data)
    from billing.chain import challenges, operating
    from billing.money import parse_amount

    case = _guarded(lambda: challenges.case_of(lease))
    if not to_provider:
        if as_json:
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
    if not as_json:
        _show_case(case.as_json())
    _make(operating.resolve(case.lease, to_provider=amount), print_only=print_only, wait=wait, as_json=as_json)


@app.command("veto")
def veto_root(  # noqa: PLR0917
    code: Code,
    root: Annotated[str, typer.Argument(help="The proposed root, 0x and 64 digits.")],
    print_only: Print = False,
    wait: Wait = True,
    as_json: Json = False,
    data: Data = None,
) -> None:
    """Drop a proposed payout root before it opens, as the arbiter or the pauser.

    Example: souk chain veto USDC 0x66...
    """
    set_up(data)
    from billing.chain import operating

    contract = contract_named(code)
    _make(_guarded(lambda: operating.veto(contract, root)), print_only=print_only, wait=wait, as_json=as_json)


@app.command("pause")
def pause_contract(
    code: Code, print_only: Print = False, wait: Wait = True, as_json: Json = False, data: Data = None
) -> None:
    """Stop money from coming in and from being promised; nothing that goes out stops.

    Example: souk chain pause USDC
    """
    set_up(data)
    from billing.chain import operating

    contract = contract_named(code)
    if _guarded(lambda: operating.is_paused(contract)):
        fail(f"The contract for {code} is paused already.")
    _make(operating.pause(contract), print_only=print_only, wait=wait, as_json=as_json)


@app.command("unpause")
def unpause_contract(
    code: Code, print_only: Print = False, wait: Wait = True, as_json: Json = False, data: Data = None
) -> None:
    """Let money in again.

    Example: souk chain unpause USDC
    """
    set_up(data)
    from billing.chain import operating

    contract = contract_named(code)
    if not _guarded(lambda: operating.is_paused(contract)):
        fail(f"The contract for {code} is not paused.")
    _make(operating.unpause(contract), print_only=print_only, wait=wait, as_json=as_json)


@app.command("slash")
def slash_stake(
    offence: OffenceId, print_only: Print = False, wait: Wait = True, as_json: Json = False, data: Data = None
) -> None:
    """Take of the provider's stake what a fine did not find, now; the scheduled task does it by itself with a key.

    Example: souk chain slash 0198c7f2-... --print
    """
    set_up(data)
    from billing.chain import stakes
    from billing.chain.config import chains
    from billing.chain.states import StakeSlashState

    _guarded(lambda: [stakes.claim_due(chain_id) for chain_id in chains()])
    row = _slash_of(offence)
    if row.state not in {StakeSlashState.WAITING, StakeSlashState.SENT}:
        fail(f"The slash for the offence {offence} is {row.state}.")
    call = _guarded(lambda: stakes.call_of(row))
    if not call.arguments[1]:
        fail(f"{row.wallet} has nothing staked any more.")
    _make(call, print_only=print_only, wait=wait, as_json=as_json)


@app.command("compensate")
def compensate_customer(  # noqa: PLR0917
    offence: OffenceId,
    to: Annotated[str, typer.Option(help="The customer's wallet, where it is not known.")] = "",
    print_only: Print = False,
    wait: Wait = True,
    as_json: Json = False,
    data: Data = None,
) -> None:
    """Pay the customer's part of a slashed stake out of the pool, to its wallet's balance in the contract.

    Example: souk chain compensate 0198c7f2-... --to 0xA1b2...
    """
    set_up(data)
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
    _make(stakes.compensation_of(row, wallet), print_only=print_only, wait=wait, as_json=as_json)


@app.command("sweep-surplus")
def sweep_surplus(  # noqa: PLR0917
    code: Code,
    to: Annotated[str, typer.Option(help="Where it goes.")],
    print_only: Print = False,
    wait: Wait = True,
    as_json: Json = False,
    data: Data = None,
) -> None:
    """Send away, as the contract's admin, what was given to the contract and is owed to nobody.

    Example: souk chain sweep-surplus USDC --to 0xA1b2...
    """
    set_up(data)
    from billing.chain import operating
    from billing.chain.wallets import checksummed

    contract = contract_named(code)
    try:
        wallet = checksummed(to)
    except ValueError as error:
        fail(str(error))
    _make(operating.sweep_surplus(contract, to=wallet), print_only=print_only, wait=wait, as_json=as_json)


def _make(call: Call, *, print_only: bool, wait: bool, as_json: bool) -> None:
    """Send the call and say what became of it, or print it where no key of ours may."""
    from billing.chain import operating, transactions
    from billing.chain.errors import SignerMissing
    from billing.chain.states import TransactionState
    from marketplace.foundation.errors import OutboxConflict

    said: dict[str, Any] = {
        "function": call.function,
        "to": call.to,
        "data": call.data,
        "chain_id": call.contract.chain_id,
        "roles": [str(role) for role in call.roles],
    }
    one = None
    if not print_only:
        try:
            one = _guarded(lambda: operating.submit(call), but=(SignerMissing, OutboxConflict))
        except SignerMissing as error:
            said["why_not_sent"] = str(error)
        except OutboxConflict:
            fail(f"{call.function} was sent with other arguments, and may still be mined: see `souk chain status`.")
    if one is None:
        _print_call(said, as_json=as_json)
        return
    state = _guarded(lambda: operating.wait(one)) if wait else one.state
    one.refresh_from_db()
    standing = transactions.outcome_of(one)
    said |= {"transaction": standing.hash, "state": state, "error": standing.last_error}
    if as_json:
        typer.echo(json.dumps(said, indent=2))
    else:
        typer.echo(f"{call.function}: {state}{f', transaction {standing.hash}' if standing.hash else ''}")
        if state in {TransactionState.MINED, TransactionState.BROADCAST}:
            typer.echo("The books follow when its block is final.")
        if standing.last_error:
            typer.echo(standing.last_error, err=True)
    raise typer.Exit(1 if state in {TransactionState.REVERTED, TransactionState.REFUSED} else 0)


def _print_call(said: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(said, indent=2))
        return
    if "why_not_sent" in said:
        typer.echo(said["why_not_sent"], err=True)
    typer.echo(f"Nothing was sent. From the wallet that is {' or '.join(said['roles'])}, on chain {said['chain_id']}:")
    typer.echo(f"  to    {said['to']}\n  value 0\n  data  {said['data']}")


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


def _guarded(ask: Callable[[], Any], but: tuple[type[Exception], ...] = ()) -> Any:
    """What it returns; a named refusal ends the command."""
    from marketplace.foundation.errors import SoukError

    try:
        return ask()
    except SoukError as error:
        if isinstance(error, but):
            raise
        fail(str(error))

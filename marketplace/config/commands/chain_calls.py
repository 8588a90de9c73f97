"""One call of a role of the contract: sent by our key of it, waited for and told; or printed for a multisig."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from marketplace.config.commands.chain_setup import Data, Json, fail

if TYPE_CHECKING:
    from billing.chain.operating import Call
    from billing.models import ChainTransaction

INTERRUPTED: Final = 130

Print = Annotated[bool, typer.Option("--print", help="Send nothing: print the call, for a multisig.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is mined, at most five minutes.")]


@dataclass(frozen=True, kw_only=True)
class Way:
    """What every verb of a role is told: whether it is sent, and how it answers."""

    print_only: Print = False
    wait: Wait = True
    as_json: Json = False
    data: Data = None


def make_call(call: Call, way: Way) -> None:
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
    if not way.print_only:
        try:
            one = guarded(lambda: operating.submit(call), but=(SignerMissing, OutboxConflict))
        except SignerMissing as error:
            said["why_not_sent"] = str(error)
        except OutboxConflict:
            fail(f"{call.function} was sent with other arguments, and may still be mined: see `souk chain status`.")
    if one is None:
        _print_call(said, as_json=way.as_json)
        return
    try:
        state = guarded(lambda: operating.wait(one)) if way.wait else one.state
    except KeyboardInterrupt:
        _tell_interrupted(call.function, one)
    one.refresh_from_db()
    standing = transactions.outcome_of(one)
    said |= {"transaction": standing.hash, "state": state, "error": standing.last_error}
    if way.as_json:
        typer.echo(json.dumps(said, indent=2))
    else:
        typer.echo(f"{call.function}: {state}{f', transaction {standing.hash}' if standing.hash else ''}")
        if state in {TransactionState.MINED, TransactionState.BROADCAST}:
            typer.echo("The books follow when its block is final.")
        if standing.last_error:
            typer.echo(standing.last_error, err=True)
    raise typer.Exit(1 if state in {TransactionState.REVERTED, TransactionState.REFUSED} else 0)


def guarded(ask: Callable[[], Any], but: tuple[type[Exception], ...] = ()) -> Any:
    """What it returns; a named refusal ends the command."""
    from marketplace.foundation.errors import SoukError

    try:
        return ask()
    except SoukError as error:
        if isinstance(error, but):
            raise
        fail(str(error))


def _tell_interrupted(function: str, one: ChainTransaction) -> NoReturn:
    """It is planned, and sent without this command: Ctrl-C takes nothing back."""
    from billing.chain import transactions

    one.refresh_from_db()
    standing = transactions.outcome_of(one)
    where = f" in transaction {standing.hash}" if standing.hash else ""
    typer.echo(
        f"Interrupted. {function} goes on by itself{where}, and is {standing.state} now; the same command again tells"
        " its end, and sends nothing twice.",
        err=True,
    )
    raise typer.Exit(INTERRUPTED)


def _print_call(said: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(said, indent=2))
        return
    if "why_not_sent" in said:
        typer.echo(said["why_not_sent"], err=True)
    typer.echo(f"Nothing was sent. From the wallet that is {' or '.join(said['roles'])}, on chain {said['chain_id']}:")
    typer.echo(f"  to    {said['to']}\n  value 0\n  data  {said['data']}")

"""One call of a role of the contract: sent with our key and waited for, or printed for a multisig."""

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
class CallOptions:
    """The options of every command of a role: whether the call is sent, and how the result is printed."""

    print_only: Print = False
    wait: Wait = True
    as_json: Json = False
    data: Data = None


def make_call(call: Call, options: CallOptions) -> None:
    """Send the call and report its outcome, or print it where we have no key for it."""
    from billing.chain import operating
    from billing.chain.errors import SignerMissing
    from billing.chain.transactions import planning
    from billing.chain_following import waiting
    from billing.states.chain import TransactionState
    from marketplace.foundation.errors import OutboxConflict

    answer: dict[str, Any] = {
        "function": call.function,
        "to": call.to,
        "data": call.data,
        "chain_id": call.contract.chain_id,
        "roles": [str(role) for role in call.roles],
    }
    one = None
    if not options.print_only:
        try:
            one = exit_on_error(lambda: operating.submit(call), but=(SignerMissing, OutboxConflict))
        except SignerMissing as error:
            answer["why_not_sent"] = str(error)
        except OutboxConflict:
            fail(f"{call.function} was sent with other arguments, and may still be mined: see `souk chain status`.")
    if one is None:
        _print_call(answer, as_json=options.as_json)
        return
    try:
        state = exit_on_error(lambda: waiting.wait(one)) if options.wait else one.state
    except KeyboardInterrupt:
        _report_interrupted(call.function, one)
    one.refresh_from_db()
    standing = planning.outcome_of(one)
    answer |= {"transaction": standing.hash, "state": state, "error": standing.last_error}
    if options.as_json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        typer.echo(f"{call.function}: {state}{f', transaction {standing.hash}' if standing.hash else ''}")
        if state in {TransactionState.MINED, TransactionState.BROADCAST}:
            typer.echo("The books follow when its block is final.")
        if standing.last_error:
            typer.echo(standing.last_error, err=True)
    raise typer.Exit(1 if state in {TransactionState.REVERTED, TransactionState.REFUSED} else 0)


def exit_on_error(call: Callable[[], Any], but: tuple[type[Exception], ...] = ()) -> Any:
    """What `call` returns; a named error ends the command, except those in `but`."""
    from marketplace.foundation.errors import SoukError

    try:
        return call()
    except SoukError as error:
        if isinstance(error, but):
            raise
        fail(str(error))


def _report_interrupted(function: str, one: ChainTransaction) -> NoReturn:
    """The call is planned, and is sent without this command: Ctrl-C does not cancel it."""
    from billing.chain.transactions import planning

    one.refresh_from_db()
    standing = planning.outcome_of(one)
    where = f" in transaction {standing.hash}" if standing.hash else ""
    typer.echo(
        f"Interrupted. {function} goes on by itself{where}, and is {standing.state} now; the same command again"
        " reports its outcome, and sends nothing twice.",
        err=True,
    )
    raise typer.Exit(INTERRUPTED)


def _print_call(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    if "why_not_sent" in answer:
        typer.echo(answer["why_not_sent"], err=True)
    typer.echo(
        f"Nothing was sent. From the wallet that is {' or '.join(answer['roles'])}, on chain {answer['chain_id']}:"
    )
    typer.echo(f"  to    {answer['to']}\n  value 0\n  data  {answer['data']}")

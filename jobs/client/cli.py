"""The `souk` command: every command of the client, and the server's commands as entry points.

Every start pays for what this module imports (`souk --help` takes 0.16 s, measured by `benchmarks/client.py`). So the
modules of `commands/` import typer and their options alone, and each command imports the SDK, rich and pydantic when it
runs. That is the reason for the imports inside functions below `jobs/client`; a test keeps heavy packages out.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points, version
from typing import Annotated, Any

import typer

from jobs.client.commands import (
    account,
    artifacts,
    bill,
    disputes,
    endpoints,
    escrow,
    escrow_jobs,
    escrow_stake,
    invoices,
    jobs,
    keys,
    launch,
    limits,
    market,
    metrics,
    money,
    payouts,
    refunds,
    solvency,
    team,
    wallet,
)
from jobs.client.errors import SoukClientError, UsageMistake
from jobs.client.exit_codes import ExitCode
from jobs.client.volumes import commands as volumes

ENTRY_POINTS = "souk.commands"
DISTRIBUTION = "gpusouk"
SERVER_COMMANDS = {
    "up": "Start a whole marketplace on this computer.",
    "gateway": "Serve every endpoint behind one OpenAI-compatible address.",
    "ledger": "Check the ledger.",
    "chain": "Operate the chains: the escrow contract, transactions, disputes.",
}
# typer carries its own copy of click since 0.2x; this is its ClickException wherever that lies.
_ClickException: Any = typer.BadParameter.__mro__[2]


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"souk {version(DISTRIBUTION)}")
        raise typer.Exit


app = typer.Typer(
    name="souk",
    help="Rent GPUs for a job, and see exactly what it cost. Begin with `souk signup`, or `souk login` if "
    "you have an account; then `souk launch job.yaml`.",
    epilog="Exit statuses: 0 done, 2 usage, 3 bad job file, 4 not signed in, 5 unreachable, 6 refused, 7 nothing fits, "
    "8 job failed, 9 job cancelled, 10 bill does not verify. All of them: docs/cli.md.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root(
    version: Annotated[  # shown by its callback, before a command is looked for
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Stands before every command."""


for _module in (
    launch,
    jobs,
    endpoints,
    artifacts,
    volumes,
    keys,
    metrics,
    account,
    team,
    money,
    refunds,
    limits,
    invoices,
    disputes,
    solvency,
    escrow,
    market,
):
    _module.register(app)
bill.register(app, market.provider)
wallet.register(app, market.provider)
payouts.register(market.provider)
escrow_jobs.register(escrow.escrow)
escrow_stake.register(escrow.escrow)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with one of ExitCode's statuses; a traceback only with SOUK_TRACEBACK=1."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(_guard(lambda: _whole()(args=words, prog_name="souk", standalone_mode=False), as_json="--json" in words))


@functools.cache
def _whole() -> Any:
    """Every command, as typer reads them from their functions' signatures: 0.04 s, once a process."""
    _add_server_commands()
    return typer.main.get_command(app)


def _guard(run: Callable[[], Any], *, as_json: bool) -> int:
    """The exit status of `run`; whatever it raises becomes one clear message."""
    try:
        result = run()
    except BrokenPipeError:
        # Whoever read our output has gone; the interpreter must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except (KeyboardInterrupt, Exception) as error:
        if isinstance(error, _ClickException) and not as_json:
            error.show()
            return ExitCode.USAGE
        status, code, message, details = _explain(error)
        if status == ExitCode.UNEXPECTED and os.environ.get("SOUK_TRACEBACK"):
            raise
        _print_error(code, message, details, as_json=as_json)
        return status
    return result if isinstance(result, int) else ExitCode.OK


def _explain(error: BaseException) -> tuple[ExitCode, str, str, dict[str, Any]]:
    """Status, code, message and details of whatever a command raised."""
    if isinstance(error, SoukClientError):
        return error.exit_code, error.code, error.message, error.details
    if isinstance(error, _ClickException):
        return ExitCode.USAGE, "usage", str(error), {}
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return ExitCode.INTERRUPTED, "interrupted", "Interrupted.", {}
    spec_errors = sys.modules.get("jobs.spec.errors")  # not imported here: a command that raised it has
    if spec_errors is not None and isinstance(error, spec_errors.SpecErrors):
        mistakes = "1 mistake" if error.count == 1 else f"{error.count} mistakes"
        return ExitCode.BAD_JOB_FILE, error.code, f"The job file has {mistakes}:\n{error}", error.details
    message = f"Unexpected {type(error).__name__}: {error}\nSOUK_TRACEBACK=1 shows where. Please report it."
    return ExitCode.UNEXPECTED, "unexpected", message, {}


def _print_error(code: str, message: str, details: dict[str, Any], *, as_json: bool) -> None:
    from jobs.client.output import notice, print_json

    if as_json:
        print_json({"error": {"code": code, "message": message, "details": details}})
    else:
        notice(message)


def _add_server_commands() -> None:
    """The server's commands, as entry points: listed by name, imported only when one is called."""
    known = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name not in known:
            _add_server_command(entry)


def _add_server_command(entry: EntryPoint) -> None:
    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    text = SERVER_COMMANDS.get(entry.name, f"From {entry.value.split(':')[0]}.")

    @app.command(entry.name, help=text, context_settings=settings, add_help_option=False, rich_help_panel="Operators")
    def call(context: typer.Context) -> None:
        command = typer.main.get_command(_load(entry))
        result = command(args=list(context.args), prog_name=f"souk {entry.name}", standalone_mode=False)
        if isinstance(result, int):
            raise typer.Exit(result)


def _load(entry: EntryPoint) -> typer.Typer:
    try:
        loaded: typer.Typer = entry.load()
    except ImportError as error:
        missing = f" ({error.name} is not installed)" if error.name else ""
        message = f"`souk {entry.name}` needs the server's packages{missing}: pip install 'gpusouk[server]'"
        raise UsageMistake(message) from error
    return loaded


if __name__ == "__main__":
    main()

"""`souk up`: a whole marketplace from one command, until Ctrl-C."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from marketplace.config.embedded.child_supervisor import ChildSupervisor
    from marketplace.config.embedded.folder import DataFolder
    from marketplace.config.embedded.marketplace import Running

app = typer.Typer(
    help="Start a whole marketplace on this computer, until Ctrl-C.\n\nExample: souk up --open-signup --data ~/souk"
)

DEFAULT_PORT = 8000
PORT_MAX = 65_534  # sync listens on the next one


@app.callback(invoke_without_command=True)
def up(  # noqa: PLR0917  Typer reads the options from the parameters
    data: Annotated[
        Path | None, typer.Option(help="Data folder. Default: /var/lib/souk for root, else ~/.souk.")
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=1, max=PORT_MAX, help="Web's port; the next three are sync's, a development chain's, the gateway's."
        ),
    ] = DEFAULT_PORT,
    bind: Annotated[
        str, typer.Option(help="Address to listen on. The default lets nobody in from outside.")
    ] = "127.0.0.1",
    admin_email: Annotated[
        str, typer.Option(help="E-mail of the operator that a first start makes.")
    ] = "admin@souk.local",
    open_signup: Annotated[bool, typer.Option("--open-signup", help="Let anybody make an account.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON when all is ready.")] = False,
) -> None:
    """Start PostgreSQL, Redis, web, sync, gateway, worker and beat; watch them; stop them all on Ctrl-C."""
    try:
        from marketplace.config.embedded import folder as data_folder
        from marketplace.config.embedded import marketplace
        from marketplace.config.embedded.child_supervisor import ChildSupervisor, StopRequested, stop_on_signals
        from marketplace.config.embedded.errors import EmbeddedError
        from marketplace.config.embedded.processes import Addresses
    except ModuleNotFoundError as missing:
        _say(f"`souk up` needs the server's packages ({missing.name} is missing): pip install 'gpusouk[server]'")
        raise typer.Exit(1) from None

    status = 0
    with stop_on_signals() as ignore_further:
        opened: DataFolder | None = None
        supervisor: ChildSupervisor | None = None
        try:
            opened = data_folder.open_folder(data or data_folder.default_path())
            _say(f"data folder: {opened.path}")
            supervisor = ChildSupervisor(children_file=opened.path / "children.json", say=_say)
            running = marketplace.start(
                opened, Addresses(bind, port), supervisor, admin_email=admin_email, open_signup=open_signup, say=_say
            )
            _announce(running, opened, supervisor, as_json)
            supervisor.watch()
        except StopRequested:
            _say("stopping")
        except EmbeddedError as error:
            status = 1
            _say(f"souk up: {error.message}")
            if error.details:
                _say(error.details)
        finally:
            ignore_further()
            if supervisor:
                supervisor.stop()
            if opened:
                opened.close()
    if status == 0:
        _say("stopped; all data is kept")
    raise typer.Exit(status)


def _announce(running: Running, opened: DataFolder, supervisor: ChildSupervisor, as_json: bool) -> None:
    if as_json:
        line = {
            "portal_url": running.portal_url,
            "api_url": running.portal_url,
            "sync_url": running.sync_url,
            "gateway_url": running.gateway_url,
            "admin_url": f"{running.portal_url}/admin/",
            "admin_email": running.operator,
            "admin_password": running.operator_password,
            "data": str(opened.path),
            "pid": os.getpid(),
            "pids": supervisor.pids(),
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        return
    _say("")
    _say(f"portal    {running.portal_url}/")
    _say(f"admin     {running.portal_url}/admin/")
    _say(f"gateway   {running.gateway_url}/v1")
    _say(f"operator  {running.operator}")
    secrets = opened.path / "secrets.json"
    if running.operator_password is None:
        _say("password  as you set it")
    elif opened.is_first_welcome():
        _say(f"password  {running.operator_password}   (shown this once; also in {secrets})")
    else:
        _say(f"password  as shown at the first start; it is in {secrets}")
    _say("Ctrl-C stops everything.")


def _say(line: str) -> None:
    """Progress goes to standard error, so that --json leaves one line on standard output."""
    typer.echo(line, err=True)


if __name__ == "__main__":
    app()

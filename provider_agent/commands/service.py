"""`souk-agent service`: start, stop, wait, unit."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from provider_agent.commands.options import guarded
from provider_agent.config import DataFolder, default_data_folder, load_config

LISTED_SECONDS_MAX = 900.0  # a first start may build an environment with torch

app = typer.Typer(
    name="service", help="Keep the agent running on this computer.", no_args_is_help=True, rich_markup_mode=None
)

Data = Annotated[
    Path | None,
    typer.Option("--data", help="Data folder [default: /var/lib/souk-agent as root, else ~/.souk-agent]."),
]
Program = Annotated[Path | None, typer.Option(help="The souk-agent that the service starts [default: this one].")]
User = Annotated[str, typer.Option(help="Whom the agent runs as, if root asks [default: whom the data belong to].")]


@app.command()
def start(data: Data = None, program: Program = None, user: User = "") -> None:
    """Register the agent with systemd and start it; without systemd, start it in the background.

    Example: souk-agent service start
    """

    def act() -> None:
        from provider_agent.packaging.service import start_service

        start_service(_folder(data), _program(program), user, typer.echo)

    guarded(act)


@app.command()
def stop(data: Data = None) -> None:
    """Stop the agent and take it out of systemd. Programs go on; the next start adopts them.

    Example: souk-agent service stop
    """

    def act() -> None:
        from provider_agent.packaging.service import stop_service

        stop_service(_folder(data), typer.echo)

    guarded(act)


@app.command()
def wait(
    seconds: Annotated[float, typer.Option(help="How long.")] = LISTED_SECONDS_MAX,
    data: Data = None,
) -> None:
    """Wait until this node is listed, and print its page.

    Example: souk-agent service wait --seconds 60
    """

    def act() -> None:
        from provider_agent.node.listing import wait_until_listed

        page = asyncio.run(wait_until_listed(_folder(data), seconds=seconds, print_line=typer.echo))
        typer.echo(f"Listed: {page}")

    guarded(act)


@app.command()
def unit(data: Data = None, program: Program = None, user: User = "") -> None:
    """Print the systemd unit that `start` would register.

    Example: souk-agent service unit --user souk-agent
    """

    def act() -> None:
        from provider_agent.packaging.service import owner_of
        from provider_agent.packaging.unit import Unit, unit_text

        folder = _folder(data)
        executor = load_config(folder).executor
        made = Unit(_program(program), folder.root, folder.root / "agent.env", user or owner_of(folder), executor)
        typer.echo(unit_text(made), nl=False)

    guarded(act)


def _folder(data: Path | None) -> DataFolder:
    return DataFolder(data.absolute()) if data is not None else default_data_folder()


def _program(program: Path | None) -> Path:
    return (program or Path(sys.argv[0])).absolute()

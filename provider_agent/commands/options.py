"""What every `souk-agent` command shares: its options, its folder, and one clear line for every error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from provider_agent.config import DataFolder, default_data_folder
from provider_agent.system.guard import exit_status_of

USD_MICROS = 1_000_000

DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Data folder [default: /var/lib/souk-agent as root, else ~/.souk-agent]."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def guarded(act: Callable[[], None]) -> None:
    """Run one command; an AgentError is one clear line and its exit status, never a traceback."""
    if status := exit_status_of(act):
        raise typer.Exit(status)


def folder_of(data: Path | None) -> DataFolder:
    """The folder that --data names, else the default one."""
    return DataFolder(data.absolute()) if data is not None else default_data_folder()


def print_json(found: Any) -> None:
    """For programs."""
    typer.echo(json.dumps(found, indent=2))


def money(usd_micros: int) -> str:
    """US dollars, to the hundredth of a cent: what a GPU earns in a minute is less than a cent."""
    return f"${usd_micros / USD_MICROS:,.4f}"


def printable(text: str) -> str:
    """Without what would steer a terminal: a program that a stranger wrote may have printed it."""
    return "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in text)

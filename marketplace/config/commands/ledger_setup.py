"""What every `souk ledger` command does first, and how each refuses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, NoReturn

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Data folder of a running `souk up`; by default what DATABASE_URL names, else souk up's default."
    ),
]


def fail(sentence: str) -> NoReturn:
    """Say what is wrong, and end with status 1."""
    typer.echo(f"souk ledger: {sentence}", err=True)
    raise typer.Exit(1)


def set_up(data: Path | None) -> None:
    """Django, only when a command needs it: `souk --help` must not ask for a database."""
    try:
        import django

        from marketplace.config.embedded.attach import attach
        from marketplace.config.embedded.errors import EmbeddedError
    except ModuleNotFoundError as missing:
        fail(f"it needs the server's packages ({missing.name} is missing): pip install 'gpusouk[server]'")
    try:
        attach(data)
    except EmbeddedError as error:
        fail(error.message)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "marketplace.config.settings")
    django.setup()

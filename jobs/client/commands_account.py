"""login, logout, balance."""

from __future__ import annotations

import os
import sys
from typing import Annotated
from urllib.parse import urlsplit

import typer

from jobs.client.errors import UsageMistake
from jobs.client.options import Json, Server, open_souk

PANEL = "Account"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    for command in (login, logout, balance):
        app.command(rich_help_panel=PANEL)(command)


def login(
    email: Annotated[str | None, typer.Option("--email", help="Asked for if not given.")] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from the first line of stdin.")
    ] = False,
    key_stdin: Annotated[
        bool, typer.Option("--key-stdin", help="Read an API key from stdin instead of signing in with a password.")
    ] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Sign in; the key is kept in ~/.config/souk/config.json, readable by you alone, and is never printed.

    Examples: souk login --server https://souk.example; souk login --email alice@example.org --password-stdin < file
    """
    from jobs.client.output import console, notice, print_json
    from jobs.client.sdk import Souk
    from jobs.client.settings import choose_server, load_settings, save_settings

    settings = load_settings()
    chosen = choose_server(server, settings)
    parts = urlsplit(chosen)
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        notice(f"{chosen} is not encrypted: whoever is on the way can read the password and the key.")
    if key_stdin:
        key, organisation = sys.stdin.readline().strip(), ""
        with Souk(chosen, key) as souk:
            souk.balance()  # a key that the server does not take is not kept
    else:
        email = email or os.environ.get("SOUK_EMAIL") or _prompt("E-mail", hide=False)
        password = sys.stdin.readline().rstrip("\n") if password_stdin else _prompt("Password", hide=True)
        with Souk(chosen) as souk:
            signed_in = souk.login(email, password)
        key, organisation = signed_in.key, signed_in.organisation.name
    settings.server = chosen
    settings.keys[chosen] = key
    settings.organisations[chosen] = organisation
    path = save_settings(settings)
    if as_json:
        print_json({"server": chosen, "organisation": organisation, "saved_in": str(path)})
    else:
        for_whom = f" for {organisation}" if organisation else ""
        console().print(f"Signed in to {chosen}{for_whom}. The key is kept in {path}.", markup=False)


def logout(server: Server = None, as_json: Json = False) -> None:
    """Forget the key for a server.

    Example: souk logout
    """
    from jobs.client.output import console, print_json
    from jobs.client.settings import choose_server, load_settings, save_settings

    settings = load_settings()
    chosen = choose_server(server, settings)
    had_key = settings.keys.pop(chosen, None) is not None
    settings.organisations.pop(chosen, None)
    save_settings(settings)
    if as_json:
        print_json({"server": chosen, "was_signed_in": had_key})
    else:
        console().print(f"Signed out of {chosen}." if had_key else f"You were not signed in to {chosen}.", markup=False)


def balance(server: Server = None, as_json: Json = False) -> None:
    """Show what is available, what is held for jobs, and what was earned.

    Example: souk balance --json
    """
    from jobs.client.output import console, money, print_json

    with open_souk(server) as souk:
        found = souk.balance()
    if as_json:
        print_json(found)
        return
    lines = [
        f"available          {money(found.available_usd_micros)}",
        f"held for jobs      {money(found.held_usd_micros)}",
    ]
    if found.provider_pending_usd_micros or found.provider_available_usd_micros:
        lines.append(f"earned, pending    {money(found.provider_pending_usd_micros)}")
        lines.append(f"earned, available  {money(found.provider_available_usd_micros)}")
    console().print("\n".join(lines), markup=False)


def _prompt(text: str, *, hide: bool) -> str:
    if not sys.stdin.isatty():
        raise UsageMistake(f"Nobody is there to be asked for the {text.lower()}; use --email and --password-stdin.")
    answer: str = typer.prompt(text, hide_input=hide)
    return answer

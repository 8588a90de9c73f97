"""signup, login, logout."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from jobs.client.commands.options import Json, Server
from jobs.client.errors import UsageMistake

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.wire import SignIn

PANEL = "Account"

Email = Annotated[str | None, typer.Option("--email", help="Asked for if not given.")]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from the first line of stdin.")
]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    for command in (signup, login, logout):
        app.command(rich_help_panel=PANEL)(command)


def signup(
    email: Email = None,
    password_stdin: PasswordStdin = False,
    *,
    organisation: Annotated[
        str, typer.Option("--organisation", help="Name of the new organisation (default: made from your e-mail).")
    ] = "",
    invitation: Annotated[str, typer.Option("--invitation", help="The invitation that you got.")] = "",
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Make an account and sign in, or have the link mailed that makes it. Whether that needs an invitation is the
    operator's choice.

    Example: souk signup --server https://souk.example --email alice@example.org --organisation "Alice Ltd"
    """
    from jobs.client.sdk import Souk

    chosen = _choose(server)
    email, password = _credentials(email, password_stdin, is_new=True)
    with Souk(chosen) as souk:
        next_step = souk.sign_up(email, password, organisation=organisation, invitation=invitation)
        if next_step:
            _show_next_step(chosen, email, next_step, as_json=as_json)
            return
        signed_in = souk.login(email, password)
    _keep(chosen, signed_in.key, signed_in.organisation.name, as_json=as_json)


def login(
    email: Email = None,
    password_stdin: PasswordStdin = False,
    *,
    key_stdin: Annotated[
        bool, typer.Option("--key-stdin", help="Read an API key from stdin instead of signing in with a password.")
    ] = False,
    organisation: Annotated[
        str, typer.Option("--organisation", help="Its name or id, where you belong to several.")
    ] = "",
    code: Annotated[
        str, typer.Option("--code", help="Of your second factor; asked for where your account has one.")
    ] = "",
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Sign in; the key is kept in ~/.config/souk/config.json, readable by you alone, and is never printed.

    Examples: souk login --server https://souk.example; souk login --email alice@example.org --password-stdin < file
    """
    from jobs.client.sdk import Souk

    chosen = _choose(server)
    if key_stdin:
        key, organisation = sys.stdin.readline().strip(), ""
        with Souk(chosen, key) as souk:
            souk.balance()  # a key that the server does not take is not kept
    else:
        email, password = _credentials(email, password_stdin)
        with Souk(chosen) as souk:
            signed_in = _sign_in(souk, email, password, code, organisation=organisation)
        key, organisation = signed_in.key, signed_in.organisation.name
    _keep(chosen, key, organisation, as_json=as_json)


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


def _choose(server: str | None) -> str:
    """The server; a warning where the connection to it is not encrypted."""
    from jobs.client.output import notice
    from jobs.client.settings import LOOPBACK, choose_server, load_settings

    chosen = choose_server(server, load_settings())
    parts = urlsplit(chosen)
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        notice(f"{chosen} is not encrypted: whoever sits between can read the password and the key.")
    return chosen


def _credentials(email: str | None, password_stdin: bool, *, is_new: bool = False) -> tuple[str, str]:
    """Both, as given or asked for; a new password is asked for twice, since nobody sees it."""
    email = email or os.environ.get("SOUK_EMAIL") or _prompt("E-mail")
    if password_stdin:
        return email, sys.stdin.readline().rstrip("\n")
    return email, _prompt("Password", hide_input=True, confirmation_prompt=is_new)


def _sign_in(souk: Souk, email: str, password: str, code: str, *, organisation: str) -> SignIn:
    """With the second factor's code, where the account has one."""
    from jobs.client.errors import SoukApiError

    try:
        return souk.login(email, password, code=code, organisation=organisation)
    except SoukApiError as error:
        if error.code != "second_factor_required" or code:
            raise
    code = _prompt("Code of your second factor")
    return souk.login(email, password, code=code, organisation=organisation)


def _show_next_step(server: str, email: str, next_step: str, *, as_json: bool) -> None:
    """The account is made by the link in a mail; `souk login` comes after it."""
    from jobs.client.output import console, print_json

    if as_json:
        print_json({"server": server, "is_signed_in": False, "next": next_step})
    else:
        console().print(f"{next_step} Then: souk login --server {server} --email {email}", markup=False)


def _keep(server: str, key: str, organisation: str, *, as_json: bool) -> None:
    """Remember the key for this server, which becomes the default one."""
    from jobs.client.output import console, print_json
    from jobs.client.settings import load_settings, save_settings

    settings = load_settings()
    settings.server = server
    settings.keys[server] = key
    settings.organisations[server] = organisation
    path = save_settings(settings)
    if as_json:
        print_json({"server": server, "organisation": organisation, "saved_in": str(path)})
    else:
        for_whom = f" for {organisation}" if organisation else ""
        console().print(f"Signed in to {server}{for_whom}. The key is kept in {path}.", markup=False)


def _prompt(text: str, *, hide_input: bool = False, confirmation_prompt: bool = False) -> str:
    if not sys.stdin.isatty():
        raise UsageMistake(
            f"Nobody is there to be asked for the {text.lower()}; use --email, --password-stdin and --code."
        )
    answer: str = typer.prompt(text, hide_input=hide_input, confirmation_prompt=confirmation_prompt)
    return answer

"""Options and arguments that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar
from uuid import UUID

import typer

from jobs.client.errors import NotSignedIn, UsageMistake

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.wire import JobView

Row = TypeVar("Row")

JOBS_SEARCHED_MAX = 500
PREFIX_CHARACTERS_MIN = 4
IDS_SHOWN_MAX = 5

Server = Annotated[
    str | None,
    typer.Option("--server", help="The marketplace's address; SOUK_SERVER or the one of `souk login` if not given."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else there.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
RpcUrl = Annotated[
    str, typer.Option("--rpc-url", envvar="SOUK_RPC_URL", help="An endpoint of the chain, of your choice.")
]
KeyFile = Annotated[
    Path, typer.Option("--wallet-key-file", help="Your wallet's private key, 64 hex characters, mode 600.")
]
FEE_COINS_MAX = "0.05"
MaxFee = Annotated[
    str,
    typer.Option(
        "--max-fee", metavar="COINS", help="Most that one transaction's gas may cost, in the chain's own coins."
    ),
]
JobFilePath = Annotated[Path, typer.Argument(metavar="FILE", help="The job file.", show_default=False)]
JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="A job's name (the newest of that name), its id, or how that begins.", show_default=False
    ),
]


def open_souk(server: str | None) -> Souk:
    """A signed-in client; raises NotSignedIn before anything is asked of the server."""
    from jobs.client.sdk import Souk
    from jobs.client.settings import choose_key, choose_server, load_settings

    settings = load_settings()
    chosen = choose_server(server, settings)
    key = choose_key(chosen, settings)
    if not key:
        raise NotSignedIn(
            f"You are not signed in to {chosen}. Run `souk login --server {chosen}` or, without an account, "
            f"`souk signup --server {chosen}`; or set SOUK_API_KEY."
        )
    return Souk(chosen, key)


def open_public(server: str | None) -> Souk:
    """A client for what is public, signed in where there is a key."""
    from jobs.client.sdk import Souk
    from jobs.client.settings import choose_key, choose_server, load_settings

    settings = load_settings()
    chosen = choose_server(server, settings)
    return Souk(chosen, choose_key(chosen, settings))


def find_job(souk: Souk, text: str) -> UUID:
    """The id of the job that `text` names: by a name the newest, unless several of that name have not ended.

    Raises UsageMistake for none or several.
    """
    from jobs.client.job_states import ENDS

    try:
        return UUID(text)
    except ValueError:
        pass
    jobs = souk.jobs(limit=JOBS_SEARCHED_MAX)
    if named := [job for job in jobs if job.name == text]:
        living = [job for job in named if job.state not in ENDS]
        if len(living) > 1:
            raise UsageMistake(f"{len(living)} jobs called {text!r} have not ended; give an id: {_ids(living)}")
        return named[0].job_id
    found = (
        [job for job in jobs if str(job.job_id).startswith(text.lower())] if len(text) >= PREFIX_CHARACTERS_MIN else []
    )
    if not found:
        raise UsageMistake(f"No job is called {text!r}. `souk jobs` lists them.")
    if len(found) > 1:
        raise UsageMistake(f"{len(found)} jobs have ids that begin with {text!r}; give more of it: {_ids(found)}")
    return found[0].job_id


def find_row(rows: Sequence[Row], text: str, *, names: Callable[[Row], set[str]], what: str, listing: str) -> Row:
    """The row that `text` names: by an id, how that begins, or a name; raises UsageMistake for none or several."""
    wanted = text.lower()
    found = [row for row in rows if wanted in {name.lower() for name in names(row)}]
    if not found and len(text) >= PREFIX_CHARACTERS_MIN:
        found = [row for row in rows if any(name.lower().startswith(wanted) for name in names(row))]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageMistake(f"No {what} is called {text!r}. `{listing}` lists them.")
    raise UsageMistake(
        f"{len(found)} of them are called {text!r}; give the whole id of one {what}: `{listing} --json`."
    )


def read_dollars(text: str, option: str, *, may_be_zero: bool = False) -> int:
    """Micro-USD of `25`, `2.50` or `$2.50`; raises UsageMistake that names the option."""
    from jobs.spec.units import parse_money

    if may_be_zero and text.strip().removeprefix("$").strip("0.") == "" and any(each == "0" for each in text):
        return 0
    try:
        return parse_money(text)
    except ValueError as error:
        raise UsageMistake(f"{option} {text}: {error}; write dollars, such as 25 or 2.50.") from error


def _ids(jobs: list[JobView]) -> str:
    return ", ".join(str(job.job_id) for job in jobs[:IDS_SHOWN_MAX]) + (", ..." if len(jobs) > IDS_SHOWN_MAX else "")


def ask(question: str, *, as_json: bool) -> bool:
    """Yes or no from somebody who is there; raises UsageMistake where nobody is."""
    if as_json or not sys.stdin.isatty():
        raise UsageMistake("Nobody is there to confirm; add --yes.")
    return typer.confirm(question)

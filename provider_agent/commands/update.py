"""`souk-agent update`: which version runs and which is wanted; update now; hold updates, or let them go on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from provider_agent.commands.known_folders import find_node
from provider_agent.commands.options import DataOption, JsonOption, guarded, print_json
from provider_agent.config import DataFolder, load_config, save_config
from provider_agent.errors import BadConfig, ServiceFailed, UpdateRefused

if TYPE_CHECKING:
    from provider_agent.packaging.prefix import Record

NOW_SECONDS_MAX = 900.0
POLL_SECONDS = 0.5


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command()(update)


def update(  # noqa: PLR0917 - typer passes options by name
    check: Annotated[
        bool, typer.Option("--check", help="Show the versions, and whether an update waits [default].")
    ] = False,
    now: Annotated[
        bool, typer.Option("--now", help="Update to the wanted version, also one that was rolled back.")
    ] = False,
    hold: Annotated[bool, typer.Option("--hold", help="From now on only by --now.")] = False,
    auto: Annotated[bool, typer.Option("--auto", help="From now on by itself, as at the beginning.")] = False,
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Update this agent, or choose when it may. Programs go on through an update.

    Example: souk-agent update --check

    Example: souk-agent update --hold
    """

    def act() -> None:
        if check + now + hold + auto > 1:
            raise BadConfig("Give one of --check, --now, --hold and --auto.")
        folder = find_node(data, for_change=now or hold or auto)
        load_config(folder)
        if now:
            _update_now(folder)
        elif hold or auto:
            _set_mode(folder, "manual" if hold else "auto")
        found = _look(folder)
        if as_json:
            print_json(found)
        else:
            from provider_agent.commands.status_view import update_lines

            typer.echo("\n".join(update_lines(found)))

    guarded(act)


def _look(folder: DataFolder) -> dict[str, Any]:
    from provider_agent.node.status import read_status

    found = read_status(folder)
    return {name: found[name] for name in ("version", "wanted_version", "updates")}


def _set_mode(folder: DataFolder, mode: str) -> None:
    """Counts at once: agent and updater read it each time. A request that was made already is withdrawn."""
    from provider_agent.updating.update_request import clear_update_request

    config = load_config(folder)
    save_config(folder, config.model_copy(update={"updates": mode}))
    if mode == "manual":
        clear_update_request(folder)


def _update_now(folder: DataFolder) -> None:
    from provider_agent.packaging.prefix import own_prefix
    from provider_agent.updating.update_request import clear_update_request, write_update_request

    prefix = own_prefix()
    if prefix is None:
        raise BadConfig("This agent was not installed by install.sh; update it as you installed it.")
    found = _look(folder)
    wanted = found["wanted_version"]
    if not wanted or wanted == found["version"]:
        typer.echo(
            "There is nothing to update to." if found["version"] else "The agent does not run: nothing is known."
        )
        return
    before = prefix.record()
    write_update_request(folder, wanted, now=True)
    typer.echo(f"Updating to {wanted}; programs go on.")
    found_out = _wait_for_outcome(prefix.record_path, before)
    clear_update_request(folder)
    if found_out is not None and found_out.problem and found_out.last == before.last:
        raise UpdateRefused(f"Nothing was changed: {found_out.problem.get('reason')}")
    last = found_out.last if found_out is not None else None
    if last is None:
        raise ServiceFailed(
            f"Nothing came of it in {NOW_SECONDS_MAX:.0f} s: souk-agent service start repairs the updater."
        )
    if last.get("outcome") != "updated":
        raise UpdateRefused(f"Version {last.get('version')} was rolled back: {last.get('reason')}")


def _wait_for_outcome(path: Path, before: Record) -> Record | None:
    """The record once it has a new outcome, or what prevents one; None where neither comes."""
    from provider_agent.packaging.prefix import Record

    until = time.monotonic() + NOW_SECONDS_MAX
    while time.monotonic() < until:
        found = Record.read(path)
        if (found.last and found.last != before.last) or (found.problem and found.problem != before.problem):
            return found
        time.sleep(POLL_SECONDS)
    return None

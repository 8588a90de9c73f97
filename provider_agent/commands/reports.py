"""`souk-agent status | doctor | earnings | logs`: what the provider looks at. Nothing here changes anything."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated
from uuid import UUID

import typer

from provider_agent.commands.known_folders import choose_folder, find_node
from provider_agent.commands.options import (
    DataOption,
    JsonOption,
    folder_of,
    guarded,
    money,
    print_json,
    printable,
)
from provider_agent.config import DataFolder, load_config
from provider_agent.errors import BadConfig
from provider_agent.protocol import Earnings

EXIT_NEEDS_FIXING = 8
RENAMED_CHECKS = {"self-test": "examination"}  # --json has them under the old name too, for one version
LINES_SHOWN = 100
LINES_MAX = 100_000


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    for command in (status, doctor, earnings, logs):
        app.command()(command)


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Stay, and show every change.")] = False,
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Show this node, its contact with the server, its health and its leases.

    Example: souk-agent status --json

    Example: souk-agent status --watch
    """

    def act() -> None:
        from provider_agent.commands.status_view import status_lines, watch_status
        from provider_agent.node.status import read_status

        folder = find_node(data)
        if watch:
            watch_status(folder, as_json=as_json)
        elif as_json:
            print_json(read_status(folder))
        else:
            typer.echo("\n".join(status_lines(read_status(folder))))

    guarded(act)


def doctor(
    as_json: JsonOption = False,
    server: Annotated[str, typer.Option(help="Before enrolment: the marketplace to check this computer for.")] = "",
    executor: Annotated[str, typer.Option(help="Before enrolment: docker or process.")] = "docker",
    data: DataOption = None,
) -> None:
    """Check everything that this node needs; each FIX line names the command that fixes it.

    Example: souk-agent doctor || echo "see the FIX lines"

    Example before enrolment: souk-agent doctor --server https://souk.example
    """

    def act() -> None:
        from provider_agent.node.doctor import examine

        folder = folder_of(data) if server else choose_folder(data)
        findings = asyncio.run(examine(folder, server=server, executor=executor))
        if as_json:
            print_json(_with_old_names([finding.as_dict() for finding in findings]))
        else:
            for finding in findings:
                typer.echo(finding.as_text())
        if any(finding.verdict == "FIX" for finding in findings):
            raise typer.Exit(EXIT_NEEDS_FIXING)

    guarded(act)


def earnings(as_json: JsonOption = False, data: DataOption = None) -> None:
    """Show what this node has earned, after the marketplace's fee: today (UTC), in seven days, and still open.

    Example: souk-agent earnings --json
    """

    def act() -> None:
        found = asyncio.run(_ask_earnings(find_node(data)))
        if as_json:
            print_json(found.model_dump(mode="json"))
            return
        typer.echo(f"today    {money(found.today_usd_micros):>14}  from {found.today_leases} lease(s)")
        typer.echo(f"7 days   {money(found.week_usd_micros):>14}  from {found.week_leases} lease(s)")
        typer.echo(f"open     {money(found.open_usd_micros):>14}  from {found.open_leases} lease(s) that run")
        typer.echo(f"after the marketplace's fee of {found.fee_bps / 100:g} %; days are UTC's")

    guarded(act)


def logs(
    lease: Annotated[str, typer.Option(help="A lease's id: what its program printed. Else the agent's own log.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay, and print what comes.")] = False,
    lines: Annotated[int, typer.Option(min=0, max=LINES_MAX, help="How many of the last lines.")] = LINES_SHOWN,
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Print the agent's own log, or a program's; with --json one object a line.

    Example: souk-agent logs -f

    Example: souk-agent logs --lease 0193c2f6-8a51-7c3e-b6a5-2f9d1e7c4b10
    """

    def act() -> None:
        from provider_agent.executors.base import log_path
        from provider_agent.own_log import read_lines

        folder = find_node(data)
        load_config(folder)
        path = log_path(folder.lease(_lease_id(folder, lease))) if lease else folder.log
        for line in read_lines(path, newest=lines, follow=follow):
            typer.echo(json.dumps({"line": line}) if as_json else printable(line))
            sys.stdout.flush()

    guarded(act)


def _with_old_names(findings: list[dict[str, str]]) -> list[dict[str, str]]:
    """The findings, and after them those whose check was renamed, under the old name."""
    renamed = [finding for finding in findings if finding["check"] in RENAMED_CHECKS]
    old = [{**each, "check": RENAMED_CHECKS[each["check"]], "deprecated": f"use {each['check']}"} for each in renamed]
    return [*findings, *old]


async def _ask_earnings(folder: DataFolder) -> Earnings:
    from provider_agent.node.desired_settings import calling

    async with calling(folder) as client:
        return await client.earnings()


def _lease_id(folder: DataFolder, text: str) -> UUID:
    try:
        lease_id = UUID(text)
    except ValueError:
        raise BadConfig(f"--lease wants a lease's id, not {text!r}; `souk-agent status` lists them.") from None
    if not folder.lease(lease_id).is_dir():
        raise BadConfig(f"The lease {lease_id} is not here, or no longer; `souk-agent status` lists those that are.")
    return lease_id

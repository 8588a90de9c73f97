"""`souk-agent drain | resume | price | schedule`: what the provider changes. Each may be repeated, beside an agent."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from provider_agent.commands.known_folders import find_node
from provider_agent.commands.options import (
    USD_MICROS,
    DataOption,
    JsonOption,
    guarded,
    money,
    print_json,
)
from provider_agent.errors import BadConfig
from provider_agent.protocol import PRICE_USD_MICROS_MAX, REASON_CHARACTERS_MAX, NodeStanding, Schedule


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    for command in (drain, resume, price, schedule):
        app.command()(command)


def drain(
    reason: Annotated[str, typer.Option(help="For you and the operator to read.")] = "",
    is_now: Annotated[
        bool, typer.Option("--now", help="The machine is taken away soon: let what runs save and end, too.")
    ] = False,
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Finish what runs and take nothing new, until `souk-agent resume`.

    Example: souk-agent drain --reason "new power supply on Friday"
    """

    def act() -> None:
        from provider_agent.node import desired_settings

        if len(reason) > REASON_CHARACTERS_MAX:
            raise BadConfig(f"--reason may have {REASON_CHARACTERS_MAX} characters, not {len(reason)}.")
        folder = find_node(data, for_change=True)
        if is_now:
            folder.leaving.touch()  # first: the agent beside needs no answer of the server to let programs save
        _show(asyncio.run(desired_settings.drain(folder, reason)), as_json)

    guarded(act)


def resume(as_json: JsonOption = False, data: DataOption = None) -> None:
    """Take new work again.

    Example: souk-agent resume
    """

    def act() -> None:
        from provider_agent.node import desired_settings

        _show(asyncio.run(desired_settings.resume(find_node(data, for_change=True))), as_json)

    guarded(act)


def price(
    usd: Annotated[
        float | None, typer.Argument(help="US dollars per device and hour; what runs keeps its price.")
    ] = None,
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Show this node's price, or change it from the next lease on.

    Example: souk-agent price 1.35
    """

    def act() -> None:
        from provider_agent.node import desired_settings

        folder = find_node(data, for_change=usd is not None)
        if usd is None:
            _show(asyncio.run(desired_settings.ask_standing(folder)), as_json)
            return
        if not 0 < usd * USD_MICROS <= PRICE_USD_MICROS_MAX or round(usd * USD_MICROS) < 1:
            most = PRICE_USD_MICROS_MAX // USD_MICROS
            raise BadConfig(f"A price lies between 0.000001 and {most} US dollars per device and hour, not {usd}.")
        _show(asyncio.run(desired_settings.change_price(folder, round(usd * USD_MICROS))), as_json)

    guarded(act)


def schedule(  # noqa: PLR0917 - typer passes options by name
    hours: Annotated[
        str | None,
        typer.Option(help='When the node is there: "mon-fri 18:00-08:00; sat,sun 00:00-24:00", or "always".'),
    ] = None,
    timezone: Annotated[str | None, typer.Option(help="Of these hours, for example Europe/Berlin.")] = None,
    away: Annotated[
        list[str] | None,
        typer.Option(help='A window in which it is not: "2026-12-01T08:00Z/2026-12-01T12:00Z". May be repeated.'),
    ] = None,
    no_away: Annotated[bool, typer.Option("--no-away", help="Forget the windows declared so far.")] = False,
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Show or declare when this node is there. Nothing is placed that could not be done before it closes.

    Example: souk-agent schedule --hours "mon-fri 18:00-08:00; sat,sun 00:00-24:00" --timezone Europe/Berlin

    Example: souk-agent schedule --away 2026-12-01T08:00Z/2026-12-01T12:00Z
    """

    def act() -> None:
        from provider_agent.node import desired_settings
        from provider_agent.node import hours as weekly_hours

        def change(known: Schedule) -> Schedule:
            return weekly_hours.changed(known, hours=hours, timezone=timezone, away=away or [], no_away=no_away)

        changes = bool(hours is not None or timezone is not None or away or no_away)
        found = asyncio.run(desired_settings.change_schedule(find_node(data, for_change=changes), change))
        if as_json:
            print_json(found.model_dump(mode="json"))
        else:
            typer.echo("\n".join(weekly_hours.lines(found)))

    guarded(act)


def _show(standing: NodeStanding, as_json: bool) -> None:
    if as_json:
        print_json(standing.model_dump(mode="json"))
        return
    why = f" ({standing.drain_reason})" if standing.drain_reason else ""
    asked = standing.price_usd_micros_per_device_hour
    price = f"{money(asked)} per device and hour" if asked is not None else "without an open offer"
    typer.echo(f"{standing.node_state}{why}; {price}")

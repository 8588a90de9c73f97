"""limits: list, set, remove; auto-topup: show, set, off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jobs.client.commands.options import Json, Server, Yes, ask, find_row, open_souk, read_dollars
from jobs.client.errors import SoukApiError, UsageMistake

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.wire.organisation import LimitView
    from jobs.wire.topups import AutoTopUpView

PANEL = "Account"
PERIODS = ("month", "job")

limits = typer.Typer(no_args_is_help=True, help="How much your organisation and its members may spend.")
auto_topup = typer.Typer(no_args_is_help=True, help="Pay in by the saved card whenever the balance is low.")


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.add_typer(limits, name="limits", rich_help_panel=PANEL)
    app.add_typer(auto_topup, name="auto-topup", rich_help_panel=PANEL)
    for name, command in (("list", list_limits), ("set", set_limit), ("remove", remove)):
        limits.command(name)(command)
    for name, of_topup in (("show", show_rule), ("set", set_rule), ("off", switch_off)):
        auto_topup.command(name)(of_topup)


def list_limits(server: Server = None, as_json: Json = False) -> None:
    """List the limits with what is used and left. Who may not set them sees the organisation's and their own.

    Example: souk limits list
    """
    from rich.markup import escape

    from jobs.client.output import console, money, print_json, table

    with open_souk(server) as souk:
        found = souk.spend_limits()
        known = _emails(souk) if any(each.member_id for each in found) and not as_json else {}
    if as_json:
        print_json(found)
        return
    if not found:
        console().print("No limits. `souk limits set 100` lets the organisation spend $100 a month.", markup=False)
        return
    rows = [
        (
            str(each.id),
            escape(known.get(str(each.member_id), str(each.member_id or "all together"))),
            "a month" if each.period == "month" else f"a {each.period}",
            money(each.amount_usd_micros),
            money(each.used_usd_micros) if each.period == "month" else "-",
            money(each.left_usd_micros) if each.period == "month" else "-",
            f"{each.resets_at:%Y-%m-%d}" if each.resets_at else "",
        )
        for each in found
    ]
    columns = ("id", "whose", "per", "at most", "used", "left", "anew on")
    console().print(table("", columns, rows, right=columns[3:6]))


def set_limit(
    amount: Annotated[
        str, typer.Argument(metavar="AMOUNT", help="Dollars, such as 100 or 2.50; 0 stops all spending.")
    ],
    *,
    member: Annotated[str, typer.Option("--member", help="Of one member, by e-mail or id (default: of all).")] = "",
    period: Annotated[str, typer.Option("--period", help="month: of the calendar, UTC; job: each one.")] = "month",
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Set the most that may be spent, or change it; it counts from the next job on.

    Examples: souk limits set 500; souk limits set 20 --member carol@example.org --period job
    """
    from jobs.client.commands.team import find_member
    from jobs.client.output import console, money, print_json

    units = read_dollars(amount, "AMOUNT", may_be_zero=True)
    if period not in PERIODS:
        raise UsageMistake(f"--period is {' or '.join(PERIODS)}, not {period!r}.")
    with open_souk(server) as souk:
        whose = find_member(souk, member) if member else None
        made = souk.set_spend_limit(units, period=period, member_id=whose.user.id if whose else None)
    if as_json:
        print_json(made)
        return
    who = whose.user.email if whose else "The organisation"
    console().print(f"{who} may spend {money(made.amount_usd_micros)} a {made.period}.", markup=False)


def remove(
    limit: Annotated[str, typer.Argument(metavar="LIMIT", help="Its id, or how that begins.")],
    *,
    yes: Yes = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Remove a limit.

    Example: souk limits remove 0192f3c1 --yes
    """
    from jobs.client.output import console, money, print_json

    with open_souk(server) as souk:
        found: LimitView = find_row(
            souk.spend_limits(), limit, names=lambda each: {str(each.id)}, what="limit", listing="souk limits list"
        )
        shown = f"{money(found.amount_usd_micros)} a {found.period}"
        if not yes and not ask(f"Remove the limit of {shown}?", as_json=as_json):
            raise typer.Abort
        souk.remove_spend_limit(found.id)
    if as_json:
        print_json({"removed": str(found.id)})
    else:
        console().print(f"The limit of {shown} is removed.", markup=False)


def show_rule(server: Server = None, as_json: Json = False) -> None:
    """Show when the card is charged by itself, and why it is paused where it is.

    Example: souk auto-topup show
    """
    with open_souk(server) as souk:
        _print(_rule(souk), as_json=as_json)


def set_rule(
    *,
    below: Annotated[str, typer.Option("--below", help="Pay in when the balance is below so many dollars.")],
    amount: Annotated[str, typer.Option("--amount", help="Dollars to pay in each time.")],
    monthly_max: Annotated[str, typer.Option("--monthly-max", help="Dollars at most in any 30 days.")],
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Pay in by the default card whenever the balance is low; setting it again ends a pause.

    A card is kept by `souk topup --save-card`.

    Example: souk auto-topup set --below 20 --amount 50 --monthly-max 200
    """
    units = [read_dollars(text, name) for text, name in ((below, "--below"), (amount, "--amount"))]
    most = read_dollars(monthly_max, "--monthly-max")
    with open_souk(server) as souk:
        rule = souk.set_auto_top_up(
            threshold_usd_micros=units[0], amount_usd_micros=units[1], monthly_max_usd_micros=most
        )
    _print(rule, as_json=as_json)


def switch_off(server: Server = None, as_json: Json = False) -> None:
    """Charge the card no more by itself; the rule is kept, and `souk auto-topup set` begins anew.

    Example: souk auto-topup off
    """
    with open_souk(server) as souk:
        rule = _rule(souk)
        changed = souk.set_auto_top_up(
            threshold_usd_micros=rule.threshold_usd_micros,
            amount_usd_micros=rule.amount_usd_micros,
            monthly_max_usd_micros=rule.monthly_max_usd_micros,
            is_enabled=False,
        )
    _print(changed, as_json=as_json)


def _rule(souk: Souk) -> AutoTopUpView:
    try:
        return souk.auto_top_up()
    except SoukApiError as error:
        if error.status == 404:
            error.message = "The card is not charged by itself. `souk auto-topup set` begins it."
        raise


def _print(rule: AutoTopUpView, *, as_json: bool) -> None:
    from jobs.client.output import console, money, print_json

    if as_json:
        print_json(rule)
        return
    amount, below, most = (
        money(units) for units in (rule.amount_usd_micros, rule.threshold_usd_micros, rule.monthly_max_usd_micros)
    )
    text = f"{amount} whenever the balance is below {below}, at most {most} in 30 days."
    if not rule.is_enabled:
        text = f"Off. It was: {text}"
    elif rule.paused_at is not None:
        text += (
            f"\nPaused since {rule.paused_at:%Y-%m-%d %H:%M} UTC: {rule.pause_reason}. `souk auto-topup set` ends it."
        )
    console().print(text, markup=False)


def _emails(souk: Souk) -> dict[str, str]:
    """By user's id; empty for who may not see the members."""
    try:
        return {str(each.user.id): each.user.email for each in souk.members()}
    except SoukApiError:
        return {}

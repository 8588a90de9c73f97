"""keys create, keys list, keys revoke; usage."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from jobs.client.commands.options import Json, Server, Yes, ask, open_souk
from jobs.client.errors import UsageMistake

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.wire.usage import EndpointKeyView

PANEL = "Serving"
KEYS_MAX = 1000
GROUPS = ("day", "key", "model", "endpoint")

keys = typer.Typer(no_args_is_help=True, help="Keys for programs that call models, with budgets and limits.")


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    for name, command in (("create", create), ("list", list_keys), ("revoke", revoke)):
        keys.command(name)(command)
    app.add_typer(keys, name="keys", rich_help_panel=PANEL)
    app.command(rich_help_panel=PANEL)(usage)


def create(
    name: Annotated[str, typer.Argument(help="What it is for, such as the program's name.", show_default=False)],
    *,
    endpoint: Annotated[
        list[UUID] | None, typer.Option("--endpoint", help="An endpoint's id; may be repeated (default: all).")
    ] = None,
    budget: Annotated[
        str, typer.Option("--budget", metavar="USD", help="The most that it may spend, such as 5.00.")
    ] = "",
    monthly: Annotated[bool, typer.Option("--monthly", help="The budget is for each month.")] = False,
    requests: Annotated[int | None, typer.Option("--requests-per-minute", min=1)] = None,
    tokens: Annotated[int | None, typer.Option("--tokens-per-minute", min=1)] = None,
    in_flight: Annotated[int | None, typer.Option("--in-flight", min=1, help="Requests at once.")] = None,
    expires: Annotated[str, typer.Option("--expires", metavar="TIME", help="How long it lives, such as 30d.")] = "",
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Make a key. It is shown once: keep it where the program finds it, such as OPENAI_API_KEY.

    Example: souk keys create assistant --budget 20.00 --monthly --expires 90d
    """
    from jobs.client.output import console, notice, print_json
    from jobs.wire.usage import NewEndpointKeyView

    body = {
        "name": name,
        "endpoint_ids": [str(each) for each in endpoint] if endpoint else None,
        "budget_usd_micros": _money(budget),
        "budget_period": "month" if monthly else "total",
        "requests_per_minute": requests,
        "tokens_per_minute": tokens,
        "in_flight_max": in_flight,
        "expires_at": _until(expires),
    }
    with open_souk(server) as souk:
        made = NewEndpointKeyView.model_validate(souk.transport.post("/endpoint-keys", body))
    if as_json:
        print_json(made)
        return
    notice("This is the only time that the key is shown:")
    console().print(made.key, markup=False)


def list_keys(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also revoked and expired keys.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List keys: what each may spend, and what it has.

    Example: souk keys list
    """
    from rich.markup import escape

    from jobs.client.output import ago, console, money, print_json, table

    with open_souk(server) as souk:
        found = [each for each in _all(souk) if everything or _is_live(each)]
    if as_json:
        print_json(found)
        return
    if not found:
        console().print("No keys. `souk keys create NAME` makes one with which a program calls models.", markup=False)
        return
    rows = [
        [
            str(each.id),
            escape(each.name),
            f"{each.prefix}...",
            money(each.spent_usd_micros),
            money(each.budget_usd_micros) + (" a month" if each.budget_period == "month" else ""),
            ago(each.last_used_at) if each.last_used_at else "never",
            _state(each),
        ]
        for each in found
    ]
    columns = ["id", "name", "key", "spent", "budget", "used", "state"]
    console().print(table("Keys", columns, rows, right=["spent", "budget"]))


def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its id, the beginning of it, or its name.")],
    yes: Yes = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Revoke a key: gateways refuse it within about a second.

    Example: souk keys revoke assistant --yes
    """
    from jobs.client.output import console, print_json
    from jobs.wire.usage import EndpointKeyView

    with open_souk(server) as souk:
        found = _find(souk, key)
        if not yes and not ask(f"Revoke {found.name} ({found.prefix}...)?", as_json=as_json):
            raise typer.Exit(0)
        gone = EndpointKeyView.model_validate(souk.transport.delete(f"/endpoint-keys/{found.id}"))
    if as_json:
        print_json(gone)
    else:
        console().print(f"{gone.name} ({gone.prefix}...) is revoked.", markup=False)


def usage(
    *,
    group: Annotated[str, typer.Option("--by", help="day, key, model or endpoint.")] = "day",
    since: Annotated[
        str, typer.Option("--from", metavar="DATE", help="The first day, UTC; 30 days if not given.")
    ] = "",
    until: Annotated[str, typer.Option("--to", metavar="DATE", help="The last day, UTC; today if not given.")] = "",
    sold: Annotated[bool, typer.Option("--sold", help="What other organisations used of your endpoints.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show what models were used: requests, tokens and cost.

    Calls of your own endpoints cost nothing beyond their replicas: their cost counts against keys' budgets only.

    Examples: souk usage; souk usage --by key --from 2026-11-01; souk usage --sold --by model
    """
    from jobs.client.output import console, money, print_json, table
    from jobs.wire.usage import UsageView

    if group not in GROUPS:
        raise UsageMistake(f"--by {group}? It is one of {', '.join(GROUPS)}.")
    asked: dict[str, Any] = {
        "from": _day(since),
        "to": _day(until),
        "group": group,
        "side": "owner" if sold else "caller",
    }
    with open_souk(server) as souk:
        view = UsageView.model_validate(souk.transport.get("/usage", **asked))
    if as_json:
        print_json(view)
        return
    rows = [
        [
            each.name,
            f"{each.requests:,}",
            f"{each.failed:,}",
            f"{each.input_tokens:,}",
            f"{each.output_tokens:,}",
            money(each.cost_usd_micros),
        ]
        for each in [*view.lines, view.total]
    ]
    columns = [group, "requests", "failed", "tokens read", "written", "cost"]
    console().print(table(f"{view.since} to {view.until}", columns, rows, right=columns[1:]))
    console().print(f"paid {money(view.paid_usd_micros)}, due {money(view.due_usd_micros)}", markup=False)


def _all(souk: Souk) -> list[EndpointKeyView]:
    from itertools import islice

    from jobs.wire.usage import EndpointKeyView

    return list(islice(souk.all_of("/endpoint-keys", EndpointKeyView), KEYS_MAX))


def _find(souk: Souk, text: str) -> EndpointKeyView:
    live = [each for each in _all(souk) if each.revoked_at is None]
    found = [each for each in live if text in {str(each.id), each.name}] or [
        each for each in live if str(each.id).startswith(text.lower())
    ]
    if len(found) == 1:
        return found[0]
    raise UsageMistake(
        f"{'No key is' if not found else f'{len(found)} keys are'} called {text!r}. See `souk keys list`."
    )


def _is_live(key: EndpointKeyView) -> bool:
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > datetime.now(UTC))


def _state(key: EndpointKeyView) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is None:
        return "live"
    return f"until {key.expires_at:%Y-%m-%d}" if _is_live(key) else "expired"


def _money(text: str) -> int | None:
    from jobs.spec.units import parse_money

    try:
        return parse_money(text) if text else None
    except ValueError as error:
        raise UsageMistake(f"--budget {text}: {error}") from error


def _until(text: str) -> str | None:
    from jobs.spec.units import parse_duration

    try:
        return (datetime.now(UTC) + timedelta(seconds=parse_duration(text))).isoformat() if text else None
    except (ValueError, OverflowError) as error:
        raise UsageMistake(f"--expires {text}: {error}") from error


def _day(text: str) -> str | None:
    try:
        return date.fromisoformat(text).isoformat() if text else None
    except ValueError as error:
        raise UsageMistake(f"{text} is no day, such as 2026-11-22.") from error

"""The plan table: where a job fits, what it will cost there, why one place was chosen, or why none fits."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from jobs.client.output import duration, money, table
from jobs.client.views.hold import promise_lines
from jobs.payment.terms import show_units
from jobs.spec import ServeSection, Spec, kind_of, serve_of
from jobs.wire import Candidate, Plan, QuoteView

CANDIDATES_SHOWN = 10
FALLEN = (
    "If the token has fallen when a node is found, more of it is held for the same dollars only with your word, or "
    "where the job file says on_price_change: requote."
)
FALLEN_ESCROW = (
    "If the token has fallen when a node is found, the job waits: never more than your wallet signs is held."
)


def plan_view(quote: QuoteView, spec: Spec | None = None) -> RenderableType:
    """Everything a customer needs to say yes or no, or to change the job file."""
    plan = quote.plan
    parts: list[RenderableType] = []
    if plan.candidates:
        parts.append(_candidates(plan, quote))
        parts.append(Text.from_markup(_why(plan)))
    parts += _exclusions(plan, fits=quote.quote_id is not None)
    if quote.quote_id is not None:
        promise = _serving_promise(quote, serve_of(spec)) if spec and kind_of(spec).has_endpoint else _promise(quote)
        if spec and spec.resources.nodes_max > spec.resources.nodes:
            promise += "\n" + _growing(spec)
        parts += [Text(), Text.from_markup(promise)]
    return Group(*parts)


def _candidates(plan: Plan, quote: QuoteView) -> RenderableType:
    shown = sorted(plan.candidates, key=lambda candidate: not candidate.is_chosen)[:CANDIDATES_SHOWN]
    columns = ("", "nodes", "devices", "region", "$/device-hour", "TFLOP/s", "expected time", "expected", "at most")
    rows = [_row(candidate, quote) for candidate in shown]
    title = f"{len(plan.candidates)} of {plan.nodes_seen} fit"
    return table(title, columns, rows, right=columns[4:])


def _row(candidate: Candidate, quote: QuoteView) -> tuple[str, ...]:
    mark = "[bold green]>[/]" if candidate.is_chosen else ""
    return (
        mark,
        escape(", ".join(candidate.node_names)) + ("" if candidate.is_free else " [yellow](busy)[/]"),
        f"{candidate.devices} x {escape(candidate.device_model)}",
        escape(candidate.region),
        money(candidate.price_usd_micros_per_device_hour),
        f"{candidate.flops_per_second / 1e12:.4g}",
        duration(candidate.expected_seconds),
        money(candidate.expected_usd_micros),
        money(quote.cap_usd_micros) if candidate.is_chosen else "",
    )


def _why(plan: Plan) -> str:
    chosen = next((candidate for candidate in plan.candidates if candidate.is_chosen), None)
    if chosen is None:
        return ""
    names = escape(", ".join(chosen.node_names))
    if chosen.expected_usd_micros is None:
        return f"{names} is chosen: the least per unit of measured speed (the job declares no work)."
    parts = [f"{duration(chosen.work_seconds)} of work", f"{duration(chosen.startup_seconds)} to start"]
    if chosen.rework_seconds >= 1:
        parts.append(f"{duration(chosen.rework_seconds)} of expected rework")
    cheaper = [
        other
        for other in plan.candidates
        if other.price_usd_micros_per_device_hour < chosen.price_usd_micros_per_device_hour
    ]
    note = " Others cost less an hour, but more to complete." if cheaper else ""
    return f"{names} is chosen: the cheapest to complete ({', '.join(parts)}).{note}"


def _exclusions(plan: Plan, *, fits: bool) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if not fits:
        if not plan.nodes_seen:
            why = "no node is known to the marketplace. `souk provider add-node` adds one of yours."
            parts.append(Text.from_markup(f"[bold red]Nothing fits:[/] {why}"))
        else:
            parts.append(Text.from_markup(f"[bold red]Nothing fits:[/] 0 of {plan.nodes_seen} nodes."))
    parts += [Text(f"  not: {exclusion.message}", style="dim") for exclusion in plan.exclusions]
    if not fits:
        parts += [Text(f"  would help: {fix.message} ({fix.field}: {fix.value})") for fix in plan.fixes]
    return parts


def _growing(spec: Spec) -> str:
    return (
        f"This is of {spec.resources.nodes} nodes. It grows to up to {spec.resources.nodes_max} while it runs, where "
        "that costs little more in all, ends sooner, and stays within what it costs at most."
    )


def _promise(quote: QuoteView) -> str:
    expires = f", good until {quote.expires_at:%H:%M:%S} UTC" if quote.expires_at else ""
    expected = f"Expected [bold]{money(quote.expected_usd_micros)}[/] in {duration(quote.expected_seconds)}"
    if quote.expected_seconds is None:
        expected = "How long it takes is not known"
    lines = [f"{expected}; never more than [bold]{money(quote.cap_usd_micros)}[/]{expires}."]
    if quote.evaluation is not None:
        name, more = escape(quote.evaluation.name), f"[bold]{money(quote.evaluation.cap_usd_micros)}[/]"
        lines.append(f"When it has completed, {name} is submitted: an evaluation, for at most {more} more.")
    if quote.price_observed_at is not None:
        seen = f"{escape(quote.price_source)}, {quote.price_observed_at:%H:%M:%S} UTC"
        price = f"{money(quote.usd_micros_per_token)} ({seen})"
        at_most = f"at most [bold]{_shown(quote, quote.cap_units or 0)}[/]"
        later = FALLEN_ESCROW if quote.escrow is not None else FALLEN
        lines.append(f"Paid in {escape(quote.asset)} at {price}: {at_most}. {later}")
    if quote.escrow is not None:
        return "\n".join(lines + [escape(line) for line in promise_lines(quote)])
    has = quote.balance_usd_micros if quote.balance_units is None else quote.balance_units
    missing = ((quote.cap_usd_micros if quote.cap_units is None else quote.cap_units) or 0) - has
    lines.append(f"Your balance is {_shown(quote, has)}.")
    if missing > 0:
        lines.append(f"[red]{_shown(quote, missing)} are missing to hold the maximum.[/]")
    return "\n".join(lines)


def _serving_promise(quote: QuoteView, serve: ServeSection) -> str:
    """What an endpoint costs an hour, and never costs more than."""
    chosen = next((candidate for candidate in quote.plan.candidates if candidate.is_chosen), None)
    rate = chosen.price_usd_micros_per_device_hour * chosen.devices if chosen else 0
    least, most = (money(rate * count) for count in (serve.replicas.min, serve.replicas.max))
    hourly = least if least == most else f"{least} to {most}"
    expires = f", good until {quote.expires_at:%H:%M:%S} UTC" if quote.expires_at else ""
    hour = f"[bold]{hourly}[/] an hour for {_count(serve)}, by the second and only while they can answer"
    lines = [f"{hour}; never more than [bold]{money(quote.cap_usd_micros)}[/] in all{expires}."]
    if serve.prices.input_usd_micros or serve.prices.output_usd_micros:
        prices = f"{money(serve.prices.input_usd_micros)} and {money(serve.prices.output_usd_micros)}"
        who = "Callers of other organisations pay" if serve.is_public else "Against the budgets of your keys count"
        lines.append(f"{who} {prices} for a million tokens read and written.")
    window, has = quote.window_usd_micros or 0, quote.balance_usd_micros
    lines.append(f"{money(window)} are set aside at a time. Your balance is {money(has)}.")
    if window > has:
        lines.append(f"[red]{money(window - has)} are missing to set that aside.[/]")
    return "\n".join(lines)


def _count(serve: ServeSection) -> str:
    least, most = serve.replicas.min, serve.replicas.max
    return f"{most} replica{'s' if most > 1 else ''}" if least == most else f"{least} to {most} replicas"


def _shown(quote: QuoteView, units: int) -> str:
    return escape(show_units(units, asset=quote.asset, scale=quote.asset_scale))

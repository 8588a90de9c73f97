"""Endpoints for people: one a line, or one with its replicas and the lines that call it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from jobs.client.output import ago, money, table
from jobs.wire import EndpointView

_STYLES = {"ready": "green", "starting": "yellow", "asleep": "cyan", "paused": "yellow", "closed": "dim"}


def endpoints_view(found: Sequence[EndpointView]) -> RenderableType:
    """A table of endpoints."""
    columns = ("model", "state", "replicas", "in flight", "$/hour now", "$/M in", "$/M out", "created")
    return table("Endpoints", columns, [_line(each) for each in found], right=columns[2:7])


def endpoint_view(found: EndpointView) -> RenderableType:
    """One endpoint: what it is, its versions, its replicas, how to call it."""
    parts: list[RenderableType] = [table("", ("", ""), _facts(found))]
    if len(found.versions) > 1:
        versions = [(f"v{v.number}", v.state, f"{v.share}%", v.reason, ago(v.created_at)) for v in found.versions]
        parts += [Text(), table("Versions", ("", "state", "share", "", "created"), versions, right=("share",))]
    if found.replicas:
        columns = ("node", "device", "version", "state", "engine", "in flight", "tokens/s", "$/hour", "since")
        rows = [
            (
                escape(each.node_name),
                escape(each.device_model),
                f"v{each.version}",
                _styled(each.state),
                escape(each.engine) or "-",
                str(each.in_flight),
                f"{each.tokens_per_second:.0f}" if each.tokens_per_second else "-",
                money(each.rate_usd_micros_per_hour),
                ago(each.ready_at or each.created_at),
            )
            for each in found.replicas
        ]
        parts += [Text(), table("Replicas", columns, rows, right=columns[5:8])]
    if found.state != "closed":
        parts += [Text(), Text(how_to_call(found))]
    return Group(*parts)


def how_to_call(found: EndpointView) -> str:
    """The lines that make a key and ask a first question."""
    address = found.base_url or "the gateway's address"
    return (
        "souk keys create my-program        makes a key\n"
        f"curl {address}/chat/completions -H 'Authorization: Bearer KEY' -H 'Content-Type: application/json' \\\n"
        f'  -d \'{{"model": "{found.model}", "messages": [{{"role": "user", "content": "Hello"}}]}}\'\n'
        f"souk cancel {found.job_id}    ends it"
    )


def _line(each: EndpointView) -> tuple[str, ...]:
    return (
        escape(each.model),
        _styled(each.state),
        f"{each.replicas_ready}/{each.replicas_desired}",
        str(each.in_flight),
        money(each.rate_usd_micros_per_hour),
        money(each.input_usd_micros_per_million),
        money(each.output_usd_micros_per_million),
        ago(each.created_at),
    )


def _facts(found: EndpointView) -> list[tuple[str, str]]:
    facts = [
        ("model", escape(found.model)),
        ("others call it", escape(found.public_model or "")),
        ("address", escape(found.base_url)),
        ("state", _styled(found.state)),
        ("why", escape(found.why)),
        ("replicas", f"{found.replicas_ready} ready, {found.replicas_desired} wanted"),
        ("costs now", f"{money(found.rate_usd_micros_per_hour)} an hour"),
        ("requests", f"{found.in_flight} in flight, {found.queued} waiting"),
        ("job", str(found.job_id)),
    ]
    return [(name, value) for name, value in facts if value]


def _styled(state: str) -> str:
    style = _STYLES.get(state)
    return f"[{style}]{state}[/]" if style else state

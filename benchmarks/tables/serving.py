"""The rows of serving: web, gateway, tunnels, autoscaling, verified inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Figures = dict[str, Any]


def gateway(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    rows = []
    for name, route in f["routes"].items():
        if name == "direct":
            continue
        for rate in sorted(route["open"], key=int):
            at = route["added"]["open"][rate]
            rows.append(
                (
                    f"{name}: added to a chat at {int(rate):,} requests/s, one core",
                    f"{at['p50_ms']:.2f} ms median, {at['p99_ms']:.1f} ms p99",
                    "under 1 ms, under 3 ms" if "gateway" in name else "-",
                )
            )
        rows.append((f"{name}: chats it passes at most, one core", f"{route['capacity_per_second']:,.0f}/s", "-"))
    for name, memory in f["memory"].items():
        streams = f"{memory['streams_max']:,} streams open"
        each = f", {memory['kib_per_stream']:.0f} KiB each" if "kib_per_stream" in memory else ""
        rows.append((f"{name}: memory of open streams", f"{streams}{each}", "2,000 open" if "gateway" in name else "-"))
    return [*rows, *_gateway_ratios(f["ratios"]), *_gateway_real(f["real"])]


def _gateway_ratios(ratios: Figures) -> list[tuple[str, str, str]]:
    named = {
        "gateway_capacity_over_litellm": ("the gateway's capacity over LiteLLM's", "{}x", "40x"),
        "gateway+tunnel_tokens_percent_of_direct": (
            "streamed tokens/s by gateway and tunnel, of direct",
            "{} %",
            "97 %",
        ),
    }
    return [(what, text.format(ratios[key]), goal) for key, (what, text, goal) in named.items() if key in ratios]


def _gateway_real(real: Figures) -> list[tuple[str, str, str]]:
    """An engine that takes all of a core: what else runs there, the provider's end of the tunnel too, slows it."""
    return [
        (
            f"{name}: tokens/s of an engine that fills its core, of direct, {clients} clients",
            f"{real[name][clients]['tokens_percent_of_direct']:.0f} %",
            "-",
        )
        for name in real
        for clients in ("1", "16", "64", "256")
        if name not in {"direct", "nginx"} and "tokens_percent_of_direct" in real[name].get(clients, {})
    ]


def gateway_in_short(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    return [row for row in gateway(f) if row[0].startswith(("gateway+tunnel: added", "the gateway's", "streamed"))]


def slow_visitors(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal. The load of others, where there was some, is quoted with them."""
    busy = f"; others' load {f['load_of_others']}" if f["load_of_others"] >= 1 else ""
    low, high = f["beside_p99_ms_range"]
    beside = (
        f"{f['beside_p50_ms']:.1f} ms median, {f['beside_p99_ms']:.0f} ms p99 (rounds {low:.0f} to {high:.0f}{busy})"
    )
    alone = f"alone {f['alone_p50_ms']:.1f} and {f['alone_p99_ms']:.0f} ms"
    crowd = f"{f['polls']} held polls of logs and {f['slow_clients']} slow clients"
    return [(f"a webhook beside {crowd}", f"{beside}; {alone}", "p99 under 300 ms")]


def tunnels(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal. The load of others, where there was some, is quoted with them."""
    busy = f"; others' load {f['load_of_others']}" if f["load_of_others"] >= 1 else ""

    def row(line: str, what: str, show: Callable[[Figures], str]) -> tuple[str, str, str]:
        return (
            f"{what}{busy}",
            "; ".join(f"{name} {show(f[line][name])}" for name in ("direct", "ssh", "tunnel")),
            "-",
        )

    wan = f"over {f['round_trip_ms']} ms and {f['mbit_per_s']} Mbit/s"
    return [
        row(
            "loopback",
            "a route to a replica, on loopback: requests/s of 16 clients (p99)",
            lambda route: f"{route['clients_16']['per_s']:,} ({route['clients_16']['p99_ms']} ms)",
        ),
        row("loopback", "the same: tokens/s of 64 streams", lambda route: f"{route['streams']['tokens_per_s']:,}"),
        row(
            "wan",
            f"{wan}: requests/s of 64 clients (p99)",
            lambda route: f"{route['clients_64']['per_s']:,} ({route['clients_64']['p99_ms']} ms)",
        ),
        row(
            "wan",
            "the same: one large answer; small ones behind two large ones (p50, p99)",
            lambda route: (
                f"{route['large']['mb_per_s']} MB/s, "
                f"{route['behind_large']['p50_ms']} ms, {route['behind_large']['p99_ms']} ms"
            ),
        ),
    ]


def autoscale(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    rows = []
    for name, shape in sorted(f["shapes"].items()):
        ours, plain = shape["forecast"], shape["reactive"]
        day = f"simulated day, {name}, {shape['requests_a_day']:,} requests"
        rows += [
            (
                f"{day}: p99 of waiting for a replica (without the forecast), requests refused",
                f"{ours['wait_p99_s']} s ({plain['wait_p99_s']} s), {ours['refused_percent']} %",
                "-",
            ),
            (
                f"{day}: replica-hours over the oracle's, over always the day's peak, over always the maximum",
                f"{ours['hours_of_oracle']}, {ours['hours_of_peak']}, {ours['hours_of_max']}",
                "-",
            ),
        ]
    return rows


def autoscale_in_short(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal. The worst shape of day beside the others."""
    shapes = f["shapes"]
    waits = ", ".join(f"{name} {shapes[name]['forecast']['wait_p99_s']} s" for name in sorted(shapes))
    hours = ", ".join(f"{name} {shapes[name]['forecast']['hours_of_peak']}" for name in sorted(shapes))
    return [
        ("autoscaling, simulated days: p99 of waiting for a replica", waits, "-"),
        ("the same: replica-hours over always as many as the day's peak takes", hours, "-"),
    ]


def inference_checks(f: Figures) -> list[tuple[str, str, str]]:
    """Rows: what, figure, goal."""
    rows = []
    for kind in ("float32", "bfloat16"):
        honest, lies = f[kind]["honest"].values(), f[kind]["lies"]
        asked = sum(each["answers"] for each in honest)
        accused = sum(each["found"] for each in honest)
        whole = sum(each["shipped"] == each["answers"] for each in lies.values())
        least = min(lies, key=lambda name: lies[name]["shipped"] / lies[name]["answers"])
        seen = lies[least]
        rows += [
            (f"verified inference, {kind}: honest answers accused", f"{accused} of {asked}", "0"),
            (
                "the same: kinds of lies found every time by the bounds that are shipped; the least found",
                f"{whole} of {len(lies)}; {least}: {seen['shipped']} of {seen['answers']}",
                "-",
            ),
        ]
    return rows

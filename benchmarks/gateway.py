"""What the gateway costs: added latency, capacity, streams and memory, beside nginx, LiteLLM and no gateway at all.

One run on one machine. The subject is pinned to one core; the engine, the load (setups/gateway_load.py), the agent's
end of the tunnel and the fake control plane share the other. The engine is constant: its answers are ready made, so
that all that is measured happens before it. Keys, limits and metering of our gateway are on; nginx does none of that,
and LiteLLM checks one master key. The routes take turns within a round. Figures are medians over the rounds, and what a
route adds is its figure less `direct`'s of the same round. p99s of rounds are medians too, not the p99 of all.

`cpu_us_per_request` is the subject's processor time: of all figures the one that least depends on what else the machine
does.

Open loop: requests come by a seeded Poisson schedule and their time counts from when they were due. A rate is only
asked of a route that passed 1.25 times as much in the closed loop of the same run.

    python -m benchmarks.gateway [--quick] [--rounds 3] [--routes direct nginx LiteLLM gateway gateway+tunnel] [--write]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.record import publish
from benchmarks.setups.gateway_ours import Gateway, GatewayTunnel
from benchmarks.setups.gateway_peers import (
    OTHER_CORE,
    Child,
    Direct,
    LiteLLM,
    Nginx,
    NotMeasured,
    Route,
    cpu_seconds,
    memory_kib,
)
from benchmarks.setups.gateway_real import start_engine
from runtimes.contract import SERVE_SOCKET
from tests.fakes.engine import free_port
from tests.fakes.serving_stack import Elsewhere

ROUTES: tuple[type[Route], ...] = (Direct, Nginx, LiteLLM, Gateway, GatewayTunnel)
CLIENTS = (1, 16, 64, 256)
RATES = (500, 1_500)
HELD = (0, 100, 500, 1_000, 2_000)  # streams that are open at once
STREAMS, TOKEN_MS, TOKENS = 64, 10.0, 100  # of the paced streams
MARGIN = 1.25  # of a rate, that a route must have passed in the closed loop
LOAD_SECONDS_MAX = 300
WARM_SECONDS = 3.0  # of a route that has just started
ASK: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "Say what you always say."}]}
BODY, STREAM_BODY = json.dumps(ASK), json.dumps(ASK | {"stream": True})
REAL_BODY = json.dumps(ASK | {"stream": True, "max_tokens": 32, "temperature": 0})

Figures = dict[str, Any]


def main() -> None:
    """Start what there is, measure in turns, publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one measurement")
    parser.add_argument("--quick", action="store_true", help="one round of short measurements")
    names = [route.name for route in ROUTES]
    parser.add_argument("--routes", nargs="+", choices=names, default=names)
    parser.add_argument("--skip-real", action="store_true", help="without the engine that computes, which needs torch")
    arguments, _ = parser.parse_known_args()
    rounds, seconds = (1, 1.0) if arguments.quick else (arguments.rounds, arguments.seconds)
    with tempfile.TemporaryDirectory(prefix="souk-gateway-", dir="/tmp") as name:
        kinds = [route for route in ROUTES if route.name in arguments.routes]
        figures = measure(kinds, rounds, seconds, Path(name), skip_real=arguments.skip_real)
    publish("gateway", figures)


def measure(kinds: list[type[Route]], rounds: int, seconds: float, folder: Path, *, skip_real: bool) -> Figures:
    """Every route in turns; a route that is not available is listed with the reason."""
    skipped: dict[str, str] = {}
    samples: dict[str, list[Figures]] = {}
    versions: dict[str, str] = {}
    with ExitStack() as stack:
        routes = list(_started(kinds, folder, stack, skipped, _constant()))
        for number in range(rounds):
            for route in routes:
                _log(f"round {number + 1} of {rounds}: {route.name}")
                with _alone(route, routes):
                    samples.setdefault(route.name, []).append(one_round(route, seconds))
        versions = {route.name: route.version for route in routes if route.version}
    with ExitStack() as stack:
        paced = list(_started(kinds, folder, stack, {}, _constant(tokens=TOKENS, token_ms=TOKEN_MS)))
        for number in range(rounds):
            for route in paced:
                _log(f"streams, round {number + 1} of {rounds}: {route.name}")
                with _alone(route, paced):
                    samples[route.name][number]["streams"] = streams(route, seconds)
    real = {} if skip_real else measure_real(kinds, rounds, seconds, folder)
    memory = {}
    for kind in kinds:
        if kind.name not in skipped and kind is not Direct:
            _log(f"memory: {kind.name}")
            memory[kind.name] = held(kind, folder)
    results = {name: _median(rows) for name, rows in samples.items()}
    for name, figure in results.items():
        figure["added"] = added(samples[name], samples.get(Direct.name, []))
    return {
        "rounds": rounds,
        "seconds": seconds,
        "paced": {"streams": STREAMS, "token_ms": TOKEN_MS, "tokens": TOKENS},
        "routes": results,
        "real": real,
        "memory": memory,
        "versions": versions,
        "skipped": skipped,
        "ratios": ratios(results),
    }


# --- the measurements of one route


def one_round(route: Route, seconds: float) -> Figures:
    """Closed loop by clients, then open loop at the rates it can take."""
    closed = {
        str(clients): load(route, kind="closed", body=BODY, connections=clients, seconds=seconds) for clients in CLIENTS
    }
    capacity = max(figure["per_second"] for figure in closed.values())
    opened = {
        str(rate): load(route, kind="open", body=BODY, connections=256, seconds=seconds, rate=rate)
        for rate in RATES
        if capacity > MARGIN * rate
    }
    flat = load(route, kind="closed", body=STREAM_BODY, connections=16, seconds=seconds)
    return {"closed": closed, "open": opened, "capacity_per_second": capacity, "flat_streams": flat}


def measure_real(kinds: list[type[Route]], rounds: int, seconds: float, folder: Path) -> Figures:
    """Streams of an engine that computes each token, by clients: tokens a second, beside `direct` of the same round."""
    samples: dict[str, list[Figures]] = {}
    with ExitStack() as stack:
        routes = list(_started(kinds, folder, stack, {}, start_engine))
        for number in range(rounds):
            for route in routes:
                _log(f"real engine, round {number + 1} of {rounds}: {route.name}")
                with _alone(route, routes):
                    row = {
                        str(clients): load(
                            route, kind="closed", body=REAL_BODY, connections=clients, seconds=2 * seconds
                        )
                        for clients in CLIENTS
                    }
                samples.setdefault(route.name, []).append(row)
    results: Figures = {name: _median(rows) for name, rows in samples.items()}
    for name, rows in samples.items():
        for clients in CLIENTS if Direct.name in samples else ():
            shares = [
                100 * row[str(clients)]["events_per_second"] / base[str(clients)]["events_per_second"]
                for row, base in zip(rows, samples[Direct.name], strict=True)
                if base[str(clients)]["events_per_second"]
            ]
            if shares:
                results[name][str(clients)]["tokens_percent_of_direct"] = round(statistics.median(shares), 1)
    return results


def streams(route: Route, seconds: float) -> Figures:
    """So many streams at once, of an engine that takes its time for each token."""
    lasts = TOKENS * TOKEN_MS / 1000
    return load(route, kind="closed", body=STREAM_BODY, connections=STREAMS, seconds=max(seconds, 2 * lasts))


def held(kind: type[Route], folder: Path) -> Figures:
    """Memory with so many open streams, in a fresh subject; up to the first count that it cannot open."""
    points: dict[int, float] = {}
    with ExitStack() as stack:
        route = next(_started([kind], folder, stack, {}, _constant(tokens=100_000, token_ms=1_000.0)))
        load(route, kind="closed", body=BODY, connections=64, seconds=1.0)  # what every subject allocates once
        for count in HELD:
            with _holding(route, count) as begun:
                if begun < count:
                    break
                assert route.subject is not None
                points[count] = round(memory_kib(route.subject) / 1024, 1)
    reached = [count for count in points if count]
    figures: Figures = {"mib_by_streams": {str(count): mib for count, mib in points.items()}}
    if len(reached) > 1:
        slope = (points[reached[-1]] - points[reached[0]]) * 1024 / (reached[-1] - reached[0])
        figures["kib_per_stream"] = round(slope, 1)
    return figures | {"streams_max": max(reached, default=0)}


def load(route: Route, **what: Any) -> Figures:
    """What gateway_load.py saw."""
    argv = ["taskset", "-c", str(OTHER_CORE), sys.executable, "-m", "benchmarks.setups.gateway_load"]
    asked = json.dumps({"port": route.port, "key": route.key, **what})
    before = cpu_seconds(route.subject) if route.subject is not None else 0.0
    done = subprocess.run([*argv, asked], capture_output=True, text=True, timeout=LOAD_SECONDS_MAX, check=True)
    results: Figures = json.loads(done.stdout.splitlines()[-1])
    if route.subject is not None and results["ended"]:
        results["cpu_us_per_request"] = 1e6 * (cpu_seconds(route.subject) - before) / results["ended"]
    if results["failed"]:
        _log(f"{route.name}: {results['failed']} of {results['failed'] + results['answers']} failed: {results['why']}")
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in results.items()}


# --- the figures


def added(rows: list[Figures], direct: list[Figures]) -> Figures:
    """What a route adds to `direct` of the same round, in milliseconds."""
    out: Figures = {}
    for group in ("closed", "open"):
        for name in sorted({name for row in rows for name in row[group]}, key=int):
            for quantile in ("p50_ms", "p99_ms"):
                gaps = [
                    row[group][name][quantile] - base[group][name][quantile]
                    for row, base in zip(rows, direct, strict=False)
                    if quantile in row[group].get(name, {}) and quantile in base[group].get(name, {})
                ]
                if gaps:
                    out.setdefault(group, {}).setdefault(name, {})[quantile] = round(statistics.median(gaps), 3)
    return out


def ratios(results: Mapping[str, Figures]) -> Figures:
    """What the goals are about."""
    out: Figures = {}
    peer, direct = results.get(LiteLLM.name), results.get(Direct.name)
    for name in (Gateway.name, GatewayTunnel.name):
        if name in results and peer:
            out[f"{name}_capacity_over_litellm"] = round(
                results[name]["capacity_per_second"] / peer["capacity_per_second"], 1
            )
        if name in results and direct:
            share = results[name]["streams"]["events_per_second"] / direct["streams"]["events_per_second"]
            out[f"{name}_tokens_percent_of_direct"] = round(100 * share, 1)
    return out


def _median(rows: list[Figures]) -> Figures:
    """Number by number; what is no number is the last round's."""
    out: Figures = {}
    for key in {key for row in rows for key in row}:
        there = [row[key] for row in rows if key in row]
        if all(isinstance(value, dict) for value in there):
            out[key] = _median(there)
        elif all(isinstance(value, (int, float)) for value in there):
            out[key] = round(statistics.median(there), 3)
        else:
            out[key] = there[-1]
    return out


# --- starting


Start = Callable[[Path, ExitStack], Elsewhere]


def _constant(**options: Any) -> Start:
    """An engine whose answers are ready made."""

    def start(folder: Path, stack: ExitStack) -> Elsewhere:
        at = Elsewhere(port=free_port(), uds=Path(tempfile.mkdtemp(dir=folder)) / SERVE_SOCKET)
        argv = [sys.executable, "-m", "tests.fakes.engine", "--constant", "--port", str(at.port), "--uds", str(at.uds)]
        for name, value in options.items():
            argv += [f"--{name.replace('_', '-')}", str(value)]
        child = Child(argv, core=OTHER_CORE, folder=folder)
        stack.callback(child.close)
        child.wait_for(at.port)
        return at

    return start


def _started(
    kinds: list[type[Route]], folder: Path, stack: ExitStack, skipped: dict[str, str], start: Start
) -> Iterator[Route]:
    """The available routes, in front of one engine; they end with the stack."""
    at = start(folder, stack)
    for kind in kinds:
        route = kind()
        stack.callback(route.stop)
        try:
            route.prepare()
            route.start(at, folder)
            load(route, kind="closed", body=BODY, connections=4, seconds=WARM_SECONDS)
        except NotMeasured as error:
            _log(f"{kind.name} is skipped: {error}")
            skipped[kind.name] = str(error)
        else:
            yield route


@contextmanager
def _alone(route: Route, routes: list[Route]) -> Iterator[None]:
    """The others stand still."""
    others = [other for other in routes if other is not route]
    for other in others:
        other.pause(True)
    try:
        yield
    finally:
        for other in others:
            other.pause(False)


@contextmanager
def _holding(route: Route, count: int) -> Iterator[int]:
    """So many streams are open; yields how many of them have begun."""
    if not count:
        yield 0
        return
    argv = ["taskset", "-c", str(OTHER_CORE), sys.executable, "-m", "benchmarks.setups.gateway_load"]
    what = {"kind": "hold", "port": route.port, "key": route.key, "body": STREAM_BODY, "connections": count}
    pipe = subprocess.PIPE
    process = subprocess.Popen([*argv, json.dumps(what)], stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["begun"]
    finally:
        process.communicate("\n", timeout=LOAD_SECONDS_MAX)


def _log(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

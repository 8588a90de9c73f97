"""A day of bursty traffic, replayed in seconds: what requests wait and replicas cost, for each way of sizing.

    forecast    the marketplace's decisions, which know the seven days before
    reactive    the same without the forecast
    max         as many replicas as the endpoint may have, always
    mean        as many as the day's mean load takes, always
    peak        as many as the day's busiest second takes, always: no request waits; only its hours are quoted
    oracle      knows every request of the day: exactly as many as are needed not to make any wait, started a mean cold
                start ahead and kept over gaps shorter than one; nothing breaks. A bound, not a way

Simulated (`autoscale_day.py`), seeded, with the marketplace's own deciding functions: 24 nodes of 8 providers, of which
two thirds break twice a day on average and one provider's all at once; a start takes 45 s (median) where the node has
the weights and 110 s where not; a replica takes 8 requests at once, a request takes 8 s on average (lognormal). Cost is
replica-hours from the start's beginning to the drain's end. `wait` is from a request's arrival to its first dispatch;
after 300 s it is refused.

    python -m benchmarks.autoscale [--seeds 2] [--write]
"""

from __future__ import annotations

import argparse
import math
import random
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.record import publish
from benchmarks.setups.autoscale_day import BEGIN, DAY_SECONDS, START_MEDIAN_SECONDS, Day, Simulation, Sizing
from jobs.scaling.forecast import Minute
from jobs.spec.kinds.serve import ServeSection

SEEDS = 2
DAYS_BEFORE = 7
IN_FLIGHT = 8
SERVICE_MEAN, SERVICE_SD = 8.0, 0.6  # seconds; of the logarithm
MINUTES = DAY_SECONDS // 60
COLD_SECONDS = sum(START_MEDIAN_SECONDS.values()) / 2

Rates = list[float]  # requests a second, by minute of the day


@dataclass(frozen=True)
class Shape:
    """A kind of traffic, and the endpoint that it meets."""

    rates: Callable[[random.Random], Rates]
    least: int
    most: int = 12


def main() -> None:
    """Every shape, every way, every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="days of each shape")
    arguments, _ = parser.parse_known_args()
    publish("autoscale", {"shapes": {name: measure(shape, arguments.seeds) for name, shape in SHAPES.items()}})


def measure(shape: Shape, seeds: int) -> dict[str, Any]:
    """Figures of every way, over all seeds together."""
    found: dict[str, list[Day]] = {"forecast": [], "reactive": [], "max": [], "mean": []}
    oracle, peaks, requests_sum = [], [], 0
    for seed in range(seeds):
        chance = random.Random(1000 * seed + 1)
        before = [row for day in range(DAYS_BEFORE, 0, -1) for row in minutes_of(shape.rates(chance), day, chance)]
        requests = requests_of(shape.rates(chance), chance)
        requests_sum += len(requests)
        load = concurrency(requests)
        mean = max(math.ceil(sum(load) / len(load) / IN_FLIGHT), 1)
        ways: dict[str, tuple[bool, Sizing | None]] = {
            "forecast": (True, None),
            "reactive": (False, None),
            "max": (False, lambda *_: shape.most),
            "mean": (False, lambda *_, mean=mean: mean),
        }
        for way, (is_foreseeing, sizing) in ways.items():
            simulation = Simulation(policy(shape, is_foreseeing), requests, before, sizing, seed)
            found[way].append(simulation.run())
        oracle.append(oracle_hours(load, shape.least))
        peaks.append(max(math.ceil(max(load) / IN_FLIGHT), shape.least))
    figures: dict[str, Any] = {way: figures_of(days) for way, days in found.items()}
    hours, peak_hours = sum(oracle) / seeds, sum(peaks) / seeds * DAY_SECONDS / 3600
    for figure in figures.values():
        figure["hours_of_oracle"] = round(figure["replica_hours"] / hours, 2)
        figure["hours_of_max"] = round(figure["replica_hours"] / figures["max"]["replica_hours"], 2)
        figure["hours_of_peak"] = round(figure["replica_hours"] / peak_hours, 2)
    bounds = {"oracle": {"replica_hours": round(hours, 1)}, "peak": {"replica_hours": round(peak_hours, 1)}}
    return figures | bounds | {"requests_a_day": requests_sum // seeds}


def policy(shape: Shape, is_foreseeing: bool) -> ServeSection:
    """The endpoint's job file."""
    return ServeSection.model_validate(
        {
            "model": {"hub": "org/model"},
            "replicas": {"min": shape.least, "max": shape.most},
            "scale": {"in_flight": IN_FLIGHT, "forecast": is_foreseeing},
        }
    )


def figures_of(days: list[Day]) -> dict[str, Any]:
    """A day's mean; waits of all days together."""
    waits = sorted(wait for day in days for wait in day.waits)
    refused = sum(day.refused for day in days)
    return {
        "wait_p50_s": round(percentile(waits, 0.5), 2),
        "wait_p99_s": round(percentile(waits, 0.99), 2),
        "waited_2s_percent": round(100 * (len(waits) - bisect_right(waits, 2.0)) / max(len(waits), 1), 2),
        "refused_percent": round(100 * refused / max(len(waits) + refused, 1), 3),
        "replica_hours": round(sum(day.replica_seconds for day in days) / 3600 / len(days), 1),
        "usd": round(sum(day.usd_micros for day in days) / 1e6 / len(days), 2),
        "starts": round(sum(day.starts for day in days) / len(days)),
        "broken": round(sum(day.broken for day in days) / len(days), 1),
        "turns": round(sum(day.turns for day in days) / len(days), 1),
        "most": max(day.most for day in days),
    }


def percentile(values: list[float], share: float) -> float:
    """Of sorted values."""
    return values[min(int(share * len(values)), len(values) - 1)] if values else 0.0


def requests_of(rates: Rates, chance: random.Random) -> list[tuple[float, float]]:
    """A Poisson stream with these rates, and how long each takes."""
    found, mu = [], math.log(SERVICE_MEAN) - SERVICE_SD**2 / 2
    for minute, rate in enumerate(rates):
        at = 60.0 * minute
        while rate > 0:
            at += chance.expovariate(rate)
            if at >= 60.0 * (minute + 1):
                break
            found.append((at, chance.lognormvariate(mu, SERVICE_SD)))
    return found


def minutes_of(rates: Rates, days_ago: int, chance: random.Random) -> list[Minute]:
    """What the marketplace kept of a day before."""
    first = int(BEGIN.timestamp()) // 60 - days_ago * MINUTES
    loads = [max(chance.gauss(rate * SERVICE_MEAN, math.sqrt(rate * SERVICE_MEAN) / 2), 0.0) for rate in rates]
    return [Minute(first + minute, 1, load) for minute, load in enumerate(loads)]


def concurrency(requests: list[tuple[float, float]]) -> list[int]:
    """Requests at once in each second, were each answered at once: the most within the second."""
    changes = sorted([(at, 1) for at, _ in requests] + [(at + takes, -1) for at, takes in requests])
    load, now, second = [0] * DAY_SECONDS, 0, 0
    for at, change in changes:
        while second < min(int(at), DAY_SECONDS - 1):
            second += 1
            load[second] = now
        now += change
        load[second] = max(load[second], now)
    return load


def oracle_hours(load: list[int], least: int) -> float:
    """Level by level: as long as at least so many are needed, with a start ahead, and without pauses worth less."""
    need = [max(math.ceil(each / IN_FLIGHT), least) for each in load]
    seconds = 0.0
    for level in range(1, max(need) + 1):
        last = -math.inf
        for second, count in enumerate(need):
            if count >= level:
                gap = second - last
                seconds += 1 + (min(gap - 1, COLD_SECONDS) if gap > 1 else 0.0)
                last = second
    return seconds / 3600


def _bump(minute: int, middle: float, width: float) -> float:
    return math.exp(-((((minute - middle + MINUTES / 2) % MINUTES - MINUTES / 2) / width) ** 2))


def consumer(chance: random.Random) -> Rates:
    """Two peaks, at noon and in the evening; never quiet; some noise from minute to minute."""
    size = chance.uniform(0.85, 1.15)
    return [
        size * (0.3 + 2.2 * _bump(m, 12 * 60, 150) + 3.5 * _bump(m, 20 * 60, 120)) * chance.uniform(0.8, 1.2)
        for m in range(MINUTES)
    ]


def office(chance: random.Random) -> Rates:
    """From eight to six, with a pause at noon and nothing at night."""
    size = chance.uniform(0.8, 1.2)
    return [
        size * 3.0 * chance.uniform(0.7, 1.3) * (0.6 if 720 <= m < 780 else 1.0) if 480 <= m < 1080 else 0.0
        for m in range(MINUTES)
    ]


def bursts(chance: random.Random) -> Rates:
    """Hardly anything, and about once an hour a crowd that nobody foresees."""
    rates = [0.2] * MINUTES
    for _ in range(24):
        begin, lasts, size = chance.randrange(MINUTES), chance.randint(3, 12), chance.uniform(2, 6)
        for minute in range(begin, min(begin + lasts, MINUTES)):
            rates[minute] += size
    return rates


def batches(chance: random.Random) -> Rates:
    """Four times a day at the same hour a programme asks a lot for half an hour; else a trickle."""
    size = chance.uniform(0.9, 1.1)
    return [0.1 + (5.0 * size if m % 360 >= 330 else 0.0) for m in range(MINUTES)]


def sparse(chance: random.Random) -> Rates:
    """A few questions at a time, some of the day's hours."""
    rates = [0.0] * MINUTES
    for _ in range(20):
        begin = chance.randrange(MINUTES)
        for minute in range(begin, min(begin + chance.randint(1, 15), MINUTES)):
            rates[minute] = 0.05
    return rates


SHAPES = {
    "consumer": Shape(consumer, least=1),
    "office": Shape(office, least=0),
    "bursts": Shape(bursts, least=1),
    "batches": Shape(batches, least=1),
    "sparse": Shape(sparse, least=0, most=4),
}


if __name__ == "__main__":
    main()

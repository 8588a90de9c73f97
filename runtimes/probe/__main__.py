"""Measure devices, one process each, all started at the same moment; one line of JSON on stdout.

    python -m runtimes.probe --devices cpu:0,cpu:1 --seconds 2 --json
    python -m runtimes.probe --devices cuda:GPU-8f6d...,cuda:1

The answer: {"probe_version": 1, "devices": [{"uuid", "flops_per_second", "memory_bytes_per_second", "seconds"}, ...]}
in the order given. A CPU device has the threads that OMP_NUM_THREADS gives (else one) on the cores that this process
may use, so two devices on one core measure what two ranks on one core would get.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from typing import Any

PROBE_VERSION = 1
DEVICES_MAX = 64
SECONDS_MAX = 600.0
START_SECONDS_MAX = 300.0  # loading torch on a slow disk
DEVICE = re.compile(r"(cpu|cuda):[A-Za-z0-9-]+")


def main(argv: list[str] | None = None) -> int:
    """Measure and print; 0, or 64 for bad arguments and 70 for a device that cannot be measured."""
    parser = argparse.ArgumentParser(prog="runtimes.probe")
    parser.add_argument("--devices", required=True, help="cpu:0,cpu:1 or cuda:UUID,cuda:1")
    parser.add_argument("--seconds", type=float, default=4.0, help="of measuring a device")
    parser.add_argument("--json", action="store_true", help="print JSON (always done; kept for scripts)")
    arguments = parser.parse_args(argv)
    names = arguments.devices.split(",")
    if not all(DEVICE.fullmatch(name) for name in names) or len(names) > DEVICES_MAX:
        return fail(64, f"devices must be at most {DEVICES_MAX} of cpu:N, cuda:N or cuda:UUID, got {arguments.devices}")
    if not 0 < arguments.seconds <= SECONDS_MAX:
        return fail(64, f"seconds must be above 0 and at most {SECONDS_MAX:g}, got {arguments.seconds:g}")
    try:
        devices = measure_together(names, arguments.seconds)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return fail(70, str(error))
    sys.stdout.write(json.dumps({"probe_version": PROBE_VERSION, "devices": devices}) + "\n")
    return 0


def measure_together(names: list[str], seconds: float) -> list[dict[str, Any]]:
    """Measurements of all devices at once, in order; raises RuntimeError with the words of one that failed."""
    children = [start_child(name, seconds) for name in names]
    try:
        # 1. Each reports when torch is loaded and its device is warm.
        for child in children:
            assert_ready(child)
        # 2. All begin.
        for child in children:
            send_line(child, "go")
        # 3. Each answers with a line.
        return [read_answer(child, seconds + START_SECONDS_MAX) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()


def start_child(name: str, seconds: float) -> subprocess.Popen[str]:
    """The process that measures one device."""
    return subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "runtimes.probe.measure", name, str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"OMP_NUM_THREADS": "1", **os.environ},
    )


def assert_ready(child: subprocess.Popen[str]) -> None:
    """Wait for a child's first line."""
    if child.stdout is None or child.stdout.readline().strip() != "ready":
        raise RuntimeError(words_of(child))


def send_line(child: subprocess.Popen[str], line: str) -> None:
    """Write a line to a child."""
    if child.stdin is not None:
        child.stdin.write(line + "\n")
        child.stdin.flush()


def read_answer(child: subprocess.Popen[str], timeout: float) -> dict[str, Any]:
    """A child's measurement."""
    output, errors = child.communicate(timeout=timeout)
    if child.returncode != 0:
        raise RuntimeError(last_line(errors))
    answer: dict[str, Any] = json.loads(output)
    return answer


def words_of(child: subprocess.Popen[str]) -> str:
    """Why a child ended."""
    _, errors = child.communicate(timeout=START_SECONDS_MAX)
    return last_line(errors)


def last_line(text: str) -> str:
    """The last line of an error, which in Python names it."""
    return (text.strip().splitlines() or ["the measuring process ended without a word"])[-1]


def fail(code: int, message: str) -> int:
    """One line on stderr, and the code."""
    sys.stderr.write(f"souk probe: {message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())

"""Answer a challenge on all devices of a node at once, one process a device.

    python -m runtimes.probe.challenge --devices cpu:0,cpu:1 --folder /work

The messages are in exchange.py. Exit status 0 once every device has answered; 64 for bad arguments, 70 when a device
failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from runtimes.probe.__main__ import DEVICE, DEVICES_MAX, fail, last_line

POLL_SECONDS = 0.02


def main(argv: list[str] | None = None) -> int:
    """Start a process a device and wait for all; when one fails the others are ended."""
    parser = argparse.ArgumentParser(prog="runtimes.probe.challenge")
    parser.add_argument("--devices", required=True, help="cpu:0,cpu:1 or cuda:0,cuda:1")
    parser.add_argument("--folder", required=True, type=Path, help="where the messages are exchanged")
    arguments = parser.parse_args(argv)
    names = arguments.devices.split(",")
    if not all(DEVICE.fullmatch(name) for name in names) or len(names) > DEVICES_MAX:
        return fail(64, f"devices must be at most {DEVICES_MAX} of cpu:N, cuda:N or cuda:UUID, got {arguments.devices}")
    children = [start_child(index, name, arguments.folder) for index, name in enumerate(names)]
    try:
        return wait_for_all(children)
    finally:
        for child in children:
            child.kill()
            child.wait()


def start_child(index: int, name: str, folder: Path) -> subprocess.Popen[str]:
    """The process that answers for one device."""
    return subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "runtimes.probe.challenge.answer", str(index), name, str(folder)],
        stderr=subprocess.PIPE,
        text=True,
        env={"OMP_NUM_THREADS": "1", **os.environ},
    )


def wait_for_all(children: list[subprocess.Popen[str]]) -> int:
    """0 when all have ended well, else 70 at the first that did not."""
    while True:
        codes = [child.poll() for child in children]
        for child, code in zip(children, codes, strict=True):
            if code:
                return fail(70, last_line(child.stderr.read() if child.stderr else ""))
        if all(code == 0 for code in codes):
            return 0
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    sys.exit(main())

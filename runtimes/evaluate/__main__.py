"""One evaluation, as the container says, or by hand:

python -m runtimes.evaluate --config config.json --output out
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import traceback

from runtimes.contract import Env, EventKind, EventWriter, ExitCode
from runtimes.evaluate.config import read_config
from runtimes.train.container import read_container
from runtimes.train.errors import OutOfMemory, TrainError

DEVICES_MAX = 64


def main(argv: list[str] | None = None) -> int:
    """Evaluate; the exit code is one of contract.ExitCode, with one line on stderr if not OK."""
    parser = argparse.ArgumentParser(prog="runtimes.evaluate")
    parser.add_argument("--config", help="the configuration (default: $SOUK_CONFIG)")
    parser.add_argument("--output", help="folder for everything, without an agent (default: the container's folders)")
    arguments = parser.parse_args(argv)
    # 1. From the first moment on, SIGTERM means: save after the requests that are being computed, then leave.
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    container = read_container(os.environ, config=arguments.config, output=arguments.output)
    container.work_dir.mkdir(parents=True, exist_ok=True)
    events = EventWriter(container.events_path)
    try:
        # 2. A bad configuration is reported before torch is loaded.
        config = read_config(container.config_path)
        # 3. The evaluation.
        from runtimes.evaluate.run import evaluate

        devices = min(DEVICES_MAX, max(1, int(os.environ.get(Env.DEVICES_PER_NODE) or 1)))
        evaluate(config, container, events, stop, devices=devices)
    except Exception as error:
        named = _named(error)
        if named.exit_code != ExitCode.STOPPED:
            events.write(EventKind.FAILED, message=str(named), exit_code=int(named.exit_code))
        print(f"souk evaluate: {named}", file=sys.stderr)  # noqa: T201 - into the job's log
        return int(named.exit_code)
    return int(ExitCode.OK)


def _named(error: Exception) -> TrainError:
    """The error with its exit code; an unforeseen one is printed with its traceback."""
    if isinstance(error, TrainError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemory("out of memory: take a node with more of it")
    traceback.print_exception(error)
    return TrainError(f"{type(error).__name__}: {str(error)[:500]}")


if __name__ == "__main__":
    sys.exit(main())

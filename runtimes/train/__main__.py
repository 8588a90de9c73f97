"""One rank of a training. Under the agent: `python -m runtimes.launch`; by hand:

torchrun --nproc-per-node 2 -m runtimes.train --config config.json --output out
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import traceback

from runtimes.contract import EventKind, EventWriter, ExitCode
from runtimes.train.config import read_config
from runtimes.train.container import Container, read_container
from runtimes.train.errors import OutOfMemory, Stopped, TrainError

OUT_OF_MEMORY_MARKS = ("out of memory", "can't allocate memory", "not enough memory")


def main(argv: list[str] | None = None) -> int:
    """Train as the container says; the exit code is one of contract.ExitCode, with one line on stderr if not OK."""
    parser = argparse.ArgumentParser(prog="runtimes.train")
    parser.add_argument("--config", help="the configuration (default: $SOUK_CONFIG)")
    parser.add_argument("--output", help="folder for everything, without an agent (default: the container's folders)")
    arguments = parser.parse_args(argv)
    # 1. From the first moment on, SIGTERM means: save at the next step's end, then leave.
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    # 2. Where we are, and who of us speaks.
    container = read_container(os.environ, config=arguments.config, output=arguments.output)
    container.work_dir.mkdir(parents=True, exist_ok=True)
    events = EventWriter(container.events_path if container.is_leader else "")
    try:
        # 3. A bad configuration is told before torch is loaded.
        config = read_config(container.config_path)
        # 4. The training.
        from runtimes.train.loop import train

        train(config, container, events, stop)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it ends this rank, and must end it with a code
        leave(classify(error), container, events)
    return ExitCode.OK


def classify(error: BaseException) -> TrainError:
    """The training error that says what happened; an unforeseen one is printed with its traceback."""
    if isinstance(error, TrainError):
        return error
    text = str(error).strip().splitlines()[0][:500] if str(error).strip() else type(error).__name__
    if isinstance(error, MemoryError | RuntimeError) and any(mark in str(error) for mark in OUT_OF_MEMORY_MARKS):
        return OutOfMemory(f"out of memory, take a smaller micro_batch_size or sequence_length: {text}")
    traceback.print_exception(error)
    return TrainError(f"{type(error).__name__}: {text}")


def leave(error: TrainError, container: Container, events: EventWriter) -> None:
    """End this rank at once, without waiting for the others: a group with a failed rank cannot be closed in order."""
    if container.is_leader and not isinstance(error, Stopped):
        events.write(EventKind.FAILED, message=str(error), exit_code=int(error.exit_code))
    if container.is_leader or error.exit_code in (ExitCode.INTERNAL, ExitCode.OUT_OF_MEMORY):
        sys.stderr.write(f"souk train, rank {container.rank}: {error}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(error.exit_code))


if __name__ == "__main__":
    sys.exit(main())

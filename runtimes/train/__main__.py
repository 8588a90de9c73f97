"""One rank of a training. Under the agent it is started by runtimes/launch.py; by hand:

torchrun --nproc-per-node 2 -m runtimes.train --config config.json --output out
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import NoReturn

from runtimes.contract import EventKind, EventWriter, ExitCode
from runtimes.train.collective_trace import write_trace
from runtimes.train.config import read_config
from runtimes.train.container import Container, read_container
from runtimes.train.errors import LostPeer, OutOfMemory, TrainError

PR_SET_PDEATHSIG = 1  # Linux, prctl(2)
CAUSE_LOOKS_MAX = 10
CAUSE_POLL_SECONDS = 0.1
# Of gloo, of the store that the ranks met by, and of NCCL, which gives an error only where it does not abort.
LOST_PEER_MARKS = (
    *("connection closed by peer", "connection reset by peer", "connection refused", "broken pipe", "read error"),
    *("write error", "timed out waiting", "application timeout", "connection was likely closed", "socket timeout"),
    *("remote process exited", "socket closed", "nccl communicator was aborted"),
)
OUT_OF_MEMORY_MARKS = ("out of memory", "can't allocate memory", "not enough memory")


def main(argv: list[str] | None = None) -> NoReturn:
    """Train as the container says; the exit code is one of contract.ExitCode, with one line on stderr if not OK."""
    parser = argparse.ArgumentParser(prog="runtimes.train")
    parser.add_argument("--config", help="the configuration (default: $SOUK_CONFIG)")
    parser.add_argument("--output", help="folder for everything, without an agent (default: the container's folders)")
    arguments = parser.parse_args(argv)
    die_with_launcher()
    # 1. From the first moment on, SIGTERM means: save at the next step's end, then leave.
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # one that came while it waited to become a rank
    # 2. The folders, this rank's place, and whether it is the one that writes events.
    container = read_container(os.environ, config=arguments.config, output=arguments.output)
    container.work_dir.mkdir(parents=True, exist_ok=True)
    cause_file(container, container.rank).unlink(missing_ok=True)
    events = EventWriter(container.events_path if container.is_leader else "")
    try:
        # 3. A bad configuration is reported before torch is loaded, but for a rank that was forked with it.
        config = read_config(container.config_path)
        # 4. The training.
        from runtimes.train.loop import train

        train(config, container, events, stop)
    except BaseException as error:  # whatever it is, it ends this rank, and must end it with a code
        leave(classify(error), container, events)
    end(ExitCode.OK)


def die_with_launcher() -> None:
    """Have the kernel kill this rank when its launcher ends: torchrun puts ranks into sessions of their own, where a
    SIGKILL of the launcher's process group does not reach them."""
    if "LOCAL_RANK" not in os.environ or sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def classify(error: BaseException) -> TrainError:
    """The training error that names what happened; an unforeseen one is printed with its traceback."""
    if isinstance(error, TrainError):
        return error
    text = str(error).strip().splitlines()[0][:500] if str(error).strip() else type(error).__name__
    is_marked = isinstance(error, RuntimeError) and any(mark in str(error) for mark in OUT_OF_MEMORY_MARKS)
    if isinstance(error, MemoryError) or is_marked:  # Python's own MemoryError mostly says nothing
        return OutOfMemory(f"out of memory, take a smaller micro_batch_size or sequence_length: {text}")
    if isinstance(error, RuntimeError | OSError) and any(mark in str(error).lower() for mark in LOST_PEER_MARKS):
        return LostPeer(f"another rank was lost: {text}")
    traceback.print_exception(error)
    return TrainError(f"{type(error).__name__}: {text}")


def leave(error: TrainError, container: Container, events: EventWriter) -> NoReturn:
    """End this rank at once, without waiting for the others: a group with a failed rank cannot be closed in order."""
    code, message = int(error.exit_code), str(error)
    if code in (ExitCode.INTERNAL, ExitCode.LOST_PEER) and container.world_size > 1:
        write_trace(container.work_dir, container.rank)
    if container.is_leader and code in (ExitCode.INTERNAL, ExitCode.LOST_PEER):
        code, message = find_cause(container) or (code, message)
    elif not container.is_leader:
        cause_file(container, container.rank).write_text(json.dumps([code, message]))
    if container.is_leader and code != ExitCode.STOPPED:
        events.write(EventKind.FAILED, message=message, exit_code=code)
    if container.is_leader or code in (ExitCode.INTERNAL, ExitCode.OUT_OF_MEMORY, ExitCode.LOST_PEER):
        sys.stderr.write(f"souk train, rank {container.rank}: {message}\n")
    end(code)


def end(code: int) -> NoReturn:
    """End this rank without an interpreter shutdown, in which a thread of gloo that still holds a tensor aborts the
    process ("terminate called without an active exception", torch 2.13): a finished training would have failed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def find_cause(container: Container) -> tuple[int, str] | None:
    """Why another rank of this node ended: the leader itself only sees that a peer is missing."""
    for _ in range(CAUSE_LOOKS_MAX):
        for rank in range(1, container.local_world_size):
            path = cause_file(container, rank)
            if path.is_file() and (text := path.read_text()):
                code, message = json.loads(text)
                return code, f"rank {rank}: {message}"
        time.sleep(CAUSE_POLL_SECONDS)
    return None


def cause_file(container: Container, rank: int) -> Path:
    """Where a rank leaves the cause of its end for the leader."""
    return container.work_dir / f".failed-{rank}"


if __name__ == "__main__":
    main()

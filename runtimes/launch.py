"""torchrun for a container of the contract: takes its arguments from the environment, and keeps the exit code.

    python -m runtimes.launch                        the built-in training on this node's devices
    python -m runtimes.launch some.module --flag     any other module

Our training is loaded here, once for all ranks of the node, which are forked from it (spare_ranks.py). In a gang it
then waits for the gang's interface, and for rank zero (rendezvous.py). Where lost nodes of the gang are replaced, it
runs below a process that outlives the ranks (generations.py), and may be started before the next generation is known. A
SIGTERM while it loads ends it: there is nothing to save yet.

torchrun itself ends with 1 whatever its ranks ended with, and on SIGTERM kills them after 30 seconds. Here the code of
contract.ExitCode comes through, and SIGTERM is handed on to the ranks, which take the time they need.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from runtimes.contract import Env, ExitCode
from runtimes.generations import Launcher, await_generation
from runtimes.rendezvous import RANK_ZERO_SECONDS_MAX, RendezvousError, wait_for_gang
from runtimes.spare_ranks import start_spares
from runtimes.train.collective_trace import describe_traces, remove_traces

DEFAULT_MODULE = "runtimes.train"
NAMED_CODES = (
    ExitCode.BAD_CONFIG,
    ExitCode.BAD_DATA,
    ExitCode.BAD_CHECKPOINT,
    ExitCode.OUT_OF_MEMORY,
    ExitCode.STOPPED,
)


def main(argv: list[str] | None = None) -> int:
    """Start one rank a device, wait for all, and return the exit code that names the cause of their end."""
    arguments = sys.argv[1:] if argv is None else argv
    if os.environ.get(Env.GENERATION):
        return Launcher(["-m", "runtimes.launch", *arguments], os.environ).run()
    spares = start_spares(os.environ, arguments[0] if arguments else DEFAULT_MODULE)
    if not await_generation(os.environ):
        return ExitCode.STOPPED
    try:
        wait_for_gang(os.environ)  # SIGTERM ends the waiting
    except RendezvousError as error:
        print(f"The gang did not assemble: {error}.", file=sys.stderr)  # noqa: T201 - into the job's log
        return ExitCode.INTERNAL
    signal.signal(signal.SIGTERM, forward_to_children)
    work = Path(os.environ[Env.WORK_DIR]) if os.environ.get(Env.WORK_DIR) else None
    if work is not None:
        remove_traces(work)
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    if spares is not None:
        spares.serve_torchrun()
    untyped: Any = torchrun
    try:
        untyped.run(untyped.parse_args([*torchrun_arguments(os.environ), "-m", *(arguments or [DEFAULT_MODULE])]))
    except ChildFailedError as error:
        code = exit_code_of(failure.exitcode for failure in error.failures.values())
        if work is not None and code not in NAMED_CODES:  # of a named cause the other ranks' traces are echoes
            say_where_ranks_were(work)
        return code
    except (RuntimeError, OSError) as error:  # the store's node is gone before the ranks were started
        print(f"The gang did not meet: {error}", file=sys.stderr)  # noqa: T201 - into the job's log
        return ExitCode.LOST_PEER
    return ExitCode.OK


def torchrun_arguments(env: Mapping[str, str]) -> list[str]:
    """torchrun's options for this node's place. One node needs no name service and no fixed port."""
    nodes = int(env.get(Env.NODES) or 1)
    options = [
        f"--nproc-per-node={env.get(Env.DEVICES_PER_NODE) or 1}",
        f"--nnodes={nodes}",
        "--max-restarts=0",  # what becomes of a failed attempt is the marketplace's to decide
        "--signals-to-handle=SIGINT",
    ]
    if nodes == 1:
        return [*options, "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    return [
        *options,
        f"--node-rank={env[Env.NODE_RANK]}",
        f"--master-addr={env[Env.MASTER_ADDR]}",
        f"--master-port={env[Env.MASTER_PORT]}",
        f"--rdzv-conf=timeout={RANK_ZERO_SECONDS_MAX:.0f}",
        *([f"--local-addr={env[Env.ADDRESS]}"] if env.get(Env.ADDRESS) else []),
    ]


def exit_code_of(codes: Iterable[int]) -> int:
    """The exit code that names the cause: one of NAMED_CODES, else a signal as 128 + its number, else any.

    When one rank fails the others lose their peer and fail too, so most codes are only echoes.
    """
    found = list(codes)
    for code in NAMED_CODES:
        if code in found:
            return code
    signals = [128 - code for code in found if code < 0 and code != -signal.SIGTERM]
    others = sorted((code for code in found if code > 0), key=lambda code: code == ExitCode.LOST_PEER)
    return next(iter([*signals, *others]), int(ExitCode.INTERNAL))


def say_where_ranks_were(work: Path) -> None:
    """Print the last collective of each rank of this node, where ranks lost each other and left a trace."""
    lines = describe_traces(work)
    if lines:
        heading = "Where the ranks of this node were (torch's flight recorder):"
        print("\n  ".join([heading, *lines]), file=sys.stderr)  # noqa: T201 - into the job's log


def forward_to_children(number: int, _frame: object) -> None:
    """Send the signal on to every child of this process."""
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            os.kill(int(child), number)


if __name__ == "__main__":
    sys.exit(main())

"""One replica: python -m runtimes.serve. Under the agent everything comes from the contract's variables."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import traceback
from pathlib import Path

from runtimes.contract import Env, EventKind, EventWriter, ExitCode
from runtimes.serve.config import read_config
from runtimes.serve.errors import OutOfMemory, ServeError
from runtimes.serve.metrics import REPORT_SECONDS
from runtimes.serve.replica import DRAIN_SECONDS, ReplicaEnvironment, serve
from runtimes.serve.watchdog import Watch

# Old names of options, which work until the next version.
RENAMED_OPTIONS = {"--quiet-seconds": "--idle-seconds", "--tell-seconds": "--report-seconds"}


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM; the exit code is one of contract.ExitCode, with one line on stderr if it failed."""
    parser = argparse.ArgumentParser(prog="runtimes.serve")
    parser.add_argument("--config", help="the configuration (default: $SOUK_CONFIG)")
    parser.add_argument("--drain-seconds", type=float, default=DRAIN_SECONDS, help="how long requests may take to end")
    parser.add_argument(
        "--idle-seconds", type=float, default=Watch.idle_seconds, help="of an engine, after which it must give a token"
    )
    parser.add_argument("--token-seconds", type=float, default=Watch.token_seconds, help="that this token may take")
    parser.add_argument("--report-seconds", type=float, default=REPORT_SECONDS, help="between two `served` events")
    arguments = parser.parse_args(rename_options(sys.argv[1:] if argv is None else argv))
    env = dict(os.environ)
    work = Path(env.get(Env.WORK_DIR) or ".").absolute()
    work.mkdir(parents=True, exist_ok=True)
    config_path = Path(arguments.config or env.get(Env.CONFIG) or work / "config.json").absolute()
    events = EventWriter()
    environment = ReplicaEnvironment(
        env=env,
        input_dir=Path(env.get(Env.INPUT_DIR) or work / "input").absolute(),
        lent_dir=Path(env.get(Env.LENT_DIR) or work / "lent").absolute(),
        drain_seconds=arguments.drain_seconds,
        report_seconds=arguments.report_seconds,
        watching=Watch(arguments.idle_seconds, arguments.token_seconds),
    )
    os.chdir(work)  # sockets are named from here: their paths may have 108 bytes
    try:
        config = read_config(config_path)
        asyncio.run(serve(config, environment, events))
    except Exception as error:  # whatever it is, it ends this replica, and must end it with a code
        return leave(classify(error), events)
    return ExitCode.OK


def rename_options(arguments: list[str]) -> list[str]:
    """The arguments with today's names of options; each old name is reported on stderr."""
    renamed = []
    for argument in arguments:
        name, sign, value = argument.partition("=")
        if name in RENAMED_OPTIONS:
            sys.stderr.write(f"souk serve: {name} is deprecated, use {RENAMED_OPTIONS[name]}\n")
        renamed.append(RENAMED_OPTIONS.get(name, name) + sign + value)
    return renamed


def classify(error: Exception) -> ServeError:
    """The error that describes what happened; an unforeseen one is printed with its traceback."""
    if isinstance(error, ServeError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemory("out of memory while the model was being read")
    traceback.print_exception(error)
    return ServeError(f"{type(error).__name__}: {str(error)[:500]}")


def leave(error: ServeError, events: EventWriter) -> int:
    """Report the reason once; a replica that was stopped has not failed."""
    code = int(error.exit_code)
    if code != ExitCode.STOPPED:
        events.write(EventKind.FAILED, message=str(error), exit_code=code)
    sys.stderr.write(f"souk serve: {error}\n")
    return code


if __name__ == "__main__":
    ended_with = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended_with)  # threads that still read weights are not waited for

"""The agent as it stays in memory: `souk-agent start` replaces itself with `python -m provider_agent.resident`.

What the commands need (options, help texts) would take some megabytes of memory for as long as the agent runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import NoReturn

from provider_agent.config import DataFolder
from provider_agent.errors import AgentAlreadyRuns
from provider_agent.system.guard import exit_status_of

STOP_WORK = "--stop-work-on-exit"


def become_resident(folder: DataFolder, *, stop_work_on_exit: bool) -> NoReturn:
    """Replace this process by one with nothing but the agent in it; its command line still shows what it is."""
    words = ["start", "--data", str(folder.root), *([STOP_WORK] if stop_work_on_exit else [])]
    with contextlib.suppress(OSError):
        folder.ended.unlink(missing_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    # -P: no module is taken from the folder in which it happened to be started.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "provider_agent.resident", *words])  # noqa: S606 - ourselves


def main() -> int:
    """Run until SIGTERM or SIGINT; the exit status."""
    from provider_agent.daemon import run_daemon
    from provider_agent.own_log import keep_log

    folder = DataFolder(Path(sys.argv[sys.argv.index("--data") + 1]))

    def act() -> None:
        keep_log(folder)
        asyncio.run(run_daemon(folder, stop_work_on_exit=STOP_WORK in sys.argv))

    status = exit_status_of(act)
    if status != AgentAlreadyRuns.exit_code:  # the folder is another agent's
        _note_end(folder, status)
    return status


def _note_end(folder: DataFolder, status: int) -> None:
    """Leave the exit status for the keeper; an agent that crashed leaves none."""
    with contextlib.suppress(OSError):
        folder.ended.write_text(f"{status}\n")


if __name__ == "__main__":
    sys.exit(main())

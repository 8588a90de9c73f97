"""What a job's state means to somebody who waits for it; a test compares with the server's `jobs/states.py`."""

from __future__ import annotations

from jobs.client.exit_codes import ExitCode

ENDS = {
    "completed": ExitCode.OK,
    "failed": ExitCode.JOB_FAILED,
    "cancelled": ExitCode.JOB_CANCELLED,
}
STOPS = {**ENDS, "paused": ExitCode.JOB_PAUSED}  # nothing more happens by itself

STYLES = {
    "queued": "yellow",
    "placed": "cyan",
    "running": "green",
    "recovering": "magenta",
    "paused": "yellow",
    "completed": "bold green",
    "failed": "bold red",
    "cancelled": "dim",
}

"""What the exit status of `souk` says. docs/cli.md lists the same; a test compares the two."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit statuses of `souk`; a script may rely on them."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    BAD_JOB_FILE = 3
    NOT_SIGNED_IN = 4
    UNREACHABLE = 5
    REFUSED = 6
    NOTHING_FITS = 7
    JOB_FAILED = 8
    JOB_CANCELLED = 9
    BILL_DOES_NOT_VERIFY = 10
    JOB_PAUSED = 11
    TRANSFER_FAILED = 12
    INTERRUPTED = 130

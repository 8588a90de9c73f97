"""The agent's own log: to standard error, and to a file in its data folder that never grows beyond a few megabytes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path

from provider_agent.config import DataFolder
from provider_agent.lease.snapshot import file_size, read_bytes

LOG_BYTES_MAX = 4 * 1024 * 1024
LOG_FILES_KEPT = 2
READ_BYTES = 256 * 1024
FOLLOW_SECONDS = 0.3


class QuietHandler(RotatingFileHandler):
    """A log line that cannot be written is dropped: standard error has it, and the work continues."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Print nothing: a traceback a line would hide what matters."""


def keep_log(folder: DataFolder) -> None:
    """From now on every line also goes to the file; a folder that cannot be written to keeps none."""
    folder.prepare()
    handler = QuietHandler(folder.log, maxBytes=LOG_BYTES_MAX, backupCount=LOG_FILES_KEPT, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)


def read_lines(path: Path, *, newest: int, follow: bool) -> Iterator[str]:
    """The last `newest` lines of a file, then, where asked, those that come; a file that begins anew is read anew."""
    size = file_size(path)
    offset = max(size - READ_BYTES, 0)
    lines = read_bytes(path, offset, size - offset).decode(errors="replace").splitlines()
    yield from lines[1:][-newest:] if offset and len(lines) > newest else lines[-newest:]
    part, inode = b"", _inode(path)
    while follow:
        if _inode(path) != inode or file_size(path) < size:
            size, part, inode = 0, b"", _inode(path)
        found = read_bytes(path, size, READ_BYTES)
        if not found:
            time.sleep(FOLLOW_SECONDS)
            continue
        size += len(found)
        *whole, part = (part + found).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)


def _inode(path: Path) -> int:
    try:
        return path.lstat().st_ino
    except OSError:
        return 0

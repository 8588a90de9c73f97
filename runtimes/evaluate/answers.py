"""The answers so far: a file that only grows, one line an answer, and checkpoints that hold a copy of it.

A line is `{"request": SHA-256 of model and request, "answer": ...}`. A process that is killed leaves at most one line
half written, which is cut off when the file is opened again. In a checkpoint, which is complete, every line is whole.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from runtimes.contract import checkpoint_folder, complete_checkpoints, write_manifest
from runtimes.evaluate.request import Answer
from runtimes.train.errors import BadCheckpoint

ANSWERS_FILE = "answers.jsonl"
LINE_BYTES_MAX = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Answers:
    """Every answer by the digest of its request; what is added is in the file when `flush` returns."""

    def __init__(self, path: Path, *, resume_from: Path | None = None) -> None:
        """Open the file, after a copy from the checkpoint where it is not there. Raises BadCheckpoint."""
        self.path = path
        saved = _read_saved(resume_from / ANSWERS_FILE) if resume_from is not None else {}
        whole, self._found = _read_grown(path)
        with path.open("ab") as file:
            file.truncate(whole)
        self._file = path.open("ab")
        self.resumed = len(saved)
        for digest, answer in saved.items():
            if digest not in self._found:
                self.add(digest, answer)
        self.flush()

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, digest: str) -> bool:
        return digest in self._found

    def __getitem__(self, digest: str) -> Answer:
        return self._found[digest]

    def add(self, digest: str, answer: Answer) -> None:
        """Keep one answer."""
        self._found[digest] = answer
        line = json.dumps({"request": digest, "answer": answer}, separators=(",", ":")).encode()
        self._file.write(line + b"\n")

    def flush(self) -> None:
        """Hand what was added to the kernel, so that a killed process has not lost it."""
        self._file.flush()

    def save(self, root: Path, *, keep: int, world_size: int) -> Path:
        """Write a checkpoint of all answers, named by their number; the newest `keep` stay."""
        self.flush()
        os.fsync(self._file.fileno())
        folder = checkpoint_folder(root, len(self))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copyfile(self.path, folder / ANSWERS_FILE)
        write_manifest(folder, step=len(self), node_rank=0, nodes=1, world_size=world_size)
        for old in complete_checkpoints(root)[:-keep]:
            shutil.rmtree(old)
        return folder

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _read_grown(path: Path) -> tuple[int, dict[str, Answer]]:
    """How many bytes of the file are whole lines, and the answers in these; a file that is not there has none."""
    found: dict[str, Answer] = {}
    whole = 0
    if not path.exists():
        return 0, found
    with path.open("rb") as file:
        for line in file:
            entry = _entry(line)
            if entry is None:
                break
            found[entry[0]] = entry[1]
            whole += len(line)
    return whole, found


def _read_saved(path: Path) -> dict[str, Answer]:
    """The answers of a checkpoint; raises BadCheckpoint where a line is none."""
    found: dict[str, Answer] = {}
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                entry = _entry(line)
                if entry is None:
                    raise BadCheckpoint(f"{path.name} of the checkpoint: line {number} is no answer")
                found[entry[0]] = entry[1]
    except OSError as error:
        raise BadCheckpoint(f"the checkpoint's {path.name} cannot be read: {error.strerror}") from error
    return found


def _entry(line: bytes) -> tuple[str, Answer] | None:
    if not line.endswith(b"\n") or len(line) > LINE_BYTES_MAX:
        return None
    try:
        body: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or body.keys() != {"request", "answer"}:
        return None
    digest = body["request"]
    return (digest, body["answer"]) if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None

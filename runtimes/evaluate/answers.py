"""The answers so far: a file that only grows, one line an answer, and checkpoints that hold a copy of it.

A line is `{"request": SHA-256 of model and request, "answer": ...}`. A process that is killed leaves at most one line
half written, which is cut off when the file is opened again. In a checkpoint, which is complete, every line is whole.

A checkpoint may come from another provider's node, so nothing of it is believed: it has as many answers as its manifest
has steps, each one asked for and of its request's shape. Otherwise the next nodes would hand a false one on as theirs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtimes.contract import checkpoint_folder, complete_checkpoints, read_manifest, write_manifest
from runtimes.evaluate.request import Answer, is_answer
from runtimes.train.errors import BadCheckpoint

ANSWERS_FILE = "answers.jsonl"
LINE_BYTES_MAX = 1 << 20
LINE_BYTES_MIN = 91  # of a digest and an empty text
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Answers:
    """Every answer by the digest of its request; what is added is in the file when `flush` returns."""

    def __init__(self, path: Path, wanted: Mapping[str, str], *, resume_from: Path | None = None) -> None:
        """Open the file, with the checkpoint's answers that it does not have; raises BadCheckpoint.

        `wanted` is the kind of every request that is asked, by its digest; an answer to another one is not taken.
        """
        self.path = path
        saved = _read_saved(resume_from, wanted) if resume_from is not None else {}
        whole, self._found = _read_grown(path, wanted)
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


def _read_grown(path: Path, wanted: Mapping[str, str]) -> tuple[int, dict[str, Answer]]:
    """How many bytes of the file can be kept, and the answers in these; a file that is not there has none."""
    found: dict[str, Answer] = {}
    whole = 0
    if not path.exists():
        return 0, found
    with path.open("rb") as file:
        while line := file.readline(LINE_BYTES_MAX + 1):
            entry = _entry(line)
            if entry is None or not _is_wanted(entry, wanted) or entry[0] in found:
                break
            found[entry[0]] = entry[1]
            whole += len(line)
    return whole, found


def _read_saved(folder: Path, wanted: Mapping[str, str]) -> dict[str, Answer]:
    """The answers of a checkpoint; raises BadCheckpoint where a line is none, or where they are not as many as said."""
    found: dict[str, Answer] = {}
    number = 0
    try:
        step = read_manifest(folder).get("step")
        with (folder / ANSWERS_FILE).open("rb") as file:
            while line := file.readline(LINE_BYTES_MAX + 1):
                number += 1
                entry = _entry(line)
                if entry is None:
                    raise BadCheckpoint(f"{ANSWERS_FILE} of the checkpoint: line {number} is no answer")
                if not _is_wanted(entry, wanted):
                    raise BadCheckpoint(
                        f"{ANSWERS_FILE} of the checkpoint: line {number} answers nothing that is asked"
                    )
                if entry[0] in found:
                    raise BadCheckpoint(f"{ANSWERS_FILE} of the checkpoint: line {number} answers a request again")
                found[entry[0]] = entry[1]
    except OSError as error:
        raise BadCheckpoint(f"the checkpoint's {ANSWERS_FILE} or manifest cannot be read: {error.strerror}") from error
    except (ValueError, AttributeError, RecursionError) as error:
        raise BadCheckpoint("the checkpoint's manifest is no JSON object") from error
    if step != len(found):
        raise BadCheckpoint(f"the checkpoint is said to have {step!r:.20} answers, and has {len(found)}")
    return found


def _is_wanted(entry: tuple[str, Answer], wanted: Mapping[str, str]) -> bool:
    digest, answer = entry
    return digest in wanted and is_answer(wanted[digest], answer)


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

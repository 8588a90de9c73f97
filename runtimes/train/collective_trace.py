"""Which collective each rank was in when the ranks lost each other. Standard library only.

torch's flight recorder keeps the last collectives of each rank in memory. Where one times out or fails, the rank writes
them to a file in the work folder: NCCL's watchdog does it before it aborts the process, of gloo the rank does it
itself. The launcher, which outlives the ranks of its node, then says in the job's log how far each had come. The files
stay in the work folder; of a failed attempt only the log leaves the node.

    record_collectives   before the ranks join: the recorder's settings
    write_trace          by a rank that fails
    describe_traces      by the launcher
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "collectives"  # in the work folder
RECORDED = 2000  # collectives a rank, some hundred bytes each
FILE_BYTES_MAX = 64 << 20
RANKS_SHOWN_MAX = 16
GROUPS_SHOWN_MAX = 8
TEXT_CHARACTERS_MAX = 120
OWN_CODE = "/runtimes/"
TORCH_CODE = "/torch/"


def record_collectives(environment: MutableMapping[str, str], work_dir: Path) -> None:
    """Switch the recorder on, for process groups that are made from now on; what is set already stays.

    The names with NCCL are those of torch before 2.8, and of what NCCL alone does.
    """
    folder = work_dir / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    prefix = str(folder / "rank-")  # torch adds the rank's number
    environment.setdefault("TORCH_FR_BUFFER_SIZE", str(RECORDED))
    environment.setdefault("TORCH_NCCL_TRACE_BUFFER_SIZE", str(RECORDED))
    environment.setdefault("TORCH_FR_DUMP_TEMP_FILE", prefix)
    environment.setdefault("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", prefix)
    environment.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")


def write_trace(work_dir: Path, rank: int) -> None:
    """Write what this rank recorded; nothing where torch is not loaded, has no recorder, or the disk is full."""
    if "torch.distributed" not in sys.modules:
        return
    with suppress(Exception):  # this rank has failed for another reason, which must be reported
        from torch._C._distributed_c10d import _dump_fr_trace  # type: ignore[attr-defined]  # not in its stubs

        path = work_dir / FOLDER / f"rank-{rank}"
        if not path.exists():  # NCCL's watchdog was first
            path.write_bytes(_dump_fr_trace())


def remove_traces(work_dir: Path) -> None:
    """Forget what an earlier start in the same folder left."""
    for path in _trace_files(work_dir):
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Last:
    """The newest collective that a rank began in a process group. `number` counts them from 1."""

    number: int
    text: str


def describe_traces(work_dir: Path) -> list[str]:
    """A line for each rank and process group of this node, and one for each rank that is behind the others.

    Empty without readable files. What lies in them was written by ranks: it is read as data, and shortened.
    """
    found: dict[str, dict[int, Last]] = {}
    for path in _trace_files(work_dir)[:RANKS_SHOWN_MAX]:
        for group, last in _read_trace(path).items():
            found.setdefault(group, {})[int(path.name.rpartition("-")[2])] = last
    lines = []
    for group, by_rank in sorted(found.items())[:GROUPS_SHOWN_MAX]:
        furthest = max(last.number for last in by_rank.values())
        for rank, last in sorted(by_rank.items()):
            behind = f"; others began number {furthest}" if last.number < furthest else ""
            lines.append(
                f"rank {rank}, group {group}: its last collective is number {last.number}, {last.text}{behind}"
            )
    return lines


def _trace_files(work_dir: Path) -> list[Path]:
    names = [path for path in (work_dir / FOLDER).glob("rank-*") if path.name.rpartition("-")[2].isdecimal()]
    return sorted(names, key=lambda path: int(path.name.rpartition("-")[2]))


class _Data(pickle.Unpickler):
    """Reads what needs no class and no function: a trace is dictionaries, lists, texts and numbers."""

    def find_class(self, module: str, name: str) -> Any:
        """Nothing is found."""
        raise pickle.UnpicklingError(f"a trace needs no {module}.{name}")


def _read_trace(path: Path) -> dict[str, Last]:
    """By process group; empty for a file that is none."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            return {}
        entries = _Data(io.BytesIO(path.read_bytes())).load()["entries"]
        found: dict[str, Last] = {}
        for entry in entries:
            number = entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"]
            group = _short(entry["process_group"][0])
            if group not in found or found[group].number <= int(number):
                found[group] = Last(int(number), _text(entry))
    except Exception:
        return {}
    return found


def _text(entry: dict[str, Any]) -> str:
    """`nccl:all_reduce of [[4]], started, in one_step of loop.py:131`."""
    frames = [each for each in entry.get("frames") or [] if TORCH_CODE not in str(each.get("filename"))]
    own = next((each for each in frames if OWN_CODE in str(each.get("filename"))), frames[0] if frames else None)
    where = f", in {own['name']} of {Path(str(own['filename'])).name}:{own['line']}" if own else ""
    return _short(f"{entry['profiling_name']} of {entry['input_sizes']}, {entry['state']}{where}")


def _short(value: object) -> str:
    text = "".join(each if each.isprintable() else "?" for each in str(value)[: TEXT_CHARACTERS_MAX + 1])
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[:TEXT_CHARACTERS_MAX] + "..."

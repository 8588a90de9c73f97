"""A trace of some steps: what each rank computed when, as Chrome and Perfetto draw it.

    output/profile/rank-00000.json.gz    one file a rank, in its own node's output

Steps are counted from where an attempt begins, because the output is that of the attempt that came to the end. A trace
is bounded: in steps (settings.py), micro-batches, ranks and bytes. What is left out for that, the log says. It is
written in the work folder and packed from there: what torch packs by itself goes through the folder of temporary files,
which lies in memory and is smaller than a trace may be.
"""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from runtimes.train.config import Profile
from runtimes.train.container import Container
from runtimes.train.parallel import Ranks, print_line

PROFILE_FOLDER = "profile"
PLAIN_FOLDER = "cache/profile"  # below the working directory
RANKS_MAX = 64  # the first ones: the others do the same
PASSES_MAX = 256  # micro-batches in a trace: it lies in memory until it is written
TRACE_BYTES_MAX = 2 << 30  # of one rank, before it is packed: what draws it reads no more
PACKED_BYTES_MAX = 256 << 20  # of one file of the output
COPIED_BYTES = 1 << 20  # at once


class StepProfiler:
    """Traces the steps that the configuration names; without any, it does nothing."""

    def __init__(self, wanted: Profile | None, ranks: Ranks, container: Container, *, passes: int) -> None:
        """`passes`: micro-batches of a step."""
        self._steps = range(0)
        if wanted is not None and ranks.rank < RANKS_MAX:
            count = min(wanted.steps, PASSES_MAX // passes)
            self._steps = range(wanted.first_step, wanted.first_step + count)
            if count < wanted.steps:
                print_line(
                    ranks,
                    f"profile: {count} steps of {wanted.steps} are traced: a step has {passes} micro-batches, and "
                    f"{PASSES_MAX} are the most in a trace",
                )
        self._ranks = ranks
        self._plain = container.work_dir / PLAIN_FOLDER / f"rank-{ranks.rank:05d}.json"
        self._packed = container.output_dir / PROFILE_FOLDER / f"rank-{ranks.rank:05d}.json.gz"
        self._running: profile | None = None
        self._traced = 0  # steps

    def before_step(self, number: int) -> None:
        """Begin at the first of the traced steps. `number`: of the step that comes, from 1 where the attempt began."""
        if self._steps and number == self._steps[0]:
            kinds = [ProfilerActivity.CPU]
            if self._ranks.device.type == "cuda":
                kinds.append(ProfilerActivity.CUDA)
            self._running = profile(activities=kinds)
            self._running.start()

    def after_step(self, number: int, *, is_last: bool) -> None:
        """Write the trace after the last of them, or where the training ends among them."""
        if self._running is None:
            return
        self._traced += 1
        if is_last or number == self._steps[-1]:
            self._write(self._running)

    def close(self) -> None:
        """Write the trace of a training that ended among its steps by itself; say so where it ended before them."""
        if self._running is not None:
            self._write(self._running)
        elif self._steps and not self._traced:
            print_line(
                self._ranks,
                f"profile: no step was traced: the training ended before step {self._steps[0]} of this attempt, take "
                "a lower profile.first_step",
            )

    def _write(self, running: profile) -> None:
        if self._ranks.device.type == "cuda":
            torch.cuda.synchronize(self._ranks.device)  # what was begun in these steps belongs to them
        running.stop()
        self._running = None
        try:
            self._plain.parent.mkdir(parents=True, exist_ok=True)
            running.export_chrome_trace(str(self._plain))
            if self._is_small(self._plain, TRACE_BYTES_MAX):
                self._packed.parent.mkdir(parents=True, exist_ok=True)
                with self._plain.open("rb") as plain, gzip.open(self._packed, "wb", compresslevel=6) as packed:
                    shutil.copyfileobj(plain, packed, COPIED_BYTES)
                if self._is_small(self._packed, PACKED_BYTES_MAX):
                    print_line(self._ranks, f"profile: {self._traced} steps are traced in {self._packed.parent}")
                else:
                    self._packed.unlink()
        except OSError as error:  # the disk is full: no reason to lose what was trained
            self._packed.unlink(missing_ok=True)
            print_line(self._ranks, f"profile: the trace is left out, it could not be written: {error}")
        finally:
            self._plain.unlink(missing_ok=True)

    def _is_small(self, path: Path, most: int) -> bool:
        """Whether a file has so few bytes; the log says so where it has not."""
        size = path.stat().st_size
        if size > most:
            print_line(
                self._ranks,
                f"profile: a trace of {size >> 20} MiB is left out, {most >> 20} MiB are the most: "
                "take fewer profile.steps",
            )
        return size <= most

"""A trace of some steps: what each rank computed when, as Chrome and Perfetto draw it.

    output/profile/rank-00000.json.gz    one file a rank, in its own node's output

Steps are counted from where an attempt begins, because the output is that of the attempt that came to the end. A trace
is bounded: in steps (settings.py), micro-batches, ranks and bytes. What is left out for that, the log says.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from runtimes.train.callbacks.settings import Profile
from runtimes.train.parallel import Ranks, print_line

PROFILE_FOLDER = "profile"
RANKS_MAX = 64  # the first ones: the others do the same
PASSES_MAX = 256  # micro-batches in a trace: it lies in memory until it is written
TRACE_BYTES_MAX = 256 << 20  # of one file, which is packed


class StepProfiler:
    """Traces the steps that the configuration names; without any, it does nothing."""

    def __init__(self, wanted: Profile | None, ranks: Ranks, output_dir: Path, *, passes: int) -> None:
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
        self._path = output_dir / PROFILE_FOLDER / f"rank-{ranks.rank:05d}.json.gz"
        self._running: profile | None = None

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
        if self._running is None or not (is_last or number == self._steps[-1]):
            return
        if self._ranks.device.type == "cuda":
            torch.cuda.synchronize(self._ranks.device)  # what was begun in these steps belongs to them
        self._running.stop()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._running.export_chrome_trace(str(self._path))
        self._running, size = None, self._path.stat().st_size
        if size > TRACE_BYTES_MAX:
            self._path.unlink()
            print_line(
                self._ranks,
                f"profile: a trace of {size >> 20} MiB is left out, {TRACE_BYTES_MAX >> 20} MiB are the most: "
                "take fewer profile.steps",
            )
        else:
            print_line(self._ranks, f"profile: {len(self._steps)} steps are traced in {self._path.parent}")

"""Checkpoints, written while the training continues; complete when the manifest is there, and never before.

    step-00000100/          on every node: the files of its own ranks, and what its node leader adds
        __0_0.distcp ...    one file a rank, written by torch's distributed checkpoint from what the strategy saves
        .metadata           written by rank 0 after every rank of every node has written
        trainer.json        step, ranks, layout, digest of the data, configuration    (rank 0's node)
        tokenizer.json                                                                (rank 0's node)
        MANIFEST.json       last, one a node: this node's part is complete

A training over several nodes resumes from a folder with all their parts put together. The random numbers need no
saving: they are drawn from (seed, step, rank).
"""

from __future__ import annotations

import json
import math
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import async_save

from runtimes.contract import (
    MANIFEST_NAME,
    TOKENIZER_BYTES_MAX,
    TOKENIZER_FILE,
    TRAINER_BYTES_MAX,
    TRAINER_FILE,
    EventKind,
    EventWriter,
    checkpoint_folder,
    checkpoint_step,
    complete_checkpoints,
    write_manifest,
)
from runtimes.train.checkpoint_reader import DataOnlyReader
from runtimes.train.container import Container
from runtimes.train.data.tokenizer import load_tokenizer
from runtimes.train.errors import BadCheckpoint
from runtimes.train.parallel import Ranks

FIRST_INTERVAL_SECONDS = 60.0  # before anything is known
INTERVAL_SECONDS_MIN = 30.0
INTERVAL_SECONDS_MAX = 3600.0
WRITING_SHARE_MAX = 0.1


class SaveInterval:
    """When the next checkpoint is due, by time: as asked for, or reckoned from what one costs and how often nodes fail.

    Young 1974 and Daly 2006: the square root of 2 x blocked seconds x mean seconds to a failure loses least to saving
    and to working again. Writing goes on in the background and takes disk and line: so it is never more than a tenth of
    the time.
    """

    def __init__(self, container: Container) -> None:
        self._mean_seconds = container.mean_seconds_to_failure
        self.is_reckoned = self._mean_seconds > 0
        self.seconds = float(container.checkpoint_every_seconds)  # 0: not by time
        if self.is_reckoned:
            self.seconds = FIRST_INTERVAL_SECONDS

    def learn(self, blocked: float, total: float) -> None:
        """What the newest checkpoint took: of the training, waiting included, and until it was on disk."""
        if self.is_reckoned:
            best = math.sqrt(2 * blocked * self._mean_seconds)
            self.seconds = round(
                min(max(best, total / WRITING_SHARE_MAX, INTERVAL_SECONDS_MIN), INTERVAL_SECONDS_MAX), 1
            )


class Checkpointer:
    """Saves in the background, one checkpoint at a time, and keeps the newest few complete ones."""

    def __init__(self, container: Container, ranks: Ranks, events: EventWriter) -> None:
        self._root = container.checkpoint_dir
        # The other nodes' parts may still lack their manifest when this node prunes: a gang keeps the one before too.
        self._keep = container.checkpoint_keep if container.nodes == 1 else max(2, container.checkpoint_keep)
        self._ranks, self._events = ranks, events
        self.interval = SaveInterval(container)
        self._finisher = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None
        self._stager = make_stager(ranks.device)
        self.saved_step = -1  # of the newest checkpoint that was begun or resumed from

    def save(self, state: dict[str, Any], tokenizer: Tokenizer, trainer: dict[str, Any]) -> None:
        """Copy the strategy's state, then write it in the background, one checkpoint at a time. All ranks call it."""
        began = time.monotonic()
        self.wait()
        folder = checkpoint_folder(self._root, trainer["step"])
        writer = FileSystemWriter(folder, single_file_per_rank=True, sync_files=True, overwrite=True)
        written: Any = async_save(
            state, storage_writer=writer, process_group=self._ranks.checkpoint, async_stager=self._stager
        )
        self.saved_step = trainer["step"]
        if self._ranks.is_node_leader:
            blocked = time.monotonic() - began
            self._pending = self._finisher.submit(
                self._finish,
                written,
                folder=folder,
                tokenizer=tokenizer,
                trainer=trainer,
                began=began,
                blocked=blocked,
            )
        else:
            self._pending = written

    def wait(self) -> None:
        """Return once the last checkpoint is on disk, complete; raises what went wrong while it was written."""
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def close(self) -> None:
        """Wait for the last checkpoint, and give back the memory that saves are copied into: none follows."""
        self.wait()
        self._stager.close()

    def check(self) -> None:
        """Raise what went wrong in the background, if it already did; never waits."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def _finish(
        self,
        written: Future[Any],
        *,
        folder: Path,
        tokenizer: Tokenizer,
        trainer: dict[str, Any],
        began: float,
        blocked: float,
    ) -> None:
        """On a node's leader: wait until all ranks of all nodes have written, then make this node's part complete."""
        written.result()  # torch answers after every rank's files and the metadata are written
        if self._ranks.is_leader:
            (folder / TRAINER_FILE).write_text(json.dumps(trainer))
            tokenizer.save(str(folder / TOKENIZER_FILE))
        step, world_size = trainer["step"], self._ranks.world_size
        write_manifest(
            folder, step=step, world_size=world_size, node_rank=self._ranks.node_rank, nodes=self._ranks.nodes
        )
        if self._ranks.is_leader:
            total = time.monotonic() - began
            self.interval.learn(blocked, total)
            seconds = {"seconds_blocked": round(blocked, 4), "seconds_total": round(total, 4)}
            if self.interval.is_reckoned:
                seconds["every_seconds"] = self.interval.seconds
            self._events.write(EventKind.CHECKPOINTED, step=step, path=str(folder), **seconds)
        prune_checkpoints(self._root, keep=self._keep)


def make_stager(device: torch.device) -> DefaultStager:
    """Host buffers that tensors are copied into while the training waits: made once, used by every save of one rank.

    With CUDA they are pinned: the copies of all tensors are under way at once, at the full rate of the bus, and nothing
    is pinned or freed between saves. On a CPU they are plain memory, and reusing them spares the faults of fresh pages.
    They hold as much as a save holds at its peak anyway, and keep it in between. The copy is complete when it returns.

    A buffer belongs to the storage of one tensor of the training, and goes with it: what a strategy gathers anew for
    each save gets a fresh one. The next save overwrites them, so it waits for the last (`Checkpointer.save`). Pinning,
    and what it gains, only a GPU shows.
    """
    is_cuda = device.type == "cuda"
    return DefaultStager(
        StagingOptions(
            use_pinned_memory=is_cuda,
            use_shared_memory=False,  # the writer is a thread of this process
            use_async_staging=False,
            use_non_blocking_copy=is_cuda,
        )
    )


def prune_checkpoints(root: Path, *, keep: int) -> None:
    """Delete all but the newest `keep` complete checkpoints; partial ones are left alone, one may be being written."""
    for folder in complete_checkpoints(root)[:-keep]:
        (folder / MANIFEST_NAME).unlink()  # first, so that a half-deleted folder is never taken for a complete one
        shutil.rmtree(folder)


def find_checkpoint(container: Container) -> Path | None:
    """The checkpoint to resume from: the given one, else the newest complete one of this folder (on one node only)."""
    if container.resume_from is not None:
        return container.resume_from
    found = complete_checkpoints(container.checkpoint_dir) if container.nodes == 1 else []
    return found[-1] if found else None


def remove_partial(root: Path, *, but: Path | None) -> None:
    """Delete what an attempt that was killed left half-written; called by each node's leader before the first save."""
    for folder in root.glob("*"):
        is_partial = checkpoint_step(folder) is not None and not (folder / MANIFEST_NAME).is_file()
        if is_partial and (but is None or folder.resolve() != but.resolve()):
            shutil.rmtree(folder)


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer that lies beside the weights, or None for none; raises BadCheckpoint for what is no tokenizer."""
    path = folder / TOKENIZER_FILE
    try:
        if path.is_file() and path.stat().st_size > TOKENIZER_BYTES_MAX:
            raise ValueError(f"{TOKENIZER_FILE} is larger than {TOKENIZER_BYTES_MAX} bytes")
        return load_tokenizer(folder)
    except Exception as error:  # its library raises no narrower one
        raise BadCheckpoint(f"checkpoint {folder.name} has no tokenizer: {error!s:.200}") from error


def read_trainer(folder: Path) -> dict[str, Any]:
    """What the trainer wrote beside the weights; raises BadCheckpoint for a folder that is no complete checkpoint."""
    try:
        with (folder / TRAINER_FILE).open("rb") as file:
            trainer = json.loads(file.read(TRAINER_BYTES_MAX))
    except (OSError, ValueError, RecursionError) as error:
        raise BadCheckpoint(f"checkpoint {folder.name} is not complete: {error}") from error
    if not isinstance(trainer, dict):
        raise BadCheckpoint(f"checkpoint {folder.name} is not complete: {TRAINER_FILE} says nothing")
    reader = DataOnlyReader(folder)
    reader.read_metadata()
    reader.check_parts()
    return trainer

"""What saving costs a training: the time that its steps wait, and the bytes of a checkpoint."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.setups.training_steps import our_training
from runtimes.contract import Env, complete_checkpoints

SHAPE = "110m"
SAVES = 5  # of each kind, in turns
KEPT: dict[str, dict[str, Any]] = {
    "full": {},
    "LoRA": {"lora": {"rank": 16}},
    "QLoRA": {"lora": {"rank": 16}, "quantize": "nf4"},
}


def measure_saves() -> dict[str, Any]:
    """Seconds in which a training waits for a save: ours, written in the background, beside torch's own `save`.

    Both write the same state, with fsync. Ours is complete before the next save begins, as it is where checkpoints are
    further apart than one takes.
    """
    import torch
    import torch.distributed as dist
    from tokenizers import Tokenizer, models
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    training = our_training(SHAPE, {})
    checkpointer, root = training.checkpointer, Path(os.environ[Env.WORK_DIR])
    tokenizer = Tokenizer(models.BPE())
    _one_step(training)

    def state() -> dict[str, Any]:
        found: dict[str, Any] = training.strategy.saved_state(training.model, training.optimizer)
        return found

    def waited(began: float) -> float:
        """The longest of all ranks."""
        seconds = torch.tensor(time.monotonic() - began)
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        return float(seconds)

    synchronous, blocked, written = list[float](), list[float](), list[float]()
    for number in range(SAVES + 1):
        dist.barrier()
        began = time.monotonic()
        save(state(), storage_writer=FileSystemWriter(root / "plain", single_file_per_rank=True, sync_files=True))
        synchronous.append(waited(began))
        dist.barrier()
        began = time.monotonic()
        checkpointer.save(state(), tokenizer, {"step": number + 1})
        blocked.append(waited(began))
        checkpointer.wait()
        written.append(waited(began))
        if training.ranks.is_leader:
            shutil.rmtree(root / "plain")
    ratios = [slow / fast for slow, fast in zip(synchronous[1:], blocked[1:], strict=True)]  # the first makes buffers
    return {
        "saves": SAVES,
        "ranks": training.ranks.world_size,
        "gib": round(_newest_bytes(root) / 2**30, 2),
        "synchronous_s": round(statistics.median(synchronous[1:]), 3),
        "blocked_s": round(statistics.median(blocked[1:]), 3),
        "written_s": round(statistics.median(written[1:]), 3),
        "first_blocked_s": round(blocked[0], 3),
        "synchronous_over_blocked": round(statistics.median(ratios), 1),
        "range": [round(min(ratios), 1), round(max(ratios), 1)],
    }


def measure_kept(method: str) -> dict[str, int]:
    """Bytes of a checkpoint after one step, of one rank; of the weights that the training holds; of what it trains."""
    from tokenizers import Tokenizer, models

    training = our_training(SHAPE, KEPT[method])
    _one_step(training)
    has_adapters = training.config.lora is not None
    state = training.strategy.saved_state(training.model, training.optimizer, trained_only=has_adapters)
    training.checkpointer.save(state, Tokenizer(models.BPE()), {"step": 1})
    training.checkpointer.close()
    weights = list(training.model.parameters())
    return {
        "checkpoint_bytes": _newest_bytes(Path(os.environ[Env.WORK_DIR])),
        "weights_bytes": sum(each.numel() * each.element_size() for each in weights),
        "trained": sum(each.numel() for each in weights if each.requires_grad),
    }


def _one_step(training: Any) -> None:
    """Now there are moments to save."""
    from runtimes.train.loop import one_step

    one_step(training)
    training.step += 1


def _newest_bytes(work: Path) -> int:
    """Of the newest checkpoint in a work folder."""
    newest = complete_checkpoints(work / "checkpoint")[-1]
    return sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())

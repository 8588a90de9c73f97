"""Which objective a configuration asks for."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from runtimes.train.config import TrainConfig
from runtimes.train.data.corpus import Corpus
from runtimes.train.data.order import largest_part
from runtimes.train.objectives.base import Objective
from runtimes.train.objectives.dpo import DpoObjective
from runtimes.train.objectives.likelihood import Likelihood
from runtimes.train.objectives.references import compute_references, empty_references
from runtimes.train.parallel import Ranks


def make_objective(
    config: TrainConfig, model: nn.Module, corpus: Corpus, ranks: Ranks, *, work_dir: Path, is_resumed: bool
) -> Objective:
    """The objective of this training; `model` has its first weights, unless `is_resumed`. All ranks call it."""
    if config.dpo is None:
        return Likelihood()
    if config.lora is not None:
        return DpoObjective(config.dpo, None)
    if is_resumed:
        return DpoObjective(config.dpo, empty_references(corpus))
    most = largest_part(config.global_batch_size, ranks.world_size)
    at_once = min(config.micro_batch_size or most, most)
    return DpoObjective(config.dpo, compute_references(model, corpus, ranks, at_once=at_once, work_dir=work_dir))

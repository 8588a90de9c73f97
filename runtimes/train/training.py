"""What the parts of a training share."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from tokenizers import Tokenizer
from torch import nn

from runtimes.contract import EventWriter
from runtimes.train.callbacks.copies import Copies
from runtimes.train.callbacks.early_stop import EarlyStopper
from runtimes.train.checkpoint import Checkpointer
from runtimes.train.config import TrainConfig
from runtimes.train.data.corpus import Corpus
from runtimes.train.model import ModelSource
from runtimes.train.objectives.base import Figures, Objective
from runtimes.train.objectives.likelihood import Likelihood
from runtimes.train.parallel import Ranks
from runtimes.train.shares import BlockClock, Shares
from runtimes.train.strategies.base import Strategy


@dataclass(frozen=True)
class Text:
    """The data as the model sees it; `end_id` follows each document.

    `chat_template`: what conversations were written by, where it did not come with the model. `s3_digest`: of the
    objects on S3 that were read, as they were pinned; on the leader alone, and None where there are none.
    """

    tokenizer: Tokenizer
    end_id: int
    corpus: Corpus
    chat_template: str | None = None
    s3_digest: str | None = None


@dataclass
class Training:
    """Everything that the steps share. `step` counts the finished ones."""

    config: TrainConfig
    strategy: Strategy
    ranks: Ranks
    events: EventWriter
    source: ModelSource
    text: Text
    model: nn.Module
    optimizer: torch.optim.Optimizer
    checkpointer: Checkpointer
    shares: Shares
    dtype: torch.dtype
    flops_per_token: float | None
    copies: Copies
    stopper: EarlyStopper | None = None  # where it may end before its last step
    base: str | None = None  # digest of what its adapters belong to, where it trains adapters
    clock: BlockClock | None = None  # where the shares follow the ranks' speeds
    objective: Objective = field(default_factory=Likelihood)
    figures: Figures = field(default_factory=Figures)  # the objective's, since the last step event
    step: int = 0
    started_at: int = 0  # the step from which this start went on
    loss: float | None = None
    skipped: int = 0  # steps since this start whose gradient was not finite, and which changed nothing
    skipped_in_a_row: int = 0

"""Early stop: a training ends where its evaluation loss has fallen no more for some evaluations in a row.

What it has seen stands in each checkpoint, so that a resumed training ends at the same step as an undisturbed one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeGuard

from runtimes.train.config import EarlyStop
from runtimes.train.errors import BadCheckpoint, BadData


@dataclass
class EarlyStopper:
    """The best evaluation so far, and how many came after it. The evaluation at step 0 counts as one.

    It must be given the same losses on every rank: then all of them stop at the same step.
    """

    settings: EarlyStop
    best_loss: float = math.inf  # inf: none yet, or none that was finite
    best_step: int = 0
    since: int = 0  # evaluations after the best one

    def observe(self, step: int, loss: float, *, may_end: bool = True) -> bool:
        """Take over an evaluation's loss; whether it is the best so far. One that is not finite is not.

        Without `may_end` the training is not over by this evaluation: the next one decides.
        """
        if math.isfinite(loss) and loss < self.best_loss - self.settings.min_delta:
            self.best_loss, self.best_step, self.since = loss, step, 0
            return True
        self.since = min(self.since + 1, self.settings.patience - (0 if may_end else 1))
        return False

    @property
    def is_over(self) -> bool:
        """Whether the training is to end."""
        return self.since >= self.settings.patience

    def check_learned(self) -> None:
        """Raises BadData where no evaluation had a finite loss: such a training did not complete, it failed."""
        if not math.isfinite(self.best_loss):
            raise BadData(
                "no evaluation had a finite loss, so that none is the best: take a lower learning_rate, more "
                "warmup_steps, or look at the data and the model"
            )

    def state(self) -> dict[str, Any]:
        """As a checkpoint keeps it, in JSON, which has no infinity."""
        best = self.best_loss if math.isfinite(self.best_loss) else None
        return {"best_loss": best, "best_step": self.best_step, "since": self.since}

    def load(self, state: object, *, step: int) -> None:
        """Take over what a checkpoint of `step` has; raises BadCheckpoint for what no training writes."""
        found = state if isinstance(state, dict) else {}
        loss, best_step, since = (found.get(name) for name in ("best_loss", "best_step", "since"))
        is_loss = loss is None or (isinstance(loss, float) and math.isfinite(loss))
        if not (is_loss and _is_count(best_step, step) and _is_count(since, self.settings.patience - 1)):
            raise BadCheckpoint("the checkpoint does not say how the evaluations before it went")
        self.best_loss = math.inf if loss is None else loss
        self.best_step, self.since = best_step, since


def _is_count(value: object, most: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most

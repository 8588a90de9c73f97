"""AdamW and the schedule of its learning rate."""

from __future__ import annotations

import math

import torch
from torch import nn

from runtimes.train.config import TrainConfig

LEARNING_RATE_FLOOR = 0.1  # of the peak, where the cosine ends
EPSILON = 1e-8


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW over the parameters of this rank; matrices decay, norms and biases do not."""
    decayed = [p for p in model.parameters() if p.requires_grad and p.ndim >= 2]
    others = [p for p in model.parameters() if p.requires_grad and p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.peak_rate,
        betas=config.betas,
        eps=EPSILON,
        fused=True,
    )


def learning_rate_at(step: int, config: TrainConfig) -> float:
    """Learning rate of a step, from 0: linear warm-up, then a cosine down to a tenth of the peak at the last step."""
    peak = config.peak_rate
    if step < config.warmup_steps:
        return peak * (step + 1) / (config.warmup_steps + 1)
    span = max(1, config.steps_total - 1 - config.warmup_steps)
    progress = min(1.0, (step - config.warmup_steps) / span)
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return peak * (LEARNING_RATE_FLOOR + (1 - LEARNING_RATE_FLOOR) * cosine)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group of parameters this learning rate for the next step."""
    for group in optimizer.param_groups:
        group["lr"] = rate

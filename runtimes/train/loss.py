"""Cross-entropy that never holds the logits of a whole micro-batch.

For a vocabulary of 128,000 the logits of 8,192 tokens are 4 GiB in float32, and the backward pass takes as much again:
more than all activations of a model of a billion parameters. Here the logits of some tokens are made, their gradient is
computed at once, and both are dropped before those of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

LOGITS_BYTES_MAX = 1 << 30  # in float32, at a time
Measure = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]  # logits, targets, weights to their loss
OfSequences = Callable[[torch.Tensor], torch.Tensor]  # each sequence's summed cross-entropy (b,) to a loss
LossOfPart = Callable[[torch.Tensor, slice], torch.Tensor]


def install_loss(model: nn.Module, *, compiles: bool) -> None:
    """Let `model(input_ids=..., targets=..., weights=...)` return `summed_loss`; without targets it answers as before.

    It is a call of the model because a strategy may gather parameters for the time of one. `compiles`: what comes after
    the logits is compiled, and passes over them fewer times.
    """
    untyped: Any = model
    plain = untyped.forward
    trained = torch.compile(_cross_entropy) if compiles else _cross_entropy

    def forward(
        *args: Any, targets: Any = None, weights: Any = None, of_sequences: OfSequences | None = None, **named: Any
    ) -> Any:
        if targets is None:
            return plain(*args, **named)
        measure = trained if torch.is_grad_enabled() else _cross_entropy
        return _loss(untyped, plain, measure, of_sequences, inputs=named, targets=targets, weights=weights)

    untyped.forward = forward


@dataclass(frozen=True)
class MicroBatch:
    """Samples on a rank's device."""

    sequences: torch.Tensor  # (b, S + 1) ids
    weights: torch.Tensor  # (b, S), of each target
    positions: torch.Tensor | None = None  # (b, S): where they begin anew, a token sees nothing of what is before
    samples: NDArray[np.int64] | None = None  # (b / rows,): which of the corpus they are, rows sequences each; -1: none


def summed_loss(model: nn.Module, batch: MicroBatch, of_sequences: OfSequences | None = None) -> torch.Tensor:
    """Weighted cross-entropy summed over targets, shape ().

    `of_sequences`: instead what it makes of each sequence's sum, (b,). While training that must be a number, whose
    gradient with respect to a sum is the weight that the sequence's gradient gets.
    """
    positions = {} if batch.positions is None else {"position_ids": batch.positions}
    loss: torch.Tensor = model(
        input_ids=batch.sequences[:, :-1],
        targets=batch.sequences[:, 1:],
        weights=batch.weights,
        of_sequences=of_sequences,
        **positions,
    )
    return loss


def _loss(
    model: Any,
    plain: Any,
    measure: Measure,
    of_sequences: OfSequences | None,
    *,
    inputs: dict[str, Any],
    targets: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    by_token, flat = weights.reshape(-1), targets.reshape(-1)  # (b * S,)
    if model.base_model is model:  # no way to have the hidden states alone
        logits = plain(**inputs, use_cache=False).logits
        if of_sequences is not None:
            return of_sequences((_token_losses(logits.flatten(0, 1), flat).view_as(weights) * weights).sum(1))
        return measure(logits.flatten(0, 1), flat, by_token)
    prefix = model.base_model_prefix
    decoded: torch.Tensor = model.base_model(**inputs, use_cache=False).last_hidden_state
    hidden = decoded.flatten(0, 1)  # (b * S, H)

    def head(states: torch.Tensor) -> torch.Tensor:
        """The model's own way to logits, with whatever scales and caps its class has: its decoder is stood in for."""
        model.__dict__[prefix] = _StandIn(states)
        try:
            logits: torch.Tensor = plain(input_ids=inputs["input_ids"], use_cache=False).logits
        finally:
            del model.__dict__[prefix]
        return logits

    def of_part(states: torch.Tensor, part: slice) -> torch.Tensor:
        return measure(head(states[None])[0], flat[part], by_token[part])

    tokens = max(1, LOGITS_BYTES_MAX // (4 * int(model.config.get_text_config().vocab_size)))
    if of_sequences is not None:
        with torch.no_grad():
            parts = [slice(start, start + tokens) for start in range(0, len(hidden), tokens)]
            losses = torch.cat([_token_losses(head(hidden[part][None])[0], flat[part]) for part in parts])
        sums = (losses.view_as(weights) * weights).sum(1)
        if not torch.is_grad_enabled():
            return of_sequences(sums)
        # The head is computed a second time, once it is known how much each sequence counts: its gradient can then be
        # summed over all of them, a part of the tokens at a time.
        value = of_sequences(sums.requires_grad_())
        (slopes,) = torch.autograd.grad(value, sums)
        by_token = (weights * slopes[:, None]).reshape(-1)
    if not torch.is_grad_enabled():
        starts = range(0, len(hidden), tokens)
        return torch.stack([of_part(hidden[(part := slice(each, each + tokens))], part) for each in starts]).sum()
    named = model.named_parameters(remove_duplicate=False)  # a head that is tied to the embeddings, too
    parameters = [p for name, p in named if not name.startswith(f"{prefix}.") and p.requires_grad]
    apply: Any = _ChunkedLoss.apply  # untyped there
    loss: torch.Tensor = apply(of_part, tokens, hidden, *parameters)
    return loss if of_sequences is None else value.detach() + (loss - loss.detach())


def _cross_entropy(logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weighted and summed; shapes (n, V), (n,), (n,)."""
    return (_token_losses(logits, targets) * weights).sum()


def _token_losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Of each token, (n,); shapes (n, V), (n,)."""
    return functional.cross_entropy(logits.float(), targets, reduction="none")


class _StandIn:
    """A decoder that has decoded already; some classes call a part of theirs, such as `self.model.decoder`."""

    def __init__(self, states: torch.Tensor) -> None:
        self.states = states

    def __call__(self, *args: Any, **named: Any) -> _Decoded:
        return _Decoded(self.states)

    def __getattr__(self, name: str) -> _StandIn:
        return self


class _Decoded:
    """What a decoder returns: hidden states, and nothing else that its class may know."""

    def __init__(self, states: torch.Tensor) -> None:
        self.last_hidden_state = states

    def __getitem__(self, index: int) -> torch.Tensor:
        return (self.last_hidden_state,)[index]

    def __getattr__(self, name: str) -> None:
        return None


class _ChunkedLoss(torch.autograd.Function):
    """The loss of hidden states (n, H) by parts of them; gradients are ready when the forward pass ends."""

    @staticmethod
    def forward(
        ctx: Any, of_part: LossOfPart, tokens: int, hidden: torch.Tensor, *parameters: torch.Tensor
    ) -> torch.Tensor:
        """`of_part`: the summed loss of these states, which are that part of all; `parameters`: what it needs."""

        def gradients_of(part: slice) -> tuple[torch.Tensor, torch.Tensor, Sequence[torch.Tensor | None]]:
            with torch.enable_grad():
                states = hidden[part].detach().requires_grad_()
                loss = of_part(states, part)
                first, *others = torch.autograd.grad(loss, [states, *parameters], allow_unused=True)
            return loss.detach(), first, others

        if len(hidden) <= tokens:  # nothing to add up
            total, of_hidden, found = gradients_of(slice(None))
            sums = [torch.zeros_like(p) if each is None else each for p, each in zip(parameters, found, strict=True)]
        else:
            total = torch.zeros((), dtype=torch.float32, device=hidden.device)
            of_hidden = torch.empty_like(hidden)
            sums = [torch.zeros_like(p, dtype=torch.float32) for p in parameters]
            for start in range(0, len(hidden), tokens):
                part = slice(start, start + tokens)
                loss, of_hidden[part], others = gradients_of(part)
                total += loss
                for added, gradient in zip(sums, others, strict=True):
                    if gradient is not None:
                        added.add_(gradient)
        ctx.gradients = [(of_hidden, hidden.dtype), *zip(sums, (p.dtype for p in parameters), strict=True)]
        return total

    @staticmethod
    def backward(ctx: Any, *outer: torch.Tensor) -> Any:
        """Whatever the loss was multiplied by, the gradients are."""
        gradients, ctx.gradients = ctx.gradients, None
        # In float32: a factor in bfloat16 would be up to 0.2 % off.
        return (None, None, *((gradient.float() * outer[0]).to(dtype) for gradient, dtype in gradients))

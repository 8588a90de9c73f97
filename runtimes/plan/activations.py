"""Bytes that a training keeps from its forward pass for its backward pass.

Each term is a tensor that torch's autograd saves in transformers' blocks, as they are computed here: by the fused
attention of torch, in `bfloat16` after FSDP2 has cast the parameters, under autocast with DDP, or in `float32`.
Two operations that save the same tensor count once.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtimes.shapes.shape import ModelShape

SINGLE = 4  # bytes of a float32
# Activation functions that torch computes in one operation, which saves its input; others save what their parts need.
FUSED_ACTIVATIONS = frozenset({"silu", "swish", "gelu", "gelu_pytorch_tanh", "relu"})
CAPPED_SCORE = 8  # bytes: tanh and softmax in float32; or in bfloat16, softmax in both
DROPPED_SCORE = 12  # bytes: softmax, what is left of it, and which
PARTS_OF_A_WRITTEN_OUT_ACTIVATION = 4  # gelu_new: its input, half of it, tanh and one more than that


@dataclass(frozen=True)
class Computing:
    """How blocks compute. `size`: bytes of a number that they compute in; `is_autocast`: the residual is in float32."""

    size: int
    is_autocast: bool = False
    is_gpu: bool = True
    is_compiled: bool = False
    trains_base: bool = True
    adapter_numbers: int = 0  # that adapters keep a token and block: their rank, at each module that has one

    @property
    def residual(self) -> int:
        """Bytes of a number of the residual stream."""
        return SINGLE if self.is_autocast else self.size


@dataclass(frozen=True)
class BlockBytes:
    """Of one block, a token: `kept` from forward to backward; `working`: more, at the fullest moment of backward."""

    kept: float
    working: float


def block_bytes(shape: ModelShape, computing: Computing, *, length: int) -> BlockBytes:
    """What a block keeps where nothing is computed anew. `length`: tokens a sequence, for scores that are written."""
    return BlockBytes(
        kept=_norms(shape, computing) + _attention(shape, computing, length) + _feed_forward(shape, computing),
        working=_working(shape, computing, length),
    )


def selective_bytes(shape: ModelShape, computing: Computing) -> float:
    """What a block keeps where only products with weights and fused attention are: their results, and its input."""
    results = float(sum(each.outputs for each in shape.linears))
    if shape.experts:
        results += shape.experts.per_token * (3 * shape.experts.inner + shape.hidden)
    attention = 0 if _writes_scores(shape, computing) else _width(shape) * computing.size + SINGLE * shape.heads
    adapters = computing.size * (computing.adapter_numbers + (results if computing.adapter_numbers else 0))
    return computing.residual * shape.hidden + computing.size * results + attention + adapters


def replaced_bytes(shape: ModelShape, computing: Computing, *, checkpointing: str) -> float:
    """Of what a block keeps for its backward pass, what the one that is computed anew does not add to all that is kept:
    its input where its first norm keeps the same tensor, and results that are taken over, or dropped when used.
    """
    hidden = shape.hidden
    shared = float(computing.residual * hidden) if computing.residual == SINGLE or shape.norm == "layer" else 0.0
    if checkpointing == "full":
        return shared
    results = sum(each.outputs for each in shape.linears) - hidden  # the last one is never computed anew
    attention = 0 if _writes_scores(shape, computing) else computing.size * _width(shape) + SINGLE * shape.heads
    return shared + computing.size * results + attention


def _norms(shape: ModelShape, computing: Computing) -> float:
    """The states that norms are given and give."""
    hidden, size = shape.hidden, computing.size
    if shape.norm == "layer":  # input, output; mean and deviation
        inputs = 1 if shape.is_parallel else shape.norms_per_block
        return inputs * computing.residual * hidden + shape.norms_per_block * (size * hidden + 2 * SINGLE)
    scaled = SINGLE if shape.norm == "gemma" else computing.residual  # normalised, before the weight
    scaled = scaled if computing.trains_base else 0
    before = SINGLE * hidden + scaled * hidden + SINGLE  # input in float32, normalised, root
    if computing.is_compiled:  # what is in between is computed anew
        before = computing.residual * hidden + SINGLE
    copies = (3, 2) if computing.is_autocast else (1, 1)  # of the output: autocast makes one for each module
    given = size * hidden * sum(copies)
    if shape.experts:
        given += size * hidden * shape.experts.per_token  # each expert's own
    heads = 0.0
    if shape.has_head_norms:
        width = _width(shape) + shape.shared_heads * shape.head_size
        heads = width * (SINGLE + scaled)
    return shape.norms_per_block * before + given + heads


def _attention(shape: ModelShape, computing: Computing, length: int) -> float:
    """Queries, keys, values, the result and its log-sums; scores where they are written."""
    width, shared = _width(shape), shape.shared_heads * shape.head_size
    kept = computing.size * (2 * width + 2 * shared) + SINGLE * shape.heads
    if shape.is_fused and not shape.positions:  # values are a part of what one module made, which stays whole
        kept += computing.size * (width + shared)
    if shape.caps_scores:  # torch's fused attention cannot; keys and values are repeated for every head
        kept += CAPPED_SCORE * shape.heads * length + 2 * computing.size * (width - shared)
    elif shape.attention_dropout and not computing.is_gpu:  # nor this, on a processor; queries and keys are scaled
        kept += DROPPED_SCORE * shape.heads * length + computing.size * 2 * width
    return kept + _dropped(shape, computing) + computing.size * computing.adapter_numbers


def _dropped(shape: ModelShape, computing: Computing) -> float:
    """One byte a number that dropout may leave out, twice a block."""
    return 2.0 * shape.hidden if shape.dropout else 0.0


def _feed_forward(shape: ModelShape, computing: Computing) -> float:
    inner, size = shape.inner, computing.size
    if shape.experts:
        return size * shape.experts.per_token * (4 * shape.experts.inner + shape.hidden)
    if shape.is_gated:  # the gate before and, not compiled, after its activation; what it multiplies; the product
        return (3.0 if computing.is_compiled else 4.0) * size * inner
    parts = 1 if shape.activation in FUSED_ACTIVATIONS else PARTS_OF_A_WRITTEN_OUT_ACTIVATION
    return (1.0 + parts) * size * inner


def _working(shape: ModelShape, computing: Computing, length: int) -> float:
    """Gradients at the fullest moment of a block's backward pass, where the feed-forward part multiplies by its gate:
    three of them, when the product that was kept has gone already; and that of the residual. Where scores are written,
    that moment may be softmax's, when nothing is kept any more of the feed-forward part.
    """
    inner = shape.inner if shape.experts is None else shape.experts.per_token * shape.experts.inner
    working = float(computing.size * (2 if shape.is_gated else 1) * inner)
    if _writes_scores(shape, computing):
        # Softmax's gradients, behind and before it; where some were left out, those that were not have gone already.
        gradients = SINGLE * (2 if shape.caps_scores else 1)
        working = max(working, gradients * shape.heads * length - _feed_forward(shape, computing))
    return working + computing.size * shape.hidden


def _writes_scores(shape: ModelShape, computing: Computing) -> bool:
    """Whether attention is no one operation of torch's: it can neither cap scores nor, on a processor, drop any."""
    return shape.caps_scores or bool(shape.attention_dropout and not computing.is_gpu)


def _width(shape: ModelShape) -> int:
    return shape.heads * shape.head_size

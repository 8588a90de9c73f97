"""What a model consists of, as far as memory and work depend on it. Sizes are numbers of elements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ALL_LINEAR = "all-linear"


class ModelMistake(ValueError):
    """The configuration of a model cannot be used; the message says which key and why."""


class UnknownModel(ModelMistake):
    """The configuration may be good, but nothing is known here of models of its kind."""


@dataclass(frozen=True)
class Linear:
    """A linear module of a block; `name` as transformers calls it, below the block."""

    name: str
    inputs: int
    outputs: int
    has_bias: bool = False

    @property
    def parameters(self) -> int:
        """Its weight and its bias."""
        return self.inputs * self.outputs + (self.outputs if self.has_bias else 0)


@dataclass(frozen=True)
class Experts:
    """The feed-forward part of a block with experts, each gated: three matrices of hidden x inner."""

    count: int
    per_token: int
    inner: int


@dataclass(frozen=True)
class ModelShape:
    """One decoder: `layers` equal blocks between a table of embeddings and a head."""

    family: str
    hidden: int
    layers: int
    heads: int
    shared_heads: int  # of keys and values
    head_size: int
    inner: int
    vocabulary: int
    linears: tuple[Linear, ...]  # of one block
    norms: int  # parameters of one block's norms
    final_norm: int
    is_tied: bool  # the head is the table of embeddings
    positions: int = 0  # rows of a learned table of positions
    length_max: int | None = None  # tokens a sequence, where the configuration says so
    experts: Experts | None = None
    norm: str = "rms"  # `rms`, `gemma` (its product is in float32, too) or `layer`
    norms_per_block: int = 2
    has_head_norms: bool = False  # of queries and keys
    activation: str = "silu"
    is_gated: bool = True
    is_fused: bool = False  # queries, keys and values come out of one linear module
    is_parallel: bool = False  # attention and feed-forward read the same residual
    dropout: float = 0.0  # of what the block adds to the residual
    attention_dropout: float = 0.0
    caps_scores: bool = False  # attention writes its scores: a token keeps one for every other of its sequence
    caps_logits: bool = False

    @property
    def table(self) -> int:
        """Parameters of the embeddings of tokens."""
        return self.vocabulary * self.hidden

    @property
    def expert_parameters(self) -> int:
        """Of one block's experts and of the matrix that chooses among them."""
        experts = self.experts
        return experts.count * self.hidden * (3 * experts.inner + 1) if experts else 0

    @property
    def block(self) -> int:
        """Parameters of one block."""
        return sum(each.parameters for each in self.linears) + self.norms + self.expert_parameters

    @property
    def root(self) -> int:
        """Parameters out of the blocks: tables, the last norm and the head."""
        return self.table * (1 if self.is_tied else 2) + self.positions * self.hidden + self.final_norm

    @property
    def parameters(self) -> int:
        """All, tied ones once: what `transformers` counts."""
        return self.layers * self.block + self.root

    def adapter_parameters(self, rank: int, targets: Iterable[str]) -> int:
        """Of one block's adapters of this rank at these modules; 0 where none has such a name."""
        return sum(rank * (each.inputs + each.outputs) for each in self.adapted(targets))

    def adapted(self, targets: Iterable[str]) -> list[Linear]:
        """One block's linear modules that have one of these names, or end with it, as the training chooses them."""
        wanted = list(targets)
        return [
            each
            for each in self.linears
            if any(t in (ALL_LINEAR, each.name) or each.name.endswith(f".{t}") for t in wanted)
        ]


def flops_per_token(shape: ModelShape, *, length: int, trained_base: bool = True, adapters: int = 0) -> float:
    """Operations to train one token, forward and backward, recomputation not counted.

    6 N + 12 L H S (https://arxiv.org/abs/2204.02311, appendix B), as `runtimes.train.model.flops_per_token`: N weights
    that a token is multiplied with, of experts those that it is sent to; 4 where a weight is frozen. `adapters`:
    parameters of all adapters; `length`: tokens a sequence.
    """
    multiplied = shape.parameters - (0 if shape.is_tied else shape.table) - shape.positions * shape.hidden
    if shape.experts:
        idle = shape.experts.count - shape.experts.per_token
        multiplied -= shape.layers * idle * 3 * shape.experts.inner * shape.hidden
    attention = 12.0 * shape.layers * shape.heads * shape.head_size * length
    return (6.0 if trained_base else 4.0) * multiplied + 6.0 * adapters + attention

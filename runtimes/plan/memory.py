"""The peak memory of one rank while it trains, by part: what the runtime's own step holds at its fullest moment.

    resident    weights, moments, copies of weights and, with DDP, gradients: as long as the training
    forward     + everything kept of all blocks, and the logits of some tokens: the loss
    backward    + everything kept of all blocks, and the gradients that one block works with
    end         + all gradients, when nothing is kept any more

The largest of the last three is the peak. `benchmarks/train.py --memory` holds this against what torch allocates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from runtimes.plan.activations import SINGLE, Computing, block_bytes, replaced_bytes, selective_bytes
from runtimes.shapes.shape import ModelMistake, ModelShape
from runtimes.train.config import TrainConfig

MOMENTS = 2  # of AdamW
NF4_BYTES = (4 + 8 / 64 + 32 / (64 * 256)) / 8  # a number: runtimes/train/quantization/nf4.py
LOGITS_BYTES_MAX = 1 << 30  # runtimes/train/loss.py: in float32, at a time
WHOLE_GRADIENTS_SHARE = 0.1  # runtimes/train/strategies/fsdp2.py: of the rank's memory
# Measured on one H200 (benchmarks/results/gpu.json): what the allocator holds beyond tensors, by what comes and goes.
ALLOCATOR_SHARE = 0.85
RANKS_MAX = 1 << 16
MEMORY_BYTES_MAX = 1 << 50


@dataclass(frozen=True)
class Place:
    """The ranks of a training. `memory_bytes`: of each rank's device; 0: not known."""

    ranks: int = 1
    nodes: int = 1
    memory_bytes: int = 0
    is_gpu: bool = True
    has_bfloat16: bool = True  # of a GPU, fast: what `dtype: auto` then takes

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= self.ranks <= RANKS_MAX or self.ranks % self.nodes:
            raise ModelMistake(f"{self.ranks} ranks on {self.nodes} nodes: at most {RANKS_MAX}, the same on each node")
        if not 0 <= self.memory_bytes <= MEMORY_BYTES_MAX:
            raise ModelMistake(f"a device's memory must be at most {MEMORY_BYTES_MAX} bytes")


@dataclass(frozen=True)
class Memory:
    """Bytes of a rank at the fullest moment, by part. `moment`: which one that is."""

    weights: int
    moments: int
    copies: int  # their average, and the best ones: as long as the training
    gradients: int
    gathered: int  # parameters of other ranks, for as long as they compute
    activations: int
    working: int  # of the block, the loss or the exchange that is at work then
    allocator: int  # that torch's allocator on a GPU holds in pieces which nothing fits into
    moment: str
    passing: int  # of all of it: what a step allocates and frees

    @property
    def peak(self) -> int:
        """All of it."""
        return (
            self.weights
            + self.moments
            + self.copies
            + self.gradients
            + self.gathered
            + self.activations
            + self.working
            + self.allocator
        )


@dataclass(frozen=True)
class Batches:
    """How a rank's share of a step is computed: `passes` micro-batches of `size` sequences of `length` tokens."""

    size: int
    passes: int
    length: int

    @property
    def tokens(self) -> int:
        """Of one micro-batch."""
        return self.size * self.length


def batches_of(config: TrainConfig, place: Place) -> Batches:
    """As runtimes/train/loop.py: the largest of equal shares, in passes of equal size. `config` must be settled."""
    most = -(-config.global_batch_size // place.ranks)
    passes = -(-most // min(config.micro_batch_size or most, most))
    return Batches(-(-most // passes) * config.rows_per_sample, passes, config.length)


def host_bytes(shape: ModelShape, config: TrainConfig, place: Place) -> int:
    """What `offload: all` keeps in each node's memory: weights, gradients, moments and copies of its ranks; else 0."""
    if config.offload != "all" or not place.is_gpu:
        return 0
    step = _Step(shape, replace(config, offload="none"), place)
    return (step.weights + step.moments + step.copies + SINGLE * step.trained // step.shards) * (
        place.ranks // place.nodes
    )


def reckon_memory(shape: ModelShape, config: TrainConfig, place: Place) -> Memory:
    """The peak of the rank that has most to do. Raises ModelMistake for adapters at modules that are not there."""
    step = _Step(shape, config, place)
    moments = (step.forward(), step.backward(done=0), step.backward(done=shape.layers - 1), step.end())
    return max(moments, key=lambda memory: memory.peak)


class _Step:
    """One step of one rank: what it holds at each of its moments."""

    def __init__(self, shape: ModelShape, config: TrainConfig, place: Place) -> None:
        self.shape, self.config, self.place = shape, config, place
        self.batches = batches_of(config, place)
        half = config.dtype == "bfloat16" or (config.dtype == "auto" and place.is_gpu and place.has_bfloat16)
        self.size = 2 if half else SINGLE
        self.is_ddp = config.strategy == "ddp"
        self.shards = {"ddp": 1, "hsdp": place.ranks // place.nodes}.get(config.strategy, place.ranks)
        # 1. What is trained, and what is frozen.
        lora = config.lora
        self.adapters = shape.adapter_parameters(lora.rank, lora.targets) if lora else 0  # of one block
        if lora and not self.adapters:
            known = ", ".join(dict.fromkeys(each.name.rpartition(".")[2] for each in shape.linears))
            raise ModelMistake(f"lora.targets names no linear module of the model; it has {known}")
        self.trained_block = self.adapters if lora else shape.block
        self.trained = shape.layers * self.adapters if lora else shape.parameters
        self.trained_head = 0 if lora else shape.table
        base = shape.parameters * (self.size if lora else SINGLE)
        # Bytes that one block takes less, and those of the weight that is made whole for its product.
        sizes = [each.inputs * each.outputs for each in shape.linears] if config.quantize else [0]
        self.saved_block, self.whole = int(sum(sizes) * (self.size - NF4_BYTES)), max(sizes) * self.size
        self.weights = (base - shape.layers * self.saved_block + (SINGLE * self.trained if lora else 0)) // self.shards
        self.moments = MOMENTS * SINGLE * self.trained // self.shards
        has_best = config.early_stop is not None and config.early_stop.export_best
        self.copies = ((config.ema is not None) + has_best) * SINGLE * self.trained // self.shards
        # Offloaded, all of a rank's own parts lie in the node's memory; on a processor that is the device's, too.
        self.is_offloaded = config.offload == "all" and place.is_gpu
        if self.is_offloaded:
            self.weights = self.moments = self.copies = 0
        # 2. What a token keeps.
        numbers = len(shape.adapted(lora.targets)) * lora.rank if lora else 0
        is_autocast = self.is_ddp and self.size < SINGLE
        self.computing = Computing(
            self.size,
            is_autocast,
            place.is_gpu,
            is_compiled=config.compile and place.is_gpu,
            trains_base=lora is None,
            adapter_numbers=numbers,
        )
        self.block_bytes = block_bytes(shape, self.computing, length=self.batches.length)

    def forward(self) -> Memory:
        """When the loss has the logits of some tokens and their gradient, before the blocks' backward passes."""
        tokens, vocabulary = self.batches.tokens, self.shape.vocabulary
        part = min(tokens, max(1, LOGITS_BYTES_MAX // (SINGLE * vocabulary)))
        # Softmax and the gradients behind and before it, of which a compiled loss saves one; the capped logits.
        copies = 3 - self.computing.is_compiled + self.shape.caps_logits
        logits = copies * SINGLE * part * vocabulary
        states = self.computing.residual * tokens * self.shape.hidden
        if part == tokens:
            working = max(logits, logits // copies + self.size * self.trained_head + states)
        else:  # gradients are summed over the parts
            sums = (SINGLE + self.size) * self.trained_head
            working = max(logits + SINGLE * self.trained_head, sums + logits // copies) + states
        return self._memory(
            "loss",
            gradients=self._earlier_gradients(),
            gathered=self._root() + self._casts(),
            activations=self._kept(),
            working=working,
        )

    def backward(self, *, done: int) -> Memory:
        """In the middle of a block's backward pass, when those of `done` blocks behind it are over."""
        tokens, blocks = self.batches.tokens, self.shape.layers - done
        checkpointing = self.config.activation_checkpointing
        anew = 0.0
        if checkpointing != "none":
            anew = self.block_bytes.kept - replaced_bytes(self.shape, self.computing, checkpointing=checkpointing)
        states = self.computing.residual * tokens * self.shape.hidden
        exchanged = 0  # already, of this pass; of an earlier one they have their room
        if not self.is_ddp and self.batches.passes == 1 and not self.is_offloaded:
            exchanged = SINGLE * done * self.trained_block // self.shards
        return self._memory(
            "backward",
            gradients=self._earlier_gradients() + exchanged + self.size * self.trained_head,
            gathered=self._root() + self._casts() + self._block(),
            activations=int(blocks * self._kept_of_block() * tokens),
            working=int(tokens * (anew + self.block_bytes.working)) + states + self.whole,
        )

    def end(self) -> Memory:
        """When the gradients of the root's parameters are exchanged, the last of all."""
        root = self.shape.root if self.config.lora is None else 0
        own = 0 if self.is_ddp else (self.size + SINGLE) * root
        whole = self._earlier_gradients() if self.batches.passes > 1 and self._has_room() else 0
        shared = 0 if self.is_offloaded else SINGLE * self.trained // self.shards
        return self._memory(
            "end",
            gradients=max(shared, whole),
            gathered=self._root(),
            activations=0,
            working=own,
        )

    def _memory(self, moment: str, *, working: int, **parts: int) -> Memory:
        working += self._exchanged()
        left = int(ALLOCATOR_SHARE * working) if self.place.is_gpu else 0
        held: dict[str, int] = {"weights": self.weights, "moments": self.moments, "copies": self.copies}
        passing = sum(parts.values()) + working - (SINGLE * self.trained if self.is_ddp else 0)
        return Memory(**held, **parts, working=working, allocator=left, moment=moment, passing=passing)

    def _earlier_gradients(self) -> int:
        """Of passes before the last one. DDP keeps room for them from the beginning, and fills it in the last one."""
        if self.is_ddp:
            return SINGLE * self.trained * (1 + (self.batches.passes > 1))
        if self.batches.passes == 1 or self.is_offloaded:
            return 0
        return SINGLE * self.trained // (1 if self._has_room() else self.shards)

    def _has_room(self) -> bool:
        """As runtimes/train/strategies/fsdp2.py decides; where the memory is not known, it is taken to be enough."""
        memory = self.place.memory_bytes
        if self.config.offload == "all":
            return False
        return not memory or SINGLE * self.trained <= WHOLE_GRADIENTS_SHARE * memory

    def _root(self) -> int:
        """Tables and head stay gathered from the first block to the last."""
        return 0 if self.is_ddp else self.size * self.shape.root

    def _block(self) -> int:
        """One block, gathered, and the buffer that it came in."""
        return 0 if self.is_ddp else self.size * (self.shape.block + self.adapters) - self.saved_block

    def _exchanged(self) -> int:
        """Of ranks on processors: the block that is gathered next, and gloo's copy of a gradient."""
        if self.is_ddp or self.place.is_gpu or self.place.ranks == 1:
            return 0
        return self._block() + SINGLE * self.trained_block

    def _casts(self) -> int:
        """Autocast's copies of the weights that are trained, which autograd keeps."""
        if not (self.is_ddp and self.size < SINGLE):
            return 0
        matrices = sum(each.inputs * each.outputs for each in self.shape.linears)
        return self.size * (self.shape.layers * (self.adapters if self.config.lora else matrices))

    def _last_norm(self) -> int:
        """What the norm behind the blocks keeps."""
        return self.batches.tokens * self.shape.hidden * 2 * SINGLE

    def _kept(self) -> int:
        """Of all blocks, from their forward to their backward passes."""
        states = self.computing.residual * self.shape.hidden * self.batches.tokens  # what the head is given
        return int(self.shape.layers * self._kept_of_block() * self.batches.tokens) + self._last_norm() + states

    def _kept_of_block(self) -> float:
        """A token."""
        checkpointing = self.config.activation_checkpointing
        if checkpointing == "full":
            return float(self.computing.residual * self.shape.hidden)
        if checkpointing == "selective":
            return selective_bytes(self.shape, self.computing)
        return self.block_bytes.kept

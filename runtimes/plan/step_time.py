"""The seconds of one step of a training, by part, from what a device and its links were measured to do.

    matrices    operations / (measured matrix products a second x their share that a model's matrices reach); where a
                batch is so small that to read the weights takes longer, that instead
    traffic     bytes of everything between them / measured memory bandwidth: activations, logits, weights that are
                cast, unpacked or accumulated into
    optimizer   bytes of AdamW and of clipping / memory bandwidth
    exchange    bytes that a rank sends / the slowest link that they cross, and half a round trip a message
    offload     bytes to and from the node's memory / the bus, and AdamW there

    step = optimizer + offload + max(matrices + traffic, exchange)      on GPUs, where exchanges run beside kernels
    step = optimizer + matrices + traffic + exchange                    on processors, which do both themselves

Operations are 6 N + 12 L H S a token (shapes.py), and the forward pass once more (a third) with `full` checkpointing.
A ring sends (n-1)/n of all bytes from each rank to gather or to reduce and scatter, twice that to reduce for all
(Patarasuk and Yuan, https://doi.org/10.1016/j.jpdc.2008.09.002). A ring over nodes leaves each node once, so that the
link between nodes carries what one rank sends. AdamW reads weight, gradient and two moments and writes three of them:
28 bytes a number; the norm reads the gradient, clipping reads and writes it: 12 more.

Evaluations, samples, checkpoints and the time before the first step are no part of it. Nothing that is paid follows
from it: a quote's duration is the matcher's (jobs/matching/score.py), which knows operations alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from runtimes.plan.activations import SINGLE, Computing, block_bytes
from runtimes.plan.memory import NF4_BYTES, WHOLE_GRADIENTS_SHARE, Batches, Place, batches_of
from runtimes.shapes.shape import ModelMistake, ModelShape, flops_per_token
from runtimes.train.config import TrainConfig

# How often what a block keeps is read or written in a step, by kernels between the matrix products: fitted to one H200
# (benchmarks/results/gpu.json), and to a processor (benchmarks/results/step_times.json).
TURNS = {"gpu": 16.0, "compiled": 8.0, "cpu": 4.0}
LOGITS_TURNS = 8.0  # of the logits in float32: product, softmax, its gradient
# Of the rate of the large square matrices that are measured, fitted to the same. On GPUs models' own are as large.
MATRIX_SHARE = {"gpu": 1.0, "cpu": 0.5}
FORWARD = 1 / 3  # of a step's operations
OPTIMIZER_BYTES = 40  # a number that is trained
AVERAGE_BYTES = 12  # a number, of an average of the weights
PRODUCTS = 3  # that read a weight: forward, for the input's gradient, for the weight's own
GATHERS = 2  # of a block's weights a pass: forward and backward
ACCUMULATED_BYTES = 12  # a number and pass: a gradient is written, or read and written where one is there already
# What is taken where nothing was measured; `StepTime.assumed` says so.
BYTES_PER_OPERATION = {"gpu": 1 / 200, "cpu": 1 / 8}  # of a device's memory bandwidth
LOCAL_BYTES_PER_SECOND = {"gpu": 25e9, "cpu": 1.5e9}  # between devices of a node: PCIe 4.0; memory, through a socket
NODES_BYTES_PER_SECOND = 1.25e9  # between nodes: 10 Gbit/s
NODES_ROUND_TRIP_SECONDS = 200e-6
BUS_BYTES_PER_SECOND = 25e9  # between a GPU and its node's memory
HOST_BYTES_PER_SECOND = 20e9  # of a node's processors, in AdamW
FLOPS_MAX = 1e18  # a second, of one device
BYTES_MAX = 1e15  # a second
ROUND_TRIP_SECONDS_MAX = 10.0

PARTS = ("matrices", "traffic", "optimizer", "exchange", "offload")


@dataclass(frozen=True)
class Speed:
    """Of each device, in bytes and operations a second, as it was measured; 0: not known.

    `flops`: of matrix products, in the type that the training computes in; it must be known. `local`: between devices
    of a node; `nodes`: of the slowest link between two nodes; `round_trip`: seconds of the slowest one.
    """

    flops: float
    memory: float = 0.0
    nodes: float = 0.0
    round_trip: float = 0.0
    local: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.flops <= FLOPS_MAX):
            raise ModelMistake(f"a device's speed must be above 0 and at most {FLOPS_MAX:.0e} operations a second")
        if not all(0 <= each <= BYTES_MAX for each in (self.memory, self.nodes, self.local)):
            raise ModelMistake(f"bandwidths must be from 0 to {BYTES_MAX:.0e} bytes a second")
        if not 0 <= self.round_trip <= ROUND_TRIP_SECONDS_MAX:
            raise ModelMistake(f"a round trip must be from 0 to {ROUND_TRIP_SECONDS_MAX} seconds")


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step: of each part, and of all. `bound`: the part that decides; `assumed`: what was not measured."""

    matrices: float
    traffic: float
    optimizer: float
    exchange: float
    offload: float
    seconds: float
    bound: str
    assumed: tuple[str, ...] = ()


def reckon_step(shape: ModelShape, config: TrainConfig, place: Place, speed: Speed) -> StepTime:
    """One step of the rank that has most to do. `config` must be settled. Raises ModelMistake."""
    step = _Step(shape, config, place, speed)
    matrices, traffic, exchange = step.matrices(), step.traffic(), step.exchange()
    optimizer, offload = step.optimizer(), step.offload()
    computing = matrices + traffic
    beside = max(computing, exchange) if place.is_gpu else computing + exchange
    parts = dict(zip(PARTS, (matrices, traffic, optimizer, exchange, offload), strict=True))
    if place.is_gpu and exchange <= computing:
        parts = parts | {"exchange": 0.0}  # it takes no time of its own
    elif place.is_gpu:
        parts = parts | {"matrices": 0.0, "traffic": 0.0}
    return StepTime(
        matrices=matrices,
        traffic=traffic,
        optimizer=optimizer,
        exchange=exchange,
        offload=offload,
        seconds=optimizer + offload + beside,
        bound=max(parts, key=lambda part: parts[part]),
        assumed=tuple(step.assumed),
    )


def flops_per_step(shape: ModelShape, config: TrainConfig) -> float:
    """Operations of a step on all ranks together, recomputation not counted. `config` must be settled."""
    lora = config.lora
    adapters = shape.layers * shape.adapter_parameters(lora.rank, lora.targets) if lora else 0
    one = flops_per_token(shape, length=config.length, trained_base=lora is None, adapters=adapters)
    return one * config.tokens_per_step


class _Step:
    """Bytes and operations of a rank, and the seconds that they take. A pass is one micro-batch."""

    def __init__(self, shape: ModelShape, config: TrainConfig, place: Place, speed: Speed) -> None:
        self.shape, self.config, self.place, self.speed = shape, config, place, speed
        self.assumed: list[str] = []
        self.kind = "gpu" if place.is_gpu else "cpu"
        self.batches: Batches = batches_of(config, place)
        half = config.dtype == "bfloat16" or (config.dtype == "auto" and place.is_gpu and place.has_bfloat16)
        self.size = 2 if half else SINGLE
        self.is_ddp = config.strategy == "ddp"
        self.shards = {"ddp": 1, "hsdp": place.ranks // place.nodes}.get(config.strategy, place.ranks)
        lora = config.lora
        self.adapters = shape.layers * shape.adapter_parameters(lora.rank, lora.targets) if lora else 0
        self.trained = self.adapters if lora else shape.parameters
        self.kept = self._kept_of_block()
        self.memory = self._known(speed.memory, speed.flops * BYTES_PER_OPERATION[self.kind], "memory bandwidth")

    def matrices(self) -> float:
        lora = self.config.lora
        one = flops_per_token(self.shape, length=self.config.length, trained_base=lora is None, adapters=self.adapters)
        again = 1 + FORWARD if self.config.activation_checkpointing == "full" else 1.0
        computed = one * again * self.batches.tokens / (self.speed.flops * MATRIX_SHARE[self.kind])
        read = PRODUCTS * self.size * self._multiplied() / self.memory
        return self.batches.passes * max(computed, read)

    def traffic(self) -> float:
        """Of all passes."""
        turns = TURNS["compiled" if self.config.compile and self.place.is_gpu else self.kind]
        again = 1.0 if self.config.activation_checkpointing == "none" else 1 + FORWARD
        kept = turns * again * self.shape.layers * self.kept * self.batches.tokens
        logits = LOGITS_TURNS * SINGLE * self.shape.vocabulary * self.batches.tokens
        weights = float(ACCUMULATED_BYTES * self.trained)
        if self.size < SINGLE:  # each rank casts its part before it is gathered; DDP casts all
            weights += GATHERS * (SINGLE + self.size) * self.trained / self.shards
        if self.config.quantize:
            weights += (GATHERS + (again > 1)) * (NF4_BYTES + self.size) * self._linear()
        return self.batches.passes * (kept + logits + weights) / self.memory

    def optimizer(self) -> float:
        if self._is_offloaded():
            return 0.0
        return self._updated() / self.memory

    def offload(self) -> float:
        """Weights come for each gather and gradients go, over the bus; AdamW is the processors'."""
        if not self._is_offloaded():
            return 0.0
        self.assumed.append(f"{BUS_BYTES_PER_SECOND / 1e9:.0f} GB/s to the node's memory")
        moved = self.batches.passes * SINGLE * (GATHERS * self.shape.parameters + self.trained) / self.shards
        ranks_here = self.place.ranks // self.place.nodes
        return moved / BUS_BYTES_PER_SECOND + self._updated() * ranks_here / HOST_BYTES_PER_SECOND

    def exchange(self) -> float:
        """Of all passes, between ranks."""
        ranks, nodes = self.place.ranks, self.place.nodes
        if ranks == 1:
            return 0.0
        gradients = float(SINGLE * self.trained)
        gathered = float(self.size * (GATHERS * self.shape.layers * self.shape.block + self.shape.root + self.adapters))
        passes, messages = self.batches.passes, self.shape.layers + 1
        local = self._local()
        if self.is_ddp:
            return _ring(ranks, 2 * gradients, self._slowest(local), self._latency(), messages=1)
        reduced = passes * gradients if not self._has_room() else gradients
        count = passes * (GATHERS + 1) * messages
        if self.config.strategy == "hsdp" and nodes > 1:
            within = _ring(ranks // nodes, passes * gathered + reduced, local, 0.0, messages=count)
            across = _ring(nodes, 2 * gradients, self._slowest(local), self._latency(), messages=messages)
            return within + across  # each of a node's ranks sends its part over the link that all of them share
        return _ring(ranks, passes * gathered + reduced, self._slowest(local), self._latency(), messages=count)

    def _updated(self) -> float:
        """Bytes of the optimizer's step."""
        average = AVERAGE_BYTES if self.config.ema is not None else 0
        return (OPTIMIZER_BYTES + average) * self.trained / self.shards

    def _is_offloaded(self) -> bool:
        return self.config.offload == "all" and self.place.is_gpu

    def _has_room(self) -> bool:
        """As memory.py: whole gradients stay until the last pass where they are little beside the device's memory."""
        if self._is_offloaded():
            return False
        return not self.place.memory_bytes or SINGLE * self.trained <= WHOLE_GRADIENTS_SHARE * self.place.memory_bytes

    def _multiplied(self) -> float:
        """Weights that every token of a pass is multiplied with, as this rank reads them."""
        return float(self.shape.parameters - (0 if self.shape.is_tied else self.shape.table))

    def _linear(self) -> float:
        return float(self.shape.layers * sum(each.inputs * each.outputs for each in self.shape.linears))

    def _kept_of_block(self) -> float:
        """Bytes that one block makes for each token; what of it stays until the backward pass is another question."""
        lora = self.config.lora
        computing = Computing(
            self.size,
            self.is_ddp and self.size < SINGLE,
            self.place.is_gpu,
            is_compiled=self.config.compile and self.place.is_gpu,
            trains_base=lora is None,
            adapter_numbers=len(self.shape.adapted(lora.targets)) * lora.rank if lora else 0,
        )
        return block_bytes(self.shape, computing, length=self.batches.length).kept

    def _local(self) -> float:
        if self.place.ranks == self.place.nodes:
            return math.inf
        return self._known(self.speed.local, LOCAL_BYTES_PER_SECOND[self.kind], "between devices of a node")

    def _slowest(self, local: float) -> float:
        if self.place.nodes == 1:
            return local
        return min(local, self._known(self.speed.nodes, NODES_BYTES_PER_SECOND, "between nodes"))

    def _latency(self) -> float:
        """Seconds that a message between nodes takes beside its bytes."""
        if self.place.nodes == 1:
            return 0.0
        return (self.speed.round_trip or NODES_ROUND_TRIP_SECONDS) / 2

    def _known(self, measured: float, otherwise: float, what: str) -> float:
        if measured:
            return measured
        self.assumed.append(f"{otherwise / 1e9:.3g} GB/s {what}")
        return otherwise


def _ring(ranks: int, size: float, bandwidth: float, latency: float, *, messages: int) -> float:
    """Seconds to gather, or to reduce and scatter, `size` bytes in so many messages."""
    if ranks < 2:
        return 0.0
    return (ranks - 1) / ranks * size / bandwidth + messages * (ranks - 1) * latency

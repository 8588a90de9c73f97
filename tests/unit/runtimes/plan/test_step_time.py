"""Seconds of a step by arithmetic: each part against figures worked out by hand, and one GPU's measured steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.gpu import CASES, OURS
from benchmarks.record import read
from benchmarks.setups.training_steps import SHAPES, SIZES
from runtimes.plan.activations import Computing, block_bytes
from runtimes.plan.memory import Place
from runtimes.plan.step_time import MATRIX_SHARE, Speed, StepTime, flops_per_step, reckon_step
from runtimes.shapes.families import read_shape
from runtimes.shapes.shape import ModelMistake
from runtimes.train.config import TrainConfig, parse_config

TINY: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "tie_word_embeddings": True,
}
# A block: 4 x 64 x 64 of attention, 3 x 64 x 128, two norms of 64. The root: 1000 x 64 and a norm.
BLOCK = 16_384 + 24_576 + 128
ROOT = 64_064
ALL = 2 * BLOCK + ROOT
TOKENS = 4 * 128
OPERATIONS = TOKENS * (6 * ALL + 12 * 2 * 64 * 128)
ENDLESS = 1e15  # bytes a second: such a part takes no time
CPU = Place(is_gpu=False)


def config_of(**changes: Any) -> TrainConfig:
    given = {"model": "m", "steps": 1, "global_batch_size": 4, "sequence_length": 128}
    return parse_config({**given, **changes})


def reckon(place: Place = CPU, *, flops: float = 1e9, memory: float = ENDLESS, **more: Any) -> StepTime:
    links = {key: more.pop(key) for key in ("nodes", "round_trip", "local") if key in more}
    return reckon_step(read_shape(TINY), config_of(**more), place, Speed(flops, memory, **links))


def test_matrix_products_take_their_operations_over_the_measured_rate() -> None:
    assert (ALL, OPERATIONS) == (146_240, 549_912_576)
    assert flops_per_step(read_shape(TINY), config_of()) == OPERATIONS
    assert MATRIX_SHARE["cpu"] == 0.5, "so 5e8 operations a second"
    found = reckon()
    assert found.matrices == pytest.approx(1.099825152)
    assert found.seconds == pytest.approx(1.099825152, rel=1e-4)
    assert found.bound == "matrices"


def test_the_forward_pass_is_computed_once_more_with_full_checkpointing() -> None:
    assert reckon(activation_checkpointing="full").matrices == pytest.approx(1.099825152 * 4 / 3)
    assert reckon(activation_checkpointing="selective").matrices == pytest.approx(1.099825152)


def test_micro_batches_multiply_the_same_in_more_passes() -> None:
    assert reckon(micro_batch_size=1).matrices == pytest.approx(1.099825152)


def test_so_few_tokens_that_weights_must_be_read_for_them_take_that_time() -> None:
    few = reckon(flops=1e18, memory=1e6, global_batch_size=1, sequence_length=8)
    assert few.matrices == pytest.approx(3 * 4 * ALL / 1e6)


def test_the_optimizer_moves_forty_bytes_a_trained_number() -> None:
    assert reckon(memory=1e6).optimizer == pytest.approx(40 * ALL / 1e6)
    assert reckon(memory=1e6, ema=0.9).optimizer == pytest.approx(52 * ALL / 1e6)
    adapters = 2 * 8 * (4 * 128 + 3 * 192)
    assert reckon(memory=1e6, lora={"rank": 8}).optimizer == pytest.approx(40 * adapters / 1e6)
    assert reckon(Place(2, is_gpu=False), memory=1e6).optimizer == pytest.approx(20 * ALL / 1e6)
    assert reckon(Place(2, is_gpu=False), memory=1e6, strategy="ddp").optimizer == pytest.approx(40 * ALL / 1e6)


def test_traffic_is_of_activations_logits_and_gradients() -> None:
    kept = block_bytes(read_shape(TINY), Computing(4, is_gpu=False), length=128).kept
    by_hand = 4 * 2 * kept * TOKENS + 8 * 4 * 1000 * TOKENS + 12 * ALL
    assert reckon(memory=1e9).traffic == pytest.approx(by_hand / 1e9)


def test_what_two_ranks_exchange() -> None:
    two = Place(2, is_gpu=False)
    gathered, gradients = 4 * (2 * 2 * BLOCK + ROOT), 4 * ALL
    assert reckon(two, local=1e6).exchange == pytest.approx((gathered + gradients) / 2 / 1e6)
    assert reckon(two, local=1e6, strategy="ddp").exchange == pytest.approx(gradients / 1e6)
    assert reckon(two, local=1e6, strategy="ddp", lora={"rank": 8}).exchange == pytest.approx(4 * 17_408 / 1e6)
    halves = reckon(two, local=1e6, micro_batch_size=1)
    assert halves.exchange == pytest.approx((2 * gathered + gradients) / 2 / 1e6), "weights go each pass"
    assert reckon(local=1e6).exchange == 0


def test_the_slowest_link_decides_between_nodes() -> None:
    four = Place(4, nodes=2, is_gpu=False)
    gathered, gradients = 4 * (2 * 2 * BLOCK + ROOT), 4 * ALL
    links = {"local": 1e8, "nodes": 1e6, "round_trip": 0.002}
    messages = 3 * 3  # each of two blocks and the root: gathered twice, reduced once
    sharded = 3 / 4 * (gathered + gradients) / 1e6 + messages * 3 * 0.001
    assert reckon(four, **links).exchange == pytest.approx(sharded)
    within = (gathered + gradients) / 2 / 1e8
    assert reckon(four, strategy="hsdp", **links).exchange == pytest.approx(within + gradients / 1e6 + 3 * 0.001)


def test_exchanges_run_beside_kernels_on_gpus_alone() -> None:
    both = {"local": 1e6, "memory": ENDLESS}
    on_gpu = reckon(Place(2), dtype="float32", **both)
    on_cpu = reckon(Place(2, is_gpu=False), **both)
    assert on_gpu.exchange == pytest.approx(on_cpu.exchange) and on_gpu.exchange > on_gpu.matrices
    assert on_gpu.seconds == pytest.approx(on_gpu.exchange, rel=1e-4)
    assert on_cpu.seconds == pytest.approx(on_cpu.exchange + on_cpu.matrices, rel=1e-4)
    assert on_gpu.bound == "exchange"


def test_what_was_not_measured_is_taken_to_be_and_said() -> None:
    assumed = reckon(Place(4, nodes=2), memory=0.0).assumed
    assert assumed[:2] == ("0.005 GB/s memory bandwidth", "25 GB/s between devices of a node")
    assert assumed[2:] == ("1.25 GB/s between nodes",)
    assert not reckon(Place(4, nodes=2), nodes=1e9, local=1e9).assumed
    assert "to the node's memory" in reckon(Place(1), offload="all").assumed[0]


def test_offloading_costs_the_bus_and_the_nodes_processors() -> None:
    found = reckon(Place(1), offload="all")
    assert found.optimizer == 0
    assert found.offload == pytest.approx(4 * 3 * ALL / 25e9 + 40 * ALL / 20e9)


@pytest.mark.parametrize(
    "bad", [{"flops": 0}, {"flops": float("nan")}, {"flops": 1e19}, {"memory": -1}, {"nodes": 1e16}, {"round_trip": 11}]
)
def test_figures_that_no_device_has_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ModelMistake):
        Speed(**{"flops": 1e9, **bad})


@pytest.mark.parametrize("name", [f"{shape}/{name}" for shape in ("1b", "8b") for name in CASES[shape] if name in OURS])
def test_steps_on_a_gpu_are_near_those_that_were_measured(name: str) -> None:
    shape, settings = name.split("/")
    sequences, micro, length = SIZES[shape]
    sizes = {"global_batch_size": sequences, "micro_batch_size": micro, "sequence_length": length}
    measured = sequences * length / read("gpu")["figures"]["shapes"][shape][settings]["tokens_per_second"]
    # What an H200 multiplies and copies; two constants of the planner were fitted to these very steps.
    speed, place = Speed(750e12, 4.0e12), Place(memory_bytes=150 * 10**9)
    found = reckon_step(read_shape(SHAPES[shape]), replace(config_of(**sizes, **OURS[settings])), place, speed)
    assert found.seconds == pytest.approx(measured, rel=0.15)

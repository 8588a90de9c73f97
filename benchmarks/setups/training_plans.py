"""Trainings that the planner just accepts, run for two steps within the memory that it asks for, and no byte more.

Each is drawn from a number: a family and a size of model, a batch, and the settings that change its memory. The limit
is a control group's, which ends a process that goes beyond it: what is held against it is all of the process, with the
interpreter and its libraries.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.setups import training_steps
from examples.market import free_ports

FAMILIES = ("llama", "qwen3", "gemma2", "phi3", "gpt_neox", "gpt2")
PEAK_BYTES = (600 << 20, 2500 << 20)  # reckoned, of those that are kept: large beside an interpreter, and soon run
FLOPS_MAX = 4e11  # of a step
STEPS = 2  # in the second one optimizer and gradients are there
ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Plan:
    """One training on one processor, and the bytes that the planner says it needs."""

    model: dict[str, Any]
    sizes: tuple[int, int, int]  # sequences a step, a micro-batch; tokens a sequence
    settings: dict[str, Any]
    needed_bytes: int


def draw_plan(seed: int) -> Plan:
    """The first one of this seed's that is neither too small to tell nor too large to run."""
    from runtimes.plan.advice import needed_bytes
    from runtimes.plan.memory import Place, reckon_memory
    from runtimes.shapes.families import read_shape
    from runtimes.train.config import parse_config

    dice = random.Random(seed)
    place = Place(1, memory_bytes=1 << 40, is_gpu=False)
    while True:
        model, sizes, settings = _draw_model(dice), _draw_sizes(dice), _draw_settings(dice)
        sequences, micro, length = sizes
        given = {"steps": 1, "global_batch_size": sequences, "micro_batch_size": micro, "sequence_length": length}
        shape = read_shape(model)
        memory = reckon_memory(shape, parse_config({**given, **settings, "model": "drawn"}), place)
        is_small = 6 * shape.parameters * sequences * length <= FLOPS_MAX
        if is_small and PEAK_BYTES[0] <= memory.peak <= PEAK_BYTES[1]:
            return Plan(model, sizes, settings, needed_bytes(memory, place))


def _draw_model(dice: random.Random) -> dict[str, Any]:
    family, heads = dice.choice(FAMILIES), dice.choice((4, 8, 12))
    width, layers, vocabulary = 64 * heads, dice.randint(2, 10), dice.choice((1024, 8192, 32_000))
    if family == "gpt2":
        return {
            "model_type": family,
            "vocab_size": vocabulary,
            "n_embd": width,
            "n_layer": layers,
            "n_head": heads,
            "n_positions": 1024,
        }
    own: dict[str, dict[str, Any]] = {
        "qwen3": {"head_dim": 64},
        "gemma2": {"head_dim": 64},
        "phi3": {"pad_token_id": 0},
    }
    return {
        "model_type": family,
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": width * dice.choice((2, 3, 4)),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads if family == "phi3" else dice.choice((heads, heads // 2, heads // 4)),
        "max_position_embeddings": 1024,
        "tie_word_embeddings": dice.random() < 0.5,
        **own.get(family, {}),
    }


def _draw_sizes(dice: random.Random) -> tuple[int, int, int]:
    micro = dice.choice((1, 2, 4, 8))
    return micro * dice.randint(1, 2), micro, dice.choice((64, 128, 256, 512, 1024))


def _draw_settings(dice: random.Random) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "strategy": dice.choice(("fsdp2", "ddp")),
        "activation_checkpointing": dice.choice(("none", "selective", "full")),
        "dtype": "float32",  # of bfloat16, products take minutes on processors that do not know it
    }
    return settings | ({"lora": {"rank": dice.choice((8, 32))}} if dice.random() < 0.3 else {})


def run_plan(module: str, seed: int, *, seconds: float) -> dict[str, Any]:
    """Whether it ran out of its limit (`is_out`), and the most bytes of it that were ever taken."""
    plan = draw_plan(seed)
    with limited(plan.needed_bytes, seed) as group:
        command = [sys.executable, "-m", module, "--plans", "--case", str(seed)]
        rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
        done = subprocess.run(
            ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs"), *command],
            env={**os.environ, **rank, "MASTER_PORT": str(free_ports()), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode not in (0, -9):
            raise SystemExit(f"plan {seed} ended with {done.returncode}: {done.stderr[-2000:]}")
        most = int(_first(group, "memory.max_usage_in_bytes", "memory.peak").read_text())
    return {"seed": seed, "needed_bytes": plan.needed_bytes, "is_out": done.returncode != 0, "most_bytes": most}


def run_steps(seed: int) -> None:
    """In the process that is limited."""
    plan = draw_plan(seed)
    training_steps.SHAPES["drawn"], training_steps.SIZES["drawn"] = plan.model, plan.sizes
    step, *_ = training_steps.our_step("drawn", plan.settings)
    for _ in range(STEPS):
        step()


@contextmanager
def limited(limit_bytes: int, seed: int) -> Iterator[Path]:
    """A control group of so much memory, without swap; needs root. Its folder, which is gone afterwards."""
    root = ROOT / "memory" if (ROOT / "memory").is_dir() else ROOT  # the first version of control groups, or the second
    group = root / f"souk-plans-{os.getpid()}-{seed}"
    try:
        group.mkdir()
    except OSError as error:
        raise SystemExit(f"a limit of memory needs root and control groups: {error}") from error
    try:
        _first(group, "memory.limit_in_bytes", "memory.max").write_text(str(limit_bytes))
        _first(group, "memory.swappiness", "memory.swap.max").write_text("0")
        yield group
    finally:
        group.rmdir()


def _first(group: Path, *names: str) -> Path:
    return next(path for name in names if (path := group / name).exists())

"""Training on one NVIDIA GPU: tokens a second, share of the data sheet's bfloat16, peak memory, beside other trainers.

The same model with random weights, batch and tokens for each: ours (`runtimes.train`, its own step), bare FSDP2 with
transformers' loss, and accelerate. Each runs in a process of its own, in turns. Needs torch 2.11 or newer,
transformers, and no network; accelerate where it is installed. Six minutes a round on an H200.

    python -m benchmarks.gpu [--write] [--shapes 1b,8b] [--rounds 2]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from typing import Any

from benchmarks.record import publish
from benchmarks.setups.training_steps import measure

LIMIT_SECONDS = 300
OURS: dict[str, dict[str, Any]] = {
    "ours": {},
    "ours, compile": {"compile": True},
    "ours, selective": {"activation_checkpointing": "selective"},
    "ours, compile, selective": {"compile": True, "activation_checkpointing": "selective"},
    "ours, full": {"activation_checkpointing": "full"},
    "ours, compile, full": {"compile": True, "activation_checkpointing": "full"},
}
OTHERS = ("bare FSDP2", "accelerate")
CASES: dict[str, tuple[str, ...]] = {
    "tiny": (*OURS, *OTHERS),
    "1b": (*OURS, *OTHERS),
    "8b": ("ours, full", "ours, compile, full"),  # others' optimizer states and logits leave no room for activations
}


def main() -> None:
    """Measure all shapes and publish; `--case` measures one, in this process."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--case")
    parser.add_argument("--shapes", default="1b,8b")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.case:
        shape, name = arguments.case.split("/")
        print(json.dumps(measure(shape, name, OURS.get(name, {}))))
        return
    import torch

    shapes = arguments.shapes.split(",")
    found: dict[str, dict[str, list[Any]]] = {shape: {name: [] for name in CASES[shape]} for shape in shapes}
    for _ in range(arguments.rounds):
        for shape in shapes:
            for name in CASES[shape]:
                found[shape][name].append(run_case(shape, name))
                print(shape, name, found[shape][name][-1], file=sys.stderr, flush=True)
    figures = {shape: {name: middle(rounds) for name, rounds in cases.items()} for shape, cases in found.items()}
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"
    publish("gpu", {"gpu": gpu, "torch": torch.__version__, "shapes": figures})


def run_case(shape: str, name: str) -> dict[str, Any]:
    """The figures of one case, measured in a new process, or what ended it."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--case", f"{shape}/{name}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {LIMIT_SECONDS} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["?"])[-1][:300]}
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def middle(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure over the rounds; what ended a round stands alone."""
    failed = [each for each in rounds if "error" in each]
    if failed:
        return failed[0]
    return {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}


if __name__ == "__main__":
    main()

"""One device's answer to a challenge: compute and commit, reveal what is demanded, fill memory, read it back."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import torch

from runtimes.probe.challenge.chain import Chain
from runtimes.probe.challenge.exchange import receive, send
from runtimes.probe.challenge.memory import Filling
from runtimes.probe.measure import open_device, wait

WARM_SIZE = 256
RECALLS_MAX = 64


def main(index: int, name: str, folder: Path) -> None:
    """Answer for the device called `cpu:N`, `cuda:N` or `cuda:UUID`; messages are numbered per device."""
    device = open_device(name)
    # 1. Torch and its kernels are loaded before the clock runs.
    warm = torch.ones(WARM_SIZE, WARM_SIZE, device=device)
    warm @ warm
    wait(device)
    send(folder, f"ready-{index}", {})
    # 2. The chain of products; from the task to the commitment the marketplace's clock runs.
    task: dict[str, Any] | None = receive(folder, "task")["devices"][index]
    if task is None:  # nothing is demanded of this device
        return
    chain = Chain(task["seed"], size=task["size"], grid=task["grid"], rounds=task["rounds"], device=device)
    chain.run()
    send(folder, f"commit-{index}", {"roots": chain.roots})
    # 3. What is demanded of it, chosen after the commitment.
    for number, (round_number, block) in enumerate(receive(folder, "open")["devices"][index]):
        send(folder, f"reveal-{index}-{number}", chain.reveal(round_number, block))
    del chain
    # 4. Memory is filled, and only then are the keys known by which it is read.
    filling = Filling(
        task["seed"],
        blocks=task["memory_blocks"],
        block_words=task["memory_block_words"],
        passes=task["memory_passes"],
        device=device,
    )
    filling.read("warm")
    send(folder, f"filled-{index}", {})
    for number in range(RECALLS_MAX):
        key = receive(folder, f"recall-{number}")["key"]
        if not key:
            return
        send(folder, f"recalled-{index}-{number}", {"sums": base64.b64encode(filling.read(key)).decode()})


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))

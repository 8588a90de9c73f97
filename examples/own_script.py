"""Plain PyTorch DDP: learns to tell which of ten noisy patterns it is shown. Writes output/model.pt and metrics.json.

torchrun --standalone --nproc-per-node 2 own_script.py --steps 60
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CLASSES, PIXELS = 10, 256


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64, help="of one rank")
    parser.add_argument("--output", type=Path, default=Path("output"))
    arguments = parser.parse_args()

    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")

    torch.manual_seed(0)  # the same patterns and the same first weights on every rank
    patterns = torch.randn(CLASSES, PIXELS).to(device)
    net = nn.Sequential(nn.Linear(PIXELS, 128), nn.ReLU(), nn.Linear(128, CLASSES)).to(device)
    model = DistributedDataParallel(net, device_ids=[local_rank] if on_gpu else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    noise = torch.Generator(device=device).manual_seed(rank)  # other samples on every rank

    began, first_loss = time.time(), 0.0
    for step in range(1, arguments.steps + 1):
        labels = torch.randint(CLASSES, (arguments.batch,), generator=noise, device=device)
        images = patterns[labels] + 3 * torch.randn(arguments.batch, PIXELS, generator=noise, device=device)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        first_loss = loss.item() if step == 1 else first_loss
        if rank == 0 and (step % 10 == 0 or step == arguments.steps):
            print(f"step {step}/{arguments.steps} loss {loss.item():.4f}", flush=True)

    if rank == 0:
        arguments.output.mkdir(parents=True, exist_ok=True)
        torch.save(net.state_dict(), arguments.output / "model.pt")
        metrics = {
            "steps": arguments.steps,
            "first_loss": first_loss,
            "loss": loss.item(),
            "ranks": dist.get_world_size(),
        }
        metrics["seconds"] = round(time.time() - began, 3)
        (arguments.output / "metrics.json").write_text(json.dumps(metrics))
    dist.destroy_process_group()
    # No interpreter shutdown: it aborts a rank now and then, as gloo's threads may still hold a tensor (torch 2.13).
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

"""As PyTorch's DDP tutorial does it: rank 0 overwrites snapshot.pt, and whoever starts resumes from it.

torchrun --standalone --nproc-per-node 2 snapshot_tutorial.py EPOCHS SECONDS_A_EPOCH
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SNAPSHOT = "snapshot.pt"


def main():
    epochs, seconds = int(sys.argv[1]), float(sys.argv[2])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
    first = 0
    if Path(SNAPSHOT).exists():
        snapshot = torch.load(SNAPSHOT)
        net.load_state_dict(snapshot["MODEL_STATE"])
        optimizer.load_state_dict(snapshot["OPTIMIZER_STATE"])
        first = snapshot["EPOCHS_RUN"]
        print(f"Resuming training from snapshot at Epoch {first}", flush=True)
    model = DistributedDataParallel(net)
    for epoch in range(first, epochs):
        data = torch.randn(32, 20, generator=torch.Generator().manual_seed(1000 * epoch + rank))
        loss = torch.nn.functional.mse_loss(model(data), data.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            state = {
                "MODEL_STATE": net.state_dict(),
                "OPTIMIZER_STATE": optimizer.state_dict(),
                "EPOCHS_RUN": epoch + 1,
            }
            torch.save(state, SNAPSHOT)
            print(f"Epoch {epoch} | Training snapshot saved", flush=True)
        dist.barrier()
        time.sleep(seconds)
    if rank == 0:
        torch.save(net.state_dict(), "output/model.pt")
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # torch 2.13 aborts a rank now and then at the interpreter's end


main()

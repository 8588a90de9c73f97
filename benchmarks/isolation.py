"""What isolation costs a job: the same program in the engine's own container and in a lease's, in turns.

The lease's container is what the agent makes: no capabilities, a table of system calls, a read-only root, a disk of a
size, limits; once under runc and, where the engine has gVisor, once under it. All are pinned to the same core.

    step     a training step of a small transformer in torch
    calls    system calls a second: os.stat of one file
    write    MB a second into the work folder, to the disk (fsync)
    start    from the order to the program's first line; the bare container's is given by `docker run`, whose own start
             counts too, and the lease's by the agent that runs already

    python -m benchmarks.isolation [--image gpusouk/train] [--engine unix:///var/run/docker.sock] [--rounds 5] [--write]

As root, with a container engine on this computer that has the image of runtimes/images/Dockerfile.train; without one it
says so and measures nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.record import publish
from provider_agent.executors.base import LaunchSpec, log_path
from provider_agent.executors.docker import DockerExecutor
from provider_agent.images import TRAIN_IMAGE

CORE = 1
MEMORY_MIB = 2048
DISK_SHARE = 0.05
RUN_SECONDS_MAX = 180
POLL_SECONDS = 0.2
MEGABYTES, CALLS, STEPS, STEPS_WARM = 128, 100_000, 60, 20
PROGRAM = f"""
import json, os, time
began = time.time()
import torch
torch.set_num_threads(1)
torch.manual_seed(1)
layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
optimizer = torch.optim.AdamW(layer.parameters())
batch, steps = torch.randn(8, 128, 256), []
for _ in range({STEPS}):
    at = time.perf_counter()
    layer(batch).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    steps.append(time.perf_counter() - at)
open('file', 'w').close()
at = time.perf_counter()
for _ in range({CALLS}):
    os.stat('file')
calls = {CALLS} / (time.perf_counter() - at)
block = os.urandom(2**20)
at = time.perf_counter()
with open('file', 'wb') as out:
    for _ in range({MEGABYTES}):
        out.write(block)
    out.flush()
    os.fsync(out.fileno())
write = {MEGABYTES} / (time.perf_counter() - at)
steps = sorted(steps[{STEPS_WARM}:])
print(json.dumps(dict(began=began, step=steps[len(steps) // 2], calls=calls, write=write)))
"""
Figures = dict[str, float]


def main() -> None:
    """Alternate, then compare each kind with the bare container of its round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", default=TRAIN_IMAGE)
    parser.add_argument("--engine", default="unix:///var/run/docker.sock")
    parser.add_argument("--rounds", type=int, default=5)
    arguments, _ = parser.parse_known_args()
    if why := why_not(arguments.engine, arguments.image):
        print(f"SKIPPED: {why}", file=sys.stderr)
        return
    kinds = {"lease": _lease(arguments.engine, arguments.image, "runc")}
    if _has_gvisor(arguments.engine):
        kinds["gvisor"] = _lease(arguments.engine, arguments.image, "gvisor")
    rounds: list[dict[str, Figures]] = []
    with tempfile.TemporaryDirectory(prefix="souk-isolation-", dir="/tmp") as name:
        for number in range(arguments.rounds + 1):
            found = {"bare": run_bare(arguments.engine, arguments.image, Path(name) / f"bare-{number}")}
            found |= {kind: run(Path(name)) for kind, run in kinds.items()}
            print(f"round {number}: {found}", file=sys.stderr)
            if number:  # the first one warms the page cache
                rounds.append(found)
    publish("isolation", figures(rounds))


def why_not(engine: str, image: str) -> str:
    """Why nothing can be measured here; empty when it can."""
    if os.geteuid() != 0:
        return "a lease's disk needs root"
    try:
        asked = subprocess.run(
            ["docker", "--host", engine, "image", "inspect", image], check=False, capture_output=True, text=True
        )
    except FileNotFoundError:
        return "there is no program `docker`"
    return asked.stderr.strip() if asked.returncode else ""


def figures(rounds: list[dict[str, Figures]]) -> dict[str, Any]:
    """Medians of the bare container, and for each kind the median and range of the rounds' ratios in percent."""
    bare = {name: round(statistics.median(found["bare"][name] for found in rounds), 4) for name in rounds[0]["bare"]}
    kinds: dict[str, Any] = {}
    for kind in rounds[0].keys() - {"bare"}:
        kinds[kind] = {}
        for name in bare:
            ratios = [100 * (found[kind][name] / found["bare"][name] - 1) for found in rounds]
            kinds[kind][f"{name}_percent"] = round(statistics.median(ratios), 1)
            kinds[kind][f"{name}_percent_range"] = [round(min(ratios), 1), round(max(ratios), 1)]
    return {"rounds": len(rounds), "bare": bare, "kinds": kinds}


def run_bare(engine: str, image: str, folder: Path) -> Figures:
    """In a container as the engine makes it, with nothing asked for but the core and the folder."""
    folder.mkdir()
    command = ["docker", "--host", engine, "run", "--rm", "--user", "0", "--cpuset-cpus", str(CORE)]
    command += ["--volume", f"{folder}:/job", "--workdir", "/job", "--entrypoint", "python3"]
    started = time.time()
    done = subprocess.run(
        [*command, image, "-u", "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=RUN_SECONDS_MAX
    )
    return _read(done.stdout, started)


def _lease(engine: str, image: str, isolation: Any) -> Callable[[Path], Figures]:
    executor = DockerExecutor(engine_url=engine, isolation=isolation)
    asyncio.run(executor.check())
    return lambda leases: run_lease(executor, image, leases)


def run_lease(executor: DockerExecutor, image: str, leases: Path) -> Figures:
    """In a container as the agent makes it for a lease; its disk is made beforehand, as the agent does."""
    lease_id = uuid4()
    folder = leases / str(lease_id)
    folder.mkdir()
    disk_mib = asyncio.run(executor.make_room(folder, disk_share=DISK_SHARE))
    (folder / "work").mkdir(exist_ok=True)
    spec = LaunchSpec(
        lease_id=lease_id,
        folder=folder,
        argv=["python3", "-u", "-c", PROGRAM],
        env=executor.environment(executor.seen_work(folder)),
        cores=[CORE],
        memory_mib_max=MEMORY_MIB,
        disk_mib_max=disk_mib,
        image=image,
    )
    started = time.time()
    handle = asyncio.run(executor.start(spec))
    try:
        while (ended := asyncio.run(executor.poll(handle))) is None:
            if time.time() - started > RUN_SECONDS_MAX:
                raise TimeoutError(f"the program runs for more than {RUN_SECONDS_MAX} s")
            time.sleep(POLL_SECONDS)
        log = log_path(folder).read_text()
        if ended.code != 0:
            raise RuntimeError(f"the program ended with {ended}: {log[-2000:]}")
        return _read(log, started)
    finally:
        asyncio.run(executor.kill(handle))
        asyncio.run(executor.cleanup(handle))
        asyncio.run(executor.remove_room(folder))


def _read(log: str, started: float) -> Figures:
    (line,) = [line for line in log.splitlines() if line.startswith("{")]
    found: Figures = json.loads(line)
    return {"start": found.pop("began") - started, **found}


def _has_gvisor(engine: str) -> bool:
    asked = subprocess.run(
        ["docker", "--host", engine, "info", "--format", "{{json .Runtimes}}"],
        check=True,
        capture_output=True,
        text=True,
    )
    return "runsc" in json.loads(asked.stdout)


if __name__ == "__main__":
    main()

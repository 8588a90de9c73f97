"""torchft's fault tolerance under the schedule of `benchmarks.goodput`, without a marketplace around it.

Three replicas of the same model, on one computer, under torchft's own coordinator, their gradients averaged
by its manager (its DDP, of 0.2.0 under torch 2.13, ends with an AssertionError when a peer is lost). One that is killed
is started again at once, as a supervisor on the same machine would; no other node is looked for, nothing is downloaded
and nobody pays. The others go on without it as soon as torchft has missed it; it takes the weights from one of them.

    python -m benchmarks.setups.torchft_gang --replica NAME EVENTS STEPS     one replica, for `run`
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

MODULE = "benchmarks.setups.torchft_gang"
REPLICAS, LEFT = 3, 2  # that take part, and that suffice to go on
SEQUENCES, LENGTH = 2, 64  # of one replica's step
JOIN_MS, TICK_MS = 1000, 50
OPERATION = timedelta(seconds=20)
SECONDS_MAX = 900
MODEL_FILE = Path(__file__).parents[2] / "runtimes" / "train" / "models" / "tiny-llama.json"


def is_installed() -> bool:
    """Whether torchft can be measured here."""
    return find_spec("torchft") is not None


def run(folder: Path, *, steps: int, first_kill: int, kill_steps: int, kills: int) -> tuple[list[float], list[float]]:
    """Unix times of all steps' ends, and of the kills; raises SystemExit where it does not end.

    The first kill comes after step `first_kill`, the next one so many steps after all took part again.
    """
    os.environ.setdefault("RUST_LOG", "off")  # the coordinator says each step
    server = import_module("torchft.coordination").LighthouseServer(
        bind="127.0.0.1:0", min_replicas=LEFT, join_timeout_ms=JOIN_MS, quorum_tick_ms=TICK_MS
    )
    lighthouse = f"http://127.0.0.1:{server.address().rpartition(':')[2]}"  # it names the computer, not the address
    events = folder / "events.jsonl"
    events.touch()
    names = [f"replica-{number}" for number in range(REPLICAS)]
    gang = {name: _start(name, events, steps, lighthouse) for name in names}
    killed_at: list[float] = []
    due = first_kill
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while not any(event["step"] >= steps for event in _read(events)):
            if time.monotonic() > deadline:
                raise SystemExit("torchft did not end: " + (folder / "log").read_text()[-2000:])
            found = _read(events)
            if len(killed_at) < kills and found and found[-1]["step"] >= due and _are_whole(found, killed_at):
                name = names[1 + len(killed_at) % (REPLICAS - 1)]
                killed_at.append(time.time())
                os.killpg(gang[name].pid, signal.SIGKILL)
                gang[name].wait()
                gang[name] = _start(name, events, steps, lighthouse)
                due = found[-1]["step"] + kill_steps
            time.sleep(0.05)
        seen: dict[int, float] = {}
        for event in _read(events):
            seen[event["step"]] = min(event["at"], seen.get(event["step"], event["at"]))
        return sorted(seen.values()), killed_at
    finally:
        for process in gang.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        server.shutdown()


def _start(name: str, events: Path, steps: int, lighthouse: str) -> subprocess.Popen[bytes]:
    log = (events.parent / "log").open("ab")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHFT_LIGHTHOUSE": lighthouse}
    words = [sys.executable, "-m", MODULE, "--replica", name, str(events), str(steps)]
    return subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True)


def _read(events: Path) -> list[dict[str, Any]]:
    """Every whole line so far, in the order in which they were written."""
    return [json.loads(line) for line in events.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _are_whole(found: list[dict[str, Any]], killed_at: list[float]) -> bool:
    """Whether all took part in a step since the last kill."""
    since = max(killed_at, default=0.0)
    return any(event["replicas"] == REPLICAS for event in found if event["at"] > since)


def train(name: str, events: Path, steps: int) -> None:
    """One replica: a line of JSON in `events` after each step that all of them committed."""
    import torch
    import torch.distributed as dist
    from transformers import AutoConfig, AutoModelForCausalLM

    torchft, groups = import_module("torchft"), import_module("torchft.process_group")
    torch.manual_seed(1)
    config = json.loads(MODEL_FILE.read_text())
    make: Any = AutoModelForCausalLM.from_config
    model = make(AutoConfig.for_model(**config))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def state() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def load(saved: dict[str, Any]) -> None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    untyped: Any = dist
    store = untyped.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=groups.ProcessGroupGloo(timeout=OPERATION),
        load_state_dict=load,
        state_dict=state,
        min_replica_size=LEFT,
        timeout=OPERATION,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        replica_id=name,
        hostname="127.0.0.1",
    )
    flat = torch.zeros(sum(weight.numel() for weight in model.parameters()))
    offset = 0
    for weight in model.parameters():
        weight.grad = flat[offset : offset + weight.numel()].view_as(weight)
        offset += weight.numel()
    stepper = torchft.Optimizer(manager, optimizer)
    with events.open("a", buffering=1) as out:
        while manager.current_step() < steps:
            tokens = torch.randint(0, config["vocab_size"], (SEQUENCES, LENGTH))
            stepper.zero_grad(set_to_none=False)
            before = manager.current_step()
            model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
            manager.allreduce(flat).wait()
            stepper.step()
            if manager.current_step() > before:
                line = {"step": manager.current_step(), "at": time.time(), "replicas": manager.num_participants()}
                out.write(json.dumps(line) + "\n")
    os._exit(0)  # its threads have nothing to end for


if __name__ == "__main__":
    train(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))

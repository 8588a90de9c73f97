"""Starts the real runtimes as real processes, the way an agent does, and reads what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from runtimes.contract import Env
from tests import warm

SECONDS_MAX = 90.0
MICRO_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
    "eos_token_id": 0,
}
MICRO_CONFIG: dict[str, Any] = {
    "model": "micro-llama",
    "data": ["docs.jsonl", "more.txt"],
    "sequence_length": 32,
    "global_batch_size": 9,  # does not divide by two ranks: 4 and 5 sequences, in two passes of at most 3
    "micro_batch_size": 3,
    "learning_rate": 3e-3,
    "warmup_steps": 10,
    "dtype": "float32",
    "seed": 5,
    "evaluate_every": 50,
    "log_samples": True,
}

# In an interpreter that torchrun started, and in a rank that was forked from a launcher.
ABORTS_ON_EXIT = """
import atexit, os
abort = lambda: atexit.register(os.abort)
if "LOCAL_RANK" in os.environ: abort()
os.register_at_fork(after_in_child=abort)
"""
NO_FORKS = """
from runtimes import spare_ranks
spare_ranks.start_spares = lambda *_: None
"""


@dataclass
class Work:
    """One container's work folder, as the contract draws it, on one node."""

    root: Path
    ranks: int
    env: dict[str, str] = field(default_factory=dict)
    launched: bool = True  # False: one rank without torchrun
    module: str = "runtimes.train"

    @property
    def checkpoints(self) -> Path:
        """Where the program saves."""
        return self.root / "checkpoint"

    def write(self, config: dict[str, Any]) -> Work:
        """Fill in the job's files and the configuration."""
        model = self.root / "input" / "micro-llama"
        model.mkdir(parents=True, exist_ok=True)
        (model / "config.json").write_text(json.dumps(MICRO_MODEL))
        texts = [topics[key] for key in sorted(topics)[:20]]
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts[:15])
        (self.root / "input" / "docs.jsonl").write_text(lines)
        (self.root / "input" / "more.txt").write_text("\n".join(texts[15:]))
        (self.root / "config.json").write_text(json.dumps(config))
        return self

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """The event lines so far, whole ones only."""
        path = self.root / "events.jsonl"
        text = path.read_text() if path.exists() else ""
        found = [json.loads(line) for line in text.split("\n")[:-1]]
        return [event for event in found if not kind or event["event"] == kind]

    def start(self) -> subprocess.Popen[str]:
        """Start it in a process group of its own."""
        environment = {
            **warm.environment(),
            Env.WORK_DIR: str(self.root),
            Env.EVENTS: str(self.root / "events.jsonl"),
            Env.DEVICE_KIND: "cpu",
            Env.DEVICES_PER_NODE: str(self.ranks),
            **self.env,
        }
        modules = ["runtimes.launch", self.module] if self.launched else [self.module]
        return warm.start(
            [sys.executable, "-m", *modules],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self) -> tuple[int, str]:
        """Start it and wait for its end; the exit code and all it printed."""
        return finish(self.start())


def abort_on_exit(folder: Path, *, forks: bool = True) -> str:
    """A folder for PYTHONPATH, with which torchrun's ranks are forked from our launcher, or never: a rank aborts in its
    interpreter's shutdown, as gloo makes it do on a busy computer in one of three tries."""
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(ABORTS_ON_EXIT + ("" if forks else NO_FORKS))
    return str(folder)


def finish(process: subprocess.Popen[str], *, seconds: float = SECONDS_MAX) -> tuple[int, str]:
    """Wait for the end of a program; its exit code and all it printed. Nothing of its group is left behind."""
    try:
        output, _ = process.communicate(timeout=seconds)
    finally:
        kill_group(process)
    return process.returncode, output


def kill_group(process: subprocess.Popen[str]) -> None:
    """SIGKILL the launcher, and with it every rank, as a power cut would."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Poll until the condition holds; fails loudly if the program ends or takes too long."""
    give_up_at = time.monotonic() + SECONDS_MAX
    while not condition():
        assert process.poll() is None, finish(process)[1]
        assert time.monotonic() < give_up_at, "it took too long"
        time.sleep(0.005)


def losses(work: Work) -> dict[int, float]:
    """Training loss by step."""
    return {event["step"]: event["loss"] for event in work.events("step")}


def samples(work: Work) -> dict[int, list[int]]:
    """Sample ids by step, in the order of the batch."""
    return {event["step"]: event["ids"] for event in work.events("samples")}

"""Makes tiny models and starts the real runtime on them, the way an agent does."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from runtimes.contract import SERVE_SOCKET, Env

SECONDS_MAX = 90.0
VOCABULARY = 512
WIDTH, INNER, LAYERS, HEADS = 32, 64, 2, 2
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 1,
}


def make_llama(folder: Path, *, seed: int = 0, width: int = WIDTH, heads: int = HEADS) -> Path:
    """A folder as transformers writes it, made without torch."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = numpy.random.default_rng(seed)
    head = width // heads
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, width),
        "model.norm.weight": (width,),
    }
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        shapes |= {
            f"{name}self_attn.q_proj.weight": (width, width),
            f"{name}self_attn.k_proj.weight": (head, width),
            f"{name}self_attn.v_proj.weight": (head, width),
            f"{name}self_attn.o_proj.weight": (width, width),
            f"{name}mlp.gate_proj.weight": (INNER, width),
            f"{name}mlp.up_proj.weight": (INNER, width),
            f"{name}mlp.down_proj.weight": (width, INNER),
            f"{name}input_layernorm.weight": (width,),
            f"{name}post_attention_layernorm.weight": (width,),
        }
    tensors = {
        name: numpy.ones(shape, numpy.float32) if len(shape) == 1 else draw.normal(0, 0.3, shape).astype(numpy.float32)
        for name, shape in shapes.items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(LLAMA | {"hidden_size": width, "num_attention_heads": heads}))
    make_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|endoftext|>",
            "eos_token": "<|endoftext|>",
            "pad_token": "<|padding|>",
        })
    )  # fmt: skip
    return folder


def make_tokenizer() -> Tokenizer:
    """Bytes and their most frequent pairs, as a training of ours makes it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>", "<|padding|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([topics[key] for key in sorted(topics)[:10]], trainer=trainer)
    return tokenizer


@dataclass
class Replica:
    """One container's work folder with a replica in it."""

    root: Path
    arguments: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def write(self, config: dict[str, Any]) -> Replica:
        """The configuration, over what a job file's section would give."""
        usual: dict[str, Any] = {"model": {"folder": "model"}, "served_as": "tiny", "engine": "auto", "dtype": "auto"}
        usual |= {"quantization": "none", "context": None, "max_tokens": 128, "in_flight": 4, "verify": False}
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "config.json").write_text(json.dumps(usual | config))
        return self

    def start(self) -> Replica:
        """Start it in a process group of its own."""
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SOUK_")},
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(Path(__file__).parents[4]),
            Env.WORK_DIR: str(self.root),
            Env.EVENTS: str(self.root / "events.jsonl"),
            Env.DEVICE_KIND: "cpu",
            Env.DEVICES_PER_NODE: "1",
            **self.env,
        }
        with (self.root / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "runtimes.serve", *self.arguments],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def until_ready(self) -> Replica:
        """Wait for the event; fails loudly when the replica ends or takes too long."""
        give_up_at = time.monotonic() + SECONDS_MAX
        while not self.events("ready"):
            assert self.process is not None and self.process.poll() is None, self.log()
            assert time.monotonic() < give_up_at, f"it took too long\n{self.log()}"
            time.sleep(0.05)
        return self

    def wait(self) -> int:
        """Its exit code."""
        assert self.process is not None
        return self.process.wait(SECONDS_MAX)

    def end(self) -> None:
        """SIGKILL whatever is left."""
        if self.process is not None:
            for pid in [self.process.pid, *self.engine_pids()]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self.process.wait()

    def engine_pids(self) -> list[int]:
        """The engine's processes: whoever has its folder as working directory."""
        folder, found = str((self.root / ".engine").resolve()), []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and (entry / "cwd").readlink() == Path(folder):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """The event lines so far, whole ones only."""
        path = self.root / "events.jsonl"
        text = path.read_text() if path.exists() else ""
        found = [json.loads(line) for line in text.split("\n")[:-1]]
        return [event for event in found if not kind or event["event"] == kind]

    def log(self) -> str:
        """All that it printed."""
        return (self.root / "log").read_text(errors="replace")

    def ask(self, path: str, body: Any = None, *, method: str = "") -> tuple[int, dict[str, Any]]:
        """One request by its socket; status and JSON."""
        connection = SocketConnection(str(self.root / SERVE_SOCKET))
        try:
            connection.request(
                method or ("GET" if body is None else "POST"), path, None if body is None else encode(body)
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def stream(self, path: str, body: dict[str, Any]) -> Generator[dict[str, Any]]:
        """The events of a stream, up to its [DONE]."""
        connection = SocketConnection(str(self.root / SERVE_SOCKET))
        try:
            connection.request("POST", path, encode(body | {"stream": True}))
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            for line in answer:
                if line.startswith(b"data: "):
                    if line.strip() == b"data: [DONE]":
                        return
                    yield json.loads(line[6:])
            raise AssertionError("the stream has no [DONE]")
        finally:
            connection.close()


def encode(body: Any) -> bytes:
    """JSON, or bytes as they are."""
    return body if isinstance(body, bytes) else json.dumps(body).encode()


class SocketConnection(http.client.HTTPConnection):
    """HTTP on a Unix socket, whatever the length of its path."""

    def __init__(self, path: str) -> None:
        super().__init__("replica", timeout=SECONDS_MAX)
        self.path = path

    def connect(self) -> None:
        """By the folder's file descriptor, as an agent does."""
        folder = os.open(os.path.dirname(self.path), os.O_PATH)  # noqa: PTH120
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(SECONDS_MAX)
            self.sock.connect(f"/proc/self/fd/{folder}/{os.path.basename(self.path)}")  # noqa: PTH119
        finally:
            os.close(folder)

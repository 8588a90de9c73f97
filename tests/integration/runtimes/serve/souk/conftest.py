"""A small model, and the engine serving it as a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[5]
START_SECONDS_MAX = 90
SLOTS = 4
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("engine", timeout=60)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


@dataclass
class Engine:
    """The process, and its client."""

    process: subprocess.Popen[bytes]
    path: Path

    def get(self, path: str) -> tuple[int, str]:
        connection = UnixConnection(self.path)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def post(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        connection = UnixConnection(self.path)
        connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def ok(self, path: str, body: Any) -> dict[str, Any]:
        status, answer = self.post(path, body)
        assert status == 200, answer
        return answer

    def stream(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        connection = UnixConnection(self.path)
        connection.request("POST", path, json.dumps(body | {"stream": True}))
        answer = connection.getresponse()
        assert answer.status == 200
        events = answer.read().decode().split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""]
        return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]

    def metric(self, name: str) -> int:
        return int(next(line.split()[1] for line in self.get("/metrics")[1].splitlines() if line.startswith(name)))


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama that has seen a little text, so that what it writes is text."""
    import torch
    import transformers

    from runtimes.train.data.tokenizer import END_OF_TEXT, PADDING, train_tokenizer

    folder = tmp_path_factory.mktemp("model")
    text = (
        "the quick brown fox jumps over the lazy dog. " * 40 + "one two three four five six seven eight nine ten. " * 40
    )
    tokenizer = train_tokenizer([text], 320)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        bos_token_id=0,
        eos_token_id=0,
    )
    model: Any = transformers.LlamaForCausalLM(config)
    ids = torch.tensor(tokenizer.encode(text).ids)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(15):
        starts = torch.randint(len(ids) - 32, (8,)).tolist()
        rows = torch.stack([ids[start : start + 32] for start in starts])
        model(input_ids=rows, labels=rows).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    fast: Any = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END_OF_TEXT, pad_token=PADDING
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def engine(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    path = tmp_path_factory.mktemp("s") / "engine.sock"
    started = start(model_folder, path)
    yield started
    started.process.terminate()
    started.process.wait(30)  # it ends on SIGTERM


def start(model_folder: Path, path: Path, *arguments: str) -> Engine:
    """The engine, once it answers."""
    argv = [sys.executable, "-m", "runtimes.serve.engines.souk", "--model", str(model_folder), "--uds", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*argv, "--served-as", "fox", "--slots", str(SLOTS), "--max-tokens", "200", *arguments],
        env=environment,
        cwd=path.parent,
        stderr=subprocess.DEVNULL,
    )
    engine, until = Engine(process, path), time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < until and process.poll() is None:
        try:
            if engine.get("/health")[0] == 200:
                return engine
        except OSError:
            time.sleep(0.1)
    process.kill()
    raise AssertionError("the engine did not come up")

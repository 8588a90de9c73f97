"""Memory of the ranks while a model's weights are read: each holds its own part and one block at a time."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from benchmarks.setups.training_steps import COMMON

LAYERS = (8, 16, 32, 64)
WIDE: dict[str, Any] = {  # 61 million parameters a layer
    **COMMON,
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32_000,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
WATCH_SECONDS = 0.005


def write_model(folder: Path, layers: int) -> None:
    """A folder as the hub has it: random weights in bfloat16, a file for each layer."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    config = {**WIDE, "num_hidden_layers": layers, "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config))
    untyped: Any = AutoModelForCausalLM
    with torch.device("meta"):
        plain = untyped.from_config(AutoConfig.for_model(**config))
    files: dict[str, str] = {}
    for name in plain.state_dict():
        if name != "lm_head.weight":  # tied
            layer = name.split(".")[2] if ".layers." in name else "rest"
            files[name] = f"model-{layer}.safetensors"
    for file in sorted(set(files.values())):
        shapes = {name: plain.get_parameter(name).shape for name, its in files.items() if its == file}
        save_file({name: torch.randn(shape).mul_(0.02).bfloat16() for name, shape in shapes.items()}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))


def measure_loading(folder: str) -> dict[str, Any]:
    """Bytes of this rank's own memory at its peak while it loads, more than before; what it then keeps; one block."""
    from runtimes.job_files import JobFiles
    from runtimes.train.container import read_container
    from runtimes.train.model import build_model, decoder_blocks, find_model
    from runtimes.train.prepare import choose_dtype
    from runtimes.train.strategies.registry import load_strategy
    from runtimes.train.weights import filled_units

    strategy = load_strategy("fsdp2")
    ranks = strategy.join(read_container(dict(os.environ), config=None, output=None))
    path = Path(folder)
    source = find_model(path.name, JobFiles(path.parent))
    model = build_model(source)
    block = max(_bytes(each) for each in decoder_blocks(model))
    parameters = sum(each.numel() for each in model.parameters())
    before, watcher = _own_bytes(), _Watcher()
    with watcher:
        wrapped = strategy.wrap(
            filled_units(model, source, seed=0, is_resumed=False), ranks, choose_dtype("float32", ranks.device)
        )
    sharded: list[Any] = list(wrapped.parameters())
    kept = sum(each.to_local().numel() * each.element_size() for each in sharded)
    return {"parameters": parameters, "peak_bytes": watcher.most - before, "kept_bytes": kept, "block_bytes": block}


class _Watcher:
    """The most memory of its own that this process has, looked at often."""

    def __init__(self) -> None:
        self.most = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(WATCH_SECONDS):
            self.most = max(self.most, _own_bytes())


def _own_bytes() -> int:
    """Without files: what is read of them stays in the system's cache for as long as there is room."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) << 10


def _bytes(module: Any) -> int:
    return sum(each.numel() * each.element_size() for each in module.parameters())

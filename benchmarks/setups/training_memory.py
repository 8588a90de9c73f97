"""The peak memory of a training's own step, measured, beside what the planner says: small models, on a processor.

What torch's allocator hands out, less what comes back to it, is summed from the process's start (torch's profiler
reports each), so that the figure is of tensors alone, whatever the interpreter and libraries take. The peak is that of
the second step, when optimizer and gradients are there.
"""

from __future__ import annotations

import os
from typing import Any

from benchmarks.setups import training_steps

SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
}
LLAMA = {"model_type": "llama", **SIZES}
WORDY = {**LLAMA, "vocab_size": 4096}
QWEN3 = {**WORDY, "model_type": "qwen3", "head_dim": 32, "tie_word_embeddings": False}
GEMMA2 = {**WORDY, "model_type": "gemma2", "head_dim": 32}
PHI3 = {**WORDY, "model_type": "phi3", "pad_token_id": 0}
NEOX = {**SIZES, "model_type": "gpt_neox", "vocab_size": 2048, "num_hidden_layers": 4, "intermediate_size": 1024}
GPT2 = {"model_type": "gpt2", "vocab_size": 2048, "n_embd": 256, "n_layer": 4, "n_head": 8, "n_positions": 1024}
FULL, SELECTIVE = {"activation_checkpointing": "full"}, {"activation_checkpointing": "selective"}
HALF = {"dtype": "bfloat16"}
# Name: model, (sequences a step, sequences a micro-batch, tokens a sequence), settings, ranks.
CASES: dict[str, tuple[dict[str, Any], tuple[int, int, int], dict[str, Any], int]] = {
    "llama": (LLAMA, (4, 4, 512), {}, 1),
    "llama, full": (LLAMA, (4, 4, 512), FULL, 1),
    "llama, selective": (LLAMA, (4, 4, 512), SELECTIVE, 1),
    "llama, bfloat16": (LLAMA, (4, 4, 512), HALF, 1),
    "llama, bfloat16, full": (LLAMA, (4, 4, 512), HALF | FULL, 1),
    "llama, bfloat16, selective": (LLAMA, (4, 4, 512), HALF | SELECTIVE, 1),
    "llama, two passes, full": (WORDY, (8, 4, 256), FULL, 1),
    "llama, few tokens": (WORDY, (4, 1, 32), {}, 1),
    "llama, ddp": (LLAMA, (4, 4, 512), {"strategy": "ddp"}, 1),
    "llama, ddp, two passes": (LLAMA, (4, 2, 64), {"strategy": "ddp"}, 1),
    "llama, ddp, bfloat16": (LLAMA, (4, 4, 512), {"strategy": "ddp", **HALF}, 1),
    "llama, lora": (LLAMA, (4, 4, 512), {"lora": {"rank": 8}}, 1),
    "llama, lora, bfloat16": (LLAMA, (4, 4, 512), {"lora": {"rank": 8}, **HALF}, 1),
    "llama, lora, bfloat16, full": (LLAMA, (4, 4, 512), {"lora": {"rank": 8}, **HALF, **FULL}, 1),
    "llama, fsdp2 on two ranks": (LLAMA, (8, 4, 256), {}, 2),
    "llama, fsdp2 on two ranks, full": (WORDY, (8, 2, 256), FULL, 2),
    "llama, fsdp2 on two ranks, bfloat16": (WORDY, (8, 2, 256), HALF, 2),
    "qwen3": (QWEN3, (8, 4, 256), {}, 1),
    "qwen3, bfloat16": (QWEN3, (8, 4, 256), HALF, 1),
    "gemma2": (GEMMA2, (8, 4, 256), {}, 1),
    "gemma2, long, selective": (GEMMA2, (2, 2, 1024), SELECTIVE, 1),
    "gemma2, long, full": (GEMMA2, (2, 2, 1024), FULL, 1),
    "phi3": (PHI3, (8, 4, 256), {}, 1),
    "gpt_neox": (NEOX, (8, 4, 256), {}, 1),
    "gpt2": (GPT2, (8, 4, 256), {}, 1),
    "gpt2, long, selective": (GPT2, (2, 2, 1024), SELECTIVE, 1),
}


def measure_peak(name: str) -> dict[str, int]:
    """Bytes of this rank at its peak, and what it holds between steps. Once a process."""
    from torch.profiler import ProfilerActivity, profile, record_function

    model, sizes, settings, _ = CASES[name]
    training_steps.SHAPES[name], training_steps.SIZES[name] = model, sizes
    watched: Any = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    watched.start()
    step, *_ = training_steps.our_step(name, settings)
    step()
    with record_function("second step"):
        step()
    watched.stop()
    events = watched.profiler.kineto_results.events()
    window = next(each for each in events if each.name() == "second step")
    began, ended = window.start_ns(), window.start_ns() + window.duration_ns()
    live = peak = resident = 0
    for at, change in sorted((each.start_ns(), each.nbytes()) for each in events if each.name() == "[memory]"):
        if at <= ended:
            live += change
            resident = live if at < began else resident
            peak = max(peak, live) if at >= began else 0
    return {"peak_bytes": peak, "resident_bytes": resident}


def predicted_peak(name: str) -> int:
    """What the planner says of the same."""
    from runtimes.plan.memory import Place, reckon_memory
    from runtimes.shapes.families import read_shape
    from runtimes.train.config import parse_config

    model, (sequences, micro, length), settings, ranks = CASES[name]
    given = {"steps": 1, "global_batch_size": sequences, "micro_batch_size": micro, "sequence_length": length}
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // ranks
    place = Place(ranks, memory_bytes=memory, is_gpu=False)
    # Adapters need a model that has weights, which is not asked here.
    config = parse_config({**given, **settings, "model": "measured"})
    return reckon_memory(read_shape(model), config, place).peak

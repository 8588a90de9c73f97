"""One training step of ours and of others, over the same model with random weights, batch and tokens."""

from __future__ import annotations

import os
import statistics
import time
from importlib import import_module
from types import SimpleNamespace
from typing import Any

WARM_STEPS = 3
STEPS = 8
COMMON: dict[str, Any] = {"model_type": "llama", "vocab_size": 128_256, "rope_theta": 500_000.0, "rms_norm_eps": 1e-5}
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {  # for a look on a processor
        **COMMON,
        "vocab_size": 1000,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    },
    "6m": {  # for processors
        **COMMON,
        "vocab_size": 4096,
        "hidden_size": 256,
        "intermediate_size": 768,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
    },
    "110m": {  # for saves on processors
        **COMMON,
        "vocab_size": 32_000,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 12,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
    },
    "1b": {
        **COMMON,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
    "8b": {
        **COMMON,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
    },
}
SIZES = {
    "tiny": (4, 4, 64),
    "6m": (16, 4, 256),
    "110m": (2, 1, 64),
    "1b": (16, 8, 2048),
    "8b": (4, 2, 2048),
}  # sequences a step, a micro-batch; tokens


def measure(shape: str, name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Warm up, then time steps one by one. `changes`: of our own configuration, where `name` is none of the others."""
    import torch

    from runtimes.train.peaks import bfloat16_peak

    began = time.perf_counter()
    step, flops, device = OTHER_STEPS[name](shape) if name in OTHER_STEPS else our_step(shape, changes)
    sequences, _, length = SIZES[shape]
    for _ in range(WARM_STEPS):
        step()
    wait(device)
    ready = time.perf_counter() - began
    seconds = []
    for _ in range(STEPS):
        started = time.perf_counter()
        step()
        wait(device)
        seconds.append(time.perf_counter() - started)
    speed = sequences * length / statistics.median(seconds)
    peak = bfloat16_peak(device)
    figures = {"tokens_per_second": round(speed), "ready_seconds": round(ready, 1)}
    if device.type == "cuda":
        figures["peak_gib"] = round(torch.cuda.max_memory_reserved() / 2**30, 1)
    return figures | ({"mfu": round(speed * flops / peak, 3)} if peak else {})


def wait(device: Any) -> None:
    """Until the device has done what it was given."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()


def model_source(shape: str) -> Any:
    """The shape as a model without files."""
    from transformers import AutoConfig

    from runtimes.train.model import ModelSource

    known = SHAPES[shape]
    config = AutoConfig.for_model(**known)
    return ModelSource(shape, config, None, has_weights=False)


def draw_weights(model: Any) -> None:
    """On the device: drawing billions of them on the CPU is no part of what is measured."""
    import torch
    from torch.distributed.tensor import DTensor

    with torch.no_grad():
        for parameter in model.parameters():
            mine = parameter.to_local() if isinstance(parameter, DTensor) else parameter
            mine.fill_(1.0) if mine.ndim < 2 else mine.normal_(0, 0.02)


def our_step(shape: str, changes: dict[str, Any]) -> Any:
    """A step of runtimes.train, as its loop does it."""
    from runtimes.train.loop import one_step

    training = our_training(shape, changes)

    def step() -> None:
        one_step(training)
        training.step += 1

    return step, training.flops_per_token, training.ranks.device


def our_training(shape: str, changes: dict[str, Any]) -> Any:
    """A runtimes.train.training.Training with drawn weights and tokens, as it is before its first step."""
    import numpy as np

    from runtimes.contract import EventWriter
    from runtimes.train.adapters import add_adapters
    from runtimes.train.blocks import prepare_blocks
    from runtimes.train.callbacks.copies import Copies
    from runtimes.train.checkpoint import Checkpointer
    from runtimes.train.config import parse_config
    from runtimes.train.container import read_container
    from runtimes.train.data.corpus import Corpus
    from runtimes.train.loss import install_loss
    from runtimes.train.model import build_model, flops_per_token
    from runtimes.train.optimizer import make_optimizer
    from runtimes.train.prepare import choose_dtype
    from runtimes.train.shares import BlockClock, Shares
    from runtimes.train.strategies.registry import load_strategy
    from runtimes.train.training import Training

    sequences, micro, length = SIZES[shape]
    wanted = {"steps": 10_000, "global_batch_size": sequences, "micro_batch_size": micro, "sequence_length": length}
    config = parse_config({**wanted, "model": "random", "learning_rate": 1e-4, **changes})
    strategy = load_strategy(config.strategy)
    container = read_container(dict(os.environ), config=None, output=None)
    ranks = strategy.join(container)
    source = model_source(shape)
    model = build_model(source)
    dtype = choose_dtype(config.dtype, ranks.device)
    if config.lora is not None:
        add_adapters(model, config.lora, dtype)
    flops = flops_per_token(model, length)
    prepare_blocks(model, checkpointing=config.activation_checkpointing, compiles=config.compile)
    install_loss(model, compiles=config.compile)
    clock = BlockClock(model, ranks.device) if config.shares == "measured" else None
    model = with_weights(model, source, config, strategy, ranks, dtype=dtype)
    tokens = np.random.default_rng(0).integers(0, SHAPES[shape]["vocab_size"], 300 * length + 1, dtype=np.int32)
    text: Any = SimpleNamespace(corpus=Corpus(tokens, length, 280, 20, ""))
    return Training(
        config,
        strategy,
        ranks,
        EventWriter(""),
        source,
        text,
        model,
        make_optimizer(model, config),
        Checkpointer(container, ranks, EventWriter("")),
        Shares(sequences, ranks, EventWriter(""), measured=clock is not None),
        dtype,
        flops,
        Copies(model, strategy, config),
        clock=clock,
    )


def with_weights(model: Any, source: Any, config: Any, strategy: Any, ranks: Any, *, dtype: Any) -> Any:
    """The model as the strategy places it, with drawn weights: on the device, unless they are packed before."""
    from runtimes.train.quantization.linear import quantized_units
    from runtimes.train.weights import filled_units

    is_packed = config.quantize is not None
    units = filled_units(model, source, seed=0, is_resumed=not is_packed)
    if is_packed:
        units = quantized_units(units, model, device=ranks.device, dtype=dtype)
    wrapped = strategy.wrap(units, ranks, dtype)
    if not is_packed:
        draw_weights(wrapped)
    wrapped.train()
    return wrapped


def world_size() -> int:
    """Ranks of this measurement: those of torchrun, else one."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def plain_model(shape: str) -> Any:
    """transformers' model with its weights on the device, and what others' steps need of it."""
    import torch

    from runtimes.train.model import flops_per_token, new_model

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with torch.device(device):
        model = new_model(model_source(shape))
    draw_weights(model)
    model.train()
    return model, flops_per_token(model, SIZES[shape][2]), device


def batches(shape: str, device: Any) -> Any:
    """This rank's micro-batches of a step, random tokens (b, S + 1)."""
    import torch

    sequences, micro, length = SIZES[shape]
    size = (sequences // micro // world_size(), micro, length + 1)
    return torch.randint(0, SHAPES[shape]["vocab_size"], size, device=device)


def bare_step(shape: str) -> Any:
    """FSDP2 around each block and the model, transformers' own loss, fused AdamW."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model, flops, device = plain_model(shape)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    untyped: Any = dist
    alone = {} if "RANK" in os.environ else {"store": untyped.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group(backend, **alone)
    mesh = init_device_mesh(device.type, (world_size(),))
    dtype = torch.bfloat16 if device.type == "cuda" else None
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for block in [*model.model.layers, model]:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        parts = batches(shape, device)
        for number, part in enumerate(parts, 1):
            model.set_requires_gradient_sync(number == len(parts))
            loss = model(input_ids=part[:, :-1], labels=part[:, :-1], use_cache=False).loss / len(parts)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, flops, device


def accelerate_step(shape: str) -> Any:
    """accelerate's loop with bfloat16 mixed precision and fused AdamW."""
    import torch

    plain, flops, device = plain_model(shape)
    steps = SIZES[shape][0] // SIZES[shape][1] // world_size()
    precision = "bf16" if device.type == "cuda" else "no"
    accelerator = import_module("accelerate").Accelerator(mixed_precision=precision, gradient_accumulation_steps=steps)
    model, optimizer = accelerator.prepare(plain, torch.optim.AdamW(plain.parameters(), lr=1e-4, fused=True))

    def step() -> None:
        for part in batches(shape, device):
            with accelerator.accumulate(model):
                loss = model(input_ids=part[:, :-1], labels=part[:, :-1], use_cache=False).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

    return step, flops, device


def deepspeed_step(shape: str) -> Any:
    """DeepSpeed's ZeRO, second stage: gradients and optimizer states sharded; its own AdamW of torch."""
    import torch

    deepspeed = import_module("deepspeed")
    plain, flops, device = plain_model(shape)
    sequences, micro, _ = SIZES[shape]
    wanted = {
        "train_batch_size": sequences,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 2},
        "zero_allow_untested_optimizer": True,
    }
    deepspeed.init_distributed("gloo" if device.type == "cpu" else "nccl", verbose=False)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-4)
    engine, *_ = deepspeed.initialize(model=plain, optimizer=optimizer, config=wanted)

    def step() -> None:
        for part in batches(shape, device):
            engine.backward(engine(input_ids=part[:, :-1], labels=part[:, :-1], use_cache=False).loss)
            engine.step()

    return step, flops, device


OTHER_STEPS = {"bare FSDP2": bare_step, "accelerate": accelerate_step, "DeepSpeed": deepspeed_step}

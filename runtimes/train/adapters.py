"""Fine-tuning by adapters (LoRA, https://arxiv.org/abs/2106.09685): the model's weights, its base, stay as they are.

Beside a linear module W (out, in) come A (rank, in) and B (out, rank), which alone are trained. The module computes
W x + (alpha / rank) B A x. A is drawn and B is zero, so training begins with what the base computes.

    add_adapters    puts them into a model on the meta device, by peft
    plain_name      what a weight of the base is called without them
    draw_adapter    their first values
    adapters_off    the base, for as long as it lasts
    merge           base and adapters in one matrix
    save_adapter    a folder in peft's form
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from runtimes.train.config import ALL_LINEAR, Lora
from runtimes.train.errors import BadConfig

ADAPTER = "default"  # peft's name of a model's only adapter
A_ENDING, B_ENDING = f".lora_A.{ADAPTER}.weight", f".lora_B.{ADAPTER}.weight"
BASE = ".base_layer."  # what peft puts into the name of a module that has adapters
FOLDER_PREFIX = "base_model.model."  # of every name in a folder of peft's
WEIGHTS_FILE = "adapter_model.safetensors"
SHOWN_MODULES_MAX = 40  # names that a message lists


def add_adapters(model: nn.Module, lora: Lora, dtype: torch.dtype) -> None:
    """Put adapters into a model on the meta device, in place, and freeze all else in `dtype`; they are in float32.

    What is frozen has neither gradient nor moments, and is computed with in `dtype` whatever it is kept in. Raises
    BadConfig for modules that the model has not, or that peft cannot put adapters to.
    """
    from peft import inject_adapter_in_model

    config = make_config(model, lora)
    try:
        with torch.device("meta"):
            inject_adapter_in_model(config, model, adapter_name=ADAPTER)
    except ValueError as error:  # such as a module whose weight its model reads without calling it
        raise BadConfig([f"lora cannot be used with this model: {error!s:.300}"]) from error
    for parameter in model.parameters():
        if not parameter.requires_grad and parameter.is_floating_point():
            parameter.data = parameter.data.to(dtype)


def make_config(model: nn.Module, lora: Lora, *, base: str | None = None) -> Any:
    """peft's configuration, a LoraConfig. `base`: the model's name, id or id@revision, for whoever loads the folder."""
    import peft
    from transformers.pytorch_utils import Conv1D

    chosen = choose_modules(model, lora.targets)
    name, _, revision = (base or "").partition("@")
    make: Any = peft.LoraConfig  # typed there as if alpha were whole
    return make(
        r=lora.rank,
        lora_alpha=int(lora.alpha) if lora.alpha.is_integer() else lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=_shortened(model, chosen),
        fan_in_fan_out=all(isinstance(module, Conv1D) for module in chosen.values()),
        task_type="CAUSAL_LM",
        base_model_name_or_path=name or None,
        revision=revision or None,
    )


def choose_modules(model: nn.Module, targets: Iterable[str]) -> dict[str, nn.Module]:
    """The linear modules that have one of these names or end with it, by name; `all-linear`: each. Never the head.

    Names are compared as texts: none is a pattern. Raises BadConfig that lists what there is.
    """
    from transformers.pytorch_utils import Conv1D

    whole: Any = model  # a transformers model
    head = whole.get_output_embeddings()
    linear = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and module is not head
    }
    chosen: dict[str, nn.Module] = {}
    mistakes = []
    for target in targets:
        found = {name: module for name, module in linear.items() if target == ALL_LINEAR or _ends(name, target)}
        if not found:
            known = list(dict.fromkeys(map(_last_part, linear)))
            listed = ", ".join(known[:SHOWN_MODULES_MAX]) + (", ..." if len(known) > SHOWN_MODULES_MAX else "")
            mistakes.append(
                f"lora.targets names {target!r}, which is no linear module of the model before its head; "
                f"it has {listed or 'none'}"
            )
        chosen |= found
    if mistakes:
        raise BadConfig(mistakes)
    return chosen


def is_adapter(name: str) -> bool:
    """Whether a parameter of this name belongs to an adapter."""
    return name.endswith((A_ENDING, B_ENDING))


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[None]:
    """Within it the model computes what its base does."""
    from peft.tuners.lora import LoraLayer

    layers: list[Any] = [module for module in model.modules() if isinstance(module, LoraLayer)]
    # Not by peft's `enable_adapters`: it also freezes the adapters, which a sharded model must not see.
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


def adapted_modules(names: Iterable[str]) -> set[str]:
    """The modules that have adapters, of a model whose parameters have these names."""
    return {name.removesuffix(A_ENDING) for name in names if name.endswith(A_ENDING)}


def plain_name(name: str, adapted: set[str]) -> str:
    """What the parameter is called in the model without adapters."""
    module, _, rest = name.rpartition(BASE)
    return f"{module}.{rest}" if module in adapted else name


def draw_adapter(name: str, into: torch.Tensor, *, seed: int) -> None:
    """Fill an adapter's matrix as peft does, from its name and the seed alone: the same on any number of ranks."""
    if name.endswith(B_ENDING):
        nn.init.zeros_(into)
        return
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed}/{name}".encode()))
    nn.init.kaiming_uniform_(into, a=math.sqrt(5), generator=generator)


def merge(base: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, lora: Lora, is_transposed: bool) -> torch.Tensor:
    """The matrix that computes what base (out, in), A (rank, in) and B (out, rank) do, in float32.

    `is_transposed`: the base is (in, out), as GPT-2 keeps its own.
    """
    change = (b.float() @ a.float()) * (lora.alpha / lora.rank)
    return base.float() + (change.T if is_transposed else change)


def save_adapter(
    adapters: Mapping[str, torch.Tensor], plain: nn.Module, lora: Lora, folder: Path, *, base: str
) -> None:
    """Write whole adapters, named as in the model with them, as peft does: `PeftModel.from_pretrained` loads it.

    `plain`: the model without adapters, its weights may be on the meta device; `base`: its name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = make_config(plain, lora, base=base)
    config.inference_mode = True  # as peft itself saves one
    config.save_pretrained(str(folder))
    renamed = {
        FOLDER_PREFIX + name.replace(f".{ADAPTER}.weight", ".weight"): tensor.contiguous()
        for name, tensor in adapters.items()
    }
    save_file(renamed, folder / WEIGHTS_FILE, metadata={"format": "pt"})


def _shortened(model: nn.Module, chosen: Mapping[str, nn.Module]) -> list[str]:
    """Last parts of names, as adapters are published, where no other module ends with one; else whole names."""
    ends = {_last_part(name) for name in chosen}
    matched = {name for name, _ in model.named_modules() if _last_part(name) in ends}
    return sorted(ends if matched == set(chosen) else chosen)


def _ends(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]

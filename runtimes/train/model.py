"""The model: any causal LM of transformers; shipped by name, from a folder of the job's or a provider's, or the hub."""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from runtimes.contract import shipped_model_config, shipped_models
from runtimes.job_files import LINKS_MAX, JobFiles, has_too_many
from runtimes.train.errors import BadData, OutOfMemory

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"  # of weights in several files
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ATTENTIONS = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
MASKED_BY = frozenset({"config", "inputs_embeds", "attention_mask", "past_key_values"})  # as masking_utils names it
EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")  # of a configuration with experts


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from. `folder` is None for a shipped one; `has_weights`: training starts from them.

    `dtype`: what its configuration says that its weights are in, and what the result is kept in; float32 if it is new.
    """

    name: str
    config: Any  # transformers.PretrainedConfig
    folder: Path | None
    has_weights: bool
    dtype: torch.dtype = torch.float32


def find_model(name: str, files: JobFiles) -> ModelSource:
    """The model called `name`; raises BadData that names where it was looked for."""
    from transformers import AutoConfig
    from transformers.utils import logging

    untyped: Any = logging
    untyped.disable_progress_bar()
    untyped.set_verbosity_error()
    if name in shipped_models():
        raw = shipped_model_config(name)
        return ModelSource(name, AutoConfig.for_model(**raw), None, has_weights=False)
    folder = _find_folder(name, files)
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise BadData(f"model {name!r}: {_first_line(error)}") from error
    has_weights = any((folder / file).is_file() for file in (WEIGHTS_FILE, INDEX_FILE))
    # Read here: transformers writes the dtype of whatever is made of a configuration into it.
    dtype = DTYPES.get(str(config.dtype).removeprefix("torch."), torch.float32) if has_weights else torch.float32
    return ModelSource(name, config, folder, has_weights, dtype)


def _find_folder(name: str, files: JobFiles) -> Path:
    """Its folder; one that is not among the job's files is the hub's, one of a shared host folder never."""
    place = files.place_of(name)
    folder = place.path
    is_there = place.holds(folder) and (folder / "config.json").is_file()
    if place.label is None:
        return folder if is_there else _download(name)
    if place.is_outside or not is_there:
        raise BadData(f"model {name!r}: there is no such folder with a config.json in {place.text}")
    if has_too_many(folder):
        raise BadData(f"model {name!r}: its folder in {place.text} has more than {LINKS_MAX} entries")
    if not place.holds_all(folder):
        raise BadData(f"model {name!r} has files that lead out of {place.text}")
    return folder


def build_model(source: ModelSource) -> nn.Module:
    """The model without any weights, on the meta device; weights.py fills it block by block. Raises OutOfMemory."""
    try:
        with torch.device("meta"):
            model: nn.Module = new_model(source)
    except RuntimeError as error:
        if "overflow" in str(error):  # a tensor of more bytes than can be counted
            raise OutOfMemory(f"the model is larger than any memory: {_first_line(error)}") from error
        raise
    return model


def new_model(source: ModelSource, dtype: torch.dtype = torch.float32) -> Any:
    """A transformers model of this configuration, on the default device, with weights drawn at random."""
    from transformers import AutoModelForCausalLM

    make: Any = AutoModelForCausalLM.from_config  # untyped there
    return make(source.config, dtype=dtype, trust_remote_code=False)


def decoder_blocks(model: nn.Module) -> list[nn.Module]:
    """The decoder's blocks: the module list that holds most parameters, in every causal LM of transformers."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        return []
    return list(max(lists, key=lambda blocks: sum(p.numel() for block in blocks for p in block.parameters())))


def can_pack(source: ModelSource) -> bool:
    """Whether the model keeps the conversations of one sequence apart by their positions.

    transformers' attention does; layers that carry a state from token to token do not.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    try:
        kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(source.config)]
    except KeyError:
        return False
    layers = set(getattr(source.config.get_text_config(), "layer_types", None) or ATTENTIONS)
    return (
        "position_ids" in inspect.signature(kind.forward).parameters
        and not getattr(kind, "_is_stateful", False)
        and layers <= ATTENTIONS
        and _masks_by_positions(inspect.getsource(sys.modules[kind.__module__]))
    )


def _masks_by_positions(source: str) -> bool:
    """Whether every mask that a model's module makes is given the positions: some take them and mask without."""
    given: list[set[object]] = []  # the names in each call, and in each table, where some gather what masks take
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            given.append({keyword.arg for keyword in node.keywords})
        elif isinstance(node, ast.Dict):
            given.append({key.value for key in node.keys if isinstance(key, ast.Constant)})
    masks = [names for names in given if names >= MASKED_BY]
    return bool(masks) and all("position_ids" in names for names in masks)


def count_parameters(model: nn.Module) -> int:
    """Parameters of the model, tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def flops_per_token(model: nn.Module, sequence_length: int) -> float | None:
    """Floating-point operations that training on one token takes, forward and backward, recomputation not counted.

    6 N + 12 L H S (https://arxiv.org/abs/2204.02311, appendix B): N weights that are multiplied by, L layers, H the
    width of all attention heads, S tokens a sequence. A frozen weight takes 4: it has no gradient. Tables of embeddings
    are only looked up, unless one is the head.
    None for a model with experts, of which a token sees a few, and for one whose configuration does not say.
    """
    whole: Any = model  # a transformers model, not wrapped yet
    config, head = whole.config.get_text_config(), whole.get_output_embeddings()
    layers, heads, hidden = (
        getattr(config, name, None) for name in ("num_hidden_layers", "num_attention_heads", "hidden_size")
    )
    if any(getattr(config, name, None) for name in EXPERT_KEYS) or not (layers and heads and hidden):
        return None
    tables = {id(part.weight): part.weight for part in model.modules() if isinstance(part, nn.Embedding)}
    tables.pop(id(getattr(head, "weight", None)), None)
    operations = sum(
        (6.0 if parameter.requires_grad else 4.0) * parameter.numel()
        for parameter in model.parameters()
        if id(parameter) not in tables
    )
    width = int(heads * (getattr(config, "head_dim", None) or hidden // heads))
    return operations + 12.0 * int(layers) * width * sequence_length


def _download(name: str) -> Path:
    """The hub's snapshot of `name`, id or id@revision: safetensors and configuration only, nothing that is code."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    repository, _, revision = name.partition("@")
    try:
        return Path(
            snapshot_download(
                repository,
                revision=revision or None,
                allow_patterns=["*.json", "*.safetensors", "*.model", "*.jinja", "merges.txt"],
            )
        )
    except (HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        known = ", ".join(shipped_models())
        raise BadData(
            f"model {name!r} is neither shipped ({known}), nor a folder with a config.json among the job's files, "
            f"nor could it be fetched from the hub: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]

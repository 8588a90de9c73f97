"""The result: a folder that `transformers` loads, with weights as safetensors, configuration and tokenizer."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from runtimes.contract import TOKENIZER_FILE
from runtimes.train.model import ModelSource, exported_dtype, new_model
from runtimes.train.tokenizer import PADDING, TOKENIZER_SETTINGS

EXPORT_FOLDER = "model"
GENERATION_FILE = "generation_config.json"


# What belongs to a tokenizer, and how text is drawn: a model that came with them leaves with them.
KEPT_FILES = (
    TOKENIZER_FILE,
    TOKENIZER_SETTINGS,
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    GENERATION_FILE,
)


def export_model(
    weights: Mapping[str, torch.Tensor], source: ModelSource, tokenizer: Tokenizer, *, end_id: int, output_dir: Path
) -> list[str]:
    """Write the whole weights, named as in the plain model, to output_dir/model; returns the files' names there."""
    import transformers

    hugging_face: Any = transformers  # partly untyped

    folder, dtype = output_dir / EXPORT_FOLDER, exported_dtype(source)
    folder.mkdir(parents=True, exist_ok=True)
    with torch.device("meta"):  # the plain model's class: it knows which weights are tied
        plain = new_model(source, dtype)
    padding_id, config = tokenizer.token_to_id(PADDING), source.config
    ends = {"bos_token_id": end_id, "eos_token_id": end_id, "pad_token_id": padding_id or end_id}
    if source.has_weights:
        ends = {name: getattr(config, name, None) or ends[name] for name in ends}
    plain.generation_config = hugging_face.GenerationConfig(**ends)
    plain.save_pretrained(folder, state_dict={name: _as(dtype, weight) for name, weight in weights.items()})
    if source.folder is None or not (source.folder / TOKENIZER_SETTINGS).is_file():
        end = tokenizer.id_to_token(end_id)
        padding = PADDING if padding_id is not None else end
        hugging_face.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, bos_token=end, eos_token=end, pad_token=padding
        ).save_pretrained(folder)
    for name in KEPT_FILES:
        if source.folder is not None and (source.folder / name).is_file():
            shutil.copyfile(source.folder / name, folder / name)
    return sorted(path.name for path in folder.iterdir())


def _as(dtype: torch.dtype, weight: torch.Tensor) -> torch.Tensor:
    return weight.to(dtype) if weight.is_floating_point() else weight

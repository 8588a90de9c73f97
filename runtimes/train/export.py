"""The result: a folder that `transformers` loads, with weights as safetensors, configuration and tokenizer."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from runtimes.contract import TOKENIZER_FILE, TOKENIZER_SETTINGS_FILE
from runtimes.train.adapters import save_adapter
from runtimes.train.config import Lora
from runtimes.train.data.tokenizer import PADDING
from runtimes.train.errors import BadData
from runtimes.train.model import ModelSource, new_model
from runtimes.train.weights import merged_weights

EXPORT_FOLDER = "model"
SHARD_SIZE = "5GB"  # of one file of weights, as the hub's folders have them
CACHE_FOLDER = "cache"  # below the working directory
ADAPTER_FOLDER = "adapter"
GENERATION_FILE = "generation_config.json"
CHAT_TEMPLATE_FILE = "chat_template.jinja"
KEPT_BYTES_MAX = 256 << 20  # of one such file
# What belongs to a tokenizer, and how text is drawn: a model that came with them leaves with them.
KEPT_FILES = (
    TOKENIZER_FILE,
    TOKENIZER_SETTINGS_FILE,
    "special_tokens_map.json",
    "added_tokens.json",
    CHAT_TEMPLATE_FILE,
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    GENERATION_FILE,
)


def export_model(
    weights: Mapping[str, torch.Tensor],
    source: ModelSource,
    tokenizer: Tokenizer,
    *,
    end_id: int,
    chat_template: str | None,
    output_dir: Path,
) -> list[str]:
    """Write the whole weights, named as in the plain model, to output_dir/model; returns the files' names there."""
    import transformers

    hugging_face: Any = transformers  # partly untyped

    folder = output_dir / EXPORT_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    plain = plain_model(source)  # its class knows which weights are tied
    plain.generation_config = hugging_face.GenerationConfig(**_special_ids(source, tokenizer, end_id))
    state = {name: _as(source.dtype, weight) for name, weight in weights.items()}
    plain.save_pretrained(folder, state_dict=state, max_shard_size=SHARD_SIZE)
    kept = kept_files(source)
    if TOKENIZER_SETTINGS_FILE not in {path.name for path in kept}:
        end = tokenizer.id_to_token(end_id)
        padding = PADDING if tokenizer.token_to_id(PADDING) is not None else end
        hugging_face.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, bos_token=end, eos_token=end, pad_token=padding
        ).save_pretrained(folder)
    for path in kept:
        shutil.copyfile(path, folder / path.name)
    if chat_template is not None:  # goes before whatever the tokenizer's settings say
        (folder / CHAT_TEMPLATE_FILE).write_text(chat_template, encoding="utf-8")
    return sorted(path.name for path in folder.iterdir())


def keep_on_disk(
    weights: Iterable[tuple[list[str], torch.Tensor]], work_dir: Path, *, dtype: torch.dtype | None = None
) -> dict[str, torch.Tensor]:
    """The same tensors in files, by each of their names, one written before the next is taken.

    `dtype`: of those that have fractions; by default their own. The files lose their names at once: their room is free
    again when the tensors are, or when the process is gone.
    """
    folder = work_dir / CACHE_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    kept: dict[str, torch.Tensor] = {}
    for names, weight in weights:
        there = _in_a_file(_as(dtype or weight.dtype, weight), folder)
        kept.update(dict.fromkeys(names, there))
    return kept


def _in_a_file(weight: torch.Tensor, folder: Path) -> torch.Tensor:
    if not weight.numel():
        return weight.cpu()
    with tempfile.NamedTemporaryFile(dir=folder, prefix="weight-") as file:
        # Else a full disk would end the process by a signal, when it writes to what it has mapped.
        os.posix_fallocate(file.fileno(), 0, weight.numel() * weight.element_size())
        there = torch.from_file(file.name, shared=True, size=weight.numel(), dtype=weight.dtype)
    return there.view(weight.shape).copy_(weight)


def plain_model(source: ModelSource) -> Any:
    """The model in the dtype of the result, without any weights."""
    with torch.device("meta"):
        return new_model(source, source.dtype)


def export_adapters(
    adapters: Mapping[str, torch.Tensor], source: ModelSource, lora: Lora, *, output_dir: Path
) -> Iterator[tuple[list[str], torch.Tensor]]:
    """Write whole adapters to output_dir/adapter as peft does; then, one at a time, the weights that have them merged.

    Each with its names in the plain model.
    """
    plain = plain_model(source)
    save_adapter(adapters, plain, lora, output_dir / ADAPTER_FOLDER, base=source.name)
    yield from merged_weights(plain, source, adapters, lora)


def kept_files(source: ModelSource) -> list[Path]:
    """The files that leave with the model as they came: none where its tokenizer was trained here.

    Raises BadData for one that is too large to be of a tokenizer.
    """
    if source.folder is None or not (source.folder / TOKENIZER_FILE).is_file():
        return []
    found = [source.folder / name for name in KEPT_FILES if (source.folder / name).is_file()]
    for path in found:
        if path.stat().st_size > KEPT_BYTES_MAX:
            raise BadData(f"the model's {path.name} has more than {KEPT_BYTES_MAX >> 20} MiB")
    return found


def _special_ids(source: ModelSource, tokenizer: Tokenizer, end_id: int) -> dict[str, int | list[int]]:
    """Which ids begin, end and pad a text: the configuration's where the model came with weights and they are ids."""
    padding_id = tokenizer.token_to_id(PADDING)
    ids: dict[str, int | list[int]] = {"bos_token_id": end_id, "eos_token_id": end_id}
    ids["pad_token_id"] = end_id if padding_id is None else padding_id
    for name in ids if source.has_weights else ():
        said: Any = getattr(source.config, name, None)
        listed = said if isinstance(said, list) else [said]
        if listed and all(type(each) is int and 0 <= each < source.config.vocab_size for each in listed):
            ids[name] = said
    return ids


def _as(dtype: torch.dtype, weight: torch.Tensor) -> torch.Tensor:
    return weight.to(dtype) if weight.is_floating_point() else weight

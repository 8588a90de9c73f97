"""The result: a folder that `transformers` loads, with weights as safetensors, configuration and tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from runtimes.train.model import ModelSource, new_model
from runtimes.train.tokenizer import PADDING

EXPORT_FOLDER = "model"


def export_model(
    weights: Mapping[str, torch.Tensor], source: ModelSource, tokenizer: Tokenizer, *, end_id: int, output_dir: Path
) -> list[str]:
    """Write the whole weights, named as in the plain model, to output_dir/model; returns the files' names there."""
    import transformers

    hugging_face: Any = transformers  # partly untyped

    folder = output_dir / EXPORT_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with torch.device("meta"):  # the plain model's class: it knows which weights are tied
        plain = new_model(source)
    plain.generation_config = hugging_face.GenerationConfig(
        bos_token_id=end_id, eos_token_id=end_id, pad_token_id=tokenizer.token_to_id(PADDING) or end_id
    )
    plain.save_pretrained(folder, state_dict=dict(weights))
    end = tokenizer.id_to_token(end_id)
    padding = PADDING if tokenizer.token_to_id(PADDING) is not None else end
    hugging_face.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=end, eos_token=end, pad_token=padding
    ).save_pretrained(folder)
    return sorted(path.name for path in folder.iterdir())

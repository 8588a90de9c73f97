"""The result: a folder that `transformers` loads, with weights as safetensors, configuration and tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from runtimes.train.model import ModelSource, new_model
from runtimes.train.parallel import Ranks
from runtimes.train.tokenizer import PADDING

EXPORT_FOLDER = "model"


def export_model(
    model: nn.Module, source: ModelSource, tokenizer: Tokenizer, ranks: Ranks, *, end_id: int, output_dir: Path
) -> list[str]:
    """Gather the shards on rank 0, which writes output_dir/model; returns the files' names there, [] on the others."""
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if not ranks.is_leader:
        return []
    import transformers

    hugging_face: Any = transformers  # partly untyped

    folder = output_dir / EXPORT_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with torch.device("meta"):  # the same class without the sharding: it knows which weights are tied
        plain = new_model(source)
    plain.generation_config = hugging_face.GenerationConfig(
        bos_token_id=end_id, eos_token_id=end_id, pad_token_id=tokenizer.token_to_id(PADDING) or end_id
    )
    plain.save_pretrained(folder, state_dict=whole)
    end = tokenizer.id_to_token(end_id)
    padding = PADDING if tokenizer.token_to_id(PADDING) is not None else end
    hugging_face.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=end, eos_token=end, pad_token=padding
    ).save_pretrained(folder)
    return sorted(path.name for path in folder.iterdir())

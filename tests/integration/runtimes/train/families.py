"""Models as the hub has them, made small: what sets each family's folders apart."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import processors
from transformers import AutoConfig, AutoModelForCausalLM

from tests.integration.runtimes.serve.replicas import make_tokenizer

SHAPE = {
    "vocab_size": 520,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
}
LLAMA_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
    "{{ message['content'] }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Family:
    """What sets a family's folders apart. The names of tokens are ids where `ends` and `end` say so."""

    kind: str  # transformers' model_type
    tokens: tuple[str, ...]  # special ones, numbered from 512
    end: str  # the tokenizer's
    ends: tuple[str, ...]  # of an answer, by the model's configuration: one, or a list
    settings: dict[str, Any]  # of the tokenizer
    dtype: torch.dtype = torch.bfloat16
    begin: str = ""  # put before each text by the tokenizer itself
    template: str = ""  # in a file of its own
    engine: str = "souk"  # that serves it
    generation: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)


FAMILIES = {
    "llama-3": Family(
        kind="llama",
        tokens=("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        begin="<|begin_of_text|>",
        end="<|eot_id|>",
        ends=("<|end_of_text|>", "<|eot_id|>"),
        settings={"chat_template": LLAMA_TEMPLATE, "bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
        generation={"do_sample": True, "temperature": 0.6, "top_p": 0.9},
        config={"tie_word_embeddings": False},
    ),
    "qwen-2": Family(
        kind="qwen2",
        tokens=("<|im_start|>", "<|im_end|>"),
        end="<|im_end|>",
        ends=("<|im_end|>",),
        settings={"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None},
        template=QWEN_TEMPLATE,
        config={"tie_word_embeddings": True},
    ),
    "mistral": Family(
        kind="mistral",
        tokens=("<s>", "</s>", "[INST]", "[/INST]"),
        begin="<s>",
        end="</s>",
        ends=("</s>",),
        settings={
            "bos_token": {"content": "<s>", "__type": "AddedToken"},
            "eos_token": {"content": "</s>", "__type": "AddedToken"},
            "chat_template": "{{ bos_token }}{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}",
        },
        dtype=torch.float16,
        config={"tie_word_embeddings": False, "sliding_window": 16},
        engine="transformers",
    ),
}


def make_folder(family: Family, folder: Path) -> Path:
    """A model of this family, as its makers publish it."""
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens(list(family.tokens))
    if family.begin:
        first = (family.begin, tokenizer.token_to_id(family.begin))
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{family.begin} $A", special_tokens=[first])
    ends = [tokenizer.token_to_id(token) for token in family.ends]
    config = AutoConfig.for_model(
        family.kind, **SHAPE, **family.config, eos_token_id=ends if len(ends) > 1 else ends[0], bos_token_id=512
    )
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(config).to(family.dtype).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 256} | family.settings
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if family.template:
        (folder / "chat_template.jinja").write_text(family.template)
    generation = {"bos_token_id": 512, "eos_token_id": ends} | family.generation
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder

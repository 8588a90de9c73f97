"""The model that the demo downloads: loaded by transformers, as anybody would."""

from __future__ import annotations

import os
from pathlib import Path


def sample(folder: Path) -> str:
    """A few words of the model that was trained."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    prompt = tokenizer("The ", return_tensors="pt").input_ids
    tokens = model.generate(prompt, max_new_tokens=60, do_sample=True, top_k=40, pad_token_id=0)
    return str(tokenizer.decode(tokens[0], skip_special_tokens=True))


def greedy(folder: Path, prompt: str, tokens: int) -> str:
    """How the downloaded model goes on after a prompt when it always takes the likeliest token."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    whole = model.generate(ids, max_new_tokens=tokens, do_sample=False, pad_token_id=0)
    return str(tokenizer.decode(whole[0][ids.shape[1] :], skip_special_tokens=True))

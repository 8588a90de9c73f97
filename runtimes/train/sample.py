"""Sampled text: every rank draws the same tokens, because each pass gathers the shards of all."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer
from torch import nn

from runtimes.train.parallel import Ranks

SAMPLED_TOKENS = 48
TEMPERATURE = 0.8
TOP_K = 50


@torch.no_grad()
def sample_text(
    model: nn.Module, tokenizer: Tokenizer, ranks: Ranks, *, prompt: str, end_id: int, context: int, seed: int
) -> str:
    """Text that follows `prompt`, without it; decided by weights and `seed`. `context`: tokens the model takes."""
    generator = torch.Generator().manual_seed(seed)
    ids = (tokenizer.encode(prompt).ids or [end_id])[-max(1, context - SAMPLED_TOKENS) :]
    drawn: list[int] = []
    fed, cache = torch.tensor([ids], device=ranks.device), None  # (1, n)
    model.eval()
    for _ in range(min(SAMPLED_TOKENS, max(1, context - len(ids)))):
        output = model(input_ids=fed, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        logits = output.logits[0, -1].float().cpu() / TEMPERATURE  # (V,)
        best, where = logits.topk(min(TOP_K, len(logits)))
        token = int(where[torch.multinomial(best.softmax(0), 1, generator=generator)])
        if token == end_id:
            break
        drawn.append(token)
        fed = torch.tensor([[token]], device=ranks.device)
    model.train()
    return str(tokenizer.decode(drawn))

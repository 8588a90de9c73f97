"""How many floating-point operations a training takes: by its model's configuration, for each token.

Training a transformer costs 6 N + 12 L H Q T operations a token (PaLM, arXiv:2204.02311, appendix B; the first term is
Kaplan et al., arXiv:2001.08361, section 2.1): N the parameters that multiply activations, L layers, H heads of size Q,
T the sequence. The embedding of the input is a table look-up and not counted; the head is, also where it is tied.
Causal masking would halve the second term; the formula leaves it whole, as its authors do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flops_per_token(config: Mapping[str, Any], *, sequence_length: int) -> float:
    """Operations to train one token, forward and backward."""
    heads = int(config["num_attention_heads"])
    attention = 12 * int(config["num_hidden_layers"]) * heads * head_size(config) * sequence_length
    return float(6 * multiplied_parameters(config) + attention)


def multiplied_parameters(config: Mapping[str, Any]) -> int:
    """Parameters that every token is multiplied with: all but the input embedding, where the head has its own."""
    embedding = int(config["vocab_size"]) * int(config["hidden_size"])
    return parameters(config) - (0 if config.get("tie_word_embeddings") else embedding)


def parameters(config: Mapping[str, Any]) -> int:
    """Parameters of a Llama-shaped model, exactly: `transformers` counts the same."""
    hidden, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
    heads, size = int(config["num_attention_heads"]), head_size(config)
    shared_heads = int(config.get("num_key_value_heads") or heads)
    inner = int(config["intermediate_size"])
    attention = 2 * hidden * heads * size + 2 * hidden * shared_heads * size
    if config.get("attention_bias"):
        attention += heads * size + 2 * shared_heads * size + hidden
    feed_forward = 3 * hidden * inner + ((2 * inner + hidden) if config.get("mlp_bias") else 0)
    embedding = int(config["vocab_size"]) * hidden
    head = 0 if config.get("tie_word_embeddings") else embedding
    return embedding + layers * (attention + feed_forward + 2 * hidden) + hidden + head


def head_size(config: Mapping[str, Any]) -> int:
    """Size of one attention head; the hidden size is shared between them where none is given."""
    given = config.get("head_dim")
    return int(given) if given else int(config["hidden_size"]) // int(config["num_attention_heads"])

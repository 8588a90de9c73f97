"""From a model's config.json to its shape. One function a family of models, in the table at the end.

Whoever wrote the file may be a stranger: every number is bounded, and what is not understood is refused, not guessed.
Defaults are those of the transformers that the runtime has (a test compares the parameters of both).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from runtimes.shapes.shape import Experts, Linear, ModelMistake, ModelShape, UnknownModel

HIDDEN_MAX = 1 << 17
INNER_MAX = 1 << 20
LAYERS_MAX = 1024
HEADS_MAX = 4096
HEAD_SIZE_MAX = 4096
VOCABULARY_MAX = 1 << 22
LENGTH_MAX = 1 << 26
EXPERTS_MAX = 4096
SHOWN_CHARACTERS_MAX = 60


def read_shape(config: object) -> ModelShape:
    """The shape of the model that a config.json describes. `config`: the file's content, a mapping.

    Raises ModelMistake for a number that is missing or out of its bounds; UnknownModel for a `model_type` that is not
    in FAMILIES, and for what changes a known one so that nothing is known of it any more.
    """
    if not isinstance(config, Mapping):
        raise ModelMistake("config.json must hold a mapping, as transformers writes it")
    name = config.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise UnknownModel(f"nothing is known here of models of the type {_shown(name)}; known: {', '.join(FAMILIES)}")
    if config.get("quantization_config"):
        raise UnknownModel("the model is quantised, and what it takes then is not known here")
    return FAMILIES[name](_Keys(config), name)


class _Keys:
    """A stranger's mapping, read within bounds."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def whole(self, key: str, most: int, default: int | None = None, *, least: int = 1) -> int:
        """A whole number from `least` to `most`; without a default the key must be there."""
        value = self._config.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ModelMistake(f"config.json: {key} must be a whole number from {least} to {most}, got {_shown(value)}")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self._config.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise ModelMistake(f"config.json: {key} must be true or false, got {_shown(value)}")
        return value

    def share(self, key: str, default: float = 0.0) -> float:
        """A number from 0 to 1."""
        value = self._config.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ModelMistake(f"config.json: {key} must be a number from 0 to 1, got {_shown(value)}")
        return float(value)

    def word(self, key: str, default: str) -> str:
        """A short text."""
        value = self._config.get(key)
        value = default if value is None else value
        if not isinstance(value, str) or len(value) > SHOWN_CHARACTERS_MAX:
            raise ModelMistake(f"config.json: {key} must be a word, got {_shown(value)}")
        return value

    def has(self, key: str, *, default: bool = False) -> bool:
        """Whether the key has any value but null, false, 0 and nothing; the default where it is not there."""
        return bool(self._config.get(key, default))

    def get(self, key: str) -> Any:
        """The value as it is, for a comparison."""
        return self._config.get(key)


def _llama_like(
    keys: _Keys,
    family: str,
    *,
    shared_heads: int | None = None,
    head_size: int | None = None,
    is_tied: bool = False,
    bias_of_queries: bool | None = None,
    norm: str = "rms",
    norms_per_block: int = 2,
    has_head_norms: bool = False,
    activation: str = "silu",
    experts: Callable[[_Keys], Experts] | None = None,
    caps: bool = False,
) -> ModelShape:
    """Gated feed-forward, rotary positions, norms without a bias. Arguments are the family's defaults.

    `bias_of_queries`: that queries, keys and values have a bias, whatever the configuration says; None: it says.
    `caps`: scores and logits are capped, unless the configuration says null.
    """
    hidden = keys.whole("hidden_size", HIDDEN_MAX)
    heads = keys.whole("num_attention_heads", HEADS_MAX)
    shared = keys.whole("num_key_value_heads", HEADS_MAX, shared_heads or heads)
    size = keys.whole("head_dim", HEAD_SIZE_MAX, head_size or max(1, hidden // heads))
    if heads % shared:
        raise ModelMistake(f"config.json: {heads} heads cannot share {shared} heads of keys and values")
    inner = keys.whole("intermediate_size", INNER_MAX)
    says = keys.flag("attention_bias", default=False) if bias_of_queries is None else False
    of_queries = says if bias_of_queries is None else bias_of_queries
    of_feed = keys.flag("mlp_bias", default=False) if family == "llama" else False
    linears = [
        Linear("self_attn.q_proj", hidden, heads * size, of_queries),
        Linear("self_attn.k_proj", hidden, shared * size, of_queries),
        Linear("self_attn.v_proj", hidden, shared * size, of_queries),
        Linear("self_attn.o_proj", heads * size, hidden, says),
    ]
    mixture = experts(keys) if experts else None
    if mixture is None:
        linears += [
            Linear("mlp.gate_proj", hidden, inner, of_feed),
            Linear("mlp.up_proj", hidden, inner, of_feed),
            Linear("mlp.down_proj", inner, hidden, of_feed),
        ]
    return ModelShape(
        family=family,
        hidden=hidden,
        layers=keys.whole("num_hidden_layers", LAYERS_MAX),
        heads=heads,
        shared_heads=shared,
        head_size=size,
        inner=inner,
        vocabulary=keys.whole("vocab_size", VOCABULARY_MAX),
        linears=tuple(linears),
        norms=norms_per_block * hidden + (2 * size if has_head_norms else 0),
        final_norm=hidden,
        is_tied=keys.flag("tie_word_embeddings", default=is_tied),
        length_max=_length_max(keys, "max_position_embeddings"),
        experts=mixture,
        norm=norm,
        norms_per_block=norms_per_block,
        has_head_norms=has_head_norms,
        activation=activation,
        attention_dropout=keys.share("attention_dropout"),
        caps_scores=caps and keys.has("attn_logit_softcapping", default=True),
        caps_logits=caps and keys.has("final_logit_softcapping", default=True),
    )


def _llama(keys: _Keys, family: str) -> ModelShape:
    return _llama_like(keys, family)


def _mistral(keys: _Keys, family: str) -> ModelShape:
    return _llama_like(keys, family, shared_heads=8, bias_of_queries=False)


def _qwen2(keys: _Keys, family: str) -> ModelShape:
    return _llama_like(keys, family, shared_heads=32, bias_of_queries=True)


def _qwen3(keys: _Keys, family: str) -> ModelShape:
    return _llama_like(keys, family, shared_heads=32, head_size=128, has_head_norms=True)


def _gemma(keys: _Keys, family: str) -> ModelShape:
    return _llama_like(keys, family, shared_heads=16, head_size=256, is_tied=True, norm="gemma", activation="gelu")


def _gemma2(keys: _Keys, family: str) -> ModelShape:
    known: dict[str, Any] = {"shared_heads": 4, "head_size": 256, "is_tied": True, "norm": "gemma"}
    return _llama_like(keys, family, norms_per_block=4, activation="gelu", caps=True, **known)


def _gemma3(keys: _Keys, family: str) -> ModelShape:
    known: dict[str, Any] = {"shared_heads": 4, "head_size": 256, "is_tied": True, "norm": "gemma"}
    return _llama_like(keys, family, norms_per_block=4, activation="gelu", has_head_norms=True, **known)


def _mixtral(keys: _Keys, family: str) -> ModelShape:
    def experts(keys: _Keys) -> Experts:
        count = keys.whole("num_local_experts", EXPERTS_MAX, 8)
        per_token = keys.whole("num_experts_per_tok", count, 2)
        return Experts(count, per_token, keys.whole("intermediate_size", INNER_MAX))

    return _llama_like(keys, family, shared_heads=8, bias_of_queries=False, experts=experts)


def _qwen3_moe(keys: _Keys, family: str) -> ModelShape:
    if keys.has("mlp_only_layers") or keys.get("decoder_sparse_step") not in (None, 1):
        raise UnknownModel("the model has blocks with experts and blocks without, which is not reckoned here")

    def experts(keys: _Keys) -> Experts:
        count = keys.whole("num_experts", EXPERTS_MAX, 128)
        per_token = keys.whole("num_experts_per_tok", count, 8)
        return Experts(count, per_token, keys.whole("moe_intermediate_size", INNER_MAX, 768))

    return _llama_like(keys, family, shared_heads=4, has_head_norms=True, experts=experts)


def _phi3(keys: _Keys, family: str) -> ModelShape:
    plain = _llama_like(keys, family, bias_of_queries=False)
    width, shared = plain.heads * plain.head_size, plain.shared_heads * plain.head_size
    linears = (
        Linear("self_attn.o_proj", width, plain.hidden),
        Linear("self_attn.qkv_proj", plain.hidden, width + 2 * shared),
        Linear("mlp.gate_up_proj", plain.hidden, 2 * plain.inner),
        Linear("mlp.down_proj", plain.inner, plain.hidden),
    )
    return replace(plain, linears=linears, is_fused=True, dropout=keys.share("resid_pdrop"))


def _gpt2(keys: _Keys, family: str) -> ModelShape:
    hidden, heads = keys.whole("n_embd", HIDDEN_MAX), keys.whole("n_head", HEADS_MAX)
    inner = keys.whole("n_inner", INNER_MAX, 4 * hidden)
    positions = keys.whole("n_positions", LENGTH_MAX, 1024)
    if keys.has("add_cross_attention"):
        raise UnknownModel("the model reads another one's states (add_cross_attention), which is not reckoned here")
    return ModelShape(
        family=family,
        hidden=hidden,
        layers=keys.whole("n_layer", LAYERS_MAX),
        heads=heads,
        shared_heads=heads,
        head_size=max(1, hidden // heads),
        inner=inner,
        vocabulary=keys.whole("vocab_size", VOCABULARY_MAX),
        linears=(
            Linear("attn.c_attn", hidden, 3 * hidden, has_bias=True),
            Linear("attn.c_proj", hidden, hidden, has_bias=True),
            Linear("mlp.c_fc", hidden, inner, has_bias=True),
            Linear("mlp.c_proj", inner, hidden, has_bias=True),
        ),
        norms=4 * hidden,
        final_norm=2 * hidden,
        is_tied=keys.flag("tie_word_embeddings", default=True),
        positions=positions,
        length_max=positions,
        norm="layer",
        activation=keys.word("activation_function", "gelu_new"),
        is_gated=False,
        is_fused=True,
        dropout=keys.share("resid_pdrop", 0.1),
        attention_dropout=keys.share("attn_pdrop", 0.1),
    )


def _gpt_neox(keys: _Keys, family: str) -> ModelShape:
    hidden, heads = keys.whole("hidden_size", HIDDEN_MAX), keys.whole("num_attention_heads", HEADS_MAX)
    inner, has_bias = keys.whole("intermediate_size", INNER_MAX), keys.flag("attention_bias", default=True)
    return ModelShape(
        family=family,
        hidden=hidden,
        layers=keys.whole("num_hidden_layers", LAYERS_MAX),
        heads=heads,
        shared_heads=heads,
        head_size=max(1, hidden // heads),
        inner=inner,
        vocabulary=keys.whole("vocab_size", VOCABULARY_MAX),
        linears=(
            Linear("attention.query_key_value", hidden, 3 * hidden, has_bias),
            Linear("attention.dense", hidden, hidden, has_bias),
            Linear("mlp.dense_h_to_4h", hidden, inner, has_bias=True),
            Linear("mlp.dense_4h_to_h", inner, hidden, has_bias=True),
        ),
        norms=4 * hidden,
        final_norm=2 * hidden,
        is_tied=keys.flag("tie_word_embeddings", default=False),
        length_max=_length_max(keys, "max_position_embeddings"),
        norm="layer",
        activation=keys.word("hidden_act", "gelu"),
        is_gated=False,
        is_fused=True,
        is_parallel=keys.flag("use_parallel_residual", default=True),
        dropout=keys.share("hidden_dropout"),
        attention_dropout=keys.share("attention_dropout"),
    )


def _length_max(keys: _Keys, key: str) -> int | None:
    return keys.whole(key, LENGTH_MAX) if keys.get(key) is not None else None


def _shown(value: object) -> str:
    text = repr(value)[: SHOWN_CHARACTERS_MAX + 1]
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 3] + "..."


FAMILIES: dict[str, Callable[[_Keys, str], ModelShape]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "phi3": _phi3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
}


def keys_that_count(model_config: Mapping[str, Any]) -> dict[str, Any]:
    """What of a config.json decides its shape: the keys that `read_shape` looks at, as far as they hold plain values.

    `read_shape` of the result is the same. Empty for a model that it does not know: nothing can be reckoned of it.
    """
    seen = _Seen(model_config)
    try:
        read_shape(seen)
    except ModelMistake:
        return {}
    plain = {key: value for key, value in seen.found.items() if value is None or isinstance(value, int | float | str)}
    return dict(sorted(plain.items()))


class _Seen(Mapping[str, Any]):
    """A mapping that remembers which of its keys were read."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content, self.found = content, dict[str, Any]()

    def __getitem__(self, key: str) -> Any:
        self.found[key] = self._content[key]
        return self.found[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

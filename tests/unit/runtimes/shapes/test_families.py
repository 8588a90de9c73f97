"""Shapes from configurations, held against what transformers builds without memory."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.setups.training_steps import SHAPES
from runtimes.contract import shipped_model_config
from runtimes.shapes.families import FAMILIES, keys_that_count, read_shape
from runtimes.shapes.shape import ModelMistake, UnknownModel, flops_per_token

SMALL: dict[str, Any] = {
    "vocab_size": 384,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
SMALL_GPT2 = {"model_type": "gpt2", "vocab_size": 384, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
REAL: dict[str, tuple[dict[str, Any], int]] = {  # by what their authors publish
    "Llama 3 8B": (
        {
            "model_type": "llama",
            "vocab_size": 128_256,
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
        },
        8_030_261_248,
    ),
    "Qwen3 8B": (
        {
            "model_type": "qwen3",
            "vocab_size": 151_936,
            "hidden_size": 4096,
            "intermediate_size": 12_288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
        },
        8_190_735_360,
    ),
    "Mistral 7B": (
        {
            "model_type": "mistral",
            "vocab_size": 32_000,
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
        },
        7_241_732_096,
    ),
    "GPT-2": (
        {"model_type": "gpt2", "vocab_size": 50_257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024},
        124_439_808,
    ),
    "Pythia 160M": (
        {
            "model_type": "gpt_neox",
            "vocab_size": 50_304,
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
        },
        162_322_944,
    ),
    "Mixtral 8x7B": (
        {
            "model_type": "mixtral",
            "vocab_size": 32_000,
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
        },
        46_702_792_704,
    ),
}
CONFIGS = {
    **{family: {"model_type": family, **SMALL} for family in FAMILIES if family != "gpt2"},
    "gpt2": SMALL_GPT2,
    "shipped": shipped_model_config("tiny-llama"),
    "llama, tied, with biases": {
        **SMALL,
        "model_type": "llama",
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
    },
    "qwen3, a bias": {**SMALL, "model_type": "qwen3", "attention_bias": True, "head_dim": 16},
    "gemma, a head of its own": {**SMALL, "model_type": "gemma", "tie_word_embeddings": False, "head_dim": 16},
    "gpt_neox without biases": {**SMALL, "model_type": "gpt_neox", "attention_bias": False},
    **{name: config for name, (config, _) in REAL.items()},
}


def built(config: dict[str, Any]) -> Any:
    torch: Any = pytest.importorskip("torch")
    transformers: Any = pytest.importorskip("transformers")
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**{**TOKENS, **config}))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_shape_has_the_parameters_that_transformers_builds(name: str) -> None:
    from runtimes.train.model import count_parameters, decoder_blocks

    model, shape = built(CONFIGS[name]), read_shape(CONFIGS[name])
    assert shape.parameters == count_parameters(model)
    assert [count_parameters(block) for block in decoder_blocks(model)] == [shape.block] * shape.layers


@pytest.mark.parametrize("name", REAL)
def test_published_models_have_the_parameters_that_their_authors_say(name: str) -> None:
    config, parameters = REAL[name]
    assert read_shape(config).parameters == parameters


@pytest.mark.parametrize("name", [name for name in CONFIGS if "8x7B" not in name])
def test_adapters_have_the_parameters_that_peft_adds(name: str) -> None:
    pytest.importorskip("peft")
    import torch

    from runtimes.train.adapters import add_adapters
    from runtimes.train.config import Lora

    for targets in (("all-linear",), ("o_proj", "c_proj", "dense")):
        model, shape = built(CONFIGS[name]), read_shape(CONFIGS[name])
        known = [target for target in targets if shape.adapted([target])]
        add_adapters(model, Lora(rank=4, targets=tuple(known)), torch.bfloat16)
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        assert shape.layers * shape.adapter_parameters(4, known) == trained > 0


@pytest.mark.parametrize("name", [name for name in CONFIGS if "moe" not in name and "mix" not in name.lower()])
def test_work_is_what_the_runtime_reckons(name: str) -> None:
    from runtimes.train import model as runtime

    model, shape = built(CONFIGS[name]), read_shape(CONFIGS[name])
    assert flops_per_token(shape, length=64) == pytest.approx(runtime.flops_per_token(model, 64))


def test_of_experts_a_token_is_multiplied_with_those_that_it_is_sent_to() -> None:
    config, _ = REAL["Mixtral 8x7B"]
    active = flops_per_token(read_shape(config), length=1) / 6
    assert active == pytest.approx(12.75e9, rel=0.01)  # 12.9 billion with the embeddings, its authors say


@pytest.mark.parametrize("config", [{}, {"model_type": "mamba"}, {"model_type": None}, {"model_type": ["llama"]}])
def test_an_unknown_type_is_unknown_and_never_guessed(config: dict[str, Any]) -> None:
    with pytest.raises(UnknownModel, match="nothing is known here"):
        read_shape({**SMALL, **config})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", None),
        ("hidden_size", 0),
        ("hidden_size", 1 << 40),
        ("hidden_size", "64"),
        ("hidden_size", True),
        ("hidden_size", 64.5),
        ("num_hidden_layers", -1),
        ("num_key_value_heads", 3),
        ("vocab_size", 10**30),
        ("tie_word_embeddings", "yes"),
        ("attention_dropout", float("nan")),
        ("head_dim", []),
    ],
)
def test_a_number_out_of_its_bounds_is_named(key: str, value: object) -> None:
    with pytest.raises(ModelMistake, match="heads cannot share" if value == 3 else key):
        read_shape({**SMALL, "model_type": "llama", key: value})


@pytest.mark.parametrize("config", [None, [], "llama", 3])
def test_what_is_no_mapping_is_refused(config: object) -> None:
    with pytest.raises(ModelMistake, match="mapping"):
        read_shape(config)


def test_what_is_quantised_or_uneven_is_unknown() -> None:
    with pytest.raises(UnknownModel, match="quantised"):
        read_shape({**SMALL, "model_type": "llama", "quantization_config": {"bits": 4}})
    with pytest.raises(UnknownModel, match="blocks without"):
        read_shape({**SMALL, "model_type": "qwen3_moe", "mlp_only_layers": [1]})


@pytest.mark.parametrize("name", ["1b", "8b"])
def test_the_keys_that_count_give_the_same_shape(name: str) -> None:
    more = {**SHAPES[name], "secret": "of a customer", "mlp_only_layers": [], "attention_dropout": None}
    keys = keys_that_count(more)
    assert read_shape(keys) == read_shape(more) and "secret" not in keys
    assert keys_that_count({"model_type": "unheard of", "hidden_size": 1}) == {}

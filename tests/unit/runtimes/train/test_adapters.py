"""Adapters: the base is what was published, they begin as peft's own, they alone are trained, and peft loads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from runtimes.job_files import JobFiles
from runtimes.train.adapters import ADAPTER, FOLDER_PREFIX, add_adapters, choose_modules, is_adapter
from runtimes.train.config import ADAPTER_RATE, ALL_LINEAR, TARGETS_MAX, Lora, TrainConfig, parse_config, settled
from runtimes.train.errors import BadConfig
from runtimes.train.export import ADAPTER_FOLDER, export_adapters, keep_on_disk
from runtimes.train.model import ModelSource, build_model, count_parameters, decoder_blocks, find_model, flops_per_token
from runtimes.train.optimizer import make_optimizer
from runtimes.train.weights import base_digest, filled_units

SHAPE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": False},
    "qwen2": {"tie_word_embeddings": True},
    "gpt2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128},  # keeps its matrices transposed
    "mixtral": {},  # its files name each expert, the model has them in one tensor
}
IDS = torch.arange(2, 34)[None]
LORA = Lora(rank=4, alpha=10.0)


def published(folder: Path, kind: str = "llama", dtype: torch.dtype = torch.float32) -> ModelSource:
    """A model with weights, saved below `folder` by transformers."""
    torch.manual_seed(3)
    make: Any = AutoModelForCausalLM.from_config
    make(AutoConfig.for_model(kind, **SHAPE | KINDS[kind]), dtype=dtype).save_pretrained(folder / kind)
    return find_model(kind, JobFiles(folder))


def adapted(source: ModelSource, lora: Lora = LORA, *, seed: int = 1, is_resumed: bool = False, **dtype: Any) -> Any:
    """The model with its weights and adapters, as a training makes it."""
    model = build_model(source)
    add_adapters(model, lora, dtype.get("dtype", torch.float32))
    *_, filled = filled_units(model, source, seed=seed, is_resumed=is_resumed)
    return filled


def load(source: ModelSource, dtype: torch.dtype = torch.float32) -> Any:
    """The same by transformers."""
    model: Any = AutoModelForCausalLM.from_pretrained(str(source.folder), dtype=dtype)
    return model.eval()


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    return model.eval()(IDS).logits.float()


def train_a_little(model: nn.Module) -> dict[str, torch.Tensor]:
    """Adapters that change what the model says."""
    torch.manual_seed(5)
    with torch.no_grad():
        return {name: p.normal_(std=0.1).clone() for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_a_filled_model_is_the_one_that_peft_makes_of_the_same_base(tmp_path: Path, kind: str) -> None:
    source = published(tmp_path, kind)
    found = adapted(source)
    settings = LoraConfig(r=4, lora_alpha=10, target_modules=ALL_LINEAR, task_type="CAUSAL_LM")
    wanted = dict(get_peft_model(load(source), settings).named_parameters())
    values = {FOLDER_PREFIX + name: parameter for name, parameter in found.named_parameters()}
    assert values.keys() == wanted.keys()
    assert any(is_adapter(name) for name in values)
    for name, parameter in values.items():
        assert parameter.requires_grad == wanted[name].requires_grad == is_adapter(name)
        assert parameter.shape == wanted[name].shape
        if not is_adapter(name):
            assert torch.equal(parameter, wanted[name]), name
        elif "lora_B" in name:
            assert not bool(parameter.any()), name
        else:  # kaiming with a = sqrt(5) is uniform within 1 / sqrt(in)
            bound = parameter.shape[1] ** -0.5
            for drawn in (parameter.detach(), wanted[name].detach()):
                assert float(drawn.abs().max()) <= bound
                assert float(drawn.std()) == pytest.approx(bound / 3**0.5, rel=0.25)
    assert torch.equal(logits(found), logits(load(source))), "training begins with what the base computes"


def test_adapters_depend_on_the_seed_alone(tmp_path: Path) -> None:
    source = published(tmp_path)
    first, again, other = (dict(adapted(source, seed=seed).named_parameters()) for seed in (1, 1, 2))
    drawn = [name for name in first if "lora_A" in name]
    assert all(torch.equal(first[name], again[name]) for name in drawn)
    assert not any(torch.equal(first[name], other[name]) for name in drawn)
    same_shape = [first[name] for name in drawn if "q_proj" in name]
    assert not torch.equal(same_shape[0], same_shape[1]), "each module has its own"


def test_a_block_comes_with_base_and_adapters_before_the_next_one_is_there(tmp_path: Path) -> None:
    source = published(tmp_path)
    model = build_model(source)
    add_adapters(model, LORA, torch.float32)
    assert all(parameter.is_meta for parameter in model.parameters())
    for number, unit in enumerate(filled_units(model, source, seed=1, is_resumed=False)):
        assert not any(parameter.is_meta for parameter in unit.parameters())
        later = decoder_blocks(model)[number + 1 :]
        assert all(parameter.is_meta for block in later for parameter in block.parameters())
    assert unit is model


def test_a_resumed_model_reads_its_base_and_waits_for_its_adapters(tmp_path: Path) -> None:
    source = published(tmp_path)
    model = adapted(source, is_resumed=True)
    assert not any(bool(p.any()) for name, p in model.named_parameters() if is_adapter(name))
    assert torch.equal(logits(model), logits(load(source)))


def test_optimizer_holds_adapters_alone_in_float32_and_the_base_is_in_the_dtype_of_computing(tmp_path: Path) -> None:
    model = adapted(published(tmp_path), dtype=torch.bfloat16)
    optimizer = make_optimizer(model, TrainConfig(steps=1, learning_rate=1e-3))
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    trained = [parameter for name, parameter in model.named_parameters() if is_adapter(name)]
    assert {id(parameter) for parameter in held} == {id(parameter) for parameter in trained}
    assert {parameter.dtype for parameter in held} == {torch.float32}
    assert {p.dtype for name, p in model.named_parameters() if not is_adapter(name)} == {torch.bfloat16}


def test_frozen_weights_take_two_thirds_of_the_operations(tmp_path: Path) -> None:
    source = published(tmp_path)
    plain, model = build_model(source), build_model(source)
    add_adapters(model, LORA, torch.float32)
    looked_up = 300 * 32
    multiplied, trained = count_parameters(plain) - looked_up, count_parameters(model) - count_parameters(plain)
    whole, part = flops_per_token(plain, 16), flops_per_token(model, 16)
    assert whole is not None and part is not None
    assert whole - part == 2 * multiplied - 6 * trained


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "difference"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)], ids=str)
def test_merged_model_and_folder_of_peft_say_what_was_trained(
    tmp_path: Path, kind: str, dtype: torch.dtype, difference: float
) -> None:
    source = published(tmp_path, kind, dtype)
    model = adapted(source)
    trained = train_a_little(model)
    said = logits(model)
    assert float((said - logits(load(source))).abs().max()) > 0.1
    merged = keep_on_disk(export_adapters(trained, source, LORA, output_dir=tmp_path / "out"), tmp_path)
    assert {weight.dtype for weight in merged.values()} == {dtype}
    by_peft = PeftModel.from_pretrained(load(source), str(tmp_path / "out" / ADAPTER_FOLDER))
    assert float((logits(by_peft) - said).abs().max()) <= 1e-5
    plain = load(source, dtype)
    plain.load_state_dict(merged)
    assert float((logits(plain.float()) - said).abs().max()) <= difference
    assert (merged["lm_head.weight"] is merged.get("model.embed_tokens.weight")) == (kind == "qwen2")


def test_folder_of_peft_names_its_base_and_its_modules(tmp_path: Path) -> None:
    source = published(tmp_path)
    lora = Lora(targets=("q_proj", "mlp.up_proj"), dropout=0.1)
    trained = train_a_little(adapted(source, lora))
    named = ModelSource("org/name@" + "a" * 40, source.config, source.folder, has_weights=True)
    list(export_adapters(trained, named, lora, output_dir=tmp_path / "out"))
    config = json.loads((tmp_path / "out" / ADAPTER_FOLDER / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("org/name", "a" * 40)
    assert sorted(config["target_modules"]) == ["q_proj", "up_proj"]
    assert (config["r"], config["lora_alpha"], config["lora_dropout"]) == (16, 32, 0.1)


def test_modules_are_chosen_by_name_or_by_its_end_and_never_the_head(tmp_path: Path) -> None:
    model = build_model(published(tmp_path))
    assert len(choose_modules(model, ["q_proj", "mlp.up_proj"])) == 6
    assert list(choose_modules(model, ["model.layers.1.self_attn.q_proj"])) == ["model.layers.1.self_attn.q_proj"]
    every = choose_modules(model, [ALL_LINEAR])
    assert len(every) == 21 and "lm_head" not in every


def test_experts_that_are_kept_in_one_tensor_have_no_adapters(tmp_path: Path) -> None:
    model = adapted(published(tmp_path, "mixtral"))
    trained = {name.split(".lora_")[0].rpartition(".")[2] for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {"q_proj", "k_proj", "v_proj", "o_proj"}


def test_an_adapter_in_one_block_is_in_no_other(tmp_path: Path) -> None:
    model = build_model(published(tmp_path))
    add_adapters(model, Lora(targets=("layers.1.self_attn.q_proj",)), torch.float32)
    assert [name for name, p in model.named_parameters() if p.requires_grad] == [
        f"model.layers.1.self_attn.q_proj.lora_{each}.{ADAPTER}.weight" for each in "AB"
    ]


@pytest.mark.parametrize("target", ["q_prj", "lm_head", "mlp", "proj", "layers", "norm", "0"])
def test_an_unknown_module_is_refused_with_those_that_there_are(tmp_path: Path, target: str) -> None:
    model = build_model(published(tmp_path))
    known = "it has q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj$"
    with pytest.raises(BadConfig, match=f"'{target}', which is no linear module .*{known}"):
        add_adapters(model, Lora(targets=("q_proj", target)), torch.float32)


def test_a_model_that_peft_cannot_adapt_is_refused_by_its_words() -> None:
    shape: dict[str, Any] = {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2}
    source = ModelSource("m", AutoConfig.for_model("mamba", **shape), None, has_weights=True)
    with pytest.raises(BadConfig, match=r"cannot be used with this model: .*out_proj"):
        add_adapters(build_model(source), Lora(targets=("out_proj",)), torch.float32)


def test_digest_of_a_base_changes_with_any_weight_and_with_its_configuration(tmp_path: Path) -> None:
    source = published(tmp_path)
    folder = source.folder
    assert folder is not None
    first = base_digest(source)
    assert base_digest(find_model("llama", JobFiles(tmp_path))) == first
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    second = base_digest(source)
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace("128", "64"))
    assert len({first, second, base_digest(source)}) == 3


def test_defaults_of_adapters_and_their_rate() -> None:
    config = parse_config({"model": "org/name", "steps": 1, "lora": {}})
    assert config.lora == Lora(rank=16, alpha=32.0, dropout=0.0, targets=("all-linear",))
    assert settled(config, has_weights=True, is_shipped=False, length_max=None).learning_rate == ADAPTER_RATE
    assert parse_config({"model": "org/name", "steps": 1, "lora": {"targets": "q_proj"}}).lora.targets == ("q_proj",)
    assert parse_config({"steps": 1, "lora": None}).lora is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, "lora has mistakes: the configuration must be a mapping"),
        ({"rank": 0}, "rank must be a whole number from 1 to 1024"),
        ({"rank": 1025}, "rank must be a whole number from 1 to 1024"),
        ({"alpha": 0}, "alpha must be a number above 0"),
        ({"alpha": float("nan")}, "alpha must be a number above 0"),
        ({"dropout": 1}, "dropout must be a number from 0 to 0.99"),
        ({"rnk": 1}, 'unknown key "rnk", did you mean rank'),
        ({"targets": []}, "targets must be all-linear, a module's name or a list"),
        ({"targets": ["x"] * (TARGETS_MAX + 1)}, "targets must be all-linear, a module's name or a list"),
        ({"targets": ["(a+)+$"]}, "targets must hold names of modules only"),
        ({"targets": [".*"]}, "targets must hold names of modules only"),
        ({"targets": ["q_proj\n"]}, "targets must hold names of modules only"),
        ({"targets": ["x" * 201]}, "targets must hold names of modules only"),
        ({"targets": [7]}, "targets must hold names of modules only"),
    ],
    ids=str,
)
def test_settings_out_of_bounds_are_refused(value: Any, message: str) -> None:
    with pytest.raises(BadConfig) as caught:
        parse_config({"model": "org/name", "steps": 1, "lora": value})
    assert message in str(caught.value)


def test_adapters_of_a_model_that_is_shipped_without_weights_are_refused() -> None:
    with pytest.raises(BadConfig, match="lora needs a model with weights, tiny-llama is shipped without"):
        parse_config({"steps": 1, "lora": {}})

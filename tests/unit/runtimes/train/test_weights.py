"""Weights are read or drawn block by block: the same as whole, on any number of ranks, and never silently others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from runtimes.job_files import JobFiles
from runtimes.train.errors import BadData
from runtimes.train.model import INDEX_FILE, WEIGHTS_FILE, ModelSource, build_model, decoder_blocks, find_model
from runtimes.train.weights import filled_units

SHAPE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


def source_of(kind: str = "llama", **changes: Any) -> ModelSource:
    return ModelSource(kind, AutoConfig.for_model(kind, **SHAPE | changes), None, has_weights=False)


def fill(source: ModelSource, *, seed: int = 1, is_resumed: bool = False) -> Any:
    *_, model = filled_units(build_model(source), source, seed=seed, is_resumed=is_resumed)
    return model


def saved(folder: Path, *, shard: str = "100GB", kind: str = "llama", **changes: Any) -> nn.Module:
    model = fill(source_of(kind, **changes))
    model.save_pretrained(folder, max_shard_size=shard)
    return model


def assert_same(found: nn.Module, wanted: nn.Module) -> None:
    torch.testing.assert_close(dict(found.named_parameters()), dict(wanted.named_parameters()), rtol=0, atol=0)
    torch.testing.assert_close(dict(found.named_buffers()), dict(wanted.named_buffers()))


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True}])
@pytest.mark.parametrize("shard", ["100GB", "60KB"])
def test_weights_of_a_folder_are_those_that_transformers_loads(tmp_path: Path, shard: str, changes: Any) -> None:
    saved(tmp_path / "m", shard=shard, **changes)
    assert (tmp_path / "m" / INDEX_FILE).is_file() == (shard == "60KB")
    wanted: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32)
    found = fill(find_model("m", JobFiles(tmp_path)), seed=9)
    assert_same(found, wanted)
    assert (found.lm_head.weight is found.model.embed_tokens.weight) == bool(changes)


def test_packed_experts_are_converted(tmp_path: Path) -> None:
    saved(tmp_path / "m", kind="mixtral")
    names = load_file(tmp_path / "m" / WEIGHTS_FILE)
    assert any(".experts.0." in name for name in names), "the files name each expert, the model has them in one tensor"
    wanted: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32)
    assert_same(fill(find_model("m", JobFiles(tmp_path))), wanted)


def test_new_weights_depend_on_the_seed_alone_and_are_drawn_as_transformers_does() -> None:
    first, again, other = fill(source_of()), fill(source_of()), fill(source_of(), seed=2)
    assert_same(again, first)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)
    blocks: Any = decoder_blocks(first)
    assert not torch.equal(blocks[0].mlp.up_proj.weight, blocks[1].mlp.up_proj.weight), "each block has its own"
    assert float(blocks[0].mlp.up_proj.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
    assert torch.equal(blocks[0].input_layernorm.weight, torch.ones(32))


def test_a_block_is_filled_when_it_comes_and_the_next_one_is_not_there_yet() -> None:
    source = source_of()
    model = build_model(source)
    assert all(parameter.is_meta for parameter in model.parameters())
    for number, unit in enumerate(filled_units(model, source, seed=1, is_resumed=False)):
        assert not any(parameter.is_meta for parameter in unit.parameters())
        later = decoder_blocks(model)[number + 1 :]
        assert all(parameter.is_meta for block in later for parameter in block.parameters())
        unit.to(torch.bfloat16)  # as a strategy changes it: what follows leaves it alone
    assert unit is model
    assert all(parameter.dtype == torch.bfloat16 for parameter in model.parameters())


def test_a_resumed_model_has_its_buffers_and_waits_for_its_weights(tmp_path: Path) -> None:
    wanted = saved(tmp_path / "m")
    found = fill(find_model("m", JobFiles(tmp_path)), is_resumed=True)
    assert not any(bool(parameter.any()) for parameter in found.parameters())
    torch.testing.assert_close(dict(found.named_buffers()), dict(wanted.named_buffers()))


@pytest.mark.parametrize(
    ("kind", "weight"),
    [("gpt2", "transformer.h.0.mlp.c_proj.weight"), ("mamba", "backbone.layers.0.mixer.dt_proj.bias")],
)
def test_modules_that_draw_what_their_children_own_do_so(kind: str, weight: str) -> None:
    """GPT-2 draws its projections smaller by depth, Mamba sets its time steps."""
    shape: dict[str, Any] = {"vocab_size": 300, "hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 4}
    config = AutoConfig.for_model(kind, **shape)
    found = dict(fill(ModelSource(kind, config, None, has_weights=False)).named_parameters())[weight].detach()
    torch.manual_seed(1)
    make: Any = AutoModelForCausalLM.from_config
    wanted = dict(make(config).named_parameters())[weight].detach()
    assert float(found.std()) == pytest.approx(float(wanted.std()), rel=0.2)
    assert float(found.mean()) == pytest.approx(float(wanted.mean()), rel=0.2, abs=0.001)


def test_blocks_that_share_weights_are_refused() -> None:
    source = source_of()
    model: Any = build_model(source)
    first, second, *_ = model.model.layers
    second.mlp.up_proj.weight = first.mlp.up_proj.weight
    with pytest.raises(BadData, match="share weights"):
        list(filled_units(model, source, seed=1, is_resumed=False))


def change(folder: Path, **tensors: torch.Tensor | None) -> None:
    kept = load_file(folder / WEIGHTS_FILE)
    for name, tensor in tensors.items():
        del kept[name]
        if tensor is not None:
            kept[name] = tensor
    save_file(kept, folder / WEIGHTS_FILE, metadata={"format": "pt"})


def spoil(folder: Path) -> None:
    (folder / WEIGHTS_FILE).write_bytes(b"\x10" + bytes(7) + b"{no header......")


def point_out(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS_FILE)
    shutil.move(folder / WEIGHTS_FILE, folder.parent / WEIGHTS_FILE)
    (folder / INDEX_FILE).write_text(json.dumps({"weight_map": dict.fromkeys(weights, f"../{WEIGHTS_FILE}")}))


def name_no_file(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS_FILE)
    (folder / WEIGHTS_FILE).unlink()
    (folder / INDEX_FILE).write_text(json.dumps({"weight_map": dict.fromkeys(weights, "model-1.safetensors")}))


def index(text: str) -> Any:
    def write(folder: Path) -> None:
        (folder / WEIGHTS_FILE).unlink()
        (folder / INDEX_FILE).write_text(text)

    return write


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: change(folder, **{"lm_head.weight": None}), r"lack 1 of its weights: lm_head.weight"),
        (lambda folder: change(folder, **{"lm_head.weight": torch.zeros(7, 32)}), r"has the shape \(7, 32\)"),
        (spoil, "cannot be read"),
        (point_out, "names files out of its folder"),
        (name_no_file, "cannot be read"),
        (index("[]"), "cannot be read"),
        (index('{"weight_map": [1]}'), "names files out of its folder"),
        (index('{"weight_map": {"lm_head.weight": ".."}}'), "names files out of its folder"),
    ],
)
def test_weights_that_are_not_all_there_are_refused(tmp_path: Path, damage: Any, message: str) -> None:
    saved(tmp_path / "m")
    damage(tmp_path / "m")
    with pytest.raises(BadData, match=message):
        fill(find_model("m", JobFiles(tmp_path)))

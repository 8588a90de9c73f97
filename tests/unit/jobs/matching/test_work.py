"""FLOPs from a model's configuration, held against a model that was really built."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.matching.demand_from_spec import demand_of
from jobs.matching.exclusion_reasons import Why
from jobs.matching.fit import _class_reason
from jobs.matching.snapshot import DeviceClass
from jobs.spec import Spec
from jobs.spec.kinds.flops import flops_per_token, multiplied_parameters, parameters
from jobs.spec.kinds.registry import kind_of
from jobs.spec.kinds.train import training_tokens
from runtimes.contract import shipped_model_config
from tests.unit.jobs.pricing.specs import spec_of

LLAMA_3_8B = {
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
}


def work_flops(spec: Spec) -> float | None:
    return kind_of(spec).flops(spec)


def test_llama_3_8b_has_the_parameters_that_its_authors_say() -> None:
    assert parameters(LLAMA_3_8B) == 8_030_261_248
    assert multiplied_parameters(LLAMA_3_8B) == 8_030_261_248 - 128_256 * 4096


def test_the_shipped_model_has_as_many_parameters_as_transformers_builds() -> None:
    transformers: Any = pytest.importorskip("transformers")
    config = shipped_model_config("tiny-llama")
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
    assert parameters(config) == sum(parameter.numel() for parameter in model.parameters())


def test_a_token_costs_six_operations_a_parameter_and_the_attention() -> None:
    assert flops_per_token(LLAMA_3_8B, sequence_length=8192) == pytest.approx(
        6 * (8_030_261_248 - 128_256 * 4096) + 12 * 32 * 32 * 128 * 8192
    )


def test_work_in_steps_and_in_tokens_is_the_same_work() -> None:
    by_steps = spec_of(work={"steps": 10})
    tokens = training_tokens(by_steps)
    assert tokens == 10 * 16 * 128
    assert work_flops(spec_of(work={"tokens": tokens})) == work_flops(by_steps)
    assert work_flops(spec_of(work={"tokens": tokens - 1})) == work_flops(by_steps)  # whole steps


def test_an_own_script_says_what_a_step_costs() -> None:
    own = {"train": None, "command": ["python", "train.py"]}
    assert work_flops(spec_of(work={"steps": 10, "flops_per_step": 1e9}, **own)) == 1e10
    assert work_flops(spec_of(work=None, **own)) is None


def test_a_model_that_is_not_known_here_declares_no_work() -> None:
    assert work_flops(spec_of(train={"model": "some-hub/model"})) is None


def test_a_device_too_small_for_a_shipped_model_is_not_chosen() -> None:
    large = {"model": "tiny-llama", "sequence_length": 512, "global_batch_size": 4096, "micro_batch_size": 4096}
    demand = demand_of(spec_of(train=large))
    assert 40 * 1024 < demand.memory_floor_mib < 200 * 1024
    sizes = (16 * 1024, demand.memory_floor_mib, 1 << 20)
    assert [_class_reason(demand, DeviceClass("gpu", "any", size)) for size in sizes] == [Why.MEMORY, None, None]
    assert demand_of(spec_of(train={"model": "some-hub/model"})).memory_floor_mib == 0


def test_the_floor_of_a_small_training_is_small() -> None:
    assert 0 < demand_of(spec_of()).memory_floor_mib < 200

"""Job files of `kind: eval`: what is taken, what it becomes, and what is refused at the door."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from jobs.spec import SpecErrors, canonical, from_wire, kind_of, parse
from jobs.spec.kinds import eval as section
from runtimes.evaluate import config

GOOD: dict[str, Any] = {
    "kind": "eval",
    "name": "look",
    "budget": {"max_total": "1.00"},
    "files": ["models", "tasks.yaml", "questions.jsonl"],
    "eval": {"models": "models/base", "tasks": "tasks.yaml"},
}


def with_section(**changes: Any) -> dict[str, Any]:
    return GOOD | {"eval": GOOD["eval"] | changes}


def mistakes(body: dict[str, Any]) -> list[str]:
    with pytest.raises(SpecErrors) as refused:
        from_wire(body)
    return [str(error) for error in refused.value.errors]


def test_the_section_and_the_runtime_have_the_same_keys_defaults_and_bounds() -> None:
    fields = section.EvalSection.model_fields
    assert set(fields) == set(config.CHECKS) == {each.name for each in dataclasses.fields(config.Config)}
    spec = from_wire(GOOD)
    made = config.check_config(kind_of(spec).config(spec))
    assert made == config.Config(models=("models/base",), tasks=("tasks.yaml",))
    assert (section.MODELS_MAX, section.TASKS_MAX) == (config.MODELS_MAX, config.TASKS_MAX)
    assert (section.LIMIT_MAX, section.BATCH_MAX) == (config.LIMIT_MAX, config.BATCH_SIZE_MAX)
    assert section.FEWSHOT_MAX == config.FEWSHOT_MAX


def test_a_spec_is_read_back_from_its_canonical_form() -> None:
    spec = from_wire(with_section(models=["models/base", "models/tuned"], limit=10, dtype="bfloat16", map=False))
    assert from_wire(canonical(spec)) == spec
    assert kind_of(spec).dtype(spec) == "bfloat16"
    exact = from_wire(with_section(dtype="float64"))
    assert kind_of(exact).dtype(exact) == "auto", "no node is measured in it"


def test_a_node_needs_the_harness() -> None:
    spec = from_wire(GOOD)
    assert kind_of(spec).runtime_features(spec) == {"eval"}


def test_declared_work_serves_the_quote_and_bounds_no_checkpoint() -> None:
    spec = from_wire(GOOD | {"work": {"steps": 100, "flops_per_step": 1000}})
    assert kind_of(spec).flops(spec) == 100_000
    assert kind_of(spec).steps(spec) is None, "how many requests there are is known when the tasks are read"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"models": []}, "eval.models"),
        ({"models": ["models/a"] * 2}, "eval.models[1]"),
        ({"models": [f"models/{number}" for number in range(9)]}, "eval.models"),
        ({"models": ["models/" + "x" * 300]}, "eval.models[0]"),
        ({"models": "org/name"}, "eval.models"),
        ({"models": "tiny-llama"}, "eval.models"),
        ({"tasks": ["other.yaml"]}, "eval.tasks[0]"),
        ({"limit": 0}, "eval.limit"),
        ({"limit": True}, "eval.limit"),
        ({"batch_size": 1025}, "eval.batch_size"),
        ({"num_fewshot": 101}, "eval.num_fewshot"),
        ({"seed": -1}, "eval.seed"),
        ({"seed": 2**63}, "eval.seed"),
        ({"dtype": "float16"}, "eval.dtype"),
        ({"map": 1}, "eval.map"),
        ({"batchsize": 4}, "eval.batchsize"),
    ],
)
def test_each_key_is_bounded_and_the_mistake_is_named(changes: dict[str, Any], path: str) -> None:
    found = mistakes(with_section(**changes))
    assert len(found) == 1 and found[0].startswith(f"{path}: "), found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eval": None}, "nothing to evaluate"),
        ({"command": "true"}, "command: means nothing for kind: eval"),
        ({"image": "some/image"}, "image: means nothing for kind: eval"),
        ({"train": {}}, "train: means nothing for kind: eval"),
        ({"resources": {"nodes": 2}}, "resources.nodes: is more than 1"),
        ({"work": {"tokens": 5}}, "work.tokens: means nothing for an evaluation"),
        ({"checkpoint": {"path": "results"}}, "checkpoint.path: is given without a command"),
    ],
)
def test_what_means_nothing_for_an_evaluation_is_refused(changes: dict[str, Any], message: str) -> None:
    assert any(message in found for found in mistakes(GOOD | changes))


def test_a_model_of_the_hub_needs_the_internet() -> None:
    assert "network: public" in mistakes(with_section(models="org/name"))[0]
    assert from_wire(with_section(models="org/name") | {"network": "public"}).section is not None


def test_no_task_lies_outside_of_the_job_files_folder() -> None:
    assert "is not a path below the job file's folder" in mistakes(with_section(tasks=["../tasks.yaml"]))[0]


def test_every_mistake_has_its_line() -> None:
    text = "kind: eval\nname: a\nbudget: {max_total: 1}\nfiles: [m, t]\neval:\n  models: m\n  tasks: u\n  limit: 0\n"
    with pytest.raises(SpecErrors) as refused:
        parse(text)
    assert [error.line for error in refused.value.errors] == [7, 8]

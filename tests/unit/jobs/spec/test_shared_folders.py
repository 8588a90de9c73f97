"""Paths in shared host folders: which a job file may name, and what follows from them."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.spec import SpecErrors, from_wire, kind_of
from jobs.spec.following import evaluation_after
from jobs.spec.kinds.shared_folders import FEATURE
from provider_agent.facts import RUNTIME_FEATURES

TRAINING: dict[str, Any] = {
    "kind": "train",
    "name": "learn",
    "budget": {"max_total": 1},
    "work": {"steps": 1},
    "lent": ["corpus", "llms"],
    "train": {"model": "lent/llms/llama", "data": ["lent/corpus/books/*.parquet", "own.jsonl"]},
    "files": ["own.jsonl"],
}
EVALUATION: dict[str, Any] = {
    "kind": "eval",
    "name": "ask",
    "budget": {"max_total": 1},
    "lent": "llms",
    "files": ["tasks.yaml"],
    "eval": {"models": ["lent/llms/llama", "lent/llms/tuned"], "tasks": "tasks.yaml"},
}


def mistakes(body: dict[str, Any]) -> list[str]:
    with pytest.raises(SpecErrors) as refused:
        from_wire(body)
    return [str(error) for error in refused.value.errors]


def training(**changes: Any) -> dict[str, Any]:
    return TRAINING | {"train": TRAINING["train"] | changes}


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        (TRAINING, ["lent/llms/llama", "lent/corpus/books/*.parquet"]),
        (
            training(model="tiny-llama", data="own.jsonl", chat_template="lent/llms/chat.jinja"),
            ["lent/llms/chat.jinja"],
        ),
        (training(model="tiny-llama", data="own.jsonl"), []),
        (EVALUATION, ["lent/llms/llama", "lent/llms/tuned"]),
    ],
)
def test_paths_in_shared_folders_need_an_agent_that_looks_there(body: dict[str, Any], paths: list[str]) -> None:
    spec = from_wire(body)
    assert kind_of(spec).lent_paths(spec) == paths
    assert (FEATURE in kind_of(spec).runtime_features(spec)) == bool(paths)
    assert FEATURE in RUNTIME_FEATURES


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (training(data="lent/other/a.jsonl"), "'other' is not among lent"),
        (training(model="lent/other/llama"), "'other' is not among lent"),
        (training(model="lent/other"), "'other' is not among lent"),
        (training(chat_template="lent/other/a.jinja"), "'other' is not among lent"),
        (training(data="lent/corpus/../../etc"), "leads out of the shared host folder 'corpus'"),
        (TRAINING | {"files": ["own.jsonl", "lent/corpus"]}, "could be among your files and in the shared host folder"),
        (TRAINING | {"inputs": {"lent": {"job": "first"}}}, "could be among your files and in the shared host folder"),
        (EVALUATION | {"lent": ["corpus"]}, "'llms' is not among lent"),
        (EVALUATION | {"eval": {"models": "lent/llms/../x", "tasks": "tasks.yaml"}}, "leads out of"),
    ],
)
def test_a_path_that_lies_in_no_shared_folder_of_the_job_is_refused(body: dict[str, Any], message: str) -> None:
    assert message in mistakes(body)[0]


@pytest.mark.parametrize(
    "body",
    [
        training(model="tiny-llama", data="lent/mine/a.jsonl") | {"files": ["lent/mine"], "lent": []},
        training(model="tiny-llama", data="lent/mine/a.jsonl") | {"files": ["."], "lent": ["corpus"]},
        training(model="lent/mine", data="own.jsonl") | {"network": "public", "lent": []},
    ],
)
def test_an_own_folder_and_an_owner_on_the_hub_may_be_called_lent(body: dict[str, Any]) -> None:
    spec = from_wire(body)
    assert kind_of(spec).lent_paths(spec) == []


def test_an_evaluation_that_follows_is_placed_where_its_base_is_shared_and_needs_no_data() -> None:
    evaluation = {"tasks": "tasks.yaml", "budget": {"max_total": 1}}
    body = TRAINING | {"files": ["own.jsonl", "tasks.yaml"], "evaluation": evaluation | {"compare_with_base": True}}
    followed = evaluation_after(from_wire(body), job="01234567-89ab-cdef-0123-456789abcdef", inputs={})
    assert followed.lent == ["llms"]
    alone = evaluation_after(
        from_wire(body | {"evaluation": evaluation}), job="01234567-89ab-cdef-0123-456789abcdef", inputs={}
    )
    assert alone.lent == []


def test_a_base_in_a_shared_folder_needs_no_commit_and_leaves_no_secret_behind() -> None:
    """Unlike one of the hub, which is fetched again: see `check_fetched_later`."""
    evaluation = {"tasks": "tasks.yaml", "compare_with_base": True, "budget": {"max_total": 1}}
    body = TRAINING | {"files": ["own.jsonl", "tasks.yaml"], "network": "public", "secrets": ["HF_TOKEN"]}
    assert from_wire(body | {"evaluation": evaluation}).evaluation is not None

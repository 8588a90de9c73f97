"""Job files of `kind: eval`: what is taken, what it becomes, and what is refused at the door."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from jobs.spec import SpecErrors, canonical, from_wire, kind_of, parse, spec_hash, task_fields
from jobs.spec.following import evaluation_after
from jobs.spec.kinds import eval as section
from jobs.spec.model import INPUTS_MAX
from provider_agent.facts import RUNTIME_FEATURES
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
    assert (section.MODELS_MAX, task_fields.TASKS_MAX) == (config.MODELS_MAX, config.TASKS_MAX)
    assert (task_fields.LIMIT_MAX, task_fields.BATCH_MAX) == (config.LIMIT_MAX, config.BATCH_SIZE_MAX)
    assert task_fields.FEWSHOT_MAX == config.FEWSHOT_MAX


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


ENDPOINT = {"endpoint": "https://market.example/v1", "model": "mine", "key": "MY_KEY"}


def with_endpoint(**changes: Any) -> dict[str, Any]:
    body = with_section(models=["models/base", ENDPOINT | changes])
    return body | {"network": "public", "secrets": ["MY_KEY"]}


def test_an_endpoint_is_read_back_with_its_defaults_and_is_what_the_runtime_reads() -> None:
    spec = from_wire(with_endpoint(endpoint="https://market.example/v1/"))
    assert from_wire(canonical(spec)) == spec
    made = config.check_config(kind_of(spec).config(spec)).models
    asked = config.Endpoint("https://market.example/v1", "mine", "MY_KEY")
    assert made == ("models/base", asked)
    assert asked.name == "mine at market.example/v1"
    assert config.CONCURRENCY_MAX == section.CONCURRENCY_MAX
    fields = section.EndpointSection.model_fields
    assert set(fields) == set(config.ENDPOINT_CHECKS) == {each.name for each in dataclasses.fields(config.Endpoint)}
    assert {name: fields[name].default for name in ("key", "chat", "concurrency")} == {
        each.name: each.default
        for each in dataclasses.fields(config.Endpoint)
        if each.name not in ("endpoint", "model")
    }


def test_one_endpoint_may_stand_without_brackets() -> None:
    alone = from_wire(with_endpoint() | {"eval": GOOD["eval"] | {"models": ENDPOINT}})
    assert from_wire(with_endpoint() | {"eval": GOOD["eval"] | {"models": [ENDPOINT]}}) == alone


def test_a_node_needs_a_runtime_that_knows_endpoints_and_is_given_their_keys_alone() -> None:
    spec = from_wire(with_endpoint() | {"secrets": ["MY_KEY", "PATH"]})
    assert kind_of(spec).runtime_features(spec) == {"eval", section.ENDPOINTS_FEATURE}
    assert section.ENDPOINTS_FEATURE in RUNTIME_FEATURES
    assert kind_of(spec).runtime_secrets(spec) == {"ENDPOINT_KEY_MY_KEY": "MY_KEY"}
    loader = from_wire(with_endpoint(key="PATH") | {"secrets": ["PATH"]})
    assert kind_of(loader).runtime_secrets(loader) == {"ENDPOINT_KEY_PATH": "PATH"}, "never as PATH itself"
    assert kind_of(from_wire(GOOD)).runtime_secrets(from_wire(GOOD)) == {}


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"endpoint": "http://market.example/v1"}, "endpoint", "the key would cross the network"),
        ({"endpoint": "ftp://market.example/v1"}, "endpoint", "is no address such as"),
        ({"endpoint": "https://me:secret@market.example/v1"}, "endpoint", "a key belongs under secrets"),
        ({"endpoint": "https://market.example/v1?key=abc"}, "endpoint", "a key belongs under secrets"),
        ({"endpoint": "https://market.example:99999/v1"}, "endpoint", "is no address such as"),
        ({"endpoint": "https://a..b/v1"}, "endpoint", "is no address such as"),
        ({"endpoint": "https://market.example/v 1"}, "endpoint", "plain characters"),
        ({"endpoint": "https://169.254.169.254/v1"}, "endpoint", "is no address on the internet"),
        ({"endpoint": "https://[::1]/v1"}, "endpoint", "is no address on the internet"),
        ({"endpoint": "https://localhost:8000/v1"}, "endpoint", "is no address on the internet"),
        ({"endpoint": "https://localhost./v1"}, "endpoint", "is no address on the internet"),
        ({"endpoint": "https://127.1/v1"}, "endpoint", "is no address on the internet"),
        ({"endpoint": "https://2130706433/v1"}, "endpoint", "is no address on the internet"),
        ({"endpoint": "https://0x7f.1/v1"}, "endpoint", "is no address on the internet"),
        ({"endpoint": "https://[::ffff:10.0.0.1]/v1"}, "endpoint", "is no address on the internet"),
        ({"endpoint": "https://h/" + "v" * 300}, "endpoint", "is too long"),
        ({"endpoint": None}, "endpoint", "is not valid"),
        ({"model": ""}, "model", "is too short"),
        ({"model": "a\nb"}, "model", "is not valid"),
        ({"key": "OTHER"}, "key", "'OTHER' is not among secrets"),
        ({"key": "not a name"}, "key", "is not a name of an environment variable"),
        ({"chat": "yes"}, "chat", "is not valid"),
        ({"concurrency": 33}, "concurrency", "is not valid"),
        ({"retries": 3}, "retries", "unknown field"),
    ],
)
def test_what_is_wrong_with_an_endpoint_is_named(changes: dict[str, Any], path: str, message: str) -> None:
    found = mistakes(with_endpoint(**changes))
    assert any(each.startswith(f"eval.models[1].{path}: ") and message in each for each in found), found
    assert not any("secret@" in each or "key=abc" in each for each in found)


def test_an_endpoint_needs_the_internet_and_is_asked_once() -> None:
    (found,) = mistakes(with_endpoint() | {"network": "none"})
    assert found.startswith("eval.models[1].endpoint: is on the internet, and network is none")
    again = ENDPOINT | {"endpoint": "https://market.example/v1/", "key": None}
    (found,) = mistakes(with_endpoint() | {"eval": GOOD["eval"] | {"models": [ENDPOINT, again]}})
    assert found.startswith("eval.models[1]: is asked twice")
    both = [ENDPOINT, ENDPOINT | {"chat": True}]
    assert from_wire(with_endpoint() | {"eval": GOOD["eval"] | {"models": both}}).section is not None


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"models": []}, "eval.models"),
        ({"models": [7]}, "eval.models[0]"),
        ({"models": [{"model": "mine"}]}, "eval.models[0].endpoint"),
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


def test_a_model_may_be_what_an_earlier_job_left() -> None:
    body = with_section(models=["models/base", "tuned/model"]) | {"inputs": {"tuned": {"job": "first"}}}
    assert from_wire(body).inputs["tuned"].job == "first"
    assert "not among files" in mistakes(with_section(models=["models/base", "tuned/model"]))[0]


TRAINING: dict[str, Any] = {
    "kind": "train",
    "name": "t" * 60,
    "resources": {"gpus": 2, "nodes": 4, "kind": "any"},
    "work": {"steps": 10},
    "budget": {"max_total": "2.00", "max_per_gpu_hour": "0.40", "deadline": "1h"},
    "payment": {"asset": "TUSD"},
    "env": {"TOKENIZERS_PARALLELISM": "false"},
    "secrets": ["HF_TOKEN"],
    "files": ["base", "tasks"],
    "inputs": {"earlier": {"job": "first"}},
    "train": {"model": "base", "data": "python-docs"},
    "evaluation": {"tasks": "tasks/one.yaml", "budget": {"max_total": 0.5}},
}
HUB_MODEL = "owner/name@" + "a" * 40
CAP = {"max_total": 1}
TRAINING_ID = "01234567-89ab-cdef-0123-456789abcdef"
EARLIER_ID = "11234567-89ab-cdef-0123-456789abcdef"


def followed(**changes: Any) -> dict[str, Any]:
    return TRAINING | {"evaluation": TRAINING["evaluation"] | changes}


def test_what_follows_a_training_is_read_back_and_changes_no_hash_where_there_is_none() -> None:
    spec = from_wire(followed(limit=3, compare_with_base=True))
    assert from_wire(canonical(spec)) == spec
    assert canonical(spec)["evaluation"]["budget"] == {"max_total": "0.50"}
    bare = from_wire({key: value for key, value in TRAINING.items() if key != "evaluation"})
    assert "evaluation" not in canonical(bare)
    assert len({spec_hash(bare), spec_hash(spec), spec_hash(from_wire(followed()))}) == 3, "a quote is bound to it"


def test_the_evaluation_asks_what_the_training_left_on_one_node_within_its_own_budget() -> None:
    spec = evaluation_after(from_wire(followed(limit=3)), job=TRAINING_ID, inputs={"earlier": {"job": EARLIER_ID}})
    body = canonical(spec)
    assert (spec.kind, spec.name) == ("eval", "t" * 52 + "-evaluation")
    assert (body["eval"]["models"], body["eval"]["tasks"], body["eval"]["limit"]) == (
        ["trained/model"],
        ["tasks/one.yaml"],
        3,
    )
    assert body["budget"] == {"max_total": "0.50", "max_per_gpu_hour": "0.40"}, "the training's deadline is over"
    assert body["inputs"] == {"earlier": {"job": EARLIER_ID}, "trained": {"job": TRAINING_ID}}
    assert (spec.resources.nodes, spec.resources.gpus, spec.resources.kind) == (1, 2, "any")
    assert (spec.payment.asset, spec.env, spec.files) == ("TUSD", TRAINING["env"], ["base", "tasks"])
    assert spec.secrets == [], "they are erased with the training"
    assert spec.evaluation is None


def test_the_base_comes_first_and_an_own_hourly_price_counts() -> None:
    budget = {"max_total": 0.5, "max_per_gpu_hour": 0.2, "deadline": "2h"}
    training = from_wire(followed(compare_with_base=True, budget=budget))
    spec = evaluation_after(training, job=TRAINING_ID, inputs={"earlier": {"job": EARLIER_ID}})
    assert canonical(spec)["eval"]["models"] == ["base", "trained/model"]
    assert (spec.budget.max_per_gpu_hour_usd_micros, spec.budget.deadline_seconds) == (200_000, 7200)
    hub = TRAINING | {"network": "public", "resources": {"kind": "any"}, "train": {"model": HUB_MODEL}}
    del hub["secrets"]
    hub["evaluation"] = {**TRAINING["evaluation"], "compare_with_base": True}
    spec = evaluation_after(from_wire(hub), job=TRAINING_ID, inputs={})
    assert (canonical(spec)["eval"]["models"][0], spec.network) == (HUB_MODEL, "public")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"train": {"model": "owner/name"}}, "may be another one on the hub"),
        ({"train": {"model": "owner/name@main"}}, "may be another one on the hub"),
        ({"secrets": ["HF_TOKEN"]}, "the secrets go with the training"),
    ],
)
def test_a_base_that_cannot_be_fetched_again_is_refused(changes: dict[str, Any], expected: str) -> None:
    hub = followed(compare_with_base=True) | {
        "network": "public",
        "resources": {"kind": "any"},
        "train": {"model": HUB_MODEL},
        "secrets": [],
    }
    (mistake,) = mistakes(hub | changes)
    assert expected in mistake


@pytest.mark.parametrize("job", ["", "Two Words", "x\0y", "n" * 64])
def test_a_name_that_no_job_can_have_is_no_input(job: str) -> None:
    assert "inputs.base.job" in "\n".join(mistakes(followed() | {"inputs": {"base": {"job": job}}}))


def test_every_good_file_leads_to_an_evaluation_that_is_good_too() -> None:
    most = {f"earlier-{index}": {"job": "first"} for index in range(INPUTS_MAX - 1)}
    spec = from_wire(followed(dtype="float64", num_fewshot=0, map=False) | {"inputs": most})
    made = evaluation_after(spec, job=TRAINING_ID, inputs={each: {"job": EARLIER_ID} for each in most})
    assert len(made.inputs) == INPUTS_MAX


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"evaluation": {"budget": CAP}}, "evaluation.tasks: is missing"),
        ({"evaluation": {"tasks": "tasks"}}, "evaluation.budget: is missing"),
        ({"evaluation": {"tasks": "tasks", "budget": {}}}, "evaluation.budget.max_total: is missing"),
        ({"evaluation": True}, "evaluation: true is not valid (expected a mapping with tasks and budget"),
        ({"evaluation": {"tasks": "tasks", "budget": {"max_total": 0}}}, "is not above zero"),
        ({"evaluation": {"tasks": "tasks", "budget": CAP, "models": "base"}}, "unknown field"),
        ({"evaluation": {"tasks": [], "budget": CAP}}, "is too short"),
        ({"evaluation": {"tasks": "other", "budget": CAP}}, "evaluation.tasks: 'other' is not among files"),
        ({"evaluation": {"tasks": ["tasks", "tasks"], "budget": CAP}}, "evaluation.tasks[1]: 'tasks' is named twice"),
        ({"evaluation": {"tasks": "tasks", "limit": 0, "budget": CAP}}, "evaluation.limit: 0 is not valid"),
        ({"evaluation": {"tasks": "tasks", "limit": 2**40, "budget": CAP}}, "from 1 to 1000000"),
        ({"train": None, "command": "python train.py", "work": None}, "where a command leaves its model"),
        ({"kind": "command", "train": None, "command": "python train.py"}, "means nothing for kind: command"),
        ({"kind": "eval", "train": None, "eval": {}}, "evaluation: means nothing for kind: eval"),
        ({"kind": "serve", "train": None}, "evaluation: means nothing for kind: serve"),
        ({"payment": {"asset": "TUSD", "mode": "escrow"}}, "your wallet would have to sign its hold later"),
        ({"files": ["tasks", "trained/model"]}, "files[1]: trained is where the evaluation finds"),
        ({"inputs": {"trained": {"job": "first"}}}, "inputs.trained: is where the evaluation finds"),
        ({"inputs": {f"in-{index}": {"job": "first"} for index in range(INPUTS_MAX)}}, "expected at most 15"),
    ],
)
def test_what_cannot_follow_a_training_is_refused(changes: dict[str, Any], expected: str) -> None:
    assert expected in "\n".join(mistakes(TRAINING | changes))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("tiny-llama", "evaluation.compare_with_base: 'tiny-llama' is shipped without weights"),
        ("owner/name", "so it is fetched from the hub, and network is none"),
        ("trained/model", "could be what the training leaves"),
    ],
)
def test_a_base_that_cannot_be_compared_is_refused(model: str, expected: str) -> None:
    (mistake,) = mistakes(followed(compare_with_base=True) | {"train": {"model": model}})
    assert expected in mistake
    assert from_wire(followed() | {"train": {"model": model}}).evaluation is not None

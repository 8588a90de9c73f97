"""`souk plan` reckons a training before it asks anybody, and what cannot run is refused with what could."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.setups.training_steps import SHAPES
from jobs.client.training_plan import plan_training, with_memory_floor, without_less_memory
from jobs.spec import canonical, from_wire
from jobs.wire import Fix, Plan, QuoteView
from runtimes.plan.memory import Place
from runtimes.plan.step_time import Speed, reckon_step
from runtimes.shapes.families import read_shape
from runtimes.train.config import parse_config
from tests.unit.jobs.client.conftest import Run
from tests.unit.jobs.client.fake_server import FakeMarketplace
from tests.unit.jobs.pricing.specs import spec_of

SETTINGS: dict[str, Any] = {
    "model": "my-model",
    "sequence_length": 2048,
    "global_batch_size": 16,
    "micro_batch_size": 8,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my-model").mkdir()
    (tmp_path / "my-model" / "config.json").write_text(json.dumps(SHAPES["1b"]))
    return tmp_path


def job_in(folder: Path, *, memory: str = "", models: list[str] | None = None, **settings: Any) -> Path:
    resources: dict[str, Any] = {"memory": memory} if memory else {}
    resources |= {"models": models} if models else {}
    job = {
        "kind": "train",
        "name": "tuned",
        "resources": resources,
        "work": {"steps": 10},
        "budget": {"max_total": 2},
        "train": SETTINGS | settings,
        "files": ["my-model"],
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    return folder / "job.yaml"


def test_a_folders_model_is_reckoned_without_a_marketplace(run: Run, folder: Path, market: FakeMarketplace) -> None:
    ended = run("plan", job_in(folder, memory="80GB"), "--offline", "--json")
    training = ended.json["training"]
    assert (ended.status, training["parameters"], training["advice"]["fits"]) == (0, 1_235_814_400, True)
    assert training["memory"]["peak"] == pytest.approx(53.2 * 2**30, rel=0.01)
    assert "Fits a device of 80.0 GB" in run("plan", job_in(folder, memory="80GB"), "--offline").out


def test_the_quote_stands_beside_what_the_training_takes(run: Run, folder: Path) -> None:
    body = run("plan", job_in(folder, memory="80GB"), "--json").json
    assert body["quote_id"] and body["training"]["family"] == "llama"


def test_a_certain_end_of_memory_is_refused_with_what_would_fit(run: Run, folder: Path) -> None:
    for command in ("plan", "launch"):
        ended = run(command, job_in(folder, models=["RTX 4090", "RTX 5090"]))
        assert ended.status == 7
        assert "needs 58.0 GB" in ended.err and "activation_checkpointing: full" in ended.err
    ended = run("plan", job_in(folder, memory="40GB"), "--offline")
    assert ended.status == 0, "it is the least that a device must have: larger ones may fit"
    assert "Does not fit a device of 40.0 GB" in ended.out


def test_each_way_that_is_named_fits(run: Run, folder: Path) -> None:
    ended = run("plan", job_in(folder, models=["A6000"], micro_batch_size=16), "--json")
    nearest = json.loads(ended.out or ended.err)["error"]["details"]["training"]["advice"]["nearest"]
    assert len(nearest) == 3
    for way in nearest:
        changed = job_in(folder, models=["A6000"], **{"micro_batch_size": 16} | way["settings"])
        assert run("plan", changed, "--offline", "--json").json["training"]["advice"]["fits"]


def test_what_the_training_cannot_do_without_is_asked_for(folder: Path) -> None:
    spec = spec_of(train=SETTINGS, resources={}, files=["my-model"])
    plan = plan_training(spec, folder)
    assert plan is not None
    asked = with_memory_floor(spec, plan).resources.memory_mib
    assert asked == plan.floor_bytes >> 20 and 40 << 10 < asked < plan.needed_bytes >> 20
    assert from_wire(canonical(with_memory_floor(spec, plan))).resources.memory_mib == asked
    assert with_memory_floor(spec_of(train=SETTINGS, resources={"memory": "8GB"}), plan).resources.memory_mib == asked
    more = spec_of(train=SETTINGS, resources={"memory": "200GB"})
    assert with_memory_floor(more, plan) is more
    shipped = spec_of()
    assert with_memory_floor(shipped, plan_training(shipped, folder)) is shipped


def test_the_memory_of_named_models_of_devices_counts(folder: Path) -> None:
    for models, expected in ((["RTX 4090", "H100"], 80), (["L4", "MI300X"], None), (["A100"], 80), (["A100 40GB"], 40)):
        plan = plan_training(spec_of(train=SETTINGS, resources={"models": models}, files=["my-model"]), folder)
        assert plan is not None and plan.memory is not None
        assert plan.device_bytes == (None if expected is None else expected * 10**9), "the largest, if all are known"


def test_a_gpu_without_bfloat16_computes_in_float32(folder: Path) -> None:
    peaks = []
    for models in (["T4"], ["L4"]):
        plan = plan_training(spec_of(train=SETTINGS, resources={"models": models}, files=["my-model"]), folder)
        assert plan is not None and plan.memory is not None
        peaks.append(plan.memory.peak)
    assert peaks[0] > 1.2 * peaks[1]


def test_a_model_without_weights_has_the_vocabulary_of_the_settings(run: Run, folder: Path) -> None:
    job = job_in(folder, vocabulary_size=8000)
    small = run("plan", job, "--offline", "--json").json["training"]["parameters"]
    assert small == 1_235_814_400 - (128_256 - 8000) * 2048
    (folder / "my-model" / "model.safetensors").touch()
    assert run("plan", job, "--offline", "--json").json["training"]["parameters"] == 1_235_814_400


def test_a_folder_that_is_not_sent_is_not_read(run: Run, folder: Path) -> None:
    job = job_in(folder)
    job.write_text(job.read_text().replace('"files": ["my-model"]', '"files": ["other"]'))
    (folder / "other").mkdir()
    assert "among the job's files" in " ".join(run("plan", job, "--offline").out.split())


def test_less_memory_is_no_advice_where_the_training_needs_it(
    folder: Path,
) -> None:
    less, cheaper = (Fix(field=field, value="1", nodes=1, message=field) for field in ("resources.memory", "budget"))
    spec = spec_of(train=SETTINGS, resources={}, files=["my-model"])
    sent = with_memory_floor(spec, plan_training(spec, folder))
    made: Any = Plan
    untyped: Any = QuoteView
    quote = untyped.model_construct(plan=made.model_construct(fixes=[less, cheaper]))
    assert without_less_memory(quote, spec, sent).plan.fixes == [cheaper]
    assert without_less_memory(quote, spec, spec).plan.fixes == [less, cheaper]


def test_a_hub_id_that_is_not_at_hand_says_what_to_do(run: Run, folder: Path) -> None:
    job = job_in(folder, model="some/model")
    ended = run("plan", job, "--offline")
    assert ended.status == 0 and "--model-config FILE" in ended.out
    known = run("plan", job, "--offline", "--model-config", folder / "my-model" / "config.json", "--json")
    assert known.json["training"]["parameters"] == 1_235_814_400


@pytest.mark.parametrize("content", ["{", "[]", '{"model_type": "llama", "hidden_size": 1e99}', '{"model_type": "x"}'])
def test_a_named_configuration_that_is_none_is_refused(run: Run, folder: Path, content: str) -> None:
    (folder / "bad.json").write_text(content)
    ended = run("plan", job_in(folder), "--offline", "--model-config", folder / "bad.json")
    assert ended.status == 2 and "bad.json" in ended.err


def test_a_model_is_not_read_out_of_the_job_files_folder(folder: Path) -> None:
    inner = folder / "job"
    inner.mkdir()
    plan = plan_training(spec_of(train=SETTINGS | {"model": "../my-model"}), inner)
    assert plan is not None and "not on this computer" in plan.problem


def test_an_own_program_has_nothing_to_reckon(run: Run, tmp_path: Path) -> None:
    own = {"kind": "train", "name": "own", "budget": {"max_total": 2}, "command": "python x.py"}
    (tmp_path / "own.yaml").write_text(json.dumps(own))
    assert run("plan", tmp_path / "own.yaml", "--offline").status == 2
    assert "training" not in run("plan", tmp_path / "own.yaml", "--json").json


MEASURED = {
    "device_kind": "gpu",
    "device_memory_mib": 81_000,
    "device_flops_per_second": 4e14,
    "device_memory_bytes_per_second": 2e12,
    "device_model": "NVIDIA H100",
}
OFF = {"memory_error": -0.02, "memory_error_size": 0.02, "seconds_error": 0.5, "seconds_error_size": 0.5}


def test_a_step_at_the_chosen_place_takes_what_the_planner_says(
    run: Run, folder: Path, market: FakeMarketplace
) -> None:
    market.plan["candidates"][0] |= MEASURED | {"devices": 1}
    step = run("plan", job_in(folder), "--json").json["step"]
    expected = reckon_step(
        read_shape(SHAPES["1b"]),
        parse_config(SETTINGS | {"steps": 10}),
        Place(memory_bytes=81_000 << 20),
        Speed(4e14, 2e12),
    )
    assert step["step"]["seconds"] == expected.seconds and step["checks"] is None
    assert step["tokens_per_second"] == pytest.approx(16 * 2048 / expected.seconds)
    assert step["total_seconds"] == pytest.approx(10 * expected.seconds)
    out = run("plan", job_in(folder)).out
    assert "On NVIDIA H100 a step takes about" in out and "bound by matrix products" in out


def test_how_far_plans_were_off_stands_beside_the_step(run: Run, folder: Path, market: FakeMarketplace) -> None:
    market.plan["candidates"][0] |= MEASURED
    of_all = {"like": "device", "trainings": 14, "votes": 5, **OFF}
    own = {"like": "kind of device", "trainings": 1, "votes": 1, **OFF, "seconds_error": -0.1}
    market.plan_checks = {"own": own, "all": of_all}
    out = " ".join(run("plan", job_in(folder)).out.split())
    assert "Of 14 trainings by 5 customers and providers on NVIDIA H100" in out
    assert "memory within 2% of the plan, a step 50% more" in out
    assert "Of 1 training of your own on devices of this kind" in out and "a step 10% less" in out
    (asked,) = [each for each in market.asked if each.path.endswith("/plan-checks")]
    assert (asked.query["method"], asked.query["family"], asked.query["is_shared"]) == ("full", "llama", "true")


def test_an_older_marketplace_says_nothing_of_steps(run: Run, folder: Path) -> None:
    ended = run("plan", job_in(folder), "--json")
    assert ended.status == 0 and "step" not in ended.json


def test_a_model_in_a_shared_host_folder_is_planned_by_a_copy_of_its_configuration(run: Run, folder: Path) -> None:
    job = job_in(folder, model="lent/llms/llama")
    job.write_text(job.read_text().replace('"files": ["my-model"]', '"files": ["my-model"], "lent": ["llms"]'))
    ended = run("plan", job, "--offline")
    assert ended.status == 0 and "is in the shared host folder llms" in " ".join(ended.out.split())
    known = run("plan", job, "--offline", "--model-config", folder / "my-model" / "config.json", "--json")
    assert known.json["training"]["parameters"] == 1_235_814_400

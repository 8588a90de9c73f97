"""Evaluations that ask an endpoint: nothing is paid for twice, nothing is asked in vain, and the key stands nowhere."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtimes.contract import ENDPOINT_KEY_PREFIX, Env, ExitCode, complete_checkpoints
from tests.fakes.engine import EngineChild
from tests.fakes.openai_server import Service, fails, serving, trickles
from tests.integration.runtimes.evaluate.worlds import counts, make_model, make_work, written
from tests.integration.runtimes.programs import Work, finish, kill_group, wait_until

pytest.importorskip("lm_eval")

KEY = "sk-0123456789abcdef"
REQUESTS = 46  # 32 choices, 8 sums and 6 texts
SAMPLES = 22
CHECKED = 2  # tiny requests, by which an endpoint shows what it can do


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    make_model(folder / "base", seed=1)
    return folder


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(key=KEY) as found:
        yield found


def endpoint(service: Service, **changes: Any) -> dict[str, Any]:
    return {"endpoint": service.address, "model": "theirs", "key": "MY_KEY"} | changes


def work_of(
    root: Path, models: Path, service: Service, /, *, env: dict[str, str] | None = None, **changes: Any
) -> Work:
    """An evaluation of the endpoint alone, where `changes` name no other models."""
    given = {ENDPOINT_KEY_PREFIX + "MY_KEY": KEY} | (env or {})
    return make_work(root, models, env=given, **{"models": endpoint(service, concurrency=1), "batch_size": 1} | changes)


def texts_of(work: Work) -> dict[str, str]:
    """Everything that it left, by its path."""
    return {str(path): path.read_text(errors="replace") for path in work.root.rglob("*") if path.is_file()}


def test_an_endpoint_is_compared_with_a_folder_and_said_to_be_one(
    models: Path, service: Service, tmp_path: Path
) -> None:
    service.seconds = 0.02
    work = work_of(tmp_path / "work", models, service, models=[endpoint(service), "base"], batch_size=8)
    code, output = work.run()
    assert code == 0, output
    assert counts(work) == (2 * REQUESTS + SAMPLES, 0)
    assert len(service.asked) == REQUESTS + CHECKED
    assert {each["authorization"] for each in service.asked} == {f"Bearer {KEY}"}
    assert service.at_once_max > 1
    folder = work.root / "output"
    theirs, base = json.loads((folder / "results.json").read_text())["models"]
    assert theirs["name"] == f"theirs at {service.address.removeprefix('http://')}"
    assert theirs["endpoint"] == {"address": service.address, "model": "theirs", "chat": False}
    assert (theirs["parameters"], theirs["is_reproducible"]) == (None, False)
    assert base["parameters"] > 0 and not {"endpoint", "is_reproducible"} & base.keys()
    assert theirs["metrics"].keys() == base["metrics"].keys() == {"capitals", "sums", "proverbs"}
    page = (folder / "report.html").read_text()
    assert page.count("<circle") == SAMPLES and "near ones look alike to base " in page
    assert "Answers of an endpoint: theirs at " in page
    assert not [path for path, text in texts_of(work).items() if KEY in text] and KEY not in output


def test_a_killed_evaluation_asks_for_no_kept_answer_again(models: Path, service: Service, tmp_path: Path) -> None:
    every = {Env.CHECKPOINT_EVERY_STEPS.value: "5"}
    service.faults.extend([None] * (17 + CHECKED) + [trickles] * REQUESTS)
    killed = work_of(tmp_path / "killed", models, service, env=every)
    process = killed.start()
    wait_until(lambda: len(killed.events("checkpointed")) >= 3, process)
    kill_group(process)
    checkpoint = complete_checkpoints(killed.checkpoints)[-1]
    saved = len((checkpoint / "answers.jsonl").read_text().splitlines())
    assert saved == 15
    service.faults.clear()
    service.asked.clear()
    resumed = work_of(tmp_path / "resumed", models, service, env={Env.RESUME_FROM.value: str(checkpoint)})
    code, output = resumed.run()
    assert code == 0, output
    assert counts(resumed) == (REQUESTS - saved, saved)
    prompts = [each["prompt"] for each in service.asked if each["prompt"] != "One two"]
    assert len(prompts) == REQUESTS - saved
    # With every answer kept, nobody is asked anything, and the files are the same.
    service.asked.clear()
    code, output = resumed.run()
    assert code == 0, output
    assert (counts(resumed), service.asked) == ((0, REQUESTS), [])
    whole = work_of(tmp_path / "whole", models, service)
    assert whole.run()[0] == 0
    assert written(whole) == written(resumed)


def test_an_endpoint_that_stalls_does_not_hold_up_the_end(models: Path, service: Service, tmp_path: Path) -> None:
    service.faults.extend([None] * (12 + CHECKED) + [trickles] * REQUESTS)
    work = work_of(tmp_path / "work", models, service)
    process = work.start()
    wait_until(lambda: len(service.asked) > 12 + CHECKED, process)
    began = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    code, output = finish(process)
    assert code == ExitCode.STOPPED, output
    assert time.monotonic() - began < 25, "the grace is 30 s, a request may take 600"
    (checkpoint,) = complete_checkpoints(work.checkpoints)
    assert len((checkpoint / "answers.jsonl").read_text().splitlines()) == 12
    service.faults.clear()
    code, output = work.run()
    assert code == 0, output
    assert counts(work) == (REQUESTS - 12, 12)


def test_what_was_answered_before_an_endpoint_refuses_is_saved(models: Path, service: Service, tmp_path: Path) -> None:
    service.faults.extend([None] * (12 + CHECKED) + [fails(400, f"no more for {KEY}")])
    work = work_of(tmp_path / "work", models, service)
    code, output = work.run()
    assert code == ExitCode.BAD_DATA, output
    (failed,) = work.events("failed")
    assert failed["message"].endswith("refuses the request (status 400): no more for [key]")
    (checkpoint,) = complete_checkpoints(work.checkpoints)
    assert len((checkpoint / "answers.jsonl").read_text().splitlines()) == 12
    assert not [path for path, text in texts_of(work).items() if KEY in text] and KEY not in output


def test_what_an_endpoint_cannot_is_refused_before_anything_is_computed(
    models: Path, service: Service, tmp_path: Path
) -> None:
    service.has_echo = False
    work = work_of(tmp_path / "work", models, service, models=["base", endpoint(service)])
    code, output = work.run()
    assert code == ExitCode.BAD_DATA, output
    assert "need log-likelihoods of given texts" in work.events("failed")[0]["message"]
    assert (len(service.asked), work.events("step")) == (1, [])
    assert len(work.events("started")) == 1, "a node is paid from here on, as an endpoint may let it wait"


@pytest.mark.soak  # our own server, and one more evaluation
def test_what_we_serve_ourselves_is_asked_as_any_other(models: Path, tmp_path: Path) -> None:
    engine = EngineChild()
    try:
        served = {"endpoint": engine.base_url, "model": "fake"}
        for chat in (False, True):
            ours = [served | {"chat": chat}]
            work = make_work(tmp_path / f"chat-{chat}", models, models=ours, tasks="tasks/generation.yaml")
            code, output = work.run()
            assert code == 0, output
            assert counts(work) == (8, 0)
        refused = make_work(tmp_path / "choices", models, models=served, tasks="tasks/choice.yaml")
        code, output = refused.run()
        assert code == ExitCode.BAD_DATA, output
        assert "need log-likelihoods of given texts" in refused.events("failed")[0]["message"]
    finally:
        engine.kill()


def test_a_folder_behind_an_endpoint_has_the_folders_scores(models: Path, tmp_path: Path) -> None:
    """The same weights, once computed by us and once asked for over HTTP."""
    with serving(score=scorer_of(models / "base")) as service:
        both = ["base", {"endpoint": service.address, "model": "theirs"}]
        tasks = ["tasks/choice.yaml", "tasks/perplexity.yaml"]
        work = make_work(tmp_path / "work", models, models=both, tasks=tasks, num_fewshot=0, map=False)
        code, output = work.run()
    assert code == 0, output
    lines = [json.loads(line) for line in (work.root / "output" / "samples.jsonl").read_text().splitlines()]
    ours, theirs = ([line for line in lines if (line["model"] == "base") == is_ours] for is_ours in (True, False))
    assert len(ours) == len(theirs) == 14
    assert [line["answer"] for line in ours] == [line["answer"] for line in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one["scores"] == pytest.approx(other["scores"], rel=1e-3, abs=2e-3)


def scorer_of(folder: Path) -> Any:
    """What computes the scores of a text by a folder's weights.

    As the harness does: behind the model's first token, unless the text is a question, whose answer alone counts.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    make_tokenizer: Any = AutoTokenizer.from_pretrained
    make_model: Any = AutoModelForCausalLM.from_pretrained
    tokenizer, module = make_tokenizer(folder), make_model(folder, dtype=torch.float32).eval()

    def score(text: str) -> dict[str, list[Any]]:
        first = [] if text.startswith("Question:") else [tokenizer.eos_token_id]
        tokens = [*first, *tokenizer.encode(text, add_special_tokens=False)]
        with torch.inference_mode():
            chances = module(input_ids=torch.tensor([tokens])).logits[0].double().log_softmax(-1)  # (n, V)
        own = [float(chances[at, token]) for at, token in enumerate(tokens[1:])]
        best = [float(each) for each in chances.max(-1).values]
        return {
            "tokens": [tokenizer.decode([token], clean_up_tokenization_spaces=False) for token in tokens],
            "token_logprobs": [None, *own],
            "top_logprobs": [None, *({"likeliest": top, "own": mine} for top, mine in zip(best, own, strict=False))],
        }

    return score

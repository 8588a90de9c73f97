"""The harness over answers that are given: what is too large for a number, and what it keeps alive."""

from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path

import pytest
import yaml

from runtimes.evaluate import harness
from runtimes.evaluate.config import check_config
from runtimes.evaluate.request import Answer, Request
from runtimes.evaluate.results import read_metrics
from runtimes.evaluate.tasks import find_tasks

pytest.importorskip("lm_eval")

CONFIG = check_config({"models": "base", "tasks": "task.yaml"})


def write(folder: Path, output_type: str, *metrics: str) -> None:
    """A task of three samples with these metrics."""
    body = {
        "task": "bad",
        "dataset_kwargs": {"data_files": {"test": "rows.jsonl"}},
        "test_split": "test",
        "output_type": output_type,
        "doc_to_text": "" if output_type.endswith("rolling") else "text",
        "doc_to_target": "text",
        "metric_list": [{"metric": metric} for metric in metrics],
    }
    (folder / "task.yaml").write_text(yaml.safe_dump(body))
    (folder / "rows.jsonl").write_text("".join(json.dumps({"text": f"w{number}"}) + "\n" for number in range(3)))


def test_a_perplexity_larger_than_any_number_is_left_out_and_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "loglikelihood_rolling", "word_perplexity", "byte_perplexity", "bits_per_byte")
    harness.prepare()
    found = harness.score(find_tasks(("task.yaml",), tmp_path), CONFIG, lambda _: -1e6)
    assert set(read_metrics(found)["bad"]) == {"bits_per_byte"}
    assert "task 'bad': word_perplexity is larger than any number: left out" in capfd.readouterr().out


@pytest.mark.parametrize(("score", "kept"), [(-1.0, True), (-500.0, True), (-1e6, False)])
def test_a_perplexity_has_a_standard_error_where_both_are_numbers(tmp_path: Path, score: float, kept: bool) -> None:
    write(tmp_path, "loglikelihood", "perplexity", "acc")
    harness.prepare()

    def answer(request: Request) -> Answer:
        return [score * (1.0 + 0.1 * (request.arguments[1][-1] == "1")), True]

    metrics = read_metrics(harness.score(find_tasks(("task.yaml",), tmp_path), CONFIG, answer))["bad"]
    assert ("perplexity" in metrics) == kept and metrics["acc"].value == 1.0
    if kept:
        assert (metrics["perplexity"].stderr is None) == (score < -1.0)


def test_what_answers_is_let_go_when_the_harness_is_done(tmp_path: Path) -> None:
    write(tmp_path, "loglikelihood", "acc")
    harness.prepare()

    class Large:
        def answer(self, _request: Request) -> Answer:
            return [-1.0, True]

    large = Large()
    seen = weakref.ref(large)
    gc.disable()
    try:
        harness.score(find_tasks(("task.yaml",), tmp_path), CONFIG, large.answer)
        del large
        assert seen() is None
    finally:
        gc.enable()

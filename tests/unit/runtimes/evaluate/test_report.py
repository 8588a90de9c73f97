"""Scores of samples by hand, their places on the map, and a page that no sample can break out of."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from runtimes.evaluate.compare import Comparison, Sample, compare, read_samples
from runtimes.evaluate.config import Config, Endpoint
from runtimes.evaluate.drawing import Bar, bar_chart
from runtimes.evaluate.embed import project, to_plane
from runtimes.evaluate.report import CHANGED_MAX, SampleMap, make_report
from runtimes.evaluate.request import PROJECTED
from runtimes.evaluate.results import Metric, ModelResult, read_metrics, write_results

EVIL = "</script></title><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
RESULTS = {
    "harness": "0.4",
    "score_decimals": 4,
    "settings": {"dtype": "float32", "seed": 0, "limit": 3},
}


def sample(score: float, *, number: int = 0, task: str = "t", text: str = "?") -> Sample:
    return Sample(task, number, text, "target", "answer", {"acc": score})


def model(name: str, scores: list[float], *, text: str = "?") -> ModelResult:
    samples = [sample(score, number=number, text=text) for number, score in enumerate(scores)]
    mean = sum(scores) / len(scores)
    return ModelResult(name, "0" * 64, 10, 5, {"t": {"acc": Metric(mean, 0.1, True)}}, samples)


def page(base: ModelResult, other: ModelResult) -> str:
    compared = {other.name: compare(base.samples, other.samples, {"t": {"acc": True}})}
    places = to_plane([[float(number)] * PROJECTED for number in range(len(base.samples))])
    return make_report(RESULTS, [base, other], compared, SampleMap(places, base.name))


def test_an_endpoint_is_called_one_and_the_map_names_the_model_that_it_is_of(tmp_path: Path) -> None:
    theirs = replace(model(EVIL, [0, 1]), parameters=None, endpoint=Endpoint("https://h/v1", EVIL, "MY_KEY", chat=True))
    base = model("base", [1, 1])
    compared = {"base": compare(theirs.samples, base.samples, {"t": {"acc": True}})}
    drawn = SampleMap(to_plane([[float(number)] * PROJECTED for number in range(2)]), "base")
    text = make_report(RESULTS, [theirs, base], compared, drawn)
    assert "Answers of an endpoint: &lt;/script&gt;" in text and "<script" not in text
    assert "<td>endpoint</td><td><code>" in text
    assert "near ones look alike to base (" in text
    config = Config(models=("base",), tasks=("t",))
    body = write_results(tmp_path, config, [], [theirs, base], compared)
    assert body["models"][0]["endpoint"] == {"address": "https://h/v1", "model": EVIL, "chat": True}
    assert (body["models"][0]["parameters"], body["models"][0]["is_reproducible"]) == (None, False)
    assert not {"endpoint", "is_reproducible"} & body["models"][1].keys()
    assert "MY_KEY" not in (tmp_path / "results.json").read_text()
    assert "Answers of an endpoint" not in page(base, model("tuned", [0, 1]))


def test_gained_lost_and_kept_are_counted_with_a_paired_error() -> None:
    base, other = (
        [sample(score, number=n) for n, score in enumerate(scores)] for scores in ([0, 1, 1, 0], [1, 1, 0, 1])
    )
    (found,) = compare(base, other, {"t": {"acc": True}})
    assert found.verdicts == ["gained", "kept", "lost", "gained"]
    assert found.difference == 0.25
    deltas, mean = [1, 0, -1, 1], 0.25
    variance = sum((delta - mean) ** 2 for delta in deltas) / 3
    assert found.stderr == round((variance / 4) ** 0.5, 6)


def test_of_a_loss_less_is_better() -> None:
    base = [Sample("t", 0, "", "", "", {"word_perplexity": 2.0})]
    other = [Sample("t", 0, "", "", "", {"word_perplexity": 1.5})]
    (found,) = compare(base, other, {"t": {"word_perplexity": False}})
    assert (found.verdicts, found.difference, found.stderr) == (["gained"], -0.5, None)


def test_samples_are_read_with_every_filter_and_the_answer_that_was_chosen() -> None:
    entry: dict[str, Any] = {
        "doc_id": 3,
        "target": 1,
        "arguments": [("Q", " a"), ("Q", " b")],
        "metrics": ["acc", "bleu"],
    }
    entry |= {"filtered_resps": [(-2.0, False), (-1.0, True)], "acc": 1.0, "bleu": ("a", "b")}
    entries = [entry | {"filter": "none"}, entry | {"filter": "strict", "acc": 0.0}]
    (found,) = read_samples({"samples": {"t": entries}})
    assert (found.number, found.text, found.target, found.answer) == (3, "Q", "1", "b")
    assert found.scores == {"acc": 1.0, "acc,strict": 0.0}, "bleu is a whole task's"


def test_a_figure_that_is_not_finite_is_left_out() -> None:
    figures = {"acc,none": 0.5, "acc_stderr,none": float("nan"), "word_perplexity,none": float("inf"), "alias": "t"}
    found = read_metrics({"results": {"t": figures}, "higher_is_better": {"t": {"acc": True}}})
    assert found == {"t": {"acc": Metric(0.5, None, True)}}


def test_projection_keeps_distances_and_is_the_same_each_time() -> None:
    near, far = [[1.0 + step] * 400 for step in (0.0, 0.01)], [1.0, -1.0] * 200
    first, second, third = project(near[0]), project(near[1]), project(far)

    def distance(a: list[float], b: list[float]) -> float:
        return sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5

    assert len(first) == PROJECTED
    assert first == project(near[0])
    assert distance(first, second) < distance(first, third) / 20


def test_the_map_shows_the_two_directions_of_largest_spread() -> None:
    rows = [[0.0] * PROJECTED for _ in range(4)]
    for row, (x, y) in zip(rows, [(10.0, 1.0), (10.0, -1.0), (-10.0, 1.0), (-10.0, -1.0)], strict=True):
        row[5], row[9] = x, y
    assert to_plane(rows) == [(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)]
    assert to_plane([]) == []
    assert to_plane([[1.0] * PROJECTED] * 2) == [(0.0, 0.0)] * 2


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, [name for name, _ in attrs]))


def test_no_text_of_a_sample_task_or_model_becomes_a_tag() -> None:
    tags = []
    for text in ("plain", EVIL):
        made = page(model(f"base {text}", [0, 1], text=text), model(f"tuned {text}", [1, 0], text=text))
        reader = Tags()
        reader.feed(made)
        tags.append(reader.found)
    assert tags[0] == tags[1]
    assert not {"script", "img", "link", "iframe"} & {tag for tag, _ in tags[1]}
    assert not [name for _, names in tags[1] for name in names if name.startswith("on")]
    assert "default-src 'none'" in made


def test_the_page_lists_what_changed_and_no_more_than_can_be_read() -> None:
    count = CHANGED_MAX + 5
    made = page(model("base", [0.0] * count), model("tuned", [1.0] * count))
    assert f"{count} gained, the first {CHANGED_MAX}" in made
    assert made.count('class="gained"') == count
    assert "prefers-color-scheme:dark" in made


@pytest.mark.parametrize(("value", "width"), [(0.5, 215.0), (1.0, 430.0), (40.0, 430.0)])
def test_a_bar_is_on_a_scale_to_one_or_to_the_rows_largest(value: float, width: float) -> None:
    assert f'width="{width:.1f}"' in bar_chart([("t acc", [Bar(0, value, None)])])


def test_a_task_without_scores_of_samples_is_not_compared() -> None:
    only = [Sample("t", 0, "", "", "", {})]
    assert compare(only, only, {}) == []
    assert Comparison("t", "acc", ["kept", "lost"], 0.0, None).count("lost") == 1

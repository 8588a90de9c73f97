"""Task files are data: what needs code, a network or a file from elsewhere is refused with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from runtimes.evaluate.config import check_config
from runtimes.evaluate.tasks import find_tasks
from runtimes.train.errors import BadConfig, BadData

EXAMPLES = Path(__file__).parents[4] / "examples"
TASK: dict[str, Any] = {
    "task": "capitals",
    "dataset_kwargs": {"data_files": {"test": "rows.jsonl"}},
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "question",
    "doc_to_target": "answer",
    "doc_to_choice": "choices",
}


def write(folder: Path, **changes: Any) -> Path:
    body = {key: value for key, value in (TASK | changes).items() if value is not None}
    (folder / "task.yaml").write_text(yaml.safe_dump(body))
    (folder / "rows.jsonl").write_text('{"question": "?", "answer": 0, "choices": ["a", "b"]}\n')
    return folder


def test_the_examples_are_tasks() -> None:
    found = find_tasks(("eval-tasks",), EXAMPLES)
    assert {task.name for task in found} == {"capitals", "sums", "proverbs"}
    assert {task.body["output_type"] for task in found} == {
        "multiple_choice",
        "generate_until",
        "loglikelihood_rolling",
    }


def test_a_tasks_digest_changes_with_its_file_and_with_its_data(tmp_path: Path) -> None:
    (first,) = find_tasks(("task.yaml",), write(tmp_path))
    (second,) = find_tasks(("task.yaml",), write(tmp_path, doc_to_text="{{question}}"))
    (tmp_path / "rows.jsonl").write_text("{}\n")
    (third,) = find_tasks(("task.yaml",), tmp_path)
    assert len({first.digest, second.digest, third.digest}) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"process_docs": "x"}, "'?\"?process_docs\"?'? is not taken here"),
        ({"dataset_path": "org/data"}, "dataset_path must be json: nodes have no network"),
        ({"dataset_kwargs": {"data_files": {}}}, "dataset_kwargs must be data_files alone"),
        ({"dataset_kwargs": {"data_files": {"test": "a"}, "trust_remote_code": True}}, "data_files alone"),
        ({"dataset_kwargs": {"data_files": {"test": "gone.jsonl"}}}, "'gone.jsonl' is not among the job's files"),
        ({"dataset_kwargs": {"data_files": {"test": "../../x"}}}, "leads out of the job's files"),
        ({"test_split": "train"}, 'test_split is "train", which data_files does not have'),
        ({"test_split": None}, "test_split is missing"),
        ({"test_split": ["test"]}, "test_split must be a text"),
        ({"fewshot_split": {"a": 1}}, "fewshot_split must be a text"),
        ({"dataset_kwargs": {"data_files": {"test": "x" * 5000}}}, "is no path"),
        ({"dataset_kwargs": {"data_files": {"test": "a\0b"}}}, "is no path"),
        ({"metadata": {1: "a", "b": 2}}, "^task.yaml cannot be read as a task: TypeError"),
        ({"output_type": "magic"}, "output_type must be one of"),
        ({"task": "x" * 61}, "task must be a name"),
        ({"metric_list": [{"metric": "rouge"}]}, "metric must be one of"),
        ({"metric_list": [{"metric": "acc", "hf_evaluate": True}]}, "hf_evaluate fetches code"),
        ({"num_fewshot": 101}, "num_fewshot must be a whole number from 0 to 100"),
        ({"generation_kwargs": {"until": []}}, "is for output_type generate_until"),
        ({"output_type": "generate_until", "generation_kwargs": {"do_sample": True}}, "only greedy decoding"),
        ({"output_type": "generate_until", "generation_kwargs": {"temperature": 1}}, "only greedy decoding"),
        ({"output_type": "generate_until", "generation_kwargs": {"max_gen_toks": 5000}}, "from 1 to 4096"),
        ({"output_type": "generate_until", "generation_kwargs": {"until": ["x" * 201]}}, "until must be up to 16"),
        ({"output_type": "generate_until", "generation_kwargs": {"top_k": 1}}, "generation_kwargs takes until"),
    ],
)
def test_what_a_node_cannot_do_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadData, match=message):
        find_tasks(("task.yaml",), write(tmp_path, **changes))


def test_code_in_a_task_file_is_no_plain_yaml(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "task.yaml").write_text("task: x\ndoc_to_text: !function code.run\n")
    with pytest.raises(BadData, match="is no plain YAML"):
        find_tasks(("task.yaml",), tmp_path)


def test_an_alias_in_a_task_file_is_refused_before_it_is_expanded(tmp_path: Path) -> None:
    levels = [f"  - &a{level + 1} [{', '.join([f'*a{level}'] * 9)}]" for level in range(9)]
    write(tmp_path)
    (tmp_path / "task.yaml").write_text("\n".join(["task: x", "metadata:", "  - &a0 lol", *levels, ""]))
    with pytest.raises(BadData, match=r"task.yaml is no plain YAML: an alias .* is not taken here"):
        find_tasks(("task.yaml",), tmp_path)


@pytest.mark.parametrize(
    "text", ["? [a]\n: b\n", "a: !!timestamp 2026-99-99\n", "[" * 3000, "a: \x00\n", "? {a: b}\n: c\n"]
)
def test_an_odd_task_file_is_the_customers_mistake(tmp_path: Path, text: str) -> None:
    write(tmp_path)
    (tmp_path / "task.yaml").write_text(text)
    with pytest.raises(BadData, match=r"^task\.yaml"):
        find_tasks(("task.yaml",), tmp_path)


def test_a_link_out_of_the_input_is_not_followed(tmp_path: Path) -> None:
    inputs = tmp_path / "input"
    inputs.mkdir()
    (tmp_path / "secret.yaml").write_text("task: x\n")
    (inputs / "task.yaml").symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(BadData, match="leads out"):
        find_tasks(("task.yaml",), inputs)


def test_two_tasks_of_one_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "twin.yaml").write_text((tmp_path / "task.yaml").read_text())
    with pytest.raises(BadData, match="two files name their task 'capitals'"):
        find_tasks((".",), tmp_path)


@pytest.mark.parametrize("name", ["none.yaml", "empty"])
def test_a_path_without_a_task_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadData, match=name):
        find_tasks((name,), tmp_path)


def test_a_bad_configuration_names_every_mistake() -> None:
    with pytest.raises(BadConfig) as refused:
        check_config({"models": [], "batch_size": 0, "dtype": "int8", "limits": 3})
    assert len(refused.value.mistakes) == 5
    assert 'unknown key "limits", did you mean limit?' in refused.value.mistakes
    assert "tasks is missing" in refused.value.mistakes

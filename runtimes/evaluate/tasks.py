"""Task files of lm-evaluation-harness and their data, from the job's files alone: a node has no network.

A task file is YAML as the harness reads it, with what needs code or a network left out: `dataset_path` is json, and
`dataset_kwargs.data_files` names files of JSON beside the task file, one a split. Tags such as `!function` are refused,
and aliases, by which a small file becomes a huge one.

Texts of a task file are templates in Jinja, which the harness renders without a sandbox: one can run any code. Nothing
here keeps it in; the container does, as it does a customer's own program.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from runtimes.checking import shown
from runtimes.contract import sha256_file
from runtimes.evaluate.config import FEWSHOT_MAX, Config
from runtimes.train.errors import BadData

TASK_BYTES_MAX = 256 * 1024
DATA_BYTES_MAX = 1 << 30
ROWS_MAX = 1_000_000
TASKS_MAX = 256  # of all folders together
NAME_CHARACTERS_MAX = 60
STOPS_MAX = 16
STOP_CHARACTERS_MAX = 200
TOKENS_MAX = 4096  # that a sample may write
OUTPUT_TYPES = ("loglikelihood", "loglikelihood_rolling", "multiple_choice", "generate_until")
# Those that the harness computes itself. It would fetch any other one, as code, from the hub.
METRICS = (
    *("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match", "bleu", "chrf", "ter"),
    *("perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte"),
)
SPLITS = ("training_split", "validation_split", "test_split", "fewshot_split")
TEXTS = ("description", "target_delimiter", "fewshot_delimiter", "gen_prefix")
KEYS = (
    *("task", "output_type", "dataset_path", "dataset_kwargs", "tag", "metadata", "num_fewshot", "metric_list"),
    *("doc_to_text", "doc_to_target", "doc_to_choice", "generation_kwargs", "filter_list", "fewshot_config"),
    *SPLITS,
    *TEXTS,
)


@dataclass(frozen=True)
class TaskFile:
    """One task: as the harness takes it, and the SHA-256 of file and data together."""

    name: str
    body: dict[str, Any]
    data: dict[str, Path]  # split -> file
    digest: str


def find_tasks(names: tuple[str, ...], input_dir: Path) -> list[TaskFile]:
    """Every task of these files and folders, in their order; raises BadData with what is wrong in which file."""
    paths: list[Path] = []
    for name in names:
        path = _inside(input_dir, name, input_dir)
        if path.is_dir():
            found = sorted(each for each in path.iterdir() if each.suffix in {".yaml", ".yml"})
            if not found:
                raise BadData(f"tasks: the folder {name!r} has no file that ends with .yaml")
            paths += found
        elif path.is_file():
            paths.append(path)
        else:
            raise BadData(f"tasks: {name!r} is not among the job's files")
    if len(paths) > TASKS_MAX:
        raise BadData(f"tasks: there are {len(paths)} files, at most {TASKS_MAX} are taken at once")
    tasks = [_read_task(path, input_dir) for path in dict.fromkeys(paths)]
    known: set[str] = set()
    for task in tasks:
        if task.name in known:
            raise BadData(f"tasks: two files name their task {task.name!r}; give each a name of its own")
        known.add(task.name)
    return tasks


def make_task(task: TaskFile, config: Config) -> Any:
    """The harness's own object for a task, its data loaded; raises BadData."""
    from datasets import Dataset, DatasetDict
    from lm_eval.api.task import ConfigurableTask

    rows = {split: _read_rows(path) for split, path in task.data.items()}
    try:
        data = DatasetDict({split: Dataset.from_list(found) for split, found in rows.items()})
        made = ConfigurableTask(config={**task.body, "task": task.name, "custom_dataset": lambda **_: data})
        if config.num_fewshot is not None:
            made.set_config(key="num_fewshot", value=config.num_fewshot)
        elif made.get_config("num_fewshot") is None:
            made.set_config(key="num_fewshot", value=0)
        made.set_fewshot_seed(seed=config.seed)
    except Exception as error:  # templates and data are the customer's: whatever they raise is said to them
        raise BadData(f"task {task.name!r}: {type(error).__name__}: {_first_line(error)}") from error
    return made


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias (*name) is not taken here: write out what it stands for")
        return super().compose_node(parent, index)


def _read_task(path: Path, input_dir: Path) -> TaskFile:
    where = path.relative_to(input_dir.resolve()).as_posix()
    try:
        return _read_plain(path, where, input_dir)
    except BadData:
        raise
    except Exception as error:  # the file is the customer's: whatever is odd in it is said to them
        raise BadData(f"{where} cannot be read as a task: {type(error).__name__}: {_first_line(error)}") from error


def _read_plain(path: Path, where: str, input_dir: Path) -> TaskFile:
    if path.stat().st_size > TASK_BYTES_MAX:
        raise BadData(f"{where} is larger than {TASK_BYTES_MAX} bytes")
    try:
        body = yaml.load(path.read_bytes(), _PlainLoader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BadData(f"{where} is no plain YAML: {_first_line(error)}") from error
    if not isinstance(body, dict):
        raise BadData(f"{where} is no task: a mapping with task, dataset_kwargs and others")
    if mistake := next(_mistakes(body), None):
        raise BadData(f"{where}: {mistake}")
    files = body.pop("dataset_kwargs")["data_files"]
    body.pop("dataset_path")
    data = {split: _inside(path.parent, name, input_dir) for split, name in files.items()}
    for split, file in data.items():
        if not file.is_file():
            raise BadData(f"{where}: the data file {files[split]!r} is not among the job's files")
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, default=str).encode())
    for split, file in sorted(data.items()):
        digest.update(f"\n{split} {sha256_file(file)}".encode())
    return TaskFile(body["task"], body, data, digest.hexdigest())


def _mistakes(body: dict[Any, Any]) -> Iterator[str]:
    """What is wrong with a task file, as sentences; those behind the first may only follow from it."""
    for key in body:
        if key not in KEYS:
            yield f"the key {shown(key)} is not taken here; known are {', '.join(KEYS)}"
    name = body.get("task")
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARACTERS_MAX or not name.isprintable():
        yield f"task must be a name of 1 to {NAME_CHARACTERS_MAX} characters"
    if body.setdefault("output_type", "generate_until") not in OUTPUT_TYPES:
        yield f"output_type must be one of {', '.join(OUTPUT_TYPES)}, got {shown(body['output_type'])}"
    yield from _data_mistakes(body)
    for key in TEXTS:
        if body.get(key) is not None and not isinstance(body[key], str):
            yield f"{key} must be a text"
    fewshot = body.get("num_fewshot")
    is_count = isinstance(fewshot, int) and not isinstance(fewshot, bool) and 0 <= fewshot <= FEWSHOT_MAX
    if fewshot is not None and not is_count:
        yield f"num_fewshot must be a whole number from 0 to {FEWSHOT_MAX}"
    yield from _metrics_mistakes(body.get("metric_list"))
    yield from _generation_mistakes(body)


def _data_mistakes(body: dict[Any, Any]) -> Iterator[str]:
    """A file for each split that is used, and nothing from the hub."""
    if body.setdefault("dataset_path", "json") != "json":
        yield "dataset_path must be json: nodes have no network, so the data has to lie beside the task file"
    settings = body.get("dataset_kwargs")
    files = settings.get("data_files") if isinstance(settings, dict) and set(settings) == {"data_files"} else None
    if not isinstance(files, dict) or not files:
        yield "dataset_kwargs must be data_files alone, with a file for each split, such as {test: questions.jsonl}"
        return
    if not all(isinstance(text, str) and text for pair in files.items() for text in pair):
        yield "data_files must map names of splits to paths"
    for split in SPLITS:
        if body.get(split) is not None and not isinstance(body[split], str):
            yield f"{split} must be a text, the name of a split"
        elif body.get(split) is not None and body[split] not in files:
            yield f"{split} is {shown(body[split])}, which data_files does not have"
    if body.get("test_split") is None and body.get("validation_split") is None:
        yield "test_split is missing: which split is asked"


def _metrics_mistakes(metrics: object) -> Iterator[str]:
    if metrics is None:
        return
    if not isinstance(metrics, list) or not metrics or not all(isinstance(each, dict) for each in metrics):
        yield "metric_list must be a list of mappings, such as - metric: acc"
        return
    for each in metrics:
        if each.get("metric") not in METRICS:
            yield f"metric must be one of {', '.join(METRICS)}, got {shown(each.get('metric'))}"
        if each.get("hf_evaluate"):
            yield "hf_evaluate fetches code from the hub, and nodes have no network"


def _generation_mistakes(body: dict[Any, Any]) -> Iterator[str]:
    """Bounds what a sample may write; fills in the defaults, which the harness would choose otherwise."""
    settings = body.get("generation_kwargs")
    if body["output_type"] != "generate_until":
        if settings is not None:
            yield "generation_kwargs is for output_type generate_until"
        return
    settings = {} if settings is None else settings
    if not isinstance(settings, dict) or set(settings) - {"until", "max_gen_toks", "do_sample", "temperature"}:
        yield "generation_kwargs takes until, max_gen_toks, do_sample and temperature"
        return
    if settings.get("do_sample", False) is not False or settings.get("temperature", 0) not in (0, 0.0):
        yield "only greedy decoding is the same on every node: do_sample must be false and temperature 0"
    until = settings.get("until", ["\n\n"])
    until = [until] if isinstance(until, str) else until
    is_listed = isinstance(until, list) and len(until) <= STOPS_MAX
    if not is_listed or not all(isinstance(stop, str) and 1 <= len(stop) <= STOP_CHARACTERS_MAX for stop in until):
        yield f"until must be up to {STOPS_MAX} texts of 1 to {STOP_CHARACTERS_MAX} characters"
    most = settings.get("max_gen_toks", 256)
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= TOKENS_MAX:
        yield f"max_gen_toks must be a whole number from 1 to {TOKENS_MAX}"
    body["generation_kwargs"] = {"until": until, "max_gen_toks": most, "do_sample": False, "temperature": 0.0}


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON file: one object a line, or one list of objects."""
    if path.stat().st_size > DATA_BYTES_MAX:
        raise BadData(f"{path.name} is larger than {DATA_BYTES_MAX} bytes")
    try:
        text = path.read_text()
        found = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in _lines(text)]
    except (ValueError, RecursionError) as error:
        raise BadData(f"{path.name} is neither lines of JSON nor a list in JSON: {_first_line(error)}") from error
    if not found or not all(isinstance(row, dict) for row in found):
        raise BadData(f"{path.name} has no rows, or some that are no objects")
    if len(found) > ROWS_MAX:
        raise BadData(f"{path.name} has more than {ROWS_MAX} rows")
    return found


def _lines(text: str) -> list[str]:
    # Not splitlines: a text of JSON may hold U+2028 as it is.
    return [line for line in text.split("\n") if line.strip()]


def _inside(folder: Path, name: str, input_dir: Path) -> Path:
    """A path of a file of the job, links followed; raises BadData for one that leads out of the input."""
    try:
        path = (folder / name).resolve()
        path.exists()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a zero byte, a circle of links
        raise BadData(f"{shown(name)} is no path: {_first_line(error)}") from error
    if not path.is_relative_to(input_dir.resolve()):
        raise BadData(f"{name!r} leads out of the job's files")
    return path


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]

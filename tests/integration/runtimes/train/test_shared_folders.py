"""Trainings whose model and data lie in a shared host folder, laid out as an agent lays it out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from runtimes.contract import MANIFEST_NAME, NEW_CACHE_NAME, Env, ExitCode
from tests.integration.runtimes.programs import MICRO_CONFIG, Work

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CONFIG: dict[str, Any] = {**MICRO_CONFIG, "steps": 4, "warmup_steps": 2, "evaluate_every": 0, "log_samples": False}
LENT = {"model": "lent/corpus/micro-llama", "data": ["lent/corpus/docs.jsonl", "lent/corpus/more.txt"]}


def lend(root: Path, **config: Any) -> Work:
    """A work folder whose input is a provider's folder in place of the customer's, and a cache of the node."""
    work = Work(root / "work", ranks=1, launched=False)
    work.write({**CONFIG, **config})
    work.env = {Env.LENT_DIR: str(root / "lent"), Env.CACHE_DIR: str(root / "cache")}
    (root / "lent").mkdir()
    (root / "cache").mkdir()
    shutil.move(work.root / "input", root / "bobs-corpus")
    (work.root / "input").mkdir()
    (root / "lent" / "corpus").symlink_to(root / "bobs-corpus")
    return work


def losses(work: Work) -> list[tuple[int, float]]:
    return [(event["step"], event["loss"]) for event in work.events("step")]


def keys(work: Work) -> set[str]:
    return {path.parent.name for path in (work.root / NEW_CACHE_NAME).glob(f"*/*/{MANIFEST_NAME}")}


def test_a_training_from_a_shared_folder_is_the_one_from_the_same_files(tmp_path: Path) -> None:
    lent = lend(tmp_path, **LENT)
    code, output = lent.run()
    assert code == 0, output
    cache = tmp_path / "empty"
    cache.mkdir()
    sent = Work(tmp_path / "sent", ranks=1, launched=False, env={Env.CACHE_DIR: str(cache)}).write(CONFIG)
    assert sent.run()[0] == 0
    assert losses(lent) == losses(sent) != []
    assert keys(lent) == keys(sent) != set(), "what is kept is known by its content, wherever it lay"


def test_a_folder_of_tables_in_a_shared_folder_is_learned(tmp_path: Path) -> None:
    from pyarrow import Table, parquet

    work = lend(tmp_path, model=LENT["model"], data="lent/corpus/tables")
    texts = [json.loads(line)["text"] for line in (tmp_path / "bobs-corpus" / "docs.jsonl").read_text().splitlines()]
    (tmp_path / "bobs-corpus" / "tables").mkdir()
    table: Any = Table
    parquet.write_table(
        table.from_pylist([{"text": text} for text in texts]), tmp_path / "bobs-corpus/tables/a.parquet"
    )
    code, output = work.run()
    assert code == 0, output
    assert len(losses(work)) == CONFIG["steps"]


@pytest.mark.parametrize(
    ("config", "lacks"),
    [
        ({**LENT, "data": "lent/corpus/gone.jsonl"}, "data 'lent/corpus/gone.jsonl' is not in the shared host folder"),
        ({**LENT, "model": "lent/corpus/gone"}, "model 'lent/corpus/gone': there is no such folder"),
        ({**LENT, "chat_template": "lent/corpus/gone.jinja"}, "chat_template 'lent/corpus/gone.jinja' is not in"),
    ],
)
def test_what_a_shared_folder_lacks_ends_a_training_with_the_code_of_bad_data(
    tmp_path: Path, config: dict[str, Any], lacks: str
) -> None:
    work = lend(tmp_path, **config)
    code, output = work.run()
    (failed,) = work.events("failed")
    assert (code, failed["exit_code"]) == (ExitCode.BAD_DATA, ExitCode.BAD_DATA)
    assert lacks in failed["message"], output
    assert str(tmp_path) not in failed["message"]

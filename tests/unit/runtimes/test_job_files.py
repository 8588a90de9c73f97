"""Paths of a configuration: below the job's files, or in a shared host folder that the job names, and nowhere else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from runtimes.contract import Env, lent_label
from runtimes.job_files import JobFiles
from runtimes.train.container import read_container
from runtimes.train.data.documents import find_paths
from runtimes.train.data.keys import data_digest
from runtimes.train.errors import BadData
from runtimes.train.model import find_model
from tests.integration.runtimes.programs import MICRO_MODEL


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    """Alice's input, and `corpus` of Bob's, which the agent lays out as a link to where it lies on the node."""
    shared = tmp_path / "srv" / "corpus"
    (shared / "books").mkdir(parents=True)
    (shared / "llama").mkdir()
    (shared / "llama" / "config.json").write_text(json.dumps(MICRO_MODEL))
    (shared / "books" / "one.jsonl").write_text('{"text": "one"}\n')
    (shared / "books" / "two.jsonl").write_text('{"text": "two"}\n')
    (tmp_path / "srv" / "private.jsonl").write_text('{"text": "not shared"}\n')
    (tmp_path / "lent").mkdir()
    (tmp_path / "lent" / "corpus").symlink_to(shared)
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "own.jsonl").write_text('{"text": "own"}\n')
    return JobFiles(tmp_path / "input", tmp_path / "lent")


@pytest.mark.parametrize(
    ("path", "label"),
    [
        *(("lent/corpus", "corpus"), ("lent/corpus/a/b", "corpus"), ("./lent//corpus/a", "corpus")),
        *(("lent", None), ("lent/../corpus", None), ("lent/.input/a", None), ("/lent/corpus", None)),
        *(("a/lent/corpus", None), ("lentils/corpus", None), ("org/name", None)),
    ],
)
def test_a_label_is_the_second_name_of_a_path_below_lent(path: str, label: str | None) -> None:
    assert lent_label(path) == label


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("lent/corpus/books/one.jsonl", ["one.jsonl"]),
        ("lent/corpus/books", ["one.jsonl", "two.jsonl"]),
        ("lent/corpus/*/t*.jsonl", ["two.jsonl"]),
        ("lent/corpus", ["one.jsonl", "two.jsonl"]),
        ("own.jsonl", ["own.jsonl"]),
    ],
)
def test_data_are_found_in_the_folder_that_their_path_names(files: JobFiles, name: str, found: list[str]) -> None:
    assert [path.name for path in find_paths((name,), files) if path is not None] == found


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lent/corpus/gone.jsonl", "is not in the shared host folder 'corpus' of this node"),
        ("lent/corpus/../private.jsonl", "must be a path below the shared host folder"),
        ("lent/corpus/link.jsonl", "leads out of the shared host folder"),
        ("lent/other/one.jsonl", "is not among the job's files"),
    ],
)
def test_nothing_is_read_outside_of_a_shared_folder(files: JobFiles, name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "srv" / "corpus" / "link.jsonl").symlink_to(tmp_path / "srv" / "private.jsonl")
    with pytest.raises(BadData, match=message) as refused:
        find_paths((name,), files)
    assert str(tmp_path) not in str(refused.value), "the customer learns no path of the node"


def test_an_own_folder_called_lent_is_read_where_no_such_label_is_named(files: JobFiles, tmp_path: Path) -> None:
    own = tmp_path / "input" / "lent" / "mine"
    own.mkdir(parents=True)
    (own / "three.jsonl").write_text('{"text": "three"}\n')
    assert find_paths(("lent/mine/three.jsonl",), files) == [own / "three.jsonl"]


def test_equal_data_have_one_digest_wherever_they_lie(files: JobFiles, tmp_path: Path) -> None:
    """So tokens in a node's cache are found again, and another provider's file under the same path finds none."""
    shared = tmp_path / "srv" / "corpus" / "books"
    shutil.copytree(shared, tmp_path / "input" / "books")
    known = data_digest(("books",), files)
    assert data_digest(("lent/corpus/books",), files) == known
    (shared / "one.jsonl").write_text('{"text": "another"}\n')
    data_digest.cache_clear()
    assert data_digest(("lent/corpus/books",), files) != known


def test_a_model_is_found_in_a_shared_folder_and_never_fetched_in_its_place(files: JobFiles, tmp_path: Path) -> None:
    found = find_model("lent/corpus/llama", files)
    assert found.folder == tmp_path / "srv" / "corpus" / "llama"
    for name in ("lent/corpus/gone", "lent/corpus", "lent/corpus/../corpus/llama"):
        with pytest.raises(BadData, match=r"no such folder with a config\.json in the shared host folder 'corpus'"):
            find_model(name, files)


def test_a_model_whose_files_lead_out_of_a_shared_folder_is_refused(files: JobFiles, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    (tmp_path / "srv" / "corpus" / "llama" / "tokenizer.json").symlink_to(secret)
    with pytest.raises(BadData, match="has files that lead out of the shared host folder 'corpus'"):
        find_model("lent/corpus/llama", files)


def test_a_model_folder_with_too_many_entries_is_called_that(files: JobFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtimes.job_files.LINKS_MAX", 1)
    assert find_model("lent/corpus/llama", files).folder is not None
    (files.place_of("lent/corpus/llama").path / "weights").touch()
    with pytest.raises(BadData, match="in the shared host folder 'corpus' of this node has more than 4096 entries"):
        find_model("lent/corpus/llama", files)


def test_the_agent_says_where_shared_folders_are_and_by_hand_there_are_none(tmp_path: Path) -> None:
    env = {Env.WORK_DIR: str(tmp_path), Env.LENT_DIR: "/souk-lent"}
    assert read_container(env, config=None, output=None).files == JobFiles(tmp_path / "input", Path("/souk-lent"))
    assert read_container(env, config=None, output=str(tmp_path)).files == JobFiles(Path.cwd())

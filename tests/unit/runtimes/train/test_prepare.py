"""Who is to blame for a resume that cannot begin: the checkpoint for its tokenizer, nobody for a hub that is away."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import AutoConfig

from runtimes.contract import ExitCode, shipped_model_config
from runtimes.train import prepare
from runtimes.train.config import TrainConfig
from runtimes.train.container import Container, read_container
from runtimes.train.data.tokenizer import train_tokenizer
from runtimes.train.errors import BadCheckpoint, BadData, TrainError
from runtimes.train.model import ModelSource
from runtimes.train.parallel import Progress

CONFIG = TrainConfig(steps=10, sequence_length=128)


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return read_container({}, config=None, output=str(tmp_path))


def shipped() -> ModelSource:
    """A model without weights, which grows with its tokenizer."""
    config = AutoConfig.for_model(**shipped_model_config("tiny-llama"))
    return ModelSource("tiny-llama", config, None, has_weights=False)


TEXTS = ["to be or not to be, that is the question", "a rose is a rose is a rose"] * 20
SAID = json.loads(train_tokenizer(TEXTS, 300).to_str())
MODEL = SAID["model"]
PADDED = {"strategy": {"Fixed": 20_000_000}, "direction": "Right", "pad_id": 1, "pad_type_id": 0, "pad_token": "x"}
STRANGE: dict[str, dict[str, Any]] = {
    "pads to twenty million tokens": {"padding": {**PADDED, "pad_to_multiple_of": None}},
    "replaces a letter by a book": {
        "normalizer": {"type": "Replace", "pattern": {"String": "o"}, "content": "o" * 999}
    },
    "drops tokens": {"model": MODEL | {"dropout": 0.5}},
    "has no token for some bytes": {"model": MODEL | {"vocab": {"<|endoftext|>": 0, "<|padding|>": 1}, "merges": []}},
    "numbers its tokens with gaps": {"model": MODEL | {"vocab": MODEL["vocab"] | {"zzz": 10**6}}},
    "has more tokens than the training": {"model": MODEL | {"vocab": MODEL["vocab"] | {"zzz": len(MODEL["vocab"])}}},
}


def saved(folder: Path, **changes: Any) -> Path:
    """A checkpoint's tokenizer."""
    (folder / "tokenizer.json").write_text(json.dumps(SAID | changes))
    return folder


def prepared(container: Container, resume_from: Path) -> Tokenizer:
    ranks: Any = SimpleNamespace(is_leader=True, world_size=1, control=None)
    config = replace(CONFIG, vocabulary_size=len(MODEL["vocab"]))
    return prepare.prepare_tokenizer(config, container, ranks, shipped(), resume_from)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank, without a process group."""
    monkeypatch.setattr(prepare, "wait_for_results", lambda ranks, work, what: [work(Progress())])


def test_a_trained_tokenizer_comes_back_from_its_checkpoint(container: Container, tmp_path: Path) -> None:
    assert json.loads(prepared(container, saved(tmp_path)).to_str()) == SAID


@pytest.mark.parametrize("changes", STRANGE.values(), ids=STRANGE.keys())
def test_a_strangers_tokenizer_is_refused(container: Container, tmp_path: Path, changes: dict[str, Any]) -> None:
    """A model grows with its tokenizer, and so may each text."""
    with pytest.raises(BadCheckpoint, match="a tokenizer that no training makes"):
        prepared(container, saved(tmp_path, **changes))


def test_a_tokenizer_that_swallows_the_text_is_the_checkpoints(
    container: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merges may make one token of a whole text: too few tokens then are not the customer's data."""

    def fail(*_: object, **__: object) -> None:
        raise BadData("the data has 2 tokens, too few for 2 sequences of 128")

    monkeypatch.setattr(prepare, "prepare_corpus", fail)
    ranks: Any = SimpleNamespace(is_leader=True, world_size=1, control=None)
    with pytest.raises(BadCheckpoint, match="has another tokenizer: the data has 2 tokens"):
        prepare.prepare_text(CONFIG, container, ranks, shipped(), saved(tmp_path))


@pytest.mark.parametrize(("is_resumed", "code"), [(False, ExitCode.BAD_DATA), (True, ExitCode.INTERNAL)])
def test_a_hub_that_is_away_condemns_no_checkpoint(
    container: Container, monkeypatch: pytest.MonkeyPatch, is_resumed: bool, code: ExitCode
) -> None:
    def fail(name: str, input_dir: Path) -> ModelSource:
        raise BadData(f"model {name!r} could not be fetched")

    monkeypatch.setattr(prepare, "find_model", fail)
    with pytest.raises(TrainError) as caught:
        prepare.find_source(CONFIG, container, container.work_dir if is_resumed else None)
    assert caught.value.exit_code == code


def test_a_shared_folder_without_the_model_is_bad_data_for_a_resumed_attempt_too(
    container: Container, tmp_path: Path
) -> None:
    (tmp_path / "lent" / "llms").mkdir(parents=True)
    container = replace(container, lent_dir=tmp_path / "lent")
    config = replace(CONFIG, model="lent/llms/llama")
    with pytest.raises(BadData, match="no such folder"):
        prepare.find_source(config, container, container.work_dir)

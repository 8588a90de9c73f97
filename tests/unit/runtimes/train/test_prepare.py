"""Who is to blame for a resume that cannot begin: the checkpoint for its tokenizer, nobody for a hub that is away."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoConfig

from runtimes.contract import ExitCode, shipped_model_config
from runtimes.train import prepare
from runtimes.train.config import TrainConfig
from runtimes.train.container import Container, read_container
from runtimes.train.errors import BadCheckpoint, BadData, TrainError
from runtimes.train.model import ModelSource

CONFIG = TrainConfig(steps=10)


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return read_container({}, config=None, output=str(tmp_path))


def shipped() -> ModelSource:
    """A model without weights, which grows with its tokenizer."""
    config = AutoConfig.for_model(**shipped_model_config("tiny-llama"))
    return ModelSource("tiny-llama", config, None, has_weights=False)


def tokenizer_with(highest: int) -> Tokenizer:
    """Of two tokens, the second with this number."""
    return Tokenizer(WordLevel({"a": 0, "b": highest}, unk_token="a"))


def test_a_strangers_tokenizer_makes_no_model_larger(tmp_path: Path) -> None:
    source = shipped()
    size = source.config.vocab_size
    prepare.check_tokenizer(tokenizer_with(size - 1), CONFIG, source, tmp_path)
    with pytest.raises(BadCheckpoint, match=f"the training {size}"):
        prepare.check_tokenizer(tokenizer_with(10**6), CONFIG, source, tmp_path)


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

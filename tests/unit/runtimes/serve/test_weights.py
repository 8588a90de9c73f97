"""Nothing is read from a model's folder that could run code, and nothing that is not whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from runtimes.contract import EventWriter
from runtimes.serve.config import Source
from runtimes.serve.errors import BadModel
from runtimes.serve.model import Model
from runtimes.serve.weights import PLAIN_TEMPLATE, find_model


@pytest.fixture
def inputs(tmp_path: Path, llama: Path) -> Path:
    """A job's inputs, with a model of Mallory's to change."""
    shutil.copytree(llama, tmp_path / "input" / "model")
    return tmp_path / "input"


def find(inputs: Path, source: Source | None = None) -> Model:
    return find_model(
        source or Source("job", "x"), input_dir=inputs, lent_dir=inputs.parent / "lent", events=EventWriter("")
    )


def test_result_of_a_job_is_found_in_its_folder(inputs: Path) -> None:
    model = find(inputs)
    assert model.folder == inputs / "model"
    assert model.chat_template == PLAIN_TEMPLATE


def test_named_folder_is_taken_among_several(inputs: Path) -> None:
    shutil.copytree(inputs / "model", inputs / "other")
    assert find(inputs, Source("folder", "other")).folder == inputs / "other"
    with pytest.raises(BadModel, match="2 models"):
        find(inputs)


def test_lent_folder_is_found_by_its_label(inputs: Path) -> None:
    shutil.copytree(inputs / "model", inputs.parent / "lent" / "llamas")
    assert find(inputs, Source("lent", "llamas")).folder == inputs.parent / "lent" / "llamas"


def test_digest_changes_with_a_byte_and_not_with_the_place(inputs: Path) -> None:
    before = find(inputs).digest
    moved = inputs.rename(inputs.parent / "elsewhere")
    assert find(moved).digest == before
    weights = moved / "model" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert find(moved).digest != before


def make_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def cut_short(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])


def make_garbage(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 100)


def make_empty(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def lie_in_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((7).to_bytes(8, "little") + b'{"a":1}')


def ask_for_code(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "evil.Model"}}))


def ask_for_tokenizer_code(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["evil.T", None]}}))


def lack_a_shard(folder: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def break_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


@pytest.mark.parametrize(
    "spoil",
    [make_pickle, cut_short, make_garbage, make_empty, lie_in_header, ask_for_code, ask_for_tokenizer_code,
     lack_a_shard, break_config],
)  # fmt: skip
def test_spoiled_model_is_refused(inputs: Path, spoil: Callable[[Path], None]) -> None:
    spoil(inputs / "model")
    with pytest.raises(BadModel):
        find(inputs)


def test_own_chat_template_is_kept(inputs: Path) -> None:
    (inputs / "model" / "chat_template.jinja").write_text("{{ messages }}")
    assert find(inputs).chat_template == inputs / "model" / "chat_template.jinja"


def test_model_without_a_tokenizer_cannot_chat(inputs: Path) -> None:
    (inputs / "model" / "tokenizer.json").unlink()
    assert find(inputs).chat_template is None

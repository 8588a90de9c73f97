"""The contract's folders, manifests and shipped models."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from runtimes import contract


def test_manifest_makes_a_folder_complete_and_names_every_file(tmp_path: Path) -> None:
    folder = contract.checkpoint_folder(tmp_path, 7)
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a.bin").write_bytes(b"abc")
    (folder / ".metadata").write_bytes(b"")
    assert contract.complete_checkpoints(tmp_path) == []
    contract.write_manifest(folder, step=7)
    assert contract.complete_checkpoints(tmp_path) == [folder]
    body = contract.read_manifest(folder)
    assert [(entry["path"], entry["size"]) for entry in body["files"]] == [(".metadata", 0), ("deep/a.bin", 3)]
    assert body["step"] == contract.checkpoint_step(folder) == 7
    assert not list(folder.glob("*.partial"))


def test_every_file_is_on_the_disk_before_the_manifest_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("trainer.json", "deep/0.distcp"):
        (tmp_path / name).write_text("x")
    flushed = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        flushed.append((path.relative_to(tmp_path).as_posix(), (tmp_path / contract.MANIFEST_NAME).exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    contract.write_manifest(tmp_path)
    partial = contract.MANIFEST_NAME + contract.PARTIAL_SUFFIX
    assert flushed == [("deep/0.distcp", False), ("trainer.json", False), (partial, False), (".", True)]


def test_event_is_one_whole_line(tmp_path: Path) -> None:
    writer = contract.EventWriter(str(tmp_path / "events.jsonl"))
    writer.write(contract.EventKind.STEP, step=1, loss=2.5)
    writer.write("own", text="two\nlines")
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["step", "own"]


def test_diverged_loss_is_null_and_the_line_stays_json(tmp_path: Path) -> None:
    contract.EventWriter(str(tmp_path / "events.jsonl")).write(contract.EventKind.STEP, step=1, loss=float("nan"))
    text = (tmp_path / "events.jsonl").read_text()
    assert "NaN" not in text
    assert json.loads(text)["loss"] is None


def test_shipped_models_have_a_configuration() -> None:
    assert "tiny-llama" in contract.shipped_models()
    assert contract.shipped_model_config("tiny-llama")["hidden_size"] == 128
    with pytest.raises(KeyError, match="tiny-llama"):
        contract.shipped_model_config("../../secrets")


PREPARING = {"event": "preparing", "what": "data", "seconds": 90}


@pytest.mark.parametrize(
    "changes",
    [
        {"event": "step"},
        {"event": ["preparing"]},
        {"what": "everything"},
        {"what": ["data"]},
        {"seconds": -1},
        {"seconds": None},
        {"seconds": True},
        {"seconds": "90"},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"seconds": 10**400},
    ],
)
def test_a_preparing_event_without_a_work_and_a_time_is_none(changes: dict[str, object]) -> None:
    assert contract.read_preparing(PREPARING | changes) is None


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, {}),
        ({"done": 5, "total": 9, "unit": "bytes"}, {"done": 5, "total": 9, "unit": "bytes"}),
        ({"done": 5.7, "total": 9.2}, {"done": 5, "total": 9}),
        ({"done": 9, "total": 5, "unit": "bytes"}, {"done": 9, "unit": "bytes"}),
        ({"done": 0, "total": 0}, {"done": 0}),
        ({"total": 9, "unit": "bytes"}, {}),
        ({"done": -1, "total": 9, "unit": "bytes"}, {}),
        ({"done": 10**400, "total": 9}, {}),
        ({"done": 5, "total": 2**60, "unit": "[red]bytes"}, {"done": 5}),
        ({"done": 5, "unit": "x" * 21}, {"done": 5}),
        ({"done": 5, "unit": ["bytes"], "loss": 3, "text": "no"}, {"done": 5}),
    ],
)
def test_of_a_preparing_event_only_what_can_be_is_kept(given: dict[str, object], kept: dict[str, object]) -> None:
    assert contract.read_preparing(PREPARING | given) == {"what": "data", "seconds": 90.0, **kept}

"""A checkpoint that a stranger saved: read whole where it is genuine, and never run."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING, Metadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from runtimes.contract import METADATA_FILE, TRAINER_FILE
from runtimes.train.archives import check_archive
from runtimes.train.checkpoint import read_trainer
from runtimes.train.checkpoint_reader import DataOnlyReader, load_state
from runtimes.train.errors import BadCheckpoint

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # one process needs none of it
Change = Callable[[Metadata], Any]


class Planted:
    """Writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (Path.touch, (self.marker,))  # type: ignore[return-value]


def state_of(value: float, settings: Any = None) -> dict[str, Any]:
    """As a training's: weights, and an optimizer's settings beside its moments."""
    groups = {"lr": settings or value / 7, "betas": (0.9, 0.95), "foreach": None, "fused": False, "step": 3}
    weights = torch.full((4, 3), value) + torch.arange(12).reshape(4, 3) / 3
    return {"model": {"w": weights, "half": weights.bfloat16()}, "optimizer": {"param_groups": [groups]}}


def saved(folder: Path, state: dict[str, Any]) -> Path:
    """A checkpoint as the runtime leaves it."""
    save(state, storage_writer=FileSystemWriter(folder), no_dist=True)
    (folder / TRAINER_FILE).write_text(json.dumps({"step": 3}))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(tmp_path / "step-00000003", state_of(1.5))


def change(folder: Path, how: Change) -> None:
    """Write other metadata in the place of the genuine."""
    path = folder / METADATA_FILE
    metadata = pickle.loads(path.read_bytes())
    path.write_bytes(pickle.dumps(how(metadata) or metadata))


def change_part(**fields: Any) -> Change:
    def apply(metadata: Metadata) -> None:
        index = next(iter(metadata.storage_data))
        metadata.storage_data[index] = replace(metadata.storage_data[index], **fields)

    return apply


def test_a_genuine_checkpoint_is_loaded_bit_by_bit(folder: Path) -> None:
    state = state_of(0.0)
    load_state(state, folder, None)
    expected = state_of(1.5)
    assert all(torch.equal(state["model"][name], expected["model"][name]) for name in expected["model"])
    assert state["optimizer"] == expected["optimizer"]
    assert read_trainer(folder) == {"step": 3}


@pytest.mark.parametrize("where", ["whole", "planner_data", "among the tensors"])
def test_a_pickle_in_the_metadata_is_never_run(folder: Path, tmp_path: Path, where: str) -> None:
    planted = Planted(tmp_path / "it-ran")
    changes: dict[str, Change] = {
        "whole": lambda _: planted,
        "planner_data": lambda metadata: setattr(metadata, "planner_data", planted),
        "among the tensors": lambda metadata: metadata.state_dict_metadata.update(evil=planted),  # type: ignore[call-overload]
    }
    change(folder, changes[where])
    for read in (lambda: read_trainer(folder), lambda: load_state(state_of(0.0), folder, None)):
        with pytest.raises(BadCheckpoint, match=r"step-00000003 is not complete: it names "):
            read()
    assert not planted.marker.exists()
    pickle.loads((folder / METADATA_FILE).read_bytes())
    assert planted.marker.exists(), "what was planted would run where it is read as torch reads it"


def test_a_pickle_among_the_values_is_never_run(tmp_path: Path) -> None:
    planted = Planted(tmp_path / "it-ran")
    folder = saved(tmp_path / "step-00000003", state_of(1.5, settings=planted))
    with pytest.raises(BadCheckpoint, match="step-00000003 has a part that no training writes"):
        load_state(state_of(0.0), folder, None)
    assert not planted.marker.exists()
    load(state_of(0.0), storage_reader=FileSystemReader(folder), no_dist=True)
    assert planted.marker.exists(), "what was planted would run where it is read as torch reads it"


def test_a_checkpoint_that_debians_python_wrote_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11.2 writes an enumeration's members by name; those before and after it by value."""
    monkeypatch.setattr(_MEM_FORMAT_ENCODING, "__reduce_ex__", lambda each, _: (getattr, (type(each), each.name)))
    folder = saved(tmp_path / "step-00000003", state_of(1.5))
    assert b"getattr" in (folder / METADATA_FILE).read_bytes()
    state = state_of(0.0)
    load_state(state, folder, None)
    assert torch.equal(state["model"]["w"], state_of(1.5)["model"]["w"])


class Attribute:
    """Unpickles as an attribute of anything."""

    def __init__(self, of: object, name: object) -> None:
        self.of, self.name = of, name

    def __reduce__(self) -> tuple[Any, tuple[object, object]]:
        return (getattr, (self.of, self.name))


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (Metadata, "__init__"),
        (_MEM_FORMAT_ENCODING, "__class__"),
        (_MEM_FORMAT_ENCODING, "mro"),
        (torch.Size, "__subclasses__"),
        ("", "join"),
    ],
)
def test_attributes_of_other_things_are_refused(folder: Path, of: object, name: object) -> None:
    change(folder, lambda _: Attribute(of, name))
    with pytest.raises(BadCheckpoint, match="names an attribute that no checkpoint has"):
        DataOnlyReader(folder).read_metadata()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"relative_path": "../outside"}, "names a part that no training writes"),
        ({"relative_path": "/etc/passwd"}, "names a part that no training writes"),
        ({"relative_path": ".metadata"}, "names a part that no training writes"),
        ({"relative_path": 7}, "names a part that no training writes"),
        ({"transform_descriptors": ["zstd"]}, "names a part that no training writes"),
        ({"offset": -1}, "lies outside of it"),
        ({"length": 10**12}, "lies outside of it"),
        ({"length": "10"}, "lies outside of it"),
    ],
)
def test_a_part_that_lies_elsewhere_is_refused(folder: Path, fields: dict[str, Any], why: str) -> None:
    (folder.parent / "outside").write_bytes(b"somebody else's")
    change(folder, change_part(**fields))
    with pytest.raises(BadCheckpoint, match=why):
        read_trainer(folder)


def test_a_part_that_is_a_link_counts_as_missing(folder: Path) -> None:
    (part,) = folder.glob("*.distcp")
    part.rename(folder.parent / "elsewhere")
    part.symlink_to(folder.parent / "elsewhere")
    with pytest.raises(BadCheckpoint, match="lacks 1 of 1 parts"):
        read_trainer(folder)


@pytest.mark.parametrize("content", [b"", b"not a pickle", pickle.dumps({"a": 1}), pickle.dumps(None), b"\x80\x04."])
def test_what_is_no_metadata_is_refused(folder: Path, content: bytes) -> None:
    (folder / METADATA_FILE).write_bytes(content)
    with pytest.raises(BadCheckpoint, match="step-00000003 is not complete"):
        DataOnlyReader(folder).read_metadata()


def test_metadata_of_other_shapes_is_refused(folder: Path) -> None:
    change(folder, lambda metadata: setattr(metadata, "storage_data", [1]))
    with pytest.raises(BadCheckpoint, match="something else than metadata"):
        DataOnlyReader(folder).read_metadata()


def archive_of(entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """As torch's, of these entries."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, body in entries.items():
            archive.writestr(name, body)
    return packed.getvalue()


def compressed(entries: dict[str, bytes]) -> bytes:
    return archive_of({name: body + bytes(100_000) for name, body in entries.items()}, zipfile.ZIP_DEFLATED)


def with_a_large_value(entries: dict[str, bytes]) -> bytes:
    """A pickle of 40 bytes, which torch's "weights only" reader allows."""
    (name,) = [each for each in entries if each.endswith("data.pkl")]
    return archive_of(entries | {name: b"\x80\x02cbuiltins\nbytearray\nq\0J\0\0\0\x40\x85R."})


def in_capitals(entries: dict[str, bytes]) -> bytes:
    """torch finds its entries in any case."""
    return with_a_large_value(entries).replace(b"data.pkl", b"DATA.PKL")


def with_two_directories(entries: dict[str, bytes]) -> bytes:
    """The one at the end, which Python reads moved, and torch as it stands."""
    return compressed(entries) + archive_of(entries)


def with_a_comment(entries: dict[str, bytes]) -> bytes:
    """Which may look like another end."""
    whole = archive_of(entries)
    return whole[:-2] + b"\x04\0PK\5\6"


def cut(entries: dict[str, bytes]) -> bytes:
    return archive_of(entries)[-20:]


def overlapping(entries: dict[str, bytes]) -> bytes:
    """Many names for the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(None, 2))
        archive.writestr("archive/data/0", bytes(1000))
        for number in range(1, 100):
            again = copy(archive.infolist()[1])
            again.filename = f"archive/data/{number}"
            archive.filelist.append(again)
    return packed.getvalue()


def far_away(entries: dict[str, bytes]) -> bytes:
    """Bytes that no file has: an error of the disk would be nobody's fault."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, body in entries.items():
            archive.writestr(name, body)
        for each in archive.infolist():
            each.header_offset = 2**62
    return packed.getvalue()


def with_many_names_of_one_storage(entries: dict[str, bytes]) -> bytes:
    """torch finds `data/AA` where there is `data/aa`, and reads it once for each name."""
    tensors = b"".join(
        b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x02\0\0\0"
        + key
        + b"X\x03\0\0\0cpuK\x04tQK\0K\x04\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR"
        for key in (b"aa", b"AA", b"aA", b"Aa")
    )
    packed = {"archive/data.pkl": b"\x80\x02](" + tensors + b"e.", "archive/data/aa": bytes(16)}
    whole = archive_of(packed | {"archive/byteorder": b"little", "archive/version": b"3\n"})
    assert len(torch.load(io.BytesIO(whole), weights_only=True)) == 4, "torch reads it"
    return whole


def behind_a_bare_pickle(entries: dict[str, bytes]) -> bytes:
    """torch tells its first format, a bare pickle, by what the bytes begin with."""
    packed = io.BytesIO(b"\x80\x02.")
    packed.seek(0, io.SEEK_END)
    with zipfile.ZipFile(packed, "a") as archive:
        for name, body in entries.items():
            archive.writestr(name, body)
    return packed.getvalue()


def of_sets(entries: dict[str, bytes]) -> bytes:
    """A set for each byte of the pickle takes two hundred."""
    (name,) = [each for each in entries if each.endswith("data.pkl")]
    return archive_of(entries | {name: b"\x80\x04](" + b"\x8f" * 1000 + b"e."})


def of_lists(entries: dict[str, bytes]) -> bytes:
    (name,) = [each for each in entries if each.endswith("data.pkl")]
    return archive_of(entries | {name: b"\x80\x02](" + b"]" * 1000 + b"e."})


def of_many_entries(entries: dict[str, bytes]) -> bytes:
    return archive_of(entries | {f"archive/{number}": b"" for number in range(100)})


GROWING = [
    compressed,
    with_a_large_value,
    in_capitals,
    with_two_directories,
    with_a_comment,
    cut,
    overlapping,
    far_away,
    with_many_names_of_one_storage,
    behind_a_bare_pickle,
    of_sets,
    of_lists,
    of_many_entries,
]


@pytest.mark.parametrize("grow", GROWING, ids=lambda each: each.__name__)
@pytest.mark.parametrize("state", ["model", "optimizer"])
def test_a_part_that_grows_when_it_is_read_is_refused(
    folder: Path, state: str, grow: Callable[[dict[str, bytes]], bytes]
) -> None:
    """A few bytes that take gigabytes when torch reads them would end the memory of whoever resumes."""
    metadata = DataOnlyReader(folder).read_metadata()
    index = next(each for each in metadata.storage_data if each.fqn.startswith(state))
    part = metadata.storage_data[index]
    (file,) = folder.glob("*.distcp")
    whole = file.read_bytes()
    with zipfile.ZipFile(io.BytesIO(whole[part.offset : part.offset + part.length])) as genuine:
        packed = grow({each.filename: genuine.read(each) for each in genuine.infolist()})
    file.write_bytes(whole + packed)
    moved = replace(part, offset=len(whole), length=len(packed))
    change(folder, lambda metadata: metadata.storage_data.update({index: moved}))
    with pytest.raises(BadCheckpoint, match="has a part that no training writes"):
        load_state(state_of(0.0), folder, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_what_torch_writes_of_any_type_is_read(dtype: torch.dtype) -> None:
    for tensor in (torch.ones(3, 4), torch.ones(3, 4).t()[1:], torch.ones(()), torch.ones(0)):
        packed = io.BytesIO()
        torch.save(tensor.to(dtype), packed)
        check_archive(packed, len(packed.getvalue()), is_tensor=True)


@pytest.mark.parametrize(
    "body",
    [
        b"\x80\x02Nr\0\0\0\x7f.",
        b"\x80\x04\x95" + (2**45).to_bytes(8, "little") + b"N.",
        b"\x80\x04\x8e" + (2**45).to_bytes(8, "little") + b".",
        b"\x80\x04](" + b"\x8f" * 1000 + b"e.",
        b"\x80\x04](" + b"]" * 1000 + b"e.",
    ],
    ids=["a number of the memo", "a frame", "bytes", "sets", "lists"],
)
def test_metadata_that_asks_for_more_memory_than_it_has_bytes_is_refused(folder: Path, body: bytes) -> None:
    (folder / METADATA_FILE).write_bytes(body)
    with pytest.raises(BadCheckpoint, match="is not complete: "):
        DataOnlyReader(folder).read_metadata()

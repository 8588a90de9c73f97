"""Reads checkpoints as data: what a stranger saved is never run.

torch writes a checkpoint's metadata, and values that are no tensors, as pickles, and reads them back as such: a planted
one would run with the rights of whoever resumes from it. Here a pickle makes the types alone that torch itself writes;
a path out of the checkpoint's folder, or a part that lies outside of its file, is refused before anything is read.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import IO, Any, Final

import torch
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
    BytesStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem
from torch.distributed.checkpoint.state_dict_loader import load

from runtimes.contract import METADATA_BYTES_MAX, METADATA_FILE
from runtimes.train.archives import METADATA_OPCODES, VALUE_BYTES_MAX, Part, check_archive, check_pickle
from runtimes.train.errors import BadCheckpoint

_METADATA = "torch.distributed.checkpoint.metadata"
READABLE: Final = frozenset(
    {
        (_METADATA, "Metadata"),
        (_METADATA, "MetadataIndex"),
        (_METADATA, "TensorStorageMetadata"),
        (_METADATA, "BytesStorageMetadata"),
        (_METADATA, "ChunkStorageMetadata"),
        (_METADATA, "TensorProperties"),
        (_METADATA, "StorageMeta"),
        (_METADATA, "_MEM_FORMAT_ENCODING"),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch.serialization", "_get_layout"),
        ("torch", "Size"),
        ("pathlib", "PosixPath"),
        ("pathlib._local", "PosixPath"),  # as Python 3.13 names it
    }
)


class DataOnlyUnpickler(pickle.Unpickler):
    """Finds what torch's own metadata is made of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Raises UnpicklingError for any other name."""
        if (module, name) in READABLE:
            return super().find_class(module, name)
        if (module, name) == ("builtins", "getattr"):  # as Debian 12's Python 3.11.2 writes an enumeration
            return _memory_format
        if module == "torch" and isinstance(dtype := getattr(torch, name, None), torch.dtype):
            return dtype
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is nothing that a checkpoint has")


class DataOnlyReader(FileSystemReader):
    """torch's reader of a folder, for folders that strangers wrote."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Raises BadCheckpoint for what torch cannot have written."""
        path = self._folder / METADATA_FILE
        try:
            if path.stat().st_size > METADATA_BYTES_MAX:
                raise ValueError(f"{METADATA_FILE} is larger than {METADATA_BYTES_MAX} bytes")
            metadata = _read(path.read_bytes())
        except MemoryError:
            raise
        except Exception as error:  # there is nothing that a damaged pickle does not raise
            raise BadCheckpoint(f"checkpoint {self._folder.name} is not complete: {error}") from error
        self._check(metadata)
        metadata.storage_meta.load_id = self.load_id  # type: ignore[union-attr]
        return metadata

    def _check(self, metadata: Metadata) -> None:
        """Every part lies in a file of the folder, as it was written: neither elsewhere nor transformed."""
        sizes: dict[str, int] = {}
        for part in metadata.storage_data.values():
            name, offset, length = part.relative_path, part.offset, part.length
            is_plain = isinstance(name, str) and name == Path(name).name and not name.startswith(".")
            if not is_plain or getattr(part, "transform_descriptors", None):
                raise BadCheckpoint(
                    f"checkpoint {self._folder.name} names a part that no training writes: {name!r:.100}"
                )
            path = self._folder / name
            if name not in sizes:
                sizes[name] = path.stat().st_size if path.is_file() and not path.is_symlink() else -1
            if sizes[name] < 0:
                continue  # `check_parts` names them all
            if not (_is_count(offset) and _is_count(length) and offset + length <= sizes[name]):
                raise BadCheckpoint(f"checkpoint {self._folder.name} has a part of {name} that lies outside of it")
        self._missing = sorted(name for name, size in sizes.items() if size < 0)
        self._parts = len(sizes)

    def check_parts(self) -> None:
        """Raise BadCheckpoint where files are missing; call `read_metadata` first."""
        if self._missing:
            named = ", ".join(self._missing[:5])
            raise BadCheckpoint(
                f"checkpoint {self._folder.name} lacks {len(self._missing)} of {self._parts} parts: {named}"
            )

    def read_data(self, plan: LoadPlan, planner: Any) -> Any:
        """As torch's; refused are parts that grow when they are read, and values too large for a training's."""
        for item in plan.items:
            part = self.storage_data[item.storage_index]
            if item.type == LoadItemType.BYTE_IO and part.length > VALUE_BYTES_MAX:
                raise BadCheckpoint(
                    f"checkpoint {self._folder.name} has too large a value: {item.storage_index.fqn!r:.100}"
                )
            self._check_archive(part, is_tensor=item.type != LoadItemType.BYTE_IO)
        return super().read_data(plan, planner)

    def _check_archive(self, part: _StorageInfo, *, is_tensor: bool) -> None:
        """Refuse a part that takes more memory than it has bytes, by its archive or by the pickle in it."""
        try:
            with (self._folder / part.relative_path).open("rb") as file:
                check_archive(Part(file, part.offset, part.length), part.length, is_tensor=is_tensor)
        except (ValueError, zipfile.BadZipFile, NotImplementedError, EOFError) as error:
            raise BadCheckpoint(
                f"checkpoint {self._folder.name} has a part that no training writes: {error}"
            ) from error


class DataOnlyPlanner(DefaultLoadPlanner):
    """torch's planner, but for values that are no tensors: they are loaded as plain data."""

    def load_bytes(self, read_item: ReadItem, value: IO[bytes]) -> None:
        """Raises UnpicklingError for what is not plain data."""
        place = self.mappings[read_item.dest_index.fqn]
        set_element(self.original_state_dict, place, torch.load(value, weights_only=True))


def load_state(state: dict[str, Any], folder: Path, group: Any) -> None:
    """Fill `state` from a checkpoint, by all ranks of the group; raises BadCheckpoint where it cannot be."""
    try:
        load(state, storage_reader=DataOnlyReader(folder), planner=DataOnlyPlanner(), process_group=group)
    except CheckpointException as error:
        # Of several ranks' failures one that is not about the checkpoint says more: no memory, no disk.
        failures = [failure for failure, _ in error.failures.values()]
        for failure in failures:
            if isinstance(failure, BadCheckpoint | MemoryError | OSError | torch.OutOfMemoryError):
                raise failure from error
        raise BadCheckpoint(f"checkpoint {folder.name} cannot be loaded: {failures[0]}") from error


def _read(data: bytes) -> Metadata:
    check_pickle(data, METADATA_OPCODES)
    metadata = DataOnlyUnpickler(io.BytesIO(data)).load()
    if not isinstance(metadata, Metadata):
        raise ValueError(f"{METADATA_FILE} holds no metadata")
    parts, tensors = metadata.storage_data, metadata.state_dict_metadata
    kinds = TensorStorageMetadata | BytesStorageMetadata
    is_shaped = (
        isinstance(parts, dict)
        and all(isinstance(key, MetadataIndex) and isinstance(part, _StorageInfo) for key, part in parts.items())
        and isinstance(tensors, dict)
        and all(isinstance(name, str) and isinstance(each, kinds) for name, each in tensors.items())
    )
    if not is_shaped:
        raise ValueError(f"{METADATA_FILE} holds something else than metadata")
    if not isinstance(metadata.storage_meta, StorageMeta):
        metadata.storage_meta = StorageMeta()
    return metadata


def _memory_format(kind: object, name: object) -> _MEM_FORMAT_ENCODING:
    """The one enumeration that torch's metadata has: nothing else is looked up."""
    if kind is not _MEM_FORMAT_ENCODING or not isinstance(name, str) or name not in _MEM_FORMAT_ENCODING.__members__:
        raise pickle.UnpicklingError("it names an attribute that no checkpoint has")
    return _MEM_FORMAT_ENCODING[name]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0

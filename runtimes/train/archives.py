"""Whether a stranger's bytes are what torch writes of a tensor or a value: an archive with a pickle in it.

torch's "weights only" reader runs no code; but like the readers of archives and pickles under it, it allocates whatever
the bytes ask for. What is refused here would end the memory of whoever resumes, and a job with it.
"""

from __future__ import annotations

import io
import os
import pickletools
import re
import struct
import zipfile
from typing import IO, Any, Final, cast

VALUE_BYTES_MAX: Final = 16 * 1024 * 1024  # of one value that is no tensor: the optimizer's settings
TENSOR_PICKLE_BYTES_MAX: Final = 4096  # beside a tensor's bytes: a genuine one has 150
ENTRIES_MAX: Final = 64  # of one part's archive: a genuine one has seven
DIRECTORY_BYTES_MAX: Final = 64 * 1024
BYTES_EACH: Final = 4  # of a pickle for each object that it makes: a genuine one has ten

_SIMPLE: Final = frozenset(
    {
        *("PROTO", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
        *("BINUNICODE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT", "APPEND"),
        *("APPENDS", "SETITEM", "SETITEMS", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"),
    }
)
# Of the metadata, of the archive that torch.save makes of a tensor, and of one of a value.
METADATA_OPCODES: Final = _SIMPLE | {
    *("FRAME", "MEMOIZE", "GLOBAL", "STACK_GLOBAL", "SHORT_BINUNICODE", "SHORT_BINBYTES", "REDUCE", "NEWOBJ", "BUILD")
}
TENSOR_OPCODES: Final = _SIMPLE | {"GLOBAL", "REDUCE", "BINPERSID"}
VALUE_OPCODES: Final = _SIMPLE
_MAKING: Final = frozenset({"EMPTY_LIST", "EMPTY_DICT", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "REDUCE", "NEWOBJ"})
_TENSOR_NAMES: Final = re.compile(r"torch\._utils _rebuild_tensor_v2|torch \w+Storage|collections OrderedDict")
_PICKLE: Final = "data.pkl"
_BEGIN: Final = b"PK\3\4"
_END: Final = struct.Struct("<4s4H2LH")
_END64_LOCATOR: Final = struct.Struct("<4sLQL")
_END64: Final = struct.Struct("<4sQ2H2L4Q")


def check_archive(part: io.RawIOBase, length: int, *, is_tensor: bool) -> None:
    """Raise ValueError or BadZipFile for an archive that torch does not write: stored as it is, of one tensor or value.

    torch unpacks what somebody compressed, a MiB into a GiB; reads what does not begin as an archive by its first
    format, a bare pickle; and finds the same bytes by each spelling of their name. Its own reader and Python's may find
    different directories in one file, so there must be just one, at its end.
    """
    part.seek(0)
    if _read_exactly(part, len(_BEGIN)) != _BEGIN:
        raise ValueError("it begins with something else than an archive")
    _check_directory(part, length)
    untyped: Any = part
    archive = zipfile.ZipFile(untyped)
    entries = archive.infolist()
    if any(each.compress_type != zipfile.ZIP_STORED or each.file_size != each.compress_size for each in entries):
        raise ValueError("it is compressed")
    if (size := sum(each.file_size for each in entries)) > length:
        raise ValueError(f"it grows from {length} to {size} bytes")
    for each in entries:
        # By the name as it is written there, in any case, as torch looks it up: Python's view of it may be another.
        if _PICKLE in each.orig_filename.lower():
            if each.file_size > (TENSOR_PICKLE_BYTES_MAX if is_tensor else VALUE_BYTES_MAX):
                raise ValueError(f"its pickle has {each.file_size} bytes")
            check_pickle(archive.read(each), TENSOR_OPCODES if is_tensor else VALUE_OPCODES)


def _check_directory(part: io.RawIOBase, length: int) -> None:
    """The directory lies right before its own records, and those are the last bytes (APPNOTE.TXT 4.3.14 to 4.3.16)."""
    tail = min(length, _END.size + _END64_LOCATOR.size + _END64.size)
    part.seek(length - tail)
    data = _read_exactly(part, tail)
    if tail < _END.size:
        raise ValueError("it is too short")
    magic, *_, entries, size, offset, comment = _END.unpack_from(data, tail - _END.size)
    if magic != b"PK\5\6" or comment:
        raise ValueError("its end is not an archive's")
    begin = length - _END.size
    if tail > _END.size and data[-_END.size - _END64_LOCATOR.size :][:4] == b"PK\6\7":
        *_, at, _ = _END64_LOCATOR.unpack_from(data, tail - _END.size - _END64_LOCATOR.size)
        begin -= _END64_LOCATOR.size + _END64.size
        if at != begin or begin < 0:
            raise ValueError("its directory lies elsewhere")
        magic, *_, entries, size, offset = _END64.unpack_from(data, 0)
        if magic != b"PK\6\6":
            raise ValueError("its directory lies elsewhere")
    if offset + size != begin:
        raise ValueError("its directory lies elsewhere")
    if entries > ENTRIES_MAX or size > DIRECTORY_BYTES_MAX:
        raise ValueError(f"its directory has {entries} entries in {size} bytes")


def check_pickle(data: bytes, opcodes: frozenset[str]) -> None:
    """Raise ValueError for a pickle that says other things than these, or that makes much out of few bytes.

    Reading one runs nothing but what it names; it may still ask for terabytes in ten bytes: by a number of its memo,
    the length of a frame, or a set for each byte.
    """
    storages = made = 0
    for count, (opcode, given, _) in enumerate(pickletools.genops(data), 1):
        name, argument = opcode.name, cast("Any", given)
        if name not in opcodes:
            raise ValueError(f"its pickle uses {name}")
        if (name == "FRAME" and argument > len(data)) or (name.endswith("BINPUT") and argument > count):
            raise ValueError(f"its pickle asks for memory: {name} {argument}")
        if opcodes is TENSOR_OPCODES and name == "GLOBAL" and not _TENSOR_NAMES.fullmatch(argument):
            raise ValueError(f"it names {argument!s:.100}")
        storages += name == "BINPERSID"
        made += name in _MAKING
    if storages > 1 or made > max(len(data) // BYTES_EACH, 1):
        raise ValueError(f"its pickle makes {made} objects and {storages} tensors of {len(data)} bytes")


def _read_exactly(part: io.RawIOBase, count: int) -> bytes:
    data = part.read(count) or b""
    if len(data) != count:
        raise ValueError("it ends early")
    return data


class Part(io.RawIOBase):
    """The bytes of one part of a file, as a file. torch's own view of them seeks wrongly from their end."""

    def __init__(self, file: IO[bytes], offset: int, length: int) -> None:
        super().__init__()
        self._file, self._offset, self._length, self._at = file, offset, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence] + offset
        if not 0 <= at <= self._length:  # no OSError, which would be taken for the disk's
            raise ValueError("it names bytes outside of it")
        self._at = at
        return at

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._offset + self._at)
        data = self._file.read(min(len(buffer), self._length - self._at))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

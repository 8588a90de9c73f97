"""YAML text to plain data with the position of every key and value; whatever the text, it ends quickly and cleanly.

Reads parser events with a stack of its own instead of composing a tree: depth, size, aliases and tags are refused as
they come, so neither a bomb of aliases nor a thousand brackets costs anything. Plain scalars follow YAML 1.2's core:
`yes` and `on` are texts, `010` and `1:30` are not numbers, and there is no infinity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NoReturn

import yaml

from jobs.spec.errors import SpecError, SpecErrors

FILE_BYTES_MAX = 256 * 1024
DEPTH_MAX = 16
VALUES_MAX = 20_000

Path = tuple[str | int, ...]

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]{0,30})")
_DECIMAL = re.compile(r"[-+]?[0-9][0-9_]{0,30}(?:\.[0-9]{0,30})?(?:[eE][-+]?[0-9]{1,3})?")
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


@dataclass(frozen=True)
class Position:
    """Line and column, both from 1."""

    line: int
    column: int


@dataclass
class Document:
    """The data of one YAML document, and where each key and value of it stands."""

    data: Any = None
    keys: dict[Path, Position] = field(default_factory=dict)
    values: dict[Path, Position] = field(default_factory=dict)
    errors: list[SpecError] = field(default_factory=list)  # duplicate keys and the like: reading went on after them


@dataclass
class _Open:
    """A mapping or list that has begun and not ended."""

    path: Path
    container: dict[str, Any] | list[Any]
    key: str | None = None  # of a mapping: read, its value not yet
    is_skipped: bool = False  # the value belongs to a key that was refused


def read_document(source: str | bytes) -> Document:
    """The one document in `source`; raises SpecErrors where it is not readable YAML at all."""
    text = _text(source)
    try:
        return _Reader().read(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.reader.ReaderError as error:
        position = _position_of(text, error.position)
        _refuse(f"the character U+{_codepoint(error):04X} is not allowed in YAML", position)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = Position(mark.line + 1, mark.column + 1) if mark else Position(1, 1)
        _refuse(*_syntax(error, text, position))
    except yaml.YAMLError as error:
        _refuse(f"not valid YAML: {error}", Position(1, 1))


class _Reader:
    def __init__(self) -> None:
        self.document = Document()
        self.stack: list[_Open] = []
        self.values = 0
        self.documents = 0

    def read(self, events: Iterator[yaml.Event]) -> Document:
        for event in events:
            mark = event.start_mark
            position = Position(mark.line + 1, mark.column + 1) if mark else Position(1, 1)
            if isinstance(event, yaml.DocumentStartEvent):
                self.documents += 1
                if self.documents > 1:
                    _refuse("a second document begins here", position, "one document a file")
            elif isinstance(event, yaml.AliasEvent):
                _refuse(f"the alias *{event.anchor} is not allowed", position, "the value itself, written out")
            elif isinstance(event, yaml.NodeEvent):
                self._node(event, position)
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                closed = self.stack.pop()
                self._value_done(closed.container, closed.path)
        if self.documents == 0 or self.document.data is None:
            _refuse("the file is empty", Position(1, 1), "a mapping that begins with kind, such as kind: train")
        return self.document

    def _node(self, event: yaml.NodeEvent, position: Position) -> None:
        self.values += 1
        if self.values > VALUES_MAX:
            _refuse(f"the file holds more than {VALUES_MAX} values", position)
        if event.anchor is not None:
            _refuse(f"the anchor &{event.anchor} is not allowed", position, "plain values, written out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            _refuse(f"the tag {tag} is not allowed", position, "a plain value")
        if self._expects_key():
            self._key(event, position)
            return
        path = self._next_path()
        self.document.values.setdefault(path, position)
        if isinstance(event, yaml.ScalarEvent):
            self._value_done(_scalar(event), path)
            return
        if len(self.stack) >= DEPTH_MAX:
            _refuse(f"nested more than {DEPTH_MAX} deep", position)
        self.stack.append(_Open(path, {} if isinstance(event, yaml.MappingStartEvent) else []))

    def _expects_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].container, dict) and self.stack[-1].key is None

    def _key(self, event: yaml.NodeEvent, position: Position) -> None:
        top = self.stack[-1]
        if not isinstance(event, yaml.ScalarEvent):
            _refuse("a list or mapping cannot be a key", position, "a name")
        path = (*top.path, event.value)
        top.key, top.is_skipped = event.value, event.value in top.container
        if top.is_skipped:
            first = self.document.keys[path].line
            message = f"the key is given twice, first in line {first}"
            self.document.errors.append(SpecError(position.line, position.column, dotted(path), message))
        else:
            self.document.keys[path] = position

    def _next_path(self) -> Path:
        if not self.stack:
            return ()
        top = self.stack[-1]
        return (*top.path, len(top.container) if isinstance(top.container, list) else str(top.key))

    def _value_done(self, value: Any, path: Path) -> None:
        if not self.stack:
            self.document.data = value
            return
        top = self.stack[-1]
        if isinstance(top.container, list):
            top.container.append(value)
            return
        if not top.is_skipped:
            top.container[str(top.key)] = value
        top.key, top.is_skipped = None, False


def dotted(path: Path) -> str:
    """`resources.models[1]`"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{_short(part)}" if text else _short(part)
    return text


def _scalar(event: yaml.ScalarEvent) -> Any:
    """A quoted scalar is its text; a plain one null, a truth value, int, Decimal or its text."""
    text: str = event.value
    if event.style is not None:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    if _DECIMAL.fullmatch(text) and not (text.lstrip("+-")[0] == "0" and text.lstrip("+-")[1:2].isdigit()):
        return Decimal(text.replace("_", ""))
    return text


def _text(source: str | bytes) -> str:
    size = len(source) if isinstance(source, bytes) else len(source.encode("utf-8", "surrogatepass"))
    if size > FILE_BYTES_MAX:
        _refuse("the file is too large", None, f"at most {FILE_BYTES_MAX} bytes (256 KiB)")
    if isinstance(source, str):
        return source
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        column = error.start - (source.rfind(b"\n", 0, error.start) + 1) + 1
        _refuse(f"the byte 0x{source[error.start]:02x} is not UTF-8", Position(line, column), "text in UTF-8")


def _syntax(error: yaml.MarkedYAMLError, text: str, position: Position) -> tuple[str, Position, str]:
    """What the parser's most frequent complaints mean, in the words of somebody who writes a job file."""
    problem = str(error.problem or error.context or "not valid YAML")
    lines = text.split("\n")
    line = lines[position.line - 1] if position.line <= len(lines) else ""
    if "\t" in line[: position.column] or "'\\t'" in problem:
        return "a tab is not allowed here", position, "spaces for indentation"
    if "could not find expected ':'" in problem:
        return "this line is no key with a value", position, "key: value"
    if "mapping values are not allowed" in problem:
        return "a second ': ' in one line, or a wrong indentation", position, "quotes around a text that holds ': '"
    return f"not valid YAML: {problem}", position, ""


def _position_of(text: str, index: int) -> Position:
    return Position(text.count("\n", 0, index) + 1, index - (text.rfind("\n", 0, index) + 1) + 1)


def _codepoint(error: yaml.reader.ReaderError) -> int:
    return error.character if isinstance(error.character, int) else ord(error.character)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _refuse(message: str, position: Position | None, expected: str = "") -> NoReturn:
    line, column = (position.line, position.column) if position else (None, None)
    raise SpecErrors([SpecError(line, column, "", message, expected)])

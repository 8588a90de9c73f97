"""An engine's stream, event by event: rewritten for the client, and recorded for the count and for a continuation.

Every chunk gets the client's model name, and one id and time over all replicas. Most chunks differ from the one before
in nothing but their text: then neither is decoded, and the new text is put between the rewritten ends of the old one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from jobs.gateway import strict_json
from jobs.gateway.engines import sse

SENT_CHARS_MAX = 1 << 20  # of an answer that may have to go on elsewhere; a longer one stays where it is
MARK = "\x00text\x00"  # stands for the text while a chunk's ends are made
_MARKED = json.dumps(MARK).encode()

decode = json.JSONDecoder(parse_constant=strict_json.no_number, parse_float=strict_json.finite).decode


class EngineFailed(Exception):
    """The engine reports in its stream, or instead of it, that it failed."""


@dataclass
class ReceivedOutput:
    """What one replica has sent of one answer."""

    chunks: int = 0  # that had text or a call in them
    text_bytes: int = 0
    calls: int = 0  # chunks with something else than text
    finished: set[int] = field(default_factory=set)
    finish_reason: str = ""
    is_done: bool = False  # [DONE] came
    usage: dict[str, Any] | None = None
    commitment: Any = None  # the engine's `souk_commitment`

    @property
    def has_output(self) -> bool:
        """Something came that the client waits for."""
        return bool(self.chunks or self.calls or self.finished)


@dataclass(frozen=True)
class Template:
    """A chunk without its text, as it comes and as it is sent."""

    head: bytes
    tail: bytes
    new_head: bytes
    new_tail: bytes


class Rewriter:
    """Reads one replica's stream of one answer."""

    __slots__ = ("_chars", "_created", "_id", "_is_chat", "_model", "_starts", "_template", "received", "sent")

    def __init__(
        self, *, id: str, model: str, created: int, is_chat: bool, keep_text: bool, is_continued: bool = False
    ) -> None:
        self._id, self._model, self._created, self._is_chat = id, model, created, is_chat
        self._starts = not is_continued  # the client has the role already
        self._template: Template | None = None
        self._chars = 0
        self.received = ReceivedOutput()
        self.sent: list[str] | None = [] if keep_text else None

    def read(self, data: bytes) -> bytes:
        """The event for the client; empty when it is none for it. Raises BadStream and EngineFailed."""
        template = self._template
        if template is not None and data.startswith(template.head) and data.endswith(template.tail):
            raw = data[len(template.head) : -len(template.tail)]
            text = _plain(raw)
            if text:
                self._note(text, len(raw))
                return template.new_head + raw + template.new_tail
        return self._read_slowly(data)

    def _read_slowly(self, data: bytes) -> bytes:
        if data.strip() == sse.DONE:
            self.received.is_done = True
            return b""
        chunk = _decode(data)
        if chunk.get("error") is not None:
            raise EngineFailed(_message(chunk["error"]))
        usage, commitment = chunk.pop("usage", None), chunk.pop("souk_commitment", None)
        if isinstance(usage, dict):
            self.received.usage = usage
        if commitment is not None:
            self.received.commitment = commitment
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            raise sse.BadStream("an event of the engine has no choices")
        text = None
        for choice in choices:
            text = self._note_choice(choice)
        if not choices or self._is_known_start(choices):
            return b""
        chunk["id"], chunk["model"], chunk["created"] = self._id, self._model, self._created
        if text and len(choices) == 1 and not self.received.finished:
            self._learn(data, chunk, text)
        return sse.write_event(json.dumps(chunk).encode())

    def _note_choice(self, choice: Any) -> str | None:
        """Its text, where it has text and nothing else."""
        if not isinstance(choice, dict):
            raise sse.BadStream("a choice of the engine is no object")
        delta = choice.get("delta") if self._is_chat else choice
        if delta is None:
            delta = {}
        if not isinstance(delta, dict):
            raise sse.BadStream("the text of a choice is not in an object")
        text = delta.get("content" if self._is_chat else "text")
        reason, index = choice.get("finish_reason"), choice.get("index", 0)
        if isinstance(reason, str) and isinstance(index, int):
            self.received.finished.add(index)
            self.received.finish_reason = reason
        others = [
            delta[name] for name in ("tool_calls", "reasoning_content", "reasoning", "refusal") if delta.get(name)
        ]
        if others:
            self.received.calls += 1
            self.received.chunks += 1
            self.received.text_bytes += len(json.dumps(others))
            self.sent = None
        if isinstance(text, str) and text:
            self._note(text, len(text.encode(errors="replace")))
            return None if others else text
        return None

    def _note(self, text: str, size: int) -> None:
        received = self.received
        received.chunks += 1
        received.text_bytes += size
        if self.sent is not None:
            self.sent.append(text)
            self._chars += len(text)
            if self._chars > SENT_CHARS_MAX:
                self.sent = None

    def _is_known_start(self, choices: list[Any]) -> bool:
        """A chunk that has only the role, of a stream that continues another."""
        if self._starts or not self._is_chat:
            return False
        return all(
            not choice.get("finish_reason")
            and not any(v for k, v in (choice.get("delta") or {}).items() if k != "role")
            for choice in choices
        )

    def _learn(self, data: bytes, chunk: dict[str, Any], text: str) -> None:
        """Remember how a chunk with one text looks, if the text's position in its bytes is certain."""
        encoded = text.encode(errors="replace")
        name = b'"content":' if self._is_chat else b'"text":'
        start = data.find(name)
        if start < 0 or data.find(name, start + 1) >= 0 or not _plain(encoded):
            return
        start = data.find(b'"', start + len(name)) + 1
        if data[start : start + len(encoded) + 1] != encoded + b'"':
            return
        choice = chunk["choices"][0]
        holder, key = (choice["delta"], "content") if self._is_chat else (choice, "text")
        new = json.dumps(chunk | {"choices": [self._marked(choice, holder, key)]}).encode()
        head, _, tail = new.partition(_MARKED)
        self._template = Template(
            data[:start], data[start + len(encoded) :], b"data: " + head + b'"', b'"' + tail + b"\n\n"
        )

    def _marked(self, choice: dict[str, Any], holder: dict[str, Any], key: str) -> dict[str, Any]:
        return choice | ({"delta": holder | {key: MARK}} if self._is_chat else {key: MARK})


def _plain(raw: bytes) -> str:
    """The text between a JSON string's quotes, where it is its own encoding; else empty."""
    if b'"' in raw or b"\\" in raw:
        return ""
    try:
        text = str(raw, "utf-8")
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() else ""


def _decode(data: bytes) -> dict[str, Any]:
    try:
        chunk = decode(str(data, "utf-8"))
    except (ValueError, RecursionError) as error:
        if b'"error"' in data[:64]:
            raise EngineFailed(data[:500].decode(errors="replace")) from error
        raise sse.BadStream("an event of the engine is not JSON") from error
    if not isinstance(chunk, dict):
        raise sse.BadStream("an event of the engine is no JSON object")
    return chunk


def _message(error: Any) -> str:
    if isinstance(error, dict):
        error = error.get("message", "")
    return str(error)[:500]

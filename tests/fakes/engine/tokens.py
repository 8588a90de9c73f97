"""The next token is a function of all the text before it, as a greedy model's is.

So a stream that another replica goes on with gives the same text as one that was never broken off.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

TOKENS_MAX = 100_000  # of one answer
DEPTH_MAX = 16  # of a JSON schema that is filled in
_VOCABULARY = """
    ant bear cat dog eel fox goat hen ibis jay koala lynx mole newt otter pig quail rat seal toad urial vole wolf yak
    amber brick cedar drum ember flute glass horn iron jade kite lamp moss nest opal pearl quartz reed sand tin umber
    vine wool yarn zinc über naïve 東京 мир
"""
WORDS = tuple(_VOCABULARY.split())


def words_after(text: str, *, is_first: bool) -> Iterator[str]:
    """The tokens that follow `text`, without an end; only the first of an answer has no space before it."""
    state = sha256(text.encode())
    while True:
        word = WORDS[int.from_bytes(state.digest()[:4], "big") % len(WORDS)]
        token = word if is_first else f" {word}"
        is_first = False
        state.update(token.encode())
        yield token


def count(text: str) -> int:
    """Tokens of a text: its words."""
    return len(text.split())


def pieces(text: str) -> list[str]:
    """A text as tokens that add up to it."""
    return re.findall(r"\s*\S+|\s+$", text)


def cut(tokens: list[str], stops: list[str]) -> tuple[list[str], bool]:
    """The tokens up to the first of the stop strings, which is left out, and whether there was one."""
    text = "".join(tokens)
    found = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    if not found:
        return tokens, False
    kept, room = [], min(found)
    for token in tokens:
        if room <= 0:
            break
        kept.append(token[:room])
        room -= len(token)
    return kept, True


def vector(text: str, dimensions: int) -> list[float]:
    """A direction that depends on the text alone, of length 1."""
    raw = b"".join(sha256(f"{part}:{text}".encode()).digest() for part in range(dimensions // 8 + 1))
    numbers = [int.from_bytes(raw[4 * i : 4 * i + 4], "big") / 2**31 - 1 for i in range(dimensions)]
    length = sum(number * number for number in numbers) ** 0.5
    return [number / length for number in numbers]


def packed(numbers: list[float]) -> str:
    """OpenAI's base64 form of an embedding."""
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def instance(schema: dict[str, Any], depth: int = 0) -> Any:
    """Something that a JSON schema of the usual kinds allows."""
    if depth > DEPTH_MAX:
        return None
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: instance(properties[name], depth + 1) for name in schema.get("required", list(properties))}
    if kind == "array":
        return [instance(schema.get("items", {"type": "string"}), depth + 1)]
    return {"string": "otter", "integer": 7, "number": 0.5, "boolean": True}.get(kind)


def as_json(value: Any) -> str:
    """JSON as a model writes it."""
    return json.dumps(value, ensure_ascii=False)

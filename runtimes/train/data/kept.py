"""Tokens and trained tokenizers that are kept on the node: put into its cache, and taken from it again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from runtimes.contract import TOKENIZER_FILE
from runtimes.node_cache import Entry, NodeCache
from runtimes.train.data.encode import Encoded
from runtimes.train.data.tokenizer import is_trained, load_tokenizer

KIND: Final = "tokens"
TOKENIZER_KIND: Final = "tokenizer"
TOKENS_NAME: Final = "tokens.int32"
MARKS_NAME: Final = "marks.uint8"
FIELDS: Final = {field.name: type(field.default) for field in dataclasses.fields(Encoded)[2:]}


@dataclass(frozen=True)
class Kept:
    """Encoded data, with the folder that holds them and the chat template that leaves with the model."""

    encoded: Encoded
    template: str | None
    folder: Path
    found: str = ""  # when it was made, where that was before this training


def find_kept(cache: NodeCache, key: str) -> Kept | None:
    """What an earlier training of the customer's made of the same data; None where nothing whole is there."""
    entry = cache.find(KIND, key)
    return _kept(entry) if entry is not None else None


def keep(cache: NodeCache, folder: Path, encoded: Encoded, template: str | None) -> None:
    """What is in the folder is complete."""
    cache.complete(folder, encoded=dataclasses.asdict(encoded), template=template)


def find_tokenizer(cache: NodeCache, key: str, size: int) -> Tokenizer | None:
    """What an earlier training made of the same data; None where nothing is there that a training can have made."""
    entry = cache.find(TOKENIZER_KIND, key)
    try:
        found = load_tokenizer(entry.folder) if entry is not None else None
    except Exception:  # its library raises no narrower one
        return None
    return found if found is not None and is_trained(found, size) else None


def keep_tokenizer(cache: NodeCache, key: str, tokenizer: Tokenizer) -> None:
    """For later trainings on the same data."""
    folder = cache.begin(TOKENIZER_KIND, key)
    tokenizer.save(str(folder / TOKENIZER_FILE))
    cache.complete(folder)


def _kept(entry: Entry) -> Kept | None:
    encoded, template = entry.about.get("encoded"), entry.about.get("template")
    if not (isinstance(encoded, dict) and _is_encoded(encoded) and isinstance(template, str | None)):
        return None
    made = Encoded(**encoded)
    names = {TOKENS_NAME, *([MARKS_NAME] if made.is_rows else [])}
    if not all((entry.folder / name).is_file() for name in names):
        return None
    return Kept(made, template, entry.folder, found=entry.made)


def _is_encoded(about: dict[str, Any]) -> bool:
    is_named = isinstance(about.get("digest"), str) and isinstance(about.get("is_rows"), bool)
    return (
        is_named
        and about.keys() == {"digest", "is_rows", *FIELDS}
        and all(type(about[name]) is kind for name, kind in FIELDS.items())
    )

"""The tokenizer: byte-level BPE, trained on the data or loaded; the same text gives the same tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from runtimes.contract import TOKENIZER_FILE, TOKENIZER_SETTINGS_FILE
from runtimes.train.errors import BadData

END_OF_TEXT = "<|endoftext|>"
PADDING = "<|padding|>"
TRAINING_CHARACTERS_MAX = 200_000_000  # more text changes a vocabulary little, and costs memory


def train_tokenizer(documents: Iterable[str], vocabulary_size: int) -> Tokenizer:
    """A byte-level BPE tokenizer: id 0 ends a text, id 1 pads; every byte has a token, so no text is unknown."""
    tokenizer = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[END_OF_TEXT, PADDING],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_first_characters(documents, TRAINING_CHARACTERS_MAX), trainer=trainer)
    return tokenizer


def is_trained(tokenizer: Tokenizer, vocabulary_size: int) -> bool:
    """Whether `train_tokenizer` can have made it: made anew of its tokens and merges alone, it is the same.

    A stranger's may say more: to pad each text to twenty million tokens, or to replace each letter by a book.
    """
    model = json.loads(tokenizer.to_str())["model"]
    tokens, alphabet = model.get("vocab"), pre_tokenizers.ByteLevel.alphabet()
    if not isinstance(tokens, dict) or len(tokens) > max(vocabulary_size, len(alphabet) + 2):
        return False
    if not tokens.keys() >= {END_OF_TEXT, PADDING, *alphabet} or sorted(tokens.values()) != list(range(len(tokens))):
        return False
    try:
        again = _byte_level(models.BPE(vocab=tokens, merges=[(first, second) for first, second in model["merges"]]))
    except Exception:  # its library raises no narrower one for merges that make no token
        return False
    again.add_special_tokens([END_OF_TEXT, PADDING])
    return bool(again.to_str() == tokenizer.to_str())


def load_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer in a folder, or None where it holds none in the fast format."""
    path = folder / TOKENIZER_FILE
    return Tokenizer.from_file(str(path)) if path.is_file() else None


def end_of_text_id(tokenizer: Tokenizer, folder: Path | None, fallback: int | list[int] | None) -> int:
    """The id put after each document: what the tokenizer's own settings in `folder` call its end, else our own end,
    else what the model's configuration says (the first where it lists several), else 0. Raises BadData."""
    token = _declared_end(folder) if folder else None
    for known in (token, END_OF_TEXT):
        found = tokenizer.token_to_id(known) if known is not None else None
        if found is not None:
            return int(found)
    ends = fallback if isinstance(fallback, list) else [fallback]
    return int(next((end for end in ends if end is not None), 0))


def first_ids(tokenizer: Tokenizer) -> list[int]:
    """The ids that the tokenizer puts before each text: mostly the begin's, or none."""
    plain, whole = (tokenizer.encode("a", add_special_tokens=adds).ids for adds in (False, True))
    count = next((at for at in range(len(whole)) if whole[at : at + len(plain)] == plain), 0)
    return list(whole[:count])


def _declared_end(folder: Path) -> str | None:
    path = folder / TOKENIZER_SETTINGS_FILE
    if not path.is_file():
        return None
    try:
        token = json.loads(path.read_text()).get("eos_token")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise BadData(f"the model's {TOKENIZER_SETTINGS_FILE} is not an object in JSON: {error}") from error
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) and token.isprintable() else None  # its library refuses half a character


def _byte_level(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _first_characters(documents: Iterable[str], limit: int) -> Iterable[str]:
    seen = 0
    for text in documents:
        if seen >= limit:
            return
        seen += len(text)
        yield text

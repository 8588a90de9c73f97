"""The tokenizer: byte-level BPE, trained on the data or loaded; the same text gives the same tokenizer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from runtimes.contract import TOKENIZER_FILE

END_OF_TEXT = "<|endoftext|>"
PADDING = "<|padding|>"
TRAINING_CHARACTERS_MAX = 200_000_000  # more text changes a vocabulary little, and costs memory


def train_tokenizer(documents: Iterable[str], vocabulary_size: int) -> Tokenizer:
    """A byte-level BPE tokenizer: id 0 ends a text, id 1 pads; every byte has a token, so no text is unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[END_OF_TEXT, PADDING],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_first_characters(documents, TRAINING_CHARACTERS_MAX), trainer=trainer)
    return tokenizer


def load_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer in a folder, or None where it holds none in the fast format."""
    path = folder / TOKENIZER_FILE
    return Tokenizer.from_file(str(path)) if path.is_file() else None


def end_of_text_id(tokenizer: Tokenizer, fallback: int | None) -> int:
    """The id put after each document: our own end, else what the model's configuration says, else 0."""
    own = tokenizer.token_to_id(END_OF_TEXT)
    return int(own if own is not None else fallback or 0)


def _first_characters(documents: Iterable[str], limit: int) -> Iterable[str]:
    seen = 0
    for text in documents:
        if seen >= limit:
            return
        seen += len(text)
        yield text

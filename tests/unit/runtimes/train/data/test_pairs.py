"""Pairs of answers, as texts and as messages, become two rows; a line that is none is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from runtimes.train.data.conversations import Conversations, open_conversations
from runtimes.train.data.corpus import Corpus, open_corpus
from runtimes.train.data.documents import Record, Run
from runtimes.train.data.encode import EncodingProgress
from runtimes.train.data.pairs import encode_pairs, write_pair
from runtimes.train.data.tokenizer import END_OF_TEXT, train_tokenizer
from runtimes.train.errors import BadData

RUN = Run(None, 0, 1, 1)
ASKED = {"role": "user", "content": "Two?"}
GOOD, BAD = {"role": "assistant", "content": "Three."}, {"role": "assistant", "content": "No."}
TEXTS = {"prompt": "Two? ", "chosen": "Three.", "rejected": "No."}
LENGTH = 24


def tokenizer() -> Tokenizer:
    return train_tokenizer(["a souk, two or three"], 300)


def conversations() -> Conversations:
    return open_conversations(tokenizer(), None, end_id=0, template_path=None, learns_inputs=False)


def answers(value: dict[str, Any]) -> list[list[str]]:
    """What is compared of each side."""
    pair = write_pair(conversations(), Record(value, RUN, 6))
    return [[example.text[start:end] for start, end in example.learned] for example in pair]


def corpus_of(rows: list[dict[str, Any]], folder: Path) -> Corpus:
    records = [Record(row, RUN, number) for number, row in enumerate(rows)]
    path, marks = folder / "tokens", folder / "marks"
    encoded = encode_pairs(
        records,
        tokenizer(),
        conversations(),
        end_id=0,
        path=path,
        marks_path=marks,
        sequence_length=LENGTH,
        progress=EncodingProgress([RUN], lambda *_: None),
    )
    return open_corpus(path, marks, encoded, sequence_length=LENGTH, eval_fraction=0.3, packs=False)


def test_texts_are_written_as_they_are() -> None:
    assert answers(TEXTS) == [[f"Three.{END_OF_TEXT}"], [f"No.{END_OF_TEXT}"]]


@pytest.mark.parametrize(
    "value",
    [
        {"prompt": [ASKED], "chosen": [GOOD], "rejected": [BAD]},
        {"chosen": [ASKED, GOOD], "rejected": [ASKED, BAD]},
        {"prompt": None, "chosen": [ASKED, GOOD], "rejected": [ASKED, BAD], "score": 5},
    ],
)
def test_messages_are_written_by_the_template(value: dict[str, Any]) -> None:
    assert answers(value) == [[f"Three.{END_OF_TEXT}\n"], [f"No.{END_OF_TEXT}\n"]]


def test_rows_of_a_pair_stay_together(tmp_path: Path) -> None:
    rows = [{**TEXTS, "rejected": f"No, {number}."} for number in range(5)]
    corpus = corpus_of([*rows, {**TEXTS, "prompt": "Two? " * LENGTH}], tmp_path)
    assert (corpus.train_samples, corpus.eval_samples) == (3, 2), "the pair that is too long is left out"
    found = corpus.train_sequences(np.array([2, 0], dtype=np.uint64))
    assert found.tokens.shape == (4, LENGTH + 1)
    texts = [tokenizer().decode(list(row)) for row in found.tokens]
    assert ["Three." in text for text in texts] == [True, False, True, False]
    assert "No, 2." in texts[1] and "No, 0." in texts[3]
    assert list(found.samples) == [2, 0]
    assert list(found.part(1, 1).samples) == [0]
    assert np.array_equal(found.part(1, 1).tokens, found.tokens[2:])
    assert corpus.train_targets(np.array([2, 0], dtype=np.uint64)) == 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"text": "a"}, "is no pair of answers"),
        ({**TEXTS, "chosen": None}, "is no pair of answers"),
        ({**TEXTS, "prompt": None}, "must be three texts, or lists of messages"),
        ({**TEXTS, "chosen": [GOOD]}, "must be three texts, or lists of messages"),
        ({**TEXTS, "rejected": "Three."}, "are the same, so there is nothing to prefer"),
        ({**TEXTS, "rejected": "  "}, "must hold more than spaces"),
        ({"chosen": [], "rejected": [BAD]}, "must each have from 1 to 2000 messages"),
        ({"chosen": [GOOD], "rejected": [BAD]}, "must begin with the same messages"),
        ({"chosen": [ASKED], "rejected": [ASKED, BAD]}, "go on with an answer each"),
        ({"prompt": "Two?", "chosen": [GOOD], "rejected": [BAD]}, "so prompt must be one, too"),
        ({"prompt": [ASKED], "chosen": [{"role": "judge", "content": "a"}], "rejected": [BAD]}, "role is 'judge'"),
    ],
)
def test_line_that_is_no_pair_is_named(value: dict[str, Any], message: str) -> None:
    with pytest.raises(BadData, match=f"^python-docs row 7.*{message}"):
        answers(value)

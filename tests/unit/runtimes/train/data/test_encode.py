"""Records as tokens on disk, and the samples that they become."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, processors

from runtimes.job_files import JobFiles
from runtimes.train.data import encode
from runtimes.train.data.conversations import Conversations, open_conversations
from runtimes.train.data.corpus import Corpus, open_corpus
from runtimes.train.data.documents import Record, Run, find_runs, read_records
from runtimes.train.data.encode import Encoded, EncodingProgress, encode_conversations, encode_texts, learned_tokens
from runtimes.train.data.tokenizer import END_OF_TEXT, PADDING, end_of_text_id, train_tokenizer
from runtimes.train.errors import BadData

RUN = Run(None, 0, 1, 1)
WORDS = "what is a souk it is a market of many small shops where people haggle"


def ignored(done: int, total: int, tokens: int) -> None:
    pass


def texts(*values: str) -> list[Record]:
    return [Record(value, RUN, 0) for value in values]


def question(number: int, *, answer: str = "a market") -> Record:
    messages = [{"role": "user", "content": f"what is {number}"}, {"role": "assistant", "content": answer}]
    return Record({"messages": messages}, RUN, number)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([WORDS] * 20, 320)


@pytest.fixture
def conversations(tokenizer: Tokenizer) -> Conversations:
    return open_conversations(tokenizer, None, end_id=0, template_path=None, learns_inputs=False)


def rows(
    records: Iterable[Record], tokenizer: Tokenizer, folder: Path, conversations: Conversations, **changes: Any
) -> tuple[Encoded, Corpus]:
    paths = folder / "tokens", folder / "marks"
    wanted = {"sequence_length": 32, "packs": True, **changes}
    encoded = encode_conversations(
        records,
        tokenizer,
        conversations,
        end_id=0,
        path=paths[0],
        marks_path=paths[1],
        progress=EncodingProgress([RUN], ignored),
        **wanted,
    )
    return encoded, open_corpus(*paths, encoded, eval_fraction=0.1, **wanted)


def test_tokenizer_of_the_same_text_is_the_same_and_knows_every_text() -> None:
    documents = ["the cat sat on the mat " * 20, "über ½ 猫"]
    tokenizer = train_tokenizer(documents, 300)
    assert tokenizer.to_str() == train_tokenizer(documents, 300).to_str()
    assert tokenizer.decode(tokenizer.encode("new 🐈 text\n").ids) == "new 🐈 text\n"
    assert end_of_text_id(tokenizer, None, None) == tokenizer.token_to_id(END_OF_TEXT) == 0


def test_samples_are_consecutive_and_evaluation_is_the_tail(tokenizer: Tokenizer, tmp_path: Path) -> None:
    documents = [f"document {i} " * 30 for i in range(40)]
    encoded = encode_texts(texts(*documents), tokenizer, 0, tmp_path / "tokens", EncodingProgress([RUN], ignored))
    corpus = open_corpus(
        tmp_path / "tokens", tmp_path / "marks", encoded, sequence_length=16, eval_fraction=0.1, packs=True
    )
    stream = np.concatenate([[*tokenizer.encode(text).ids, 0] for text in documents])
    samples = (len(stream) - 1) // 16
    assert (corpus.train_samples, corpus.eval_samples) == (samples - round(samples / 10), round(samples / 10))
    found = corpus.train_sequences(np.array([3, 0], dtype=np.uint64))
    assert found.tokens.tolist() == [stream[48:65].tolist(), stream[0:17].tolist()]
    assert found.weights.all()
    assert found.positions is None
    assert corpus.train_targets(np.array([3, 0], dtype=np.uint64)) == 32
    first = corpus.train_samples * 16
    assert corpus.eval_sequences(np.array([0])).tokens.tolist() == [stream[first : first + 17].tolist()]


def test_an_end_follows_a_text_and_no_piece_of_one(tokenizer: Tokenizer, tmp_path: Path) -> None:
    begun = Tokenizer.from_str(tokenizer.to_str())
    ends = [(PADDING, 1), (END_OF_TEXT, 0)]  # some put a token behind each text, too
    begun.post_processor = processors.TemplateProcessing(single=f"{PADDING} $A {END_OF_TEXT}", special_tokens=ends)
    pieces = [
        Record("a market", RUN, 0, is_end=False),
        Record(" of shops", RUN, 0, is_begin=False),
        Record("  ", RUN, 0),
    ]
    encode_texts(pieces, begun, 0, tmp_path / "tokens", EncodingProgress([RUN], ignored))
    found = np.fromfile(tmp_path / "tokens", dtype="<i4").tolist()
    assert found == [1, *tokenizer.encode("a market").ids, *tokenizer.encode(" of shops").ids, 0]


def test_a_word_after_the_prompts_space_is_learned(tokenizer: Tokenizer, conversations: Conversations) -> None:
    example = conversations.write(Record({"prompt": "what is a souk: a ", "completion": "market"}, RUN, 0))
    encoding = tokenizer.encode(example.text, add_special_tokens=False)
    taught = [token for token, counts in zip(encoding.tokens, learned_tokens(encoding, example), strict=True) if counts]
    assert taught == ["Ġmarket", END_OF_TEXT]


def test_rows_that_are_nearly_empty_are_refused(
    tokenizer: Tokenizer, conversations: Conversations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "EMPTY_TOKENS_MAX", 100_000)
    asked = [question(number) for number in range(100)]
    with pytest.raises(BadData, match=r"fill \d\.\d\d% of sequences of 8192: choose a shorter sequence_length"):
        rows(asked, tokenizer, tmp_path, conversations, packs=False, sequence_length=8192)


def test_it_is_told_how_far_it_is(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "BATCH_COUNT", 4)
    runs = [Run(None, number, number + 1, 100) for number in range(3)]
    told: list[tuple[int, int, int]] = []
    records = [Record("a market " * 2, run, 0) for run in runs for _ in range(8)]
    encode_texts(records, tokenizer, 0, tmp_path / "tokens", EncodingProgress(runs, lambda *far: told.append(far)))
    assert len(told) == 7
    assert told.pop(0) == (0, 300, 0), "before anything is encoded"
    done, totals, tokens = ([each[at] for each in told] for at in range(3))
    assert done == sorted(done)
    assert 0 < done[0] <= 100 < 200 < done[-1] <= 300
    assert set(totals) == {300}
    assert tokens[-1] == len(tokenizer.encode("a market " * 2).ids) * 24


def test_too_little_text_says_how_little(tokenizer: Tokenizer, tmp_path: Path) -> None:
    encoded = encode_texts(texts("a b c"), tokenizer, 0, tmp_path / "tokens", EncodingProgress([RUN], ignored))
    with pytest.raises(BadData, match="too few for 2 sequences of 128"):
        open_corpus(
            tmp_path / "tokens", tmp_path / "marks", encoded, sequence_length=128, eval_fraction=0.1, packs=True
        )


def test_rows_hold_whole_conversations_and_only_answers_count(
    tokenizer: Tokenizer, conversations: Conversations, tmp_path: Path
) -> None:
    encoded, corpus = rows([question(number) for number in range(40)], tokenizer, tmp_path, conversations)
    found = corpus.train_sequences(np.arange(corpus.train_samples, dtype=np.uint64))
    evaluated = corpus.eval_sequences(np.arange(corpus.eval_samples))
    tokens = np.concatenate([found.tokens, evaluated.tokens])
    text = "".join(tokenizer.decode(row.tolist(), skip_special_tokens=False) for row in tokens)
    assert all(text.count(f"what is {number}{END_OF_TEXT}") == 1 for number in range(40)), "each is there once"
    answer = tokenizer.encode(f"a market{END_OF_TEXT}\n").ids
    taught = found.tokens[:, 1:][found.weights.astype(bool)]
    assert taught.reshape(-1, len(answer)).tolist() == [answer] * (len(taught) // len(answer))
    assert len(taught) == corpus.train_targets(np.arange(corpus.train_samples, dtype=np.uint64)) > 0
    assert found.positions is not None
    assert (found.positions == 0).sum() >= 36 - 2, "each begins anew"
    assert (np.diff(found.positions, axis=1)[found.positions[:, 1:] > 0] == 1).all()
    assert encoded.filled > 0.6


def test_without_packing_a_row_holds_one(tokenizer: Tokenizer, conversations: Conversations, tmp_path: Path) -> None:
    asked = [question(number) for number in range(10)]
    encoded, corpus = rows(asked, tokenizer, tmp_path, conversations, packs=False, sequence_length=64)
    assert corpus.train_samples + corpus.eval_samples == 10
    assert corpus.train_sequences(np.arange(2, dtype=np.uint64)).positions is None
    assert encoded.filled < 0.6


def test_what_is_too_long_is_cut_or_left_out_and_counted(
    tokenizer: Tokenizer, conversations: Conversations, tmp_path: Path
) -> None:
    long_answer, long_question = question(1, answer=WORDS * 3), question(2)
    assert isinstance(long_question.value, dict)
    long_question.value["messages"][0]["content"] = WORDS * 5
    asked = [long_answer, long_question, *(question(number) for number in range(10))]
    encoded, _ = rows(asked, tokenizer, tmp_path, conversations)
    assert (encoded.cut, encoded.left_out) == (2, 1)
    again, _ = rows(asked, tokenizer, tmp_path, conversations)
    assert again == encoded, "the same rows, by the same name"
    with pytest.raises(BadData, match="conversations fill 1 sequences of 32"):
        rows([long_answer], tokenizer, tmp_path, conversations)


def test_one_kind_of_data_at_a_time(tokenizer: Tokenizer, conversations: Conversations, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a text"}\n' + json.dumps(question(1).value) + "\n")
    found = list(read_records(find_runs(("a.jsonl",), JobFiles(tmp_path), 0)))
    with pytest.raises(BadData, match=r"a\.jsonl line 2 is a conversation, others are texts"):
        encode_texts(found, tokenizer, 0, tmp_path / "tokens", EncodingProgress([RUN], ignored))
    with pytest.raises(BadData, match=r"a\.jsonl line 1 is a text, others are conversations"):
        rows(found, tokenizer, tmp_path, conversations)

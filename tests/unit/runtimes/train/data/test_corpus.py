"""The data: what is read, in which order, and how it is cut."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from runtimes.train.data.corpus import encode_documents, open_corpus, read_documents
from runtimes.train.data.tokenizer import END_OF_TEXT, end_of_text_id, train_tokenizer
from runtimes.train.errors import BadData


def test_python_documentation_needs_no_file(tmp_path: Path) -> None:
    documents = read_documents(("python-docs",), tmp_path, seed=0)
    assert len(documents) > 70
    assert any("The `assert` statement" in text for text in documents) or sum(map(len, documents)) > 300_000


def test_text_and_jsonl_are_read_in_an_order_that_the_seed_decides(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": f"line {i}", "n": i}) + "\n\n" for i in range(20)))
    names = ("*.txt", "b.jsonl")
    documents = read_documents(names, tmp_path, seed=1)
    assert sorted(documents) == sorted(["alpha", *(f"line {i}" for i in range(20))])
    assert documents == read_documents(names, tmp_path, seed=1)
    assert documents != read_documents(names, tmp_path, seed=2)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.txt", None, "'none.txt' is not among the job's files"),
        ("a.bin", b"x", "a.bin is of no known kind"),
        ("a.txt", b"\xff\xfe", "a.txt is not UTF-8 text"),
        ("a.txt", b" \n", "the data holds no text"),
        ("a.jsonl", b'{"text": "good"}\n{"txt": 1}\n', 'a.jsonl line 2 is not an object with a "text"'),
        ("../a.txt", None, "must be a path below the job's files"),
        ("/etc/passwd", None, "must be a path below the job's files"),
    ],
)
def test_bad_data_is_named(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadData, match=message.replace("(", r"\(")):
        read_documents((name,), tmp_path, seed=0)


def test_link_that_leads_out_of_the_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "secret.txt").write_text("Bob's")
    (tmp_path / "input" / "mine.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(BadData, match="leads out"):
        read_documents(("mine.txt",), tmp_path / "input", seed=0)


def test_tokenizer_of_the_same_text_is_the_same_and_knows_every_text() -> None:
    documents = ["the cat sat on the mat " * 20, "über ½ 猫"]
    tokenizer = train_tokenizer(documents, 300)
    assert tokenizer.to_str() == train_tokenizer(documents, 300).to_str()
    assert tokenizer.decode(tokenizer.encode("new 🐈 text\n").ids) == "new 🐈 text\n"
    assert end_of_text_id(tokenizer, None, None) == tokenizer.token_to_id(END_OF_TEXT) == 0


def test_samples_are_consecutive_and_evaluation_is_the_tail(tmp_path: Path) -> None:
    documents = [f"document {i} " * 30 for i in range(40)]
    tokenizer = train_tokenizer(documents, 300)
    digest = encode_documents(documents, tokenizer, 0, tmp_path / "cache" / "tokens", tell=print)
    corpus = open_corpus(tmp_path / "cache" / "tokens", digest, sequence_length=16, eval_fraction=0.1)
    stream = np.concatenate([[*tokenizer.encode(text).ids, 0] for text in documents])
    samples = (len(stream) - 1) // 16
    assert (corpus.train_samples, corpus.eval_samples) == (samples - round(samples / 10), round(samples / 10))
    assert corpus.train_sequences(np.array([3, 0], dtype=np.uint64)).tolist() == [
        stream[48:65].tolist(),
        stream[0:17].tolist(),
    ]
    first = corpus.train_samples * 16
    assert corpus.eval_sequences(np.array([0])).tolist() == [stream[first : first + 17].tolist()]


def test_too_little_text_says_how_little(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["a b c"], 300)
    digest = encode_documents(["a b c"], tokenizer, 0, tmp_path / "tokens", tell=print)
    with pytest.raises(BadData, match="too few for 2 sequences of 128"):
        open_corpus(tmp_path / "tokens", digest, sequence_length=128, eval_fraction=0.1)

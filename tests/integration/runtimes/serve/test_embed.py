"""Embeddings are the mean over a text's tokens, of length 1, whatever else is computed with it."""

from __future__ import annotations

import base64
import json
import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from tests.integration.runtimes.serve.conftest import link_model
from tests.integration.runtimes.serve.replicas import Replica

EMBED = "/v1/embeddings"


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory, llama: Path) -> Iterator[Replica]:
    """A replica by the engine for embeddings, chosen from the model's configuration."""
    made = Replica(tmp_path_factory.mktemp("embedder")).write({"engine": "auto"})
    link_model(made, llama)
    config = made.root / "input" / "model" / "config.json"
    described = json.loads(config.read_text()) | {"architectures": ["LlamaModel"]}
    config.unlink()  # it is shared with the other replicas
    config.write_text(json.dumps(described))
    try:
        yield made.start().until_ready()
    finally:
        made.end()


def embed(replica: Replica, given: Any, **asked: Any) -> list[Any]:
    """The vectors, in order."""
    status, answer = replica.ask(EMBED, {"model": "tiny", "input": given, **asked})
    assert status == 200, answer
    assert [each["index"] for each in answer["data"]] == list(range(len(answer["data"])))
    return [each["embedding"] for each in answer["data"]]


def test_ready_declares_embeddings_alone(embedder: Replica) -> None:
    (ready,) = embedder.events("ready")
    assert (ready["engine"], ready["capabilities"], ready["dimensions"]) == ("embed", ["embeddings"], 32)


def test_text_alone_and_among_others_has_the_same_vector(embedder: Replica) -> None:
    (alone,) = embed(embedder, "The quick fox")
    among = embed(embedder, ["a", "The quick fox", "b " * 60])
    assert numpy.allclose(alone, among[1], atol=1e-5)
    assert abs(numpy.linalg.norm(alone) - 1) < 1e-5
    assert not numpy.allclose(among[0], among[1], atol=1e-2)


def test_base64_holds_the_same_numbers(embedder: Replica) -> None:
    (plain,) = embed(embedder, "The")
    (packed,) = embed(embedder, "The", encoding_format="base64")
    assert numpy.allclose(struct.unpack("<32f", base64.b64decode(packed)), plain, atol=1e-6)


def test_tokens_are_taken_as_text_is(embedder: Replica) -> None:
    from tests.integration.runtimes.serve.replicas import make_tokenizer

    ids = make_tokenizer().encode("The quick").ids
    assert numpy.allclose(embed(embedder, ids), embed(embedder, "The quick"), atol=1e-6)
    assert numpy.allclose(embed(embedder, [ids, ids])[1], embed(embedder, "The quick")[0], atol=1e-6)


def test_use_is_the_tokens_read(embedder: Replica) -> None:
    _, answer = embedder.ask(EMBED, {"input": [[5, 6, 7], [8]]})
    assert answer["usage"] == {"prompt_tokens": 4, "total_tokens": 4}


@pytest.mark.parametrize(
    ("asked", "status", "code"),
    [
        ({"input": "x", "dimensions": 16}, 400, "unsupported_parameter"),
        ({"input": "x", "encoding_format": "int8"}, 400, "invalid_value"),
        ({"input": "x", "truncate": True}, 400, "unsupported_parameter"),
        ({"input": ""}, 400, "invalid_value"),
        ({"input": []}, 400, "invalid_value"),
        ({"input": [[]]}, 400, "invalid_value"),
        ({"input": [99_999]}, 400, "invalid_value"),
        ({"input": ["x"] * 2049}, 400, "invalid_value"),
        ({"input": "long " * 500}, 400, "context_length_exceeded"),
        ({"input": "x", "model": "other"}, 404, "model_not_found"),
    ],
)
def test_what_is_not_done_is_refused(embedder: Replica, asked: dict[str, Any], status: int, code: str) -> None:
    answered, answer = embedder.ask(EMBED, asked)
    assert (answered, answer["error"]["code"]) == (status, code)


def test_chat_is_not_there(embedder: Replica) -> None:
    assert embedder.ask("/v1/chat/completions", {"messages": []})[0] == 404


def test_killed_engine_ends_its_replica_with_a_cause(embedder: Replica) -> None:
    """Last: it takes the shared replica with it."""
    for pid in embedder.engine_pids():
        os.kill(pid, signal.SIGKILL)
    assert embedder.wait() == 70
    (failed,) = embedder.events("failed")
    assert "was killed by signal 9" in failed["message"]

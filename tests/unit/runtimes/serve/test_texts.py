"""Which of a model's templates our engine writes a conversation by."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from runtimes.serve.engines.souk.text import Texts
from tests.integration.runtimes.serve.replicas import make_tokenizer

HELLO = [{"role": "user", "content": "hello"}]
PLAIN = "{% for message in messages %}U: {{ message['content'] }}{% endfor %}"
OWN, NAMED = PLAIN.replace("U:", "own"), {"default": PLAIN.replace("U:", "default"), "tool_use": "{{ nothing }}"}


@pytest.mark.parametrize(
    ("of_tokenizer", "given", "written"),
    [(OWN, None, "own hello"), (NAMED, None, "default hello"), (None, PLAIN, "U: hello"), (None, None, "")],
    ids=["the tokenizer's", "several by name", "one for models without", "none"],
)
def test_conversation_is_written_by_the_template(of_tokenizer: Any, given: str | None, written: str) -> None:
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=make_tokenizer(), eos_token="<|endoftext|>")
    tokenizer.chat_template = of_tokenizer
    texts = Texts(tokenizer, given)
    assert texts.can_chat == bool(written)
    if written:
        assert texts.write(texts.read_chat(HELLO, goes_on=False)) == written

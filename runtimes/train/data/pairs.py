"""Pairs of answers to one prompt, the one that is preferred and the other, as two rows of tokens.

    {"prompt": ..., "chosen": ..., "rejected": ...}  three texts, or three lists of messages
    {"chosen": [...], "rejected": [...]}             two lists of messages, which begin with the same ones: the prompt

These are the formats of TRL's preference datasets. An answer is written behind its prompt as a completion is
(conversations.py): texts as they are, with the tokenizer's end; messages by the chat template.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from runtimes.train.data.conversations import MESSAGES_MAX, Conversations, Example, is_pair, text_of
from runtimes.train.data.documents import Record
from runtimes.train.data.encode import Encoded, EncodingProgress, Rows, batches, encode_together
from runtimes.train.errors import BadData

SIDES = ("chosen", "rejected")  # of a pair, in the order of its rows


def encode_pairs(
    records: Iterable[Record],
    tokenizer: Tokenizer,
    conversations: Conversations,
    *,
    end_id: int,
    path: Path,
    marks_path: Path,
    sequence_length: int,
    progress: EncodingProgress,
) -> Encoded:
    """Write two rows a pair to `path`, and what counts in them to `marks_path`; raises BadData that names the line.

    A longer row is cut at its end; a pair with an answer of which nothing is left is left out.
    """
    progress.count(0)
    with path.open("wb") as tokens, marks_path.open("wb") as marks:
        rows = Rows(sequence_length + 1, end_id, lambda ids, each: (tokens.write(ids), marks.write(each)))
        for batch in batches(progress.follow(records), lambda record: len(text_of(record))):
            pairs = [write_pair(conversations, record) for record in batch]
            texts = [example.text for pair in pairs for example in pair]
            found = encode_together(lambda texts: tokenizer.encode_batch(texts, add_special_tokens=False), texts)
            for number, pair in enumerate(pairs):
                rows.add_together(found[2 * number : 2 * number + 2], pair)
            progress.count(sum(len(encoding.ids) for encoding in found))
        return replace(rows.close(), rows_per_sample=len(SIDES))


def write_pair(conversations: Conversations, record: Record) -> list[Example]:
    """The prompt with the answer that is chosen, and with the other; raises BadData that names the line."""
    prompt, *answers = _parts(record)
    kept: dict[str, Any] = record.value if isinstance(record.value, dict) else {}
    return [
        conversations.write(replace(record, value={"prompt": prompt, "completion": answer, "tools": kept.get("tools")}))
        for answer in answers
    ]


def _parts(record: Record) -> tuple[Any, Any, Any]:
    """The prompt and its two answers: all texts, or all lists of messages. Raises BadData."""
    value = record.value
    if not isinstance(value, dict) or not is_pair(record):
        raise BadData(f'{record} is no pair of answers: dpo needs "prompt", "chosen" and "rejected" in every line')
    prompt, chosen, rejected = (value.get(key) for key in ("prompt", *SIDES))
    if all(isinstance(each, str) for each in (prompt, chosen, rejected)):
        if not all(isinstance(each, str) and each.strip() for each in (chosen, rejected)):
            raise BadData(f"{record}: chosen and rejected must hold more than spaces")
        if chosen == rejected:
            raise BadData(f"{record}: chosen and rejected are the same, so there is nothing to prefer")
        return prompt, chosen, rejected
    if not (isinstance(chosen, list) and isinstance(rejected, list)):
        raise BadData(f"{record}: prompt, chosen and rejected must be three texts, or lists of messages")
    if not (1 <= len(chosen) <= MESSAGES_MAX and 1 <= len(rejected) <= MESSAGES_MAX):
        raise BadData(f"{record}: chosen and rejected must each have from 1 to {MESSAGES_MAX} messages")
    if chosen == rejected:
        raise BadData(f"{record}: chosen and rejected are the same, so there is nothing to prefer")
    if prompt is None:
        same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False))))
        prompt, chosen, rejected = chosen[:same], chosen[same:], rejected[same:]
    if not isinstance(prompt, list):
        raise BadData(
            f"{record}: chosen and rejected are lists of messages, so prompt must be one, too; leave it out where they "
            "begin with it"
        )
    if not (prompt and chosen and rejected):
        raise BadData(f"{record}: chosen and rejected must begin with the same messages and go on with an answer each")
    return prompt, chosen, rejected

"""The gateway's own count of a request's tokens. An engine's count is taken only as far as what was received allows.

Read:    the engine's `prompt_tokens`, never above what the prompt's bytes can be (a token is at least one byte) and
         what templates add; where the engine reports nothing, bytes by the ratio that this endpoint's requests had so
         far.
Written: the engine's `completion_tokens`, never above `max_tokens`, and never above the bytes of the text that came
         and what stays unseen of it (an end mark, a stop word); else the chunks that came, each a token.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

from jobs.gateway.engines.chunks import ReceivedOutput
from jobs.gateway.inference_request import InferenceRequest

UNSEEN_TOKENS = 16  # of an answer: marks and stop words that engines count and do not send
TEMPLATE_TOKENS = 512  # that a chat template may add to all
MESSAGE_TOKENS = 16  # and to each message
PART_TOKENS = 4096  # a picture or a sound may come to
BYTES_PER_TOKEN = 4.0  # until an endpoint's own ratio is known
RATIO_WEIGHT = 0.05  # of the newest request in it
RATIO_MIN, RATIO_MAX = 0.5, 16.0

CountedBy = Literal["engine", "capped", "gateway"]


@dataclass(frozen=True)
class Count:
    """What one replica read and wrote; `by`: whose count it is."""

    input: int
    output: int
    cached: int = 0
    by: CountedBy = "gateway"

    @property
    def is_reported(self) -> bool:
        """Whether the engine reported its own count, so that its node's agent saw one too."""
        return self.by != "gateway"


@dataclass(frozen=True)
class PromptSize:
    """How much there is to read."""

    text_bytes: int
    messages: int = 0
    parts: int = 0  # that are not text
    tokens: int | None = None  # where the caller gave the tokens themselves

    @property
    def tokens_max(self) -> int:
        """More than this no engine can have read."""
        if self.tokens is not None:
            return self.tokens + UNSEEN_TOKENS
        extra = TEMPLATE_TOKENS + self.messages * MESSAGE_TOKENS if self.messages else UNSEEN_TOKENS
        return self.text_bytes + extra + self.parts * PART_TOKENS


class Ratio:
    """Bytes a token of one endpoint's prompts: learnt from its engines' counts."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = BYTES_PER_TOKEN

    def learn(self, size: PromptSize, tokens: int) -> None:
        """One more prompt whose tokens an engine has counted."""
        if size.tokens is None and size.text_bytes and tokens > 0 and not size.parts:
            received = min(RATIO_MAX, max(RATIO_MIN, size.text_bytes / tokens))
            self.value += RATIO_WEIGHT * (received - self.value)

    def estimate(self, size: PromptSize) -> int:
        """Tokens that a prompt probably has."""
        return size.tokens if size.tokens is not None else math.ceil(size.text_bytes / self.value)


def measure_prompt(request: InferenceRequest) -> PromptSize:
    """How much a request gives to read, tools and schemas with it."""
    body = request.body
    if request.kind == "chat":
        size, parts = 0, 0
        messages = body.get("messages") or []
        for message in messages:
            text, others = _message_bytes(message)
            size, parts = size + text, parts + others
        for name in ("tools", "response_format"):
            if body.get(name):
                size += len(json.dumps(body[name]))
        return PromptSize(size, len(messages), parts)
    given = body.get("input" if request.kind == "embedding" else "prompt")
    return _measure_given(given)


def count_stream(size: PromptSize, received: ReceivedOutput, ratio: Ratio, *, max_tokens: int) -> Count:
    """What a replica's stream used, also one that broke off."""
    usage = received.usage
    if usage is None:
        return Count(ratio.estimate(size), min(received.chunks, received.text_bytes, max_tokens))
    return _count(usage, size, ratio, written_max=min(max_tokens, received.text_bytes + UNSEEN_TOKENS))


def count_whole(
    request: InferenceRequest, size: PromptSize, answer: dict[str, Any], ratio: Ratio, *, max_tokens: int
) -> Count:
    """What an answer in one piece used."""
    if request.kind == "embedding":
        text_bytes, choices = 0, 0
        max_tokens = 0
    else:
        texts = [_answer_bytes(choice) for choice in answer.get("choices") or [] if isinstance(choice, dict)]
        text_bytes, choices = sum(texts), len(texts)
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return Count(ratio.estimate(size), min(max_tokens, math.ceil(text_bytes / BYTES_PER_TOKEN)))
    return _count(usage, size, ratio, written_max=min(max_tokens, text_bytes + UNSEEN_TOKENS * choices))


def usage_object(request: InferenceRequest, count: Count) -> dict[str, Any]:
    """OpenAI's `usage`."""
    usage: dict[str, Any] = {"prompt_tokens": count.input, "total_tokens": count.input + count.output}
    if request.kind != "embedding":
        usage["completion_tokens"] = count.output
    if count.cached:
        usage["prompt_tokens_details"] = {"cached_tokens": count.cached}
    return usage


def _count(usage: dict[str, Any], size: PromptSize, ratio: Ratio, *, written_max: int) -> Count:
    reported_read, reported_written = _number(usage.get("prompt_tokens")), _number(usage.get("completion_tokens"))
    read, written = min(reported_read, size.tokens_max), min(reported_written, written_max)
    details = usage.get("prompt_tokens_details")
    cached = min(read, _number(details.get("cached_tokens"))) if isinstance(details, dict) else 0
    is_whole = (read, written) == (reported_read, reported_written)
    if is_whole:
        ratio.learn(size, read)
    return Count(read, written, cached, "engine" if is_whole else "capped")


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _message_bytes(message: Any) -> tuple[int, int]:
    if not isinstance(message, dict):
        return 0, 0
    content, size, parts = message.get("content"), 0, 0
    if isinstance(content, str):
        size = _size(content)
    elif isinstance(content, list):
        for part in content:
            text = part.get("text") if isinstance(part, dict) else None
            if isinstance(text, str):
                size += _size(text)
            else:
                parts += 1
    if message.get("tool_calls"):
        size += len(json.dumps(message["tool_calls"]))
    return size, parts


def _measure_given(given: Any) -> PromptSize:
    """A prompt or an input: a text, several, tokens, or several of these."""
    if isinstance(given, str):
        return PromptSize(_size(given))
    if not isinstance(given, list):
        return PromptSize(0)
    if given and all(isinstance(each, int) for each in given):
        return PromptSize(0, tokens=len(given))
    sizes = [_measure_given(each) for each in given if isinstance(each, str | list)]
    if sizes and all(size.tokens is not None for size in sizes):
        return PromptSize(0, tokens=sum(size.tokens or 0 for size in sizes) + UNSEEN_TOKENS * (len(sizes) - 1))
    extra = UNSEEN_TOKENS * max(0, len(sizes) - 1)  # each text has its own marks
    return PromptSize(sum(size.text_bytes or size.tokens or 0 for size in sizes) + extra)


def _answer_bytes(choice: dict[str, Any]) -> int:
    message = choice.get("message")
    if not isinstance(message, dict):
        text = choice.get("text")
        return _size(text) if isinstance(text, str) else 0
    size = 0
    for value in message.values():
        if isinstance(value, str):
            size += _size(value)
        elif value:
            size += len(json.dumps(value))
    return size

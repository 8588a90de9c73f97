"""OpenAI's JSON shapes, as an engine writes them."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.fakes.engine.asks import STREAMED_ARGUMENT, Ask, Choice


def dump(value: Any) -> bytes:
    """JSON without spaces, in UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def event(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + dump(value) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def error(
    message: str, *, code: str | None = None, param: str | None = None, type: str = "invalid_request_error"
) -> Any:
    """An error's body."""
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def usage(ask: Ask, output: int, factor: int = 1) -> dict[str, Any]:
    """The counts; `factor` times too high where the engine lies."""
    read, written = ask.prompt_tokens * factor, output * factor
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def whole(ask: Ask, number: int, model: str, counts: dict[str, Any] | None) -> dict[str, Any]:
    """The answer in one piece."""
    is_chat = ask.kind == "chat"
    head = {
        "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{number}",
        "object": "chat.completion" if is_chat else "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [(_message if is_chat else _text)(ask, choice) for choice in ask.choices],
    }
    return head | ({"usage": counts} if counts is not None else {})


def _message(ask: Ask, choice: Choice) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": choice.text}
    if choice.tool is not None:
        called, name, arguments = choice.tool
        call = {"id": called, "type": "function", "function": {"name": name, "arguments": arguments}}
        message |= {"content": None, "tool_calls": [call]}
    logprobs = None
    if ask.logprobs is not None:
        logprobs = {"content": [_chat_logprob(token, ask.logprobs) for token in choice.tokens]}
    return {
        "index": choice.index,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": choice.finish_reason,
    }


def _text(ask: Ask, choice: Choice) -> dict[str, Any]:
    return {
        "index": choice.index,
        "text": choice.text,
        "logprobs": _text_logprobs(choice.tokens, ask.logprobs),
        "finish_reason": choice.finish_reason,
    }


def _chat_logprob(token: str, alternatives: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"token": token, "logprob": -0.125, "bytes": list(token.encode())}
    return entry | {"top_logprobs": [{**entry, "token": f"{token}{i or ''}"} for i in range(alternatives)]}


def _text_logprobs(tokens: list[str], alternatives: int | None) -> dict[str, Any] | None:
    if alternatives is None:
        return None
    offsets = [sum(len(token) for token in tokens[:at]) for at in range(len(tokens))]
    return {
        "tokens": tokens,
        "token_logprobs": [-0.125] * len(tokens),
        "top_logprobs": [{token: -0.125} for token in tokens] if alternatives else None,
        "text_offset": offsets,
    }


class Chunks:
    """The events of one stream."""

    def __init__(self, ask: Ask, number: int, model: str) -> None:
        is_chat = ask.kind == "chat"
        self.ask, self._is_chat = ask, is_chat
        self._head = {
            "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{number}",
            "object": "chat.completion.chunk" if is_chat else "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    def first(self, choice: Choice) -> bytes:
        """Before the first token of a chat; empty for a completion."""
        if not self._is_chat:
            return b""
        return self._event(choice.index, {"delta": {"role": "assistant", "content": ""}}, None)

    def token(self, choice: Choice, token: str) -> bytes:
        """One token."""
        logprobs = self.ask.logprobs
        if self._is_chat:
            listed = {"content": [_chat_logprob(token, logprobs)]} if logprobs is not None else None
            return self._event(choice.index, {"delta": {"content": token}, "logprobs": listed}, None)
        return self._event(choice.index, {"text": token, "logprobs": _text_logprobs([token], logprobs)}, None)

    def tool(self, choice: Choice) -> list[bytes]:
        """A tool's call: its name, then its arguments in pieces."""
        assert choice.tool is not None
        called, name, arguments = choice.tool
        begin = {"index": 0, "id": called, "type": "function", "function": {"name": name, "arguments": ""}}
        parts: list[dict[str, Any]] = [begin]
        for at in range(0, len(arguments), STREAMED_ARGUMENT):
            parts.append({"index": 0, "function": {"arguments": arguments[at : at + STREAMED_ARGUMENT]}})
        return [self._event(choice.index, {"delta": {"tool_calls": [part]}}, None) for part in parts]

    def last(self, choice: Choice) -> bytes:
        """Why it ends."""
        return self._event(choice.index, {"delta": {}} if self._is_chat else {"text": ""}, choice.finish_reason)

    def usage(self, counts: dict[str, Any]) -> bytes:
        """The counts, where they were requested."""
        return event({**self._head, "choices": [], "usage": counts})

    def _event(self, index: int, delta: dict[str, Any], reason: str | None) -> bytes:
        return event({**self._head, "choices": [{"index": index, **delta, "finish_reason": reason}]})

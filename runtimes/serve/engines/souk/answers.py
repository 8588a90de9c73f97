"""What this engine answers, in OpenAI's form: whole, or as the events of a stream."""

from __future__ import annotations

import base64
import json
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from runtimes.serve.engines.souk.batch import Piece
from runtimes.serve.engines.souk.request import InferenceRequest
from runtimes.serve.engines.souk.text import Texts


@dataclass
class Choice:
    """One choice as far as it was written."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[Piece] = field(default_factory=list)
    ending: str | None = None
    commitment: bytes = b""


class Answering:
    """One request's answer as its pieces come."""

    def __init__(self, request: InferenceRequest, texts: Texts, model: str) -> None:
        self._request, self._texts, self._model = request, texts, model
        prefix = "chatcmpl" if request.kind == "chat" else "cmpl"
        self._id, self._created = f"{prefix}-{uuid.uuid4().hex}", int(time.time())
        self.choices = [Choice() for _ in range(len(request.prompts) * request.choices)]

    @property
    def is_complete(self) -> bool:
        """Every choice has ended."""
        return all(choice.ending for choice in self.choices)

    def add(self, index: int, piece: Piece) -> None:
        """Keep a piece."""
        choice = self.choices[index]
        choice.text += piece.text
        if piece.token >= 0:
            choice.tokens.append(piece.token)
        if self._request.logprobs is not None and piece.logprobs:
            choice.logprobs.append(piece)
        choice.ending, choice.commitment = piece.ending, piece.commitment

    def whole(self) -> dict[str, Any]:
        """The answer to a request that did not ask for a stream."""
        choices = []
        for index, choice in enumerate(self.choices):
            content = {"role": "assistant", "content": choice.text} if self._is_chat else choice.text
            one = {"index": index, ("message" if self._is_chat else "text"): content, "finish_reason": choice.ending}
            choices.append(one | {"logprobs": self._logprobs(choice.logprobs)})
        kind = "chat.completion" if self._is_chat else "text_completion"
        # Usage last: agents from before look for it in an answer's last 2 KB.
        return self._head(kind) | {"choices": choices} | self._commitments() | {"usage": self.usage()}

    def first_events(self) -> list[bytes]:
        """The first event of a chat's stream names the role that answers."""
        if not self._is_chat:
            return []
        return [
            self._event([{"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
            for index in range(len(self.choices))
        ]

    def event(self, index: int, piece: Piece) -> bytes:
        """One piece as an event."""
        content: dict[str, Any] = {"text": piece.text}
        if self._is_chat:
            content = {"delta": {"content": piece.text} if piece.text else {}}
        one = {"index": index, **content, "finish_reason": piece.ending}
        if self._request.logprobs is not None:
            one["logprobs"] = self._logprobs([piece] if piece.logprobs else [])
        return self._event([one])

    def last_events(self) -> list[bytes]:
        """What follows the last piece: commitments and usage if they were requested, and the end."""
        events = []
        if self._request.commits:
            events.append(self._event([], **self._commitments()))
        if self._request.includes_usage:
            events.append(self._event([], usage=self.usage()))
        return [*events, b"data: [DONE]\n\n"]

    def usage(self) -> dict[str, Any]:
        """Tokens read and written."""
        read = sum(map(len, self._request.prompts))
        written = sum(len(choice.tokens) for choice in self.choices)
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}

    @property
    def _is_chat(self) -> bool:
        return self._request.kind == "chat"

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    def _event(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        kind = "chat.completion.chunk" if self._is_chat else "text_completion"
        body = self._head(kind) | {"choices": choices} | more
        return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"

    def _commitments(self) -> dict[str, Any]:
        if not self._request.commits:
            return {}
        return {
            "souk_commitment": [
                {
                    "index": index,
                    "output_ids": choice.tokens,
                    "commitment": base64.b64encode(choice.commitment).decode(),
                }
                for index, choice in enumerate(self.choices)
            ]
        }

    def _logprobs(self, pieces: list[Piece]) -> dict[str, Any] | None:
        if self._request.logprobs is None:
            return None
        rows = [[(self._texts.token(token), value) for token, value in piece.logprobs] for piece in pieces]
        if not self._is_chat:
            return {
                "tokens": [row[0][0] for row in rows],
                "token_logprobs": [row[0][1] for row in rows],
                "top_logprobs": [dict(row[1:]) for row in rows],
            }
        shown = [
            [{"token": text, "logprob": value, "bytes": list(text.encode())} for text, value in row] for row in rows
        ]
        return {"content": [{**row[0], "top_logprobs": row[1:]} for row in shown]}

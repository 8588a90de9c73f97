"""One question to the gateway, as a stream that another thread can break off.

`http.client`, because its socket can be shut down while a thread waits in it: also before the first byte of the answer,
which comes only when a sleeping model has woken.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings

CONNECT_SECONDS_MAX: Final = 5.0
READ_SECONDS_MAX: Final = 900.0  # without a byte; the gateway has shorter bounds of its own, which it explains
LINE_BYTES_MAX: Final = 1 << 20
ERROR_BYTES_MAX: Final = 64 * 1024
DONE: Final = b"[DONE]"

AWAY: Final = "The model cannot be reached at the moment. Please try again in a minute."
CUT: Final = "The answer was cut off: the connection to the model broke."
# Where the gateway's own sentence is for programmers; everywhere else it is shown.
SENTENCES: Final = {
    "model_not_ready": "The model was asleep and did not wake in time. It is still being woken: try again{after}.",
    "model_busy": "Many people are talking to this model now. Please try again{after}.",
    "model_not_found": "This model cannot be called any more. Choose another one.",
    "insufficient_quota": "Your organisation's money for this model is used up. Top it up, then ask again.",
    "context_length_exceeded": "This chat has grown too long for the model. Begin a new one, or allow fewer tokens.",
    "rate_limit_exceeded": "You are asking faster than you may. Please try again{after}.",
    "replica_lost": "The computer that was answering went away, and no other could go on with it.",
    "replica_failed": "The model failed to answer. Please ask again.",
    "timeout": "The answer took longer than the model's owner allows.",
    "invalid_api_key": "The gateway did not know this page yet. Please ask again.",
}


class AskingFailed(Exception):
    """No answer, or no whole one; the text is a sentence for the user, `code` the gateway's."""

    def __init__(self, sentence: str, code: str = "") -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True)
class Piece:
    """The contents of one event of the stream."""

    text: str = ""
    usage: tuple[int, int] | None = None  # tokens read and written


class Question:
    """Ask once, then iterate; `break_off` may be called by any thread at any time."""

    def __init__(self, key: str, body: dict[str, Any]) -> None:
        self.request_id: UUID | None = None
        self._key, self._body = key, body
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_broken_off = self._has_begun = False

    def pieces(self) -> Iterator[Piece]:
        """The answer as it comes; raises AskingFailed. Breaking off ends it without an error."""
        connection = _connection()
        try:
            yield from self._read(connection)
        except (OSError, HTTPException, ValueError) as error:
            if not self._is_broken_off:
                raise AskingFailed(CUT if self._has_begun else AWAY) from error
        finally:
            connection.close()

    def break_off(self) -> None:
        """The gateway sees its caller go, and the engine stops."""
        with self._lock:
            self._is_broken_off = True
            if self._socket is not None:
                _shut(self._socket)

    def _read(self, connection: HTTPConnection) -> Iterator[Piece]:
        connection.connect()
        with self._lock:
            self._socket = connection.sock
            if self._is_broken_off:
                return
        connection.sock.settimeout(READ_SECONDS_MAX)
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        path = f"{urlsplit(settings.SOUK_SERVING_URL).path.removesuffix('/v1')}/v1/chat/completions"
        connection.request("POST", path, json.dumps(self._body), headers)
        with connection.getresponse() as response:
            if response.status != 200:
                raise _refusal(response)
            self._has_begun = True
            self.request_id = _uuid(response.headers.get("x-request-id", ""))
            yield from self._events(response)

    def _events(self, response: HTTPResponse) -> Iterator[Piece]:
        while line := response.readline(LINE_BYTES_MAX):  # bounded by the gateway's deadline, and by the watch's
            if not line.endswith(b"\n"):
                break
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == DONE:
                return
            yield _piece(json.loads(data))
        if not self._is_broken_off:
            raise AskingFailed(CUT)


def _piece(event: Any) -> Piece:
    if not isinstance(event, dict):
        raise AskingFailed(CUT)
    if isinstance(event.get("error"), dict):
        raise AskingFailed(_sentence(event["error"], ""), str(event["error"].get("code", "")))
    choices = event.get("choices")
    delta = choices[0].get("delta") if isinstance(choices, list) and choices else None
    text = delta.get("content") if isinstance(delta, dict) else None
    usage = event.get("usage")
    counts = None
    if isinstance(usage, dict):
        counts = (int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0))
    return Piece(text if isinstance(text, str) else "", counts)


def _refusal(response: HTTPResponse) -> AskingFailed:
    data = response.read(ERROR_BYTES_MAX)
    try:
        error = json.loads(data)["error"]
        return AskingFailed(_sentence(error, response.headers.get("retry-after", "")), str(error.get("code", "")))
    except (ValueError, LookupError, TypeError, AttributeError):
        return AskingFailed(AWAY)


def _sentence(error: dict[str, Any], retry_after: str) -> str:
    after = f" in {float(retry_after):.0f} s" if retry_after.replace(".", "", 1).isdigit() else " in a moment"
    known = SENTENCES.get(str(error.get("code")))
    if known is not None:
        return known.format(after=after)
    message = str(error.get("message") or "it gave no reason").strip().rstrip(".")
    return f"The model refused: {message}."


def _connection() -> HTTPConnection:
    place = urlsplit(settings.SOUK_SERVING_URL)
    if not place.hostname:
        raise AskingFailed("This marketplace serves no models yet.")
    kind = HTTPSConnection if place.scheme == "https" else HTTPConnection
    return kind(place.hostname, place.port, timeout=CONNECT_SECONDS_MAX)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed already
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # also of TLS: the reader sees the end


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None

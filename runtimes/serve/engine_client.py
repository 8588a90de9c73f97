"""One HTTP request to a server on a Unix socket; the whole response is read within bounds."""

from __future__ import annotations

import asyncio
import json
from typing import Any

ANSWER_BYTES_MAX = 16 << 20


class NoAnswer(Exception):
    """No answer came in time, or it was not HTTP."""


async def send_request(
    socket_path: str, path: str, *, body: dict[str, Any] | None = None, seconds: float, header: str = ""
) -> tuple[int, bytes]:
    """Status and body; a GET, or a POST where there is a body. Raises NoAnswer."""
    try:
        async with asyncio.timeout(seconds):
            return await _send_request(socket_path, path, body, header)
    except TimeoutError as error:
        raise NoAnswer(f"no answer to {path} within {seconds:g} s") from error
    except (OSError, ValueError, IndexError, asyncio.IncompleteReadError) as error:
        raise NoAnswer(f"no answer to {path}: {error or type(error).__name__}") from error


async def _send_request(socket_path: str, path: str, body: dict[str, Any] | None, header: str) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_unix_connection(socket_path)
    try:
        sent = b"" if body is None else json.dumps(body).encode()
        # HTTP/1.0: the answer comes in one piece, and its end is the connection's.
        start = f"{'GET' if body is None else 'POST'} {path} HTTP/1.0\r\nHost: engine\r\n{header}"
        if body is not None:
            start += f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n"
        writer.write(f"{start}\r\n".encode() + sent)
        await writer.drain()
        answer = await reader.read(ANSWER_BYTES_MAX)
        while chunk := await reader.read(ANSWER_BYTES_MAX):
            answer += chunk
            if len(answer) > ANSWER_BYTES_MAX:
                raise ValueError(f"more than {ANSWER_BYTES_MAX} bytes")
        head, _, content = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), content
    finally:
        writer.close()

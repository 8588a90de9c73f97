"""Many callers who stream at once, and what each of them saw, to the byte."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

SECONDS_MAX = 60.0
BEGUN_EVENTS = 5  # that each has seen before something is killed

COMPLETE = "complete"  # [DONE], and a finish reason before it
ERROR = "error"  # an error event, or an error instead of a stream
BROKEN = "broken"  # the connection was lost, and HTTP shows it
CUT = "cut"  # the stream ended in good order, with nothing of all that: what may never be


@dataclass
class Seen:
    """One caller's stream."""

    prompt: str
    request_id: str = ""
    text: str = ""
    events: int = 0
    finish: str = ""
    error: dict[str, Any] = field(default_factory=dict)
    is_done: bool = False
    outcome: str = ""


class Crowd:
    """So many callers; `begun` is set when each has seen some events of its stream."""

    def __init__(self, base_url: str, key: str, size: int, **body: Any) -> None:
        self._url, self._key, self._body = f"{base_url}/chat/completions", key, body
        self.seen = [Seen(f"caller {number} asks") for number in range(size)]
        self.begun = asyncio.Event()
        self._begun = 0

    async def stream(self) -> Counter[str]:
        """All of them at once; how many saw what."""
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=SECONDS_MAX)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            await asyncio.gather(*(self._one(session, seen) for seen in self.seen))
        return Counter(seen.outcome for seen in self.seen)

    async def _one(self, session: aiohttp.ClientSession, seen: Seen) -> None:
        body = {"model": "fake", "stream": True, "messages": [{"role": "user", "content": seen.prompt}], **self._body}
        headers = {"authorization": f"Bearer {self._key}"}
        try:
            async with session.post(self._url, json=body, headers=headers) as answer:
                seen.request_id = answer.headers.get("x-request-id", "")
                if answer.status != 200:
                    seen.error = (await answer.json())["error"]
                else:
                    await self._read(answer, seen)
        except (aiohttp.ClientError, OSError):
            seen.outcome = BROKEN
            return
        is_complete = seen.is_done and seen.finish and not seen.error
        seen.outcome = COMPLETE if is_complete else ERROR if seen.error and not seen.is_done else CUT

    async def _read(self, answer: aiohttp.ClientResponse, seen: Seen) -> None:
        async for line in answer.content:
            if not line.startswith(b"data: "):
                continue
            data = line[6:].strip()
            seen.events += 1
            if seen.events == BEGUN_EVENTS:
                self._begun += 1
                if self._begun == len(self.seen):
                    self.begun.set()
            if data == b"[DONE]":
                seen.is_done = True
                continue
            event = json.loads(data)
            if "error" in event:
                seen.error = event["error"]
            for choice in event.get("choices", ()):
                seen.text += choice["delta"].get("content") or ""
                seen.finish = choice.get("finish_reason") or seen.finish


def struck(crowd: Crowd, blow: Callable[[], Any]) -> Counter[str]:
    """What the callers saw of a blow that falls when all of their streams have begun."""

    async def both() -> Counter[str]:
        streaming = asyncio.create_task(crowd.stream())
        begun = asyncio.create_task(crowd.begun.wait())
        await asyncio.wait({streaming, begun}, return_when=asyncio.FIRST_COMPLETED)
        assert begun.done(), "the streams ended before all had begun"
        await asyncio.to_thread(blow)
        return await streaming

    return asyncio.run(both())

"""Bodies of requests, read within three bounds: the bytes of one, of all that are held, and of those that still come.

The last is a payer's own: before a body is complete nothing else limits the requests of a key, so that one caller's
slow bodies would take all the room.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from jobs.gateway.config import MEBIBYTE, GatewayConfig
from jobs.gateway.frontend.clients import HttpClient, Message
from jobs.gateway.frontend.refusals import overloaded, too_large
from jobs.gateway.inference_request import ClientGone

COMING_SHARE = 4  # a payer's bodies that still come take a quarter of the bytes at most


class BodyReader:
    """Reads bodies and counts the bytes that are held; whoever reads one calls `release` with its size at the end."""

    def __init__(self, config: GatewayConfig) -> None:
        self._body_bytes_max = config.body_mib_max * MEBIBYTE
        self._bodies_bytes_max = config.bodies_mib_max * MEBIBYTE
        self._coming_bytes_max = max(self._bodies_bytes_max // COMING_SHARE, self._body_bytes_max)
        self._coming: Counter[UUID] = Counter()  # by payer
        self.held_bytes = 0  # of all requests under way

    async def read(self, headers: dict[bytes, bytes], client: HttpClient, payer: UUID) -> bytearray:
        """The body, whose bytes count as held from here on. Raises ApiError 413, 503; ClientGone."""
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._body_bytes_max:
            raise too_large(self._body_bytes_max)
        body, is_more = bytearray(), True
        try:
            while is_more:  # bounded by the bytes, and by BODY_SECONDS_MAX of the connection
                message: Message = await client.receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                chunk = message.get("body", b"")
                body += chunk
                self.held_bytes += len(chunk)
                self._coming[payer] += len(chunk)
                is_more = message.get("more_body", False)
                if len(body) > self._body_bytes_max:
                    raise too_large(self._body_bytes_max)
                is_full = self.held_bytes > self._bodies_bytes_max
                if is_full or self._coming[payer] > self._coming_bytes_max:
                    raise overloaded("Too many large requests are under way; please try again.")
        except BaseException:
            self.release(len(body))
            raise
        finally:
            self._coming[payer] -= len(body)
            if not self._coming[payer]:
                del self._coming[payer]
        return body

    def release(self, size: int) -> None:
        """A body of this many bytes is held no more."""
        self.held_bytes -= size

"""The WebSocket of a connection to a gateway. Imported when one is dialled, so that other nodes save its memory."""

from __future__ import annotations

import ssl
from typing import Final

from websockets.asyncio.client import connect

from provider_agent.protocol.tunnel.frames import MESSAGE_BYTES_READ_MAX, PATH

DIAL_SECONDS_MAX: Final = 10.0
CLOSE_SECONDS_MAX: Final = 1.0
MESSAGES_WAITING_MAX: Final = 16


class Dial(connect):
    """To the gateway that the assignment names, and nowhere else."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """A gateway cannot make an agent connect into the provider's own network."""
        return exc


def dial(url: str, tls: ssl.SSLContext | None) -> Dial:
    """To be entered with `async with`. Through the proxy that the environment names, as every call of the agent's."""
    return Dial(
        url.rstrip("/") + PATH,
        ssl=tls,
        compression=None,
        ping_interval=None,
        open_timeout=DIAL_SECONDS_MAX,
        close_timeout=CLOSE_SECONDS_MAX,
        max_size=MESSAGE_BYTES_READ_MAX,
        max_queue=MESSAGES_WAITING_MAX,
    )

"""Two ends of a tunnel without a wire: what one takes is fed to the other, when the test says so."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from provider_agent.protocol.tunnel.frames import Head, Kind, Open, Reset, pack_head
from provider_agent.protocol.tunnel.mux import Mux
from provider_agent.protocol.tunnel.streams import Stream

LEASE = uuid4()


class Reader:
    """Receiver that keeps what came; it consumes nothing by itself."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.came: list[bytes] = []
        self.has_ended = False
        self.was_reset: Reset | None = None
        self.status = 0
        self.times_writable = 0
        stream.receiver = self

    @property
    def size(self) -> int:
        return sum(map(len, self.came))

    def consume(self) -> bytes:
        """Read what is there."""
        data = b"".join(self.came)
        self.came.clear()
        self.stream.consumed(len(data))
        return data

    def head(self, head: Head) -> None:
        self.status = head.status

    def data(self, chunk: bytes) -> None:
        self.came.append(chunk)

    def end(self) -> None:
        self.has_ended = True

    def reset(self, reset: Reset) -> None:
        self.was_reset = reset

    def writable(self) -> None:
        self.times_writable += 1


class Pair:
    """A gateway's end and an agent's; `pump` carries messages until neither end has any to send."""

    def __init__(self) -> None:
        self.gateway = Mux(self, self.wake, opens=True)
        self.agent = Mux(self, self.wake, opens=False)
        self.readers: dict[int, Reader] = {}  # at the agent
        self.leases: dict[UUID, Any] = {}
        self.pongs: list[bytes] = []

    def wake(self) -> None:
        """Nobody sleeps here."""

    def ask(self) -> Reader:
        """A request without a body; its reader at the gateway."""
        reader = Reader(self.gateway.open(Open(LEASE, "POST", "/v1/x", [])))
        reader.stream.finish()
        return reader

    def answer(self, asked: Reader, *chunks: bytes) -> Stream:
        """The agent's stream of it, which has begun to answer."""
        self.pump()
        stream = self.agent.streams[asked.stream.number]
        stream.begin(Kind.HEAD, pack_head(Head(200, [])))
        for chunk in chunks:
            stream.write(chunk)
        return stream

    def pump(self) -> None:
        """Both ways."""
        for _ in range(100_000):
            to_agent, to_gateway = self.gateway.take(), self.agent.take()
            if not to_agent and not to_gateway:
                return
            self.agent.feed(to_agent)
            self.gateway.feed(to_gateway)
        raise AssertionError("they never stop talking")

    def opened(self, stream: Stream, request: Open) -> None:
        self.readers[stream.number] = Reader(stream)

    def announced(self, lease_id: UUID, ready: dict[str, Any]) -> None:
        self.leases[lease_id] = ready

    def withdrawn(self, lease_id: UUID) -> None:
        self.leases.pop(lease_id, None)

    def ponged(self, payload: bytes) -> None:
        self.pongs.append(payload)

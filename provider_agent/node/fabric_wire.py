"""What is sent on a probe's connection once both sides are authenticated: pings, and bytes in either direction.

Bytes are sent as blocks, each with its length before it; a length of zero ends them, and is answered with one byte.
Nothing here has a deadline of its own: fabric_probe.py sets it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import statistics
import struct
import time

PINGS = 24
STREAM_SECONDS = 2.0  # of bytes, in each direction
STREAM_BYTES_MAX = 2**30
BLOCK_BYTES = 256 * 1024
BLOCKS_PER_TURN = 16  # then the agent's other work has its turn
PING_BYTES = 8
ACKNOWLEDGED = b"\x06"
LENGTH = struct.Struct("!I")


class ProbeFailed(Exception):
    """The probe cannot continue; the message gives the reason, for the provider."""


class Disturbed(ProbeFailed):
    """The other side is not the peer, or breaks the protocol."""


async def ping(connection: socket.socket) -> int:
    """The median round trip of PINGS small messages, in microseconds."""
    took = []
    for number in range(PINGS):
        message = number.to_bytes(PING_BYTES, "big")
        began = time.perf_counter_ns()
        await write(connection, message)
        if await read(connection, PING_BYTES) != message:
            raise Disturbed("did not send back what it was sent")
        took.append(time.perf_counter_ns() - began)
    return round(statistics.median(took) / 1000)


async def echo(connection: socket.socket) -> None:
    """The other side of `ping`."""
    for _ in range(PINGS):
        await write(connection, await read(connection, PING_BYTES))


async def send_stream(connection: socket.socket) -> int:
    """Send for STREAM_SECONDS or STREAM_BYTES_MAX; bytes per second until the peer says that it has them all."""
    block = LENGTH.pack(BLOCK_BYTES) + os.urandom(BLOCK_BYTES)  # random: a line that compresses gains nothing
    began, blocks = time.perf_counter(), 0
    while time.perf_counter() - began < STREAM_SECONDS and (blocks + 1) * BLOCK_BYTES <= STREAM_BYTES_MAX:
        await write(connection, block)
        blocks += 1
        if blocks % BLOCKS_PER_TURN == 0:
            await asyncio.sleep(0)
    await write(connection, LENGTH.pack(0))
    if await read(connection, 1) != ACKNOWLEDGED:
        raise Disturbed("did not confirm that it received everything")
    return round(blocks * BLOCK_BYTES / (time.perf_counter() - began))


async def receive_stream(connection: socket.socket) -> int:
    """Bytes per second from the first byte to the end; raises Disturbed for more than may come."""
    received, blocks = 0, 0
    buffer = memoryview(bytearray(BLOCK_BYTES))
    began = 0.0
    while size := LENGTH.unpack(await read(connection, LENGTH.size))[0]:
        began = began or time.perf_counter()
        received += size
        if size > BLOCK_BYTES or received > STREAM_BYTES_MAX:
            raise Disturbed("sent more than a probe may")
        await read_into(connection, buffer[:size])
        blocks += 1
        if blocks % BLOCKS_PER_TURN == 0:
            await asyncio.sleep(0)
    seconds = time.perf_counter() - began if began else 0.0
    await write(connection, ACKNOWLEDGED)
    return round(received / seconds) if seconds else 0


async def write(connection: socket.socket, data: bytes) -> None:
    """All of it; raises OSError."""
    await asyncio.get_running_loop().sock_sendall(connection, data)


async def read(connection: socket.socket, size: int) -> bytes:
    """Exactly so many bytes; raises OSError when the peer hangs up before."""
    buffer = bytearray(size)
    await read_into(connection, memoryview(buffer))
    return bytes(buffer)


async def read_into(connection: socket.socket, buffer: memoryview) -> None:
    """Fill the buffer; raises OSError when the peer hangs up before."""
    loop = asyncio.get_running_loop()
    while buffer:
        count = await loop.sock_recv_into(connection, buffer)
        if count == 0:
            raise ConnectionResetError(errno.ECONNRESET, "closed")
        buffer = buffer[count:]

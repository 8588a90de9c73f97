"""Measures the route between two nodes of a fabric: reachable both ways, round trip, bandwidth in both directions.

    1  each opens one TCP port on its own fabric address, for this probe alone
    2  the dialler dials: handshake, pings, bytes there, bytes back
    3  the listener dials back: handshake and pings; a firewall may pass one direction and block the other

A connection counts only when it comes from the peer's fabric address and both have shown that they know the probe's
secret: HMAC-SHA256 over both sides' nonces, the probe, the part of the probe and the role, so that an eavesdropper can
replay nothing. No byte is measured before that. Everything has a deadline, and every socket is closed with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import hmac
import os
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Literal, NamedTuple

from provider_agent.node.fabric_wire import (
    Disturbed,
    ProbeFailed,
    echo,
    ping,
    read,
    receive_stream,
    send_stream,
    write,
)
from provider_agent.protocol import LINK_WHY_CHARACTERS_MAX, LinkDemand, LinkReport

PROBE_SECONDS_MAX = 50.0  # the whole of it
JOIN_SECONDS_MAX = 12.0  # until the peer is there, which receives the demand some seconds later
CONNECT_SECONDS_MAX = 3.0
HANDSHAKE_SECONDS_MAX = 3.0
MEASURE_SECONDS_MAX = 15.0
RETRY_SECONDS = 0.2
CONNECTIONS_MAX = 64  # from the peer's address, that one listener listens to
UNSENT_BYTES_MAX = 128 * 1024  # in the kernel's queue: what a slow line would still be sending after the time
NONCE_BYTES = 32
TCP_NOTSENT_LOWAT = 25  # Linux; the socket module names it from Python 3.12 on

Part = Literal["there", "back"]


class Figures(NamedTuple):
    """What one side measured on one connection."""

    round_trip_us: int | None = None
    sent: int | None = None  # bytes per second
    received: int | None = None


async def probe(demand: LinkDemand) -> LinkReport:
    """Do this node's part. Whatever the network does is in the report; only cancelling ends it otherwise."""
    try:
        check_addresses(demand)
        async with asyncio.timeout(PROBE_SECONDS_MAX):
            with _listening(demand) as listener:
                return await _both_ways(listener, demand)
    except ProbeFailed as error:
        return failed(str(error))
    except TimeoutError:
        return failed(f"the probe took longer than {PROBE_SECONDS_MAX:g} s")


def failed(why: str) -> LinkReport:
    """The report of a probe that came to nothing in either direction."""
    return LinkReport(dial_why=_short(why), listen_why=_short(why))


def check_addresses(demand: LinkDemand) -> None:
    """Raises ProbeFailed for addresses that no peer of a fabric has."""
    try:
        own, peer = ip_address(demand.address), ip_address(demand.peer_address)
    except ValueError:
        raise ProbeFailed(f"{demand.address!r} and {demand.peer_address!r} are not both IP addresses") from None
    if own.version != peer.version:
        raise ProbeFailed(f"{own} and {peer} are not of one kind: IPv4 or IPv6")
    if peer.is_unspecified or peer.is_multicast or (peer.is_loopback and not own.is_loopback):
        raise ProbeFailed(f"{peer} is no address of another node")
    if own == peer and demand.port == demand.peer_port:
        raise ProbeFailed("both sides were given one port of one address")


async def _both_ways(listener: socket.socket, demand: LinkDemand) -> LinkReport:
    """The dialler dials and is then dialled; the listener the other way round."""
    dialled = was_dialled = False
    figures = Figures()
    dial_why = listen_why = ""
    dials_first = demand.role == "dial"
    parts: tuple[tuple[Part, bool], ...] = (("there", dials_first), ("back", not dials_first))
    for part, is_mine in parts:
        try:
            found = await (_dial(demand, part) if is_mine else _serve(listener, demand, part))
        except ProbeFailed as error:
            if is_mine:
                dial_why = str(error)
            else:
                listen_why = str(error)
            continue
        if is_mine:
            dialled = True
        else:
            was_dialled = True
        figures = found if part == "there" else figures
    return LinkReport(
        dialled=dialled,
        was_dialled=was_dialled,
        round_trip_us=figures.round_trip_us,
        sent_bytes_per_second=figures.sent,
        received_bytes_per_second=figures.received,
        dial_why=_short(dial_why),
        listen_why=_short(listen_why),
    )


# --- one connection, from either side


async def _serve(listener: socket.socket, demand: LinkDemand, part: Part) -> Figures:
    """Wait for the peer, and refuse all others; raises ProbeFailed."""
    problem, tried = "nobody came", 0
    try:
        async with asyncio.timeout(JOIN_SECONDS_MAX):
            while tried < CONNECTIONS_MAX:
                try:
                    connection, address = await asyncio.get_running_loop().sock_accept(listener)
                except OSError as error:  # no file is free, or the connection has ended already
                    problem = f"this node could not take a connection ({_words(error)})"
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                if ip_address(address[0]) != ip_address(demand.peer_address):
                    connection.close()
                    problem = f"only {address[0]} came, which is not its fabric address"
                    await asyncio.sleep(0)  # however many come, the deadline and the agent's other work have their turn
                    continue
                tried += 1
                try:
                    await _shake_hands(connection, demand, part, is_dialler=False)
                except ProbeFailed as error:
                    connection.close()
                    problem = f"who came from there {error}"
                    continue
                except BaseException:
                    connection.close()
                    raise
                break
            else:
                came = f"{CONNECTIONS_MAX} connections came to {_at(demand)}"
                raise ProbeFailed(f"{came}, and none was {_peer(demand)}'s")
    except TimeoutError:
        waited = f"{_peer(demand)} did not reach {_at(demand)} within {JOIN_SECONDS_MAX:g} s"
        raise ProbeFailed(f"{waited}: {problem}") from None
    return await _measure(connection, demand, part, is_dialler=False)


async def _dial(demand: LinkDemand, part: Part) -> Figures:
    """Reach the peer, which may not listen yet; raises ProbeFailed."""
    where, problem = _place(demand.peer_address, demand.peer_port), "no answer"
    try:
        async with asyncio.timeout(JOIN_SECONDS_MAX):
            while True:
                try:
                    connection = await _connect(demand)
                except OSError as error:
                    problem = _words(error)
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                try:
                    await _shake_hands(connection, demand, part, is_dialler=True)
                    break
                except Disturbed:
                    connection.close()
                    raise
                except ProbeFailed as error:  # it is still busy with the other direction, or has just come
                    connection.close()
                    problem = f"who answers {error}"
                except BaseException:
                    connection.close()
                    raise
                await asyncio.sleep(RETRY_SECONDS)
    except TimeoutError:
        raise ProbeFailed(f"{_peer(demand)} at {where} not reached within {JOIN_SECONDS_MAX:g} s: {problem}") from None
    except Disturbed as error:
        raise ProbeFailed(f"who answers at {where} {error}") from None
    return await _measure(connection, demand, part, is_dialler=True)


async def _connect(demand: LinkDemand) -> socket.socket:
    """From the own fabric address, because the peer accepts no other; raises OSError."""
    connection = socket.socket(_family(demand.peer_address), socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.bind((demand.address, 0))
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            where = (demand.peer_address, demand.peer_port)
            await asyncio.get_running_loop().sock_connect(connection, where)
    except TimeoutError as error:
        connection.close()
        raise OSError(errno.ETIMEDOUT, "no answer") from error
    except BaseException:
        connection.close()
        raise
    return connection


async def _shake_hands(connection: socket.socket, demand: LinkDemand, part: Part, *, is_dialler: bool) -> None:
    """Each side proves that it knows the secret; the dialler first. Raises Disturbed for a proof that is wrong."""
    _prepare(connection)
    mine = os.urandom(NONCE_BYTES)
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
            if is_dialler:
                theirs = await read(connection, NONCE_BYTES)
                await write(connection, mine + _proof(demand, part, "dial", theirs, mine))
                answer = await read(connection, hashlib.sha256().digest_size)
                if not hmac.compare_digest(answer, _proof(demand, part, "listen", theirs, mine)):
                    raise Disturbed("does not know the probe's secret")
                return
            await write(connection, mine)
            theirs = await read(connection, NONCE_BYTES)
            answer = await read(connection, hashlib.sha256().digest_size)
            if not hmac.compare_digest(answer, _proof(demand, part, "dial", mine, theirs)):
                raise Disturbed("does not know the probe's secret")
            await write(connection, _proof(demand, part, "listen", mine, theirs))
    except TimeoutError:
        raise ProbeFailed(f"sent nothing for {HANDSHAKE_SECONDS_MAX:g} s") from None
    except OSError as error:
        raise ProbeFailed(f"hung up ({_words(error)})") from None


async def _measure(connection: socket.socket, demand: LinkDemand, part: Part, *, is_dialler: bool) -> Figures:
    """Pings; on the way there also bytes in both directions. Closes the connection; raises ProbeFailed."""
    try:
        async with asyncio.timeout(MEASURE_SECONDS_MAX):
            if is_dialler:
                round_trip_us = await ping(connection)
                if part == "back":
                    return Figures(round_trip_us)
                sent = await send_stream(connection)
                return Figures(round_trip_us, sent, await receive_stream(connection))
            await echo(connection)
            if part == "back":
                return Figures()
            received = await receive_stream(connection)
            return Figures(None, await send_stream(connection), received)
    except TimeoutError:
        raise ProbeFailed(f"{_peer(demand)} was too slow to be measured in {MEASURE_SECONDS_MAX:g} s") from None
    except OSError as error:
        raise ProbeFailed(f"{_peer(demand)} hung up while it was measured ({_words(error)})") from None
    except Disturbed as error:
        raise ProbeFailed(f"{_peer(demand)} {error}") from None
    finally:
        connection.close()


# --- below


@contextlib.contextmanager
def _listening(demand: LinkDemand) -> Iterator[socket.socket]:
    """The one port of this probe; raises ProbeFailed if it is taken."""
    listener = socket.socket(_family(demand.address), socket.SOCK_STREAM)
    with contextlib.closing(listener):
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an earlier probe's port may be in TIME_WAIT
        try:
            listener.bind((demand.address, demand.port))
            listener.listen()
        except OSError as error:
            raise ProbeFailed(f"this node cannot listen on {_at(demand)}: {_words(error)}") from None
        yield listener


def _prepare(connection: socket.socket) -> None:
    connection.setblocking(False)
    with contextlib.suppress(OSError):  # the first read finds a peer that has disconnected already
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)


def _proof(demand: LinkDemand, part: Part, role: str, listeners: bytes, diallers: bytes) -> bytes:
    """The proof that a side knows the secret: over both nonces, its role and the part of this probe."""
    message = f"souk-link-v1 {demand.probe_id} {part} {role} ".encode() + listeners + diallers
    return hmac.digest(bytes.fromhex(demand.secret), message, "sha256")


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET


def _at(demand: LinkDemand) -> str:
    return _place(demand.address, demand.port)


def _place(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _peer(demand: LinkDemand) -> str:
    return demand.peer_name


def _words(error: OSError) -> str:
    """Connection refused, No route to host and so on; the event loop's own message leaves it out."""
    return os.strerror(error.errno) if error.errno else str(error)


def _short(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)[:LINK_WHY_CHARACTERS_MAX]

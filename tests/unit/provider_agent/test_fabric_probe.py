"""The probe of a link, over real sockets: two honest sides, and every way in which one of them may not be."""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import secrets
import socket
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from uuid import UUID, uuid4

import psutil
import pytest

from provider_agent.node import fabric_probe, fabric_wire
from provider_agent.node.fabric_probe import NONCE_BYTES, probe
from provider_agent.node.fabric_wire import BLOCK_BYTES, LENGTH, PINGS
from provider_agent.protocol import PROBE_PORT_FIRST, PROBE_PORT_LAST, LinkDemand, LinkReport
from tests.integration.provider_agent.ports import ADDRESS, free_ports

PATIENT_SECONDS = 20.0  # for what comes at once, unless this computer has much else to do


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    make_short(monkeypatch)


def make_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """All deadlines, in this process."""
    monkeypatch.setattr(fabric_probe, "JOIN_SECONDS_MAX", 1.5)
    monkeypatch.setattr(fabric_probe, "CONNECT_SECONDS_MAX", 0.5)
    monkeypatch.setattr(fabric_probe, "HANDSHAKE_SECONDS_MAX", 0.5)
    monkeypatch.setattr(fabric_probe, "MEASURE_SECONDS_MAX", 4.0)
    monkeypatch.setattr(fabric_wire, "STREAM_SECONDS", 0.3)


@pytest.fixture
def long_deadlines(short_deadlines: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For two sides that meet."""
    for name in ("JOIN_SECONDS_MAX", "HANDSHAKE_SECONDS_MAX", "MEASURE_SECONDS_MAX"):
        monkeypatch.setattr(fabric_probe, name, PATIENT_SECONDS)


def demands(**changes: object) -> tuple[LinkDemand, LinkDemand]:
    """The two halves of one demand: listener's, dialler's. `changes` are the dialler's alone."""
    first, second = free_ports()
    shared = {"probe_id": uuid4(), "secret": secrets.token_hex(32), "address": ADDRESS, "peer_address": ADDRESS}
    listen = LinkDemand(role="listen", peer_name="dialler", port=first, peer_port=second, **shared)
    dial = LinkDemand(role="dial", peer_name="listener", port=second, peer_port=first, **shared)
    return listen, dial.model_copy(update=changes)


def meet(*sides: LinkDemand) -> list[LinkReport]:
    async def both() -> list[LinkReport]:
        return list(await asyncio.gather(*(probe(side) for side in sides)))

    return asyncio.run(both())


async def listening_to(demand: LinkDemand) -> asyncio.Task[LinkReport]:
    """A listener that is there and waits long for its peer; what it dials itself, later, has the short deadline."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fabric_probe, "JOIN_SECONDS_MAX", PATIENT_SECONDS)
        listening = asyncio.create_task(probe(demand))
        await asyncio.sleep(0)  # in which it gets as far as to accept
    return listening


def sockets_of_probes() -> list[object]:
    """Sockets of this process on the range's ports that are not just fading away."""
    mine = psutil.Process().net_connections()
    return [c for c in mine if c.laddr and PROBE_PORT_FIRST <= c.laddr.port <= PROBE_PORT_LAST]


@pytest.mark.usefixtures("long_deadlines")
@pytest.mark.parametrize("address", [ADDRESS, "::1"])
def test_two_nodes_reach_each_other_and_measure_the_way(address: str) -> None:
    both = {"address": address, "peer_address": address}
    listener, dialler = meet(*(side.model_copy(update=both) for side in demands()))
    for side in (listener, dialler):
        assert (side.dialled, side.was_dialled, side.why) == (True, True, "")
        assert side.sent_bytes_per_second is not None
        assert side.received_bytes_per_second is not None
        assert min(side.sent_bytes_per_second, side.received_bytes_per_second) > 10_000_000, "this is loopback"
    assert dialler.round_trip_us is not None
    assert 0 < dialler.round_trip_us < 100_000
    assert listener.round_trip_us is None, "the dialler measures it"
    # Each direction was measured at both of its ends, by clocks of their own.
    there, seen = dialler.sent_bytes_per_second or 0, listener.received_bytes_per_second or 0
    assert 0.5 < there / seen < 2
    assert sockets_of_probes() == []


def test_bytes_are_bounded_and_not_only_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric_wire, "STREAM_SECONDS", 60.0)
    monkeypatch.setattr(fabric_wire, "STREAM_BYTES_MAX", 8 * BLOCK_BYTES)
    began = time.monotonic()
    assert all(side.dialled and side.was_dialled for side in meet(*demands()))
    assert time.monotonic() - began < 30


def test_wrong_secret_is_refused_by_both_sides() -> None:
    listener, dialler = meet(*demands(secret=secrets.token_hex(32)))
    for side in (listener, dialler):
        assert not side.dialled
        assert not side.was_dialled
        assert side.received_bytes_per_second is None, "nothing is measured with a stranger"
    assert "does not know the probe's secret" in listener.why


def test_proof_of_another_probe_is_none_for_this_one() -> None:
    listener, _ = meet(*demands(probe_id=uuid4()))
    assert not listener.was_dialled
    assert "does not know the probe's secret" in listener.why


def test_who_comes_from_another_address_is_not_listened_to() -> None:
    listen, dial = demands(address="127.0.0.2")  # the listener expects 127.0.0.1
    listener, dialler = meet(listen, dial)
    assert not listener.was_dialled
    assert "only 127.0.0.2 came, which is not its fabric address" in listener.why
    assert not dialler.dialled


def test_listener_that_is_silent_is_given_up_by_its_deadline() -> None:
    _, dial = demands()
    with closing(socket.socket()) as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        silent.bind((dial.peer_address, dial.peer_port))
        silent.listen()
        began = time.monotonic()
        (dialler,) = meet(dial)
    assert not dialler.dialled
    assert "sent nothing for 0.5 s" in dialler.why
    assert time.monotonic() - began < 15
    assert sockets_of_probes() == []


def test_nobody_there_is_reported_with_the_address_and_the_deadline() -> None:
    listen, dial = demands()
    (dialler,) = meet(dial)
    assert f"listener at {ADDRESS}:{dial.peer_port} not reached within 1.5 s: Connection refused" in dialler.why
    (listener,) = meet(listen)
    assert f"dialler did not reach {ADDRESS}:{listen.port} within 1.5 s: nobody came" in listener.why


def test_dialler_that_proves_itself_and_then_floods_is_cut_off() -> None:
    listen, dial = demands()

    async def flood() -> None:
        connection = await fabric_probe._connect(dial)
        with closing(connection):
            await fabric_probe._shake_hands(connection, dial, "there", is_dialler=True)
            await fabric_wire.ping(connection)
            await fabric_wire.write(connection, LENGTH.pack(2**32 - 1))
            with pytest.raises(OSError):
                for _ in range(10_000):
                    await fabric_wire.write(connection, bytes(BLOCK_BYTES))

    async def both() -> LinkReport:
        listening = await listening_to(listen)
        await flood()
        return await listening

    report = asyncio.run(both())
    assert not report.was_dialled
    assert "dialler sent more than a probe may" in report.why


def test_strangers_who_never_prove_themselves_are_counted_then_nobody_is_accepted() -> None:
    listen, _ = demands()

    async def knock() -> LinkReport:
        listening = await listening_to(listen)
        for _ in range(fabric_probe.CONNECTIONS_MAX):
            with closing(socket.create_connection((ADDRESS, listen.port))) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(NONCE_BYTES * 4))
            await asyncio.sleep(0)
        return await listening

    report = asyncio.run(knock())
    assert not report.was_dialled
    assert f"{fabric_probe.CONNECTIONS_MAX} connections came" in report.why


@pytest.mark.usefixtures("long_deadlines")
def test_flood_from_other_addresses_does_not_keep_the_peer_out() -> None:
    listen, dial = demands()

    async def flooded() -> list[LinkReport]:
        listening = await listening_to(listen)
        with ExitStack() as strangers:
            for _ in range(3 * fabric_probe.CONNECTIONS_MAX):
                place, source = (ADDRESS, listen.port), ("127.0.0.5", 0)
                strangers.enter_context(closing(socket.create_connection(place, source_address=source)))
                await asyncio.sleep(0)
            return list(await asyncio.gather(listening, probe(dial)))

    for report in asyncio.run(flooded()):
        assert report.dialled and report.was_dialled, report.why


def test_node_without_a_free_file_says_so_and_takes_the_peer_once_it_has_one() -> None:
    # In a process of its own: whatever else polls in a process without files ends.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        why, left = pool.submit(listen_without_a_free_file).result()
    assert "hung up while it was measured" in why
    assert left == []


def listen_without_a_free_file() -> tuple[str, list[object]]:
    """What a listener reports that had no file for its peer at first, and the sockets that are open afterwards."""
    patch = pytest.MonkeyPatch()
    make_short(patch)
    patch.setattr(fabric_probe, "HANDSHAKE_SECONDS_MAX", PATIENT_SECONDS)
    listen, dial = demands()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def starved() -> LinkReport:
        listening = await listening_to(listen)
        with closing(socket.socket()) as connection:
            connection.setblocking(False)
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
            try:
                await asyncio.get_running_loop().sock_connect(connection, (ADDRESS, listen.port))
                await asyncio.sleep(0.5)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            await fabric_probe._shake_hands(connection, dial, "there", is_dialler=True)
        return await listening

    return asyncio.run(starved()).why, sockets_of_probes()


def test_peer_that_proves_itself_and_then_says_nothing_ends_at_the_deadline() -> None:
    listen, dial = demands()

    async def both() -> tuple[LinkReport, float]:
        listening = await listening_to(listen)
        connection = await fabric_probe._connect(dial)
        with closing(connection):
            await fabric_probe._shake_hands(connection, dial, "there", is_dialler=True)
            began = time.monotonic()
            return await listening, time.monotonic() - began

    report, seconds = asyncio.run(both())
    assert "too slow to be measured in 4 s" in report.why
    assert seconds < PATIENT_SECONDS
    assert sockets_of_probes() == []


def test_cancelled_probe_leaves_no_socket() -> None:
    async def cut() -> None:
        tasks = [asyncio.create_task(probe(side)) for side in demands()]
        await asyncio.sleep(0.4)  # in the middle of the bytes
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(task.cancelled() for task in tasks)

    asyncio.run(cut())
    assert sockets_of_probes() == []


def test_port_that_somebody_has_is_reported() -> None:
    listen, _ = demands()
    with closing(socket.create_server((ADDRESS, listen.port))):
        (report,) = meet(listen)
    assert report.why == f"this node cannot listen on {ADDRESS}:{listen.port}: Address already in use"


@pytest.mark.parametrize(
    ("own", "peer", "problem"),
    [
        ("10.0.0.1", "127.0.0.1", "no address of another node"),
        ("10.0.0.1", "0.0.0.0", "no address of another node"),
        ("10.0.0.1", "224.0.0.1", "no address of another node"),
        ("10.0.0.1", "fd00::1", "not of one kind"),
        ("10.0.0.1", "rack-2.example", "not both IP addresses"),
    ],
)
def test_addresses_that_no_peer_has_are_not_dialled(own: str, peer: str, problem: str) -> None:
    listen, _ = demands()
    (report,) = meet(listen.model_copy(update={"address": own, "peer_address": peer}))
    assert problem in report.why
    assert not report.dialled


def test_pings_are_at_least_twenty() -> None:
    assert PINGS >= 20


def test_demand_does_not_print_its_secret() -> None:
    listen, _ = demands(probe_id=UUID(int=1))
    assert listen.secret not in repr(listen)

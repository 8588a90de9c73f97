"""Waiting for a gang: for its interface, then for rank zero, and not for ever."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from runtimes.contract import Env
from runtimes.rendezvous import RendezvousError, address_of, answers, wait_for_gang

PLACE: dict[str, str] = {Env.NODES: "2", Env.NODE_RANK: "1", Env.INTERFACE: "lo", Env.ADDRESS: "127.0.0.1"}


def test_program_that_is_alone_waits_for_nobody() -> None:
    wait_for_gang({})
    wait_for_gang({Env.NODES: "1", Env.INTERFACE: "souk0", Env.ADDRESS: "10.83.0.1"}, interface_seconds=0)


def test_loopback_has_its_address_and_no_other_interface_has_it() -> None:
    assert address_of("lo") == "127.0.0.1"
    assert address_of("souk-not-there") is None


def test_interface_that_does_not_come_ends_the_waiting() -> None:
    with pytest.raises(RendezvousError, match="souk0"):
        wait_for_gang(PLACE | {Env.INTERFACE: "souk0", Env.ADDRESS: "10.83.0.2"}, interface_seconds=0.1)


def test_rank_zero_that_comes_late_is_met_and_one_that_does_not_is_named() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        place = PLACE | {Env.MASTER_ADDR: "127.0.0.1", Env.MASTER_PORT: str(listener.getsockname()[1])}
        with pytest.raises(RendezvousError, match="rank zero at"):
            wait_for_gang(place, rank_zero_seconds=0.1)
        begun = time.monotonic()
        threading.Timer(0.5, listener.listen).start()
        wait_for_gang(place, rank_zero_seconds=30)
        assert time.monotonic() - begun >= 0.4
        assert answers(("127.0.0.1", listener.getsockname()[1]))


def test_rank_zero_waits_for_no_rank_zero() -> None:
    wait_for_gang(PLACE | {Env.NODE_RANK: "0"}, rank_zero_seconds=0)

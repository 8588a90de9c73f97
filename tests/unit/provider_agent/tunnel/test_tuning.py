"""A tunnel's connection waits for no acknowledgement; what is not TCP is left as it is."""

from __future__ import annotations

import socket

from provider_agent.protocol.tunnel.tuning import UNSENT_BYTES_MAX, tune


def test_a_tcp_connection_sends_small_frames_at_once_and_queues_few() -> None:
    with socket.socket() as connected:
        tune(connected)
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == UNSENT_BYTES_MAX


def test_a_unix_socket_and_a_connection_that_is_gone_are_left_alone() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        tune(ours)
    tune(None)

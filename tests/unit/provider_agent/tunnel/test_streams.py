"""Credit, turns and ends: one reader that stands still holds up nobody, and nothing grows beyond its window."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provider_agent.protocol.tunnel import frames, mux
from provider_agent.protocol.tunnel.frames import (
    DATA_BYTES_MAX,
    STREAMS_PER_TUNNEL_MAX,
    WINDOW_FIRST,
    WINDOW_MAX,
    WINDOW_SHARED,
    Broken,
    Code,
    Head,
    Kind,
    Open,
    pack,
    pack_head,
)
from tests.unit.provider_agent.tunnel.pair import LEASE, Pair, Reader


@given(st.lists(st.binary(max_size=100_000), max_size=8), st.lists(st.binary(max_size=100_000), max_size=8))
@settings(max_examples=30, deadline=None)
def test_both_bodies_arrive_whole_whatever_their_pieces(request: list[bytes], answer: list[bytes]) -> None:
    pair = Pair()
    asked = Reader(pair.gateway.open(Open(LEASE, "POST", "/v1/x", [])))
    for chunk in request:
        asked.stream.write(chunk)
    asked.stream.finish()
    pair.pump()
    there = pair.readers[1]
    got = b""
    for _ in range(1000):
        got += there.consume()
        pair.pump()
        if there.has_ended and not there.came:
            break
    assert got == b"".join(request)
    stream = pair.answer(asked, *answer)
    stream.finish()
    got = b""
    for _ in range(1000):
        pair.pump()
        got += asked.consume()
        if asked.has_ended:
            break
    assert got == b"".join(answer)
    assert asked.status == 200
    assert not pair.gateway.streams
    assert not pair.agent.streams
    assert pair.gateway._shared == pair.agent._shared == WINDOW_SHARED


def test_a_reader_that_stands_still_is_sent_one_window_and_no_more() -> None:
    pair = Pair()
    slow, quick = pair.ask(), pair.ask()
    stream = pair.answer(slow, b"not a whole frame")
    pair.pump()
    stream.write(bytes(10 * WINDOW_MAX))
    pair.pump()
    assert slow.size == WINDOW_FIRST
    pair.answer(quick, b"token").finish()
    pair.pump()
    assert quick.consume() == b"token"
    assert quick.has_ended


def test_a_reader_that_keeps_up_is_sent_more_at_once_up_to_a_limit() -> None:
    pair = Pair()
    asked = pair.ask()
    pair.answer(asked, bytes(20 * WINDOW_MAX))
    most = 0
    for _ in range(60):
        pair.pump()
        most = max(most, asked.size)
        asked.consume()
    assert most == WINDOW_MAX


def test_readers_that_stand_still_hold_at_most_what_all_share_and_each_its_own() -> None:
    pair = Pair()
    greedy = [pair.ask() for _ in range(40)]
    for asked in greedy:
        pair.answer(asked, bytes(3 * WINDOW_MAX))
    for _ in range(7):  # they keep up, until the shared part is lent out
        pair.pump()
        for asked in greedy:
            asked.consume()
    pair.pump()  # and now they stand still
    held = sum(asked.size for asked in greedy)
    assert held <= WINDOW_SHARED + len(greedy) * WINDOW_FIRST
    assert pair.gateway._shared == 0, "nothing is left to lend"
    late = pair.ask()
    pair.answer(late, bytes(WINDOW_FIRST)).finish()
    pair.pump()
    assert late.size == WINDOW_FIRST
    assert late.has_ended, "whoever comes late has a window of its own"


def test_a_large_body_delays_a_token_by_no_more_than_a_frame() -> None:
    pair = Pair()
    large, small = pair.ask(), pair.ask()
    body, token = pair.answer(large), pair.answer(small)
    pair.pump()
    body.write(bytes(WINDOW_FIRST))
    token.write(b"token")
    kinds = [(kind, number, len(data)) for kind, number, data in frames.unpack(pair.agent.take())]
    before = kinds.index((Kind.DATA, small.stream.number, 5))
    assert sum(size for kind, _, size in kinds[:before] if kind == Kind.DATA) <= DATA_BYTES_MAX


def test_a_sender_is_woken_when_little_is_left_to_send() -> None:
    pair = Pair()
    asked = pair.ask()
    pair.answer(asked, bytes(5 * WINDOW_FIRST))
    there = pair.readers[1]
    pair.pump()
    assert there.times_writable == 0
    for _ in range(6):
        asked.consume()
        pair.pump()
    assert there.times_writable == 1


def test_a_reset_arrives_at_the_other_end_and_what_was_under_way_is_no_fault() -> None:
    pair = Pair()
    asked = pair.ask()
    stream = pair.answer(asked, b"one")
    pair.pump()
    stream.write(b"two")
    under_way = pair.agent.take()
    asked.stream.reset(Code.CANCELLED, "gone")
    pair.gateway.feed(under_way)
    pair.pump()
    assert pair.readers[1].was_reset is not None
    assert pair.readers[1].was_reset.code is Code.CANCELLED
    assert not pair.gateway.streams
    assert not pair.agent.streams


def test_a_request_that_was_never_sent_is_dropped_without_a_word() -> None:
    pair = Pair()
    pair.ask().stream.reset(Code.CANCELLED, "gone")
    assert pair.gateway.take() == b""


def test_an_answer_before_the_end_of_the_question_stops_the_question() -> None:
    pair = Pair()
    asked = Reader(pair.gateway.open(Open(LEASE, "POST", "/v1/x", [])))
    asked.stream.write(bytes(10 * WINDOW_FIRST))
    pair.answer(asked, b"too long").finish()
    pair.pump()
    assert asked.has_ended
    assert not pair.gateway.streams
    assert not pair.agent.streams


def test_all_that_was_open_is_lost_at_once_and_says_whether_it_was_sent() -> None:
    pair = Pair()
    sent = pair.ask()
    pair.pump()
    unsent = pair.ask()
    pair.gateway.lose("gone")
    assert sent.was_reset is not None
    assert sent.was_reset.is_sent
    assert unsent.was_reset is not None
    assert not unsent.was_reset.is_sent
    assert not pair.gateway.streams


def test_leases_and_signs_of_life_arrive() -> None:
    pair = Pair()
    pair.agent.announce(LEASE, {"engine": "x"})
    pair.agent.ping(b"12345678")
    pair.pump()
    assert pair.leases == {LEASE: {"engine": "x"}}
    assert pair.pongs == [b"12345678"]
    pair.agent.withdraw(LEASE)
    pair.pump()
    assert pair.leases == {}


def test_there_are_only_so_many_requests_in_a_tunnel() -> None:
    pair = Pair()
    for _ in range(STREAMS_PER_TUNNEL_MAX):
        pair.ask()
    with pytest.raises(ValueError, match="no room"):
        pair.ask()
    pair.pump()
    number = STREAMS_PER_TUNNEL_MAX + 1
    with pytest.raises(Broken, match="too many"):
        pair.agent.feed(pack(Kind.OPEN, number, frames.pack_open(Open(LEASE, "POST", "/v1/x", []))))


HEAD = pack_head(Head(200, []))
MALICIOUS = {
    "data beyond the credit": [pack(Kind.HEAD, 1, HEAD), *[pack(Kind.DATA, 1, bytes(WINDOW_FIRST // 2 + 1))] * 2],
    "data before a head": [pack(Kind.DATA, 1, b"x")],
    "data after the end": [pack(Kind.HEAD, 1, HEAD), pack(Kind.END, 1), pack(Kind.DATA, 2, b"x")],
    "a second head": [pack(Kind.HEAD, 1, HEAD)] * 2,
    "an end without a head": [pack(Kind.END, 1)],
    "a stream that never was": [pack(Kind.DATA, 7, b"x")],
    "more credit than there can be": [pack(Kind.WINDOW, 1, b"\xff\xff\xff\xff")],
    "an open from the agent": [pack(Kind.OPEN, 2, frames.pack_open(Open(LEASE, "POST", "/v1/x", [])))],
    "a kind that there is not": [pack(Kind.PING, 0, b"12345678").replace(b"\x07", b"\x63", 1)],
    "a ping of another length": [pack(Kind.PING, 0, b"1")],
}


@pytest.mark.parametrize("messages", MALICIOUS.values(), ids=MALICIOUS.keys())
def test_an_agent_that_breaks_the_protocol_breaks_its_tunnel(messages: list[bytes]) -> None:
    pair = Pair()
    pair.ask()
    pair.gateway.take()
    with pytest.raises(Broken):
        for message in messages:
            pair.gateway.feed(message)


def test_an_end_that_does_not_read_cannot_make_the_other_remember_for_ever() -> None:
    pair = Pair()
    asked = pair.ask()
    pair.answer(asked)
    for _ in range(mux.CONTROL_FRAMES_MAX + 1):
        pair.gateway.withdraw(LEASE)
    with pytest.raises(Broken, match="does not read"):
        pair.gateway.feed(b"")


def test_a_stream_without_a_reader_is_drained_and_ends_like_the_others() -> None:
    pair = Pair()
    read, unread = pair.ask(), pair.ask()
    read.stream.receiver = unread.stream.receiver = None
    pair.answer(read, b"token").finish()
    pair.answer(unread).reset(Code.CANCELLED, "gone")
    pair.pump()
    assert not pair.gateway.streams
    assert not pair.agent.streams


def test_a_lost_connection_ends_a_stream_without_a_reader_too() -> None:
    pair = Pair()
    pair.ask().stream.receiver = None
    asked = pair.ask()
    pair.gateway.lose("gone")
    assert not pair.gateway.streams
    assert asked.was_reset is not None


def test_what_is_written_to_a_stream_that_is_over_goes_nowhere() -> None:
    pair = Pair()
    stream = pair.ask().stream
    stream.reset(Code.CANCELLED, "gone")
    stream.write(b"late")
    stream.finish()
    stream.reset(Code.CANCELLED, "again")
    assert (stream.out_bytes, pair.gateway.take()) == (0, b"")

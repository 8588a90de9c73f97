"""What is sent in frames arrives unchanged, and what is malformed is refused."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider_agent.protocol.tunnel import frames
from provider_agent.protocol.tunnel.frames import Broken, Code, Head, Kind, Open, Reset

LEASE = uuid4()
TOKENS = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":"), min_size=1, max_size=20)
VALUES = st.binary(max_size=60).filter(lambda value: not set(value) & set(b"\r\n\0"))
HEADERS = st.lists(st.tuples(TOKENS.map(str.encode), VALUES), max_size=10)
PATHS = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=60).map(lambda rest: "/" + rest)


@given(HEADERS, PATHS, st.sampled_from(["GET", "POST"]))
def test_an_open_is_received_as_it_was_sent(headers: list[tuple[bytes, bytes]], path: str, method: str) -> None:
    opened = Open(LEASE, method, path, headers)
    assert frames.unpack_open(frames.pack_open(opened)) == opened


@given(st.integers(200, 599), HEADERS)
def test_a_head_is_received_as_it_was_sent(status: int, headers: list[tuple[bytes, bytes]]) -> None:
    head = Head(status, headers)
    assert frames.unpack_head(frames.pack_head(head)) == head


@given(st.lists(st.tuples(st.sampled_from(Kind), st.integers(0, 2**32 - 1), st.binary(max_size=300)), max_size=20))
def test_frames_that_share_a_message_come_apart_as_they_were(sent: list[tuple[Kind, int, bytes]]) -> None:
    message = b"".join(frames.pack(*frame) for frame in sent)
    assert list(frames.unpack(message)) == sent


@given(st.binary(max_size=200))
def test_whatever_bytes_come_they_are_frames_or_broken(message: bytes) -> None:
    readers = (frames.unpack_open, frames.unpack_head, frames.unpack_announce, frames.unpack_reset)
    for reader in (lambda data: list(frames.unpack(data)), *readers, frames.unpack_credit, frames.unpack_lease):
        try:
            reader(message)
        except Broken:
            continue


@pytest.mark.parametrize(
    "header", [(b"a\nb", b"c"), (b"a", b"b\nc: d"), (b"a", b"b\rc"), (b"a", b"\0"), (b"", b"b"), (b"a:b", b"c")]
)
def test_a_header_cannot_smuggle_another(header: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="header"):
        frames.pack_head(Head(200, [header]))


@pytest.mark.parametrize("path", ["/v1/x HTTP/1.1", "/v1\r\nhost: b", "/\x7f"])
def test_a_path_cannot_smuggle_another_request(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        frames.pack_open(Open(LEASE, "POST", path, []))
    with pytest.raises(Broken):
        frames.unpack_open(LEASE.bytes + f"POST {path}".encode())


def test_what_is_too_long_is_neither_sent_nor_received() -> None:
    long = [(b"a", b"b" * frames.HEADER_BYTES_MAX)]
    with pytest.raises(ValueError, match="head of"):
        frames.pack_open(Open(LEASE, "POST", "/v1/x", long))
    with pytest.raises(ValueError, match="headers"):
        frames.pack_head(Head(200, [(b"a", b"b")] * (frames.HEADERS_MAX + 1)))
    with pytest.raises(ValueError, match="ready"):
        frames.pack_announce(LEASE, {"a": "b" * frames.READY_BYTES_MAX})
    with pytest.raises(Broken):
        list(frames.unpack(bytes(frames.MESSAGE_BYTES_READ_MAX + 1)))


def test_an_announcement_is_an_object_of_json() -> None:
    assert frames.unpack_announce(frames.pack_announce(LEASE, {"engine": "x"})) == (LEASE, {"engine": "x"})
    for data in (b"[1]", b"{", b"[" * 20_000):
        with pytest.raises(Broken):
            frames.unpack_announce(LEASE.bytes + data)


def test_a_reset_of_a_newer_end_is_understood_as_broken() -> None:
    assert frames.unpack_reset(frames.pack_reset(Reset(Code.TIMEOUT, "so"))) == Reset(Code.TIMEOUT, "so")
    assert frames.unpack_reset(bytes([99]) + b"new") == Reset(Code.BROKEN, "new")
    assert isinstance(LEASE, UUID)


def test_a_frame_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(ValueError, match="DATA of"):
        frames.pack(Kind.DATA, 1, bytes(frames.FRAME_BYTES_MAX + 1))


@pytest.mark.parametrize(
    ("packed", "match"),
    [
        (b"a: b\rc: d", "a line of its own"),
        (b"a: \0", "a line of its own"),
        (b"a:b\n" * frames.HEADERS_MAX + b"a:b", "too many headers"),
        (b"no colon", "without a name"),
        (b": nameless", "without a name"),
    ],
)
def test_mallorys_headers_break_the_tunnel(packed: bytes, match: str) -> None:
    with pytest.raises(Broken, match=match):
        frames.unpack_head(b"200\n" + packed)

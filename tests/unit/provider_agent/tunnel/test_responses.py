"""Any bytes of an engine are a response or are refused, and h11 reads the same from each response."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider_agent.tunnel.responses import CHUNK_LINE_BYTES_MAX, BadResponse, ResponseReader


class RecordingSink:
    """Sink that keeps everything."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Sequence[tuple[bytes, bytes]] = ()
        self.body = b""
        self.has_ended = False

    def on_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.status, self.headers = status, headers

    def on_data(self, chunk: bytes) -> None:
        assert chunk
        self.body += chunk

    def on_end(self) -> None:
        assert not self.has_ended
        self.has_ended = True


def feed_all(*pieces: bytes, closes: bool = False) -> tuple[RecordingSink, ResponseReader]:
    """Feed the pieces."""
    response = RecordingSink()
    reader = ResponseReader(response)
    for piece in pieces:
        reader.feed(piece)
    if closes:
        reader.close()
    return response, reader


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """In pieces, at these places."""
    places = sorted({0, len(data), *(place % (len(data) + 1) for place in at)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


@given(
    st.lists(st.binary(min_size=1, max_size=300), max_size=5),
    st.sampled_from(["chunked", "length", "close"]),
    st.lists(st.integers(0, 10_000), max_size=8),
)
def test_a_response_in_any_pieces_is_what_h11_wrote(chunks: list[bytes], kind: str, at: list[int]) -> None:
    length = str(sum(map(len, chunks)))
    framing = {"chunked": [("Transfer-Encoding", "chunked")], "length": [("Content-Length", length)]}.get(kind, [])
    engine = h11.Connection(h11.SERVER)
    engine.receive_data(b"GET / HTTP/1.%d\r\nhost: a\r\n\r\n" % (kind != "close"))
    while engine.their_state is not h11.DONE and engine.their_state is not h11.MUST_CLOSE:
        engine.next_event()
    written = engine.send(h11.Response(status_code=200, headers=[("X-A", "b"), *framing])) or b""
    for chunk in chunks:
        written += engine.send(h11.Data(data=chunk)) or b""
    written += engine.send(h11.EndOfMessage()) or b""
    response, reader = feed_all(*cut(written, at), closes="Connection: close" in written.decode("latin-1"))
    assert response.status == 200
    assert (b"x-a", b"b") in response.headers
    assert all(name not in {b"transfer-encoding", b"connection"} for name, _ in response.headers)
    assert response.body == b"".join(chunks)
    assert response.has_ended
    assert reader.can_go_on == (kind != "close")


@given(st.lists(st.binary(max_size=200), max_size=10))
def test_whatever_bytes_come_it_is_a_response_or_refused(pieces: list[bytes]) -> None:
    for first in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"):
        try:
            feed_all(first, *pieces, closes=True)
        except BadResponse:
            continue


OK = b"HTTP/1.1 200 OK\r\n"
REFUSED = {
    "garbage": b"hello\r\n\r\n",
    "another version": b"HTTP/2 200 OK\r\n\r\n",
    "a status that is none": b"HTTP/1.1 999 OK\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching\r\n\r\n",
    "headers without an end": OK + b"a: " + b"b" * 40_000,
    "too many headers": OK + b"a: b\r\n" * 200 + b"\r\n",
    "a header that is none": OK + b"nonsense\r\n\r\n",
    "a header with a space in its name": OK + b"a b: c\r\n\r\n",
    "a header that is folded": OK + b"a: b\r\n c\r\n\r\n",
    "two lengths": OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
    "a length and chunks": OK + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
    "a length that is none": OK + b"content-length: -1\r\n\r\n",
    "a coding nobody asked for": OK + b"transfer-encoding: gzip, chunked\r\n\r\n",
    "more than it announced": OK + b"content-length: 1\r\n\r\nab",
    "a second response": OK + b"content-length: 0\r\n\r\n" + OK,
    "a chunk that is longer": OK + b"transfer-encoding: chunked\r\n\r\n1\r\nab\r\n",
    "a size that is none": OK + b"transfer-encoding: chunked\r\n\r\n-1\r\n",
    "a size without an end": OK + b"transfer-encoding: chunked\r\n\r\n" + b"1" * CHUNK_LINE_BYTES_MAX,
    "a size beyond everything": OK + b"transfer-encoding: chunked\r\n\r\nfffffffff\r\n",
    "a trailer without an end": OK + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 2000,
    "interim responses for ever": b"HTTP/1.1 100 Continue\r\n\r\n" * 10,
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_response_is_refused(data: bytes) -> None:
    with pytest.raises(BadResponse):
        feed_all(data)
    with pytest.raises(BadResponse):
        feed_all(*[data[i : i + 1] for i in range(len(data))])


@pytest.mark.parametrize(
    "data", [b"", OK, OK + b"content-length: 2\r\n\r\na", OK + b"transfer-encoding: chunked\r\n\r\n"]
)
def test_a_response_that_is_cut_off_is_never_taken_for_whole(data: bytes) -> None:
    with pytest.raises(BadResponse, match="within its response"):
        feed_all(*([data] if data else []), closes=True)

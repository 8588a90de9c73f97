"""Events and chunks: however the bytes are cut, the same comes out, and nothing is lost or doubled."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.gateway.engines import chunks, sse
from jobs.gateway.engines.chunks import EngineFailed, Rewriter

ANY_TIME = settings(deadline=None)  # the machine may be slow

PAYLOADS = st.lists(
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=30).map(str.encode),
    max_size=8,
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)]


def read(pieces: list[bytes]) -> list[bytes]:
    reader = sse.EventReader()
    return [data for piece in pieces for data in reader.feed(piece)] + reader.finish()


@ANY_TIME
@given(PAYLOADS, st.lists(st.integers(0, 10_000), max_size=20), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_any_chunking_gives_the_same_events(payloads, places, newline, has_comments):
    comment = b": ping" + newline * 2 if has_comments else b""
    stream = b"".join(comment + b"data: " + data + newline * 2 for data in payloads)
    assert read(cut(stream, places)) == payloads


@ANY_TIME
@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=10))
def test_any_chunking_of_any_bytes_gives_the_same_events(data, places):
    assert read(cut(data, places)) == read([data])


@ANY_TIME
@given(PAYLOADS)
def test_what_is_written_is_read_again(payloads):
    lines = [b"\n".join([data, b"more"]) for data in payloads]
    assert read([sse.write_comment("hello\nyou") + b"".join(map(sse.write_event, lines))]) == lines


def test_half_a_line_at_the_end_is_no_event_and_a_whole_one_is():
    assert read([b"data: 1\n\ndata: {half"]) == [b"1"]
    assert read([b"data: 1\n\ndata: [DONE]\n"]) == [b"1", b"[DONE]"]


def test_an_event_without_an_end_is_given_up(monkeypatch):
    monkeypatch.setattr(sse, "EVENT_BYTES_MAX", 1000)
    reader = sse.EventReader()
    with pytest.raises(sse.BadStream):
        for _ in range(2000):
            reader.feed(b"x")


def rewriter(*, is_chat: bool = True, **how) -> Rewriter:
    return Rewriter(id="ours", model="otter", created=7, is_chat=is_chat, keep_text=True, **how)


def chat_chunk(text: str, *, dumps=json.dumps, **more) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    chunk = {"id": "theirs", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice | more]}
    return dumps(chunk).encode()


def plain(value) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@ANY_TIME
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=12),
    st.sampled_from([json.dumps, plain]),
)
def test_the_text_comes_through_unchanged_by_the_short_way_and_the_long(texts, dumps):
    it, out = rewriter(), b""
    for text in texts:
        out += it.read(chat_chunk(text, dumps=dumps))
    events = [json.loads(data) for data in read([out])]
    assert [event["choices"][0]["delta"]["content"] for event in events] == texts
    assert all((event["id"], event["model"], event["created"]) == ("ours", "otter", 7) for event in events)
    assert "".join(it.sent) == "".join(texts) and it.received.chunks == sum(bool(text) for text in texts)
    assert it.received.text_bytes == len("".join(texts).encode())


def test_most_chunks_take_the_short_way(monkeypatch):
    it = rewriter()
    it.read(chat_chunk("one", dumps=plain))
    monkeypatch.setattr(Rewriter, "_read_slowly", None)  # whoever calls it fails
    for word in ("two", " three", "vier", "fünf", "六"):
        assert json.loads(it.read(chat_chunk(word, dumps=plain))[6:])["choices"][0]["delta"]["content"] == word


@pytest.mark.parametrize("trap", ['"', '\\"', "\\", '","x":"', "\n", "\u2028", '"content":"', "\x7f"])
def test_text_that_looks_like_structure_is_text(trap):
    it = rewriter()
    for text in ("one", trap, "two", trap + "x"):
        assert json.loads(it.read(chat_chunk(text, dumps=plain))[6:])["choices"][0]["delta"]["content"] == text


@pytest.mark.parametrize("raw", [b"a\\q", b"a\xff", b"a\x00", b"\\ud800\\"])
def test_text_that_is_no_json_is_not_passed_on(raw):
    it = rewriter()
    good = chat_chunk("MARK", dumps=plain)
    it.read(good)
    with pytest.raises((sse.BadStream, EngineFailed)):
        it.read(good.replace(b"MARK", raw))


@pytest.mark.parametrize("delta", ["text", ["text"], 7, True])
@pytest.mark.parametrize("is_continued", [False, True])
def test_a_delta_that_is_no_object_is_a_bad_stream(delta, is_continued):
    with pytest.raises(sse.BadStream):
        rewriter(is_continued=is_continued).read(json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode())


def test_finish_usage_and_done_are_noted_and_the_count_is_not_passed_on():
    it = rewriter()
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    assert it.read(json.dumps({"choices": [], "usage": usage}).encode()) == b""
    out = it.read(
        json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}).encode()
    )
    assert "usage" not in json.loads(out[6:])
    assert it.read(b"[DONE]") == b""
    assert (it.received.usage, it.received.finished, it.received.is_done) == (usage, {0}, True)


def test_a_call_of_a_tool_is_output_that_cannot_be_gone_on_with():
    it = rewriter()
    it.read(json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0}]}}]}).encode())
    assert it.received.has_output and it.sent is None


def test_an_answer_that_grows_too_long_is_not_kept(monkeypatch):
    monkeypatch.setattr(chunks, "SENT_CHARS_MAX", 10)
    it = rewriter()
    for _ in range(20):
        it.read(chat_chunk("word"))
    assert it.sent is None and it.received.chunks == 20


def test_a_stream_that_goes_on_does_not_begin_again():
    start = json.dumps({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}).encode()
    assert rewriter(is_continued=True).read(start) == b"" != rewriter().read(start)


@pytest.mark.parametrize("data", [b'{"error": {"message": "CUDA"}}', b'{"error": "it\'s "bad""}'])
def test_an_error_of_the_engine_is_one(data):
    with pytest.raises(EngineFailed):
        rewriter().read(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"3",
        b"{}",
        b'{"choices": [3]}',
        b"\xff",
        b"[" * 5000,
        b'{"choices":[],"x":NaN}',
        b'{"choices":[],"x":1e999}',
    ],
)
def test_garbage_is_garbage(data):
    with pytest.raises(sse.BadStream):
        rewriter().read(data)

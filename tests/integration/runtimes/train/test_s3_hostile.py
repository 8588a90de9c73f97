"""What a training does where whatever answers at a customer's endpoint of S3 is slow, false, or no S3 at all."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.running.preparing import PREPARING_SECONDS_MAX
from runtimes.train import prepare
from runtimes.train.data import s3 as module
from runtimes.train.data import s3_client, s3_watch
from runtimes.train.data.s3 import S3Data
from runtimes.train.errors import BadCheckpoint, BadData, Stopped, TrainError
from runtimes.train.parallel import Progress

KEYS = {"AWS_ACCESS_KEY_ID": "AKIAALICE", "AWS_SECRET_ACCESS_KEY": "alices-very-own-secret"}
LINE = b'{"text": "one"}\n'

Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers as a test says."""

    protocol_version = "HTTP/1.1"
    server: FakeS3

    def _answer(self) -> None:
        self.server.asked.append((self.command, self.path, dict(self.headers)))
        with suppress(BrokenPipeError, ConnectionResetError):
            self.server.answer(self)

    do_GET = do_HEAD = _answer  # noqa: N815 - the names of http.server

    @property
    def is_list(self) -> bool:
        """Whether objects are to be listed."""
        return "list-type" in self.path

    def send(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        """A whole answer."""
        self.begin(status, {"Content-Length": str(len(body)), **headers})
        if self.command != "HEAD":
            self.wfile.write(body)

    def begin(self, status: int, headers: dict[str, str]) -> None:
        """An answer's head."""
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def drip(self, body: bytes, *, each: int = 1) -> None:
        """A few bytes ten times a second, until the test is over."""
        for at in range(0, len(body), each):
            if self.server.over.wait(0.1):
                return
            self.wfile.write(body[at : at + each])
            self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class FakeS3(ThreadingHTTPServer):
    """A server that lists one object, and sends it, but for what a test changes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.over, self.answer = threading.Event(), self.good
        self.rows = [row("f/a.jsonl", LINE)]

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def good(self, asked: Handler) -> None:
        """As S3 answers."""
        if asked.is_list:
            asked.send(200, {}, listing(self.rows))
        else:
            asked.send(206, PART, LINE)

    def only_reads(self, answer: Answer) -> None:
        """Lists are as S3 gives them, reads are not."""
        self.answer = lambda asked: self.good(asked) if asked.is_list else answer(asked)


PART = {"ETag": '"e"', "Content-Range": f"bytes 0-{len(LINE) - 1}/{len(LINE)}"}


def row(key: str, content: bytes, etag: str = '"e"') -> str:
    return f"<Contents><Key>{key}</Key><Size>{len(content)}</Size><ETag>{etag}</ETag></Contents>"


def listing(rows: list[str]) -> bytes:
    return f"<ListBucketResult>{''.join(rows)}<IsTruncated>false</IsTruncated></ListBucketResult>".encode()


def error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>words</Message></Error>".encode()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    monkeypatch.setattr(s3_client, "BACKOFF_SECONDS_MAX", 0.01)
    monkeypatch.setattr(s3_watch, "LOOK_SECONDS", 0.05)
    with FakeS3() as fake:
        threading.Thread(target=fake.serve_forever, daemon=True).start()
        yield fake
        fake.over.set()
        fake.shutdown()


@pytest.fixture
def data(server: FakeS3, tmp_path: Path) -> Callable[..., S3Data]:
    def make(name: str = "f", *, is_resumed: bool = False, stop: Any = None, **env: str) -> S3Data:
        env = {**KEYS, "AWS_ENDPOINT_URL_S3": server.url, **env}
        address = f"s3://alices/{name}"
        return S3Data((address,), tmp_path, is_resumed=is_resumed, say=lambda line: None, env=env, stop=stop)

    return make


Make = Callable[..., S3Data]


def fetched(found: S3Data) -> list[bytes]:
    return [path.read_bytes() for paths in found.fetch(Progress()).values() for path in paths]


def refused(found: S3Data) -> str:
    with pytest.raises(BadData) as caught:
        found.fetch(Progress())
    assert not [value for value in KEYS.values() if value in str(caught.value)]
    return str(caught.value)


# 1. Slow ones.


def test_bytes_that_come_one_by_one_end_a_fetch(data: Make, server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_watch, "PATIENCE_SECONDS", 0.6)
    body = b"x" * 1000
    server.rows = [row("f/a.txt", body)]
    of_body = {"ETag": '"e"', "Content-Range": "bytes 0-999/1000", "Content-Length": "1000"}

    def drip(asked: Handler) -> None:
        asked.begin(206, of_body)
        asked.drip(body)

    server.only_reads(drip)
    began = time.monotonic()
    assert "s3://alices/f could not be read for 1 s: less than 1 MiB came" in refused(data())
    assert time.monotonic() - began < 10


def test_chunks_that_come_slowly_are_not_enough(data: Make, server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_watch, "PATIENCE_SECONDS", 0.6)
    size = 8 << 20
    server.rows = [row("f/a.txt", b"").replace("<Size>0<", f"<Size>{size}<")]

    def drip(asked: Handler) -> None:
        asked.begin(206, {"ETag": '"e"', "Content-Range": f"bytes 0-{size - 1}/{size}", "Content-Length": str(size)})
        asked.drip(b"x" * size, each=s3_client.CHUNK_BYTES)  # 6 of them in PATIENCE_SECONDS are less than 1 MiB

    server.only_reads(drip)
    assert "less than 1 MiB came" in refused(data())


def test_a_small_object_needs_no_more_than_itself(data: Make, server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_watch, "PATIENCE_SECONDS", 5.0)

    def drip(asked: Handler) -> None:
        asked.begin(206, {**PART, "Content-Length": str(len(LINE))})
        asked.drip(LINE, each=4)

    server.only_reads(drip)
    assert fetched(data()) == [LINE]


@pytest.mark.parametrize("is_known", [False, True])
def test_a_head_without_end_ends_a_request(
    data: Make, server: FakeS3, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    monkeypatch.setattr(s3_watch, "PATIENCE_SECONDS", 0.6)

    def drip(asked: Handler) -> None:
        if asked.command == "HEAD" and is_known:
            asked.send(404, {})
            return
        asked.wfile.write(b"HTTP/1.1 200 OK\r\nX-A: ")
        asked.drip(b"a" * 1000)

    server.answer = drip
    with pytest.raises(TrainError, match="could not be read for 1 s: no answer") as caught:
        data("a.jsonl").fetch(Progress())
    assert isinstance(caught.value, BadData) is is_known, "where nothing ever answered, the node's line may be to blame"


@pytest.mark.parametrize("where", ["list", "read", "between"])
def test_a_job_that_is_to_stop_stops(data: Make, server: FakeS3, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setattr(s3_client, "BACKOFF_SECONDS", 60.0)
    monkeypatch.setattr(s3_client, "BACKOFF_SECONDS_MAX", 60.0)
    stop = threading.Event()

    def hang(asked: Handler) -> None:
        stop.set()
        if where == "between":  # tries
            asked.send(503, {})
        else:
            server.over.wait(60)

    if where == "read":
        server.only_reads(hang)
    else:
        server.answer = hang
    began = time.monotonic()
    with pytest.raises(Stopped):
        data(stop=stop).fetch(Progress())
    assert time.monotonic() - began < 10


def test_a_fetch_has_an_end_in_all(data: Make, server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    assert s3_watch.FETCH_SECONDS_MAX < PREPARING_SECONDS_MAX, "else it would end as a node's fault"
    monkeypatch.setattr(s3_watch, "FETCH_SECONDS_MAX", 0.3)
    server.only_reads(lambda asked: server.over.wait(60) and None)
    assert "could not be listed and fetched in 0 hours" in refused(data())


def test_an_error_is_an_answer_too(data: Make, server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_watch, "PATIENCE_SECONDS", 0.2)
    server.answer = lambda asked: asked.send(503, {}, error("SlowDown"))
    assert "could not be read for 0 s: SlowDown" in refused(data())
    server.answer = lambda asked: asked.send(403, {}, error("RequestTimeTooSkewed"))
    with pytest.raises(TrainError, match="this node's clock and that of S3 differ") as caught:
        data().fetch(Progress())
    assert not isinstance(caught.value, BadData), "the node's clock is not the customer's"


# 2. False ones.


@pytest.mark.parametrize("name", ["f", "a.jsonl"])
@pytest.mark.parametrize("status", [301, 302, 307])
def test_a_redirect_is_explained_and_not_followed(data: Make, server: FakeS3, name: str, status: int) -> None:
    server.answer = lambda asked: asked.send(status, {"Location": "http://169.254.169.254/"}, b"<html>moved</html>")
    assert "the endpoint sends on to another address: name that one as AWS_ENDPOINT_URL_S3" in refused(data(name))
    server.only_reads(lambda asked: asked.send(302, {"Location": "/"}))
    assert "sends on to another address" in refused(data())
    assert len(server.asked) == 3


def test_amazons_own_redirects_to_nowhere_end(data: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.awsrequest import AWSResponse

    found, sent = data("f", AWS_ENDPOINT_URL_S3=""), []

    class Raw:
        def stream(self, *_: object, **__: object) -> Iterator[bytes]:
            return iter([error("PermanentRedirect")])

    def answer(request: Any, **_: Any) -> AWSResponse:
        sent.append(request.url)
        return AWSResponse(request.url, 301, {}, Raw())

    found._client._client.meta.events.register("before-send.s3", answer)
    assert "AWS_REGION must be the bucket's" in refused(found)
    assert len(sent) == 2, "the list, and who knows the bucket's region"


@pytest.mark.parametrize(
    "body",
    [
        b"<html>login</html>",
        b"<ListBucketResult><IsTruncated>perhaps</IsTruncated><Contents><Size>many</Size></Contents></ListBucketResult>",
        b"<ListBucketResult><Contents><LastModified>1e30</LastModified></Contents></ListBucketResult>",
        b"<ListBucketResult><Name>a</Name><EncodingType>url</EncodingType><Contents><Key/></Contents></ListBucketResult>",
        listing([row("f/a.jsonl</Key><Key>q", LINE)]),
        listing([row("f/a.jsonl", LINE, "é")]),
    ],
)
def test_whatever_a_library_makes_of_lies_is_no_s3(data: Make, server: FakeS3, body: bytes) -> None:
    server.answer = lambda asked: asked.send(200, {}, body)
    assert "what answers is no S3" in refused(data())


@pytest.mark.parametrize("kind", [RuntimeError, TypeError, AttributeError, RecursionError, KeyError])
def test_any_error_of_the_library_is_no_s3(data: Make, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    def fail(**_: object) -> None:
        raise kind("of alices-very-own-secret")

    found = data()
    monkeypatch.setattr(found._client._client, "list_objects_v2", fail)
    assert f"what answers is no S3 ({kind.__name__})" in refused(found)
    found = data()
    monkeypatch.setattr(found._client._client, "get_object", fail)
    assert f"what answers is no S3 ({kind.__name__})" in refused(found)


def test_errors_of_this_node_are_not_of_the_server(data: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (MemoryError, OSError):

        def fail(kind: type[Exception] = kind, **_: object) -> None:
            raise kind

        found = data()
        monkeypatch.setattr(found._client._client, "get_object", fail)
        with pytest.raises(kind):
            found.fetch(Progress())


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"])
@pytest.mark.parametrize("value", ["geheim\n", "gehé¡m"])
def test_a_variable_that_no_header_holds_is_named(data: Make, server: FakeS3, name: str, value: str) -> None:
    message = refused(data(**{name: value}))
    assert f"{name} of the job has a line break" in message
    assert "geh" not in message
    assert server.asked == []


def test_an_endpoint_by_which_keys_would_leak_is_refused(data: Make) -> None:
    assert "AWS_ENDPOINT_URL_S3 of the job begins with http://" in refused(
        data(AWS_ENDPOINT_URL_S3="http://s3.example")
    )
    message = refused(data(AWS_ENDPOINT_URL_S3="https://me:geheim@s3.example"))
    assert "has a user, a query or a fragment" in message
    assert "geheim" not in message
    assert "is no address such as https://s3.example.org" in refused(data(AWS_ENDPOINT_URL_S3="s3.example.org"))


def test_a_certificate_that_does_not_fit_is_named_at_once(data: Make, server: FakeS3) -> None:
    began = time.monotonic()
    message = refused(data(AWS_ENDPOINT_URL_S3=server.url.replace("http:", "https:")))
    assert "the certificate of 127.0.0.1 does not fit, or it speaks no TLS" in message
    assert time.monotonic() - began < 10


def test_a_line_that_times_out_is_waited_for(data: Make, server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some errors of the line are OSErrors, as those of the disk are."""
    monkeypatch.setattr(s3_client, "READ_SECONDS", 0.2)
    late: set[str] = set()

    def answer(asked: Handler) -> None:
        if asked.path not in late:
            late.add(asked.path)
            server.over.wait(1)
        server.good(asked)

    server.answer = answer
    assert fetched(data()) == [LINE]
    assert len(late) == 2


@pytest.mark.parametrize(("listed", "sent"), [("e", '"e"'), ('"e"', "e"), ("e", "e")])
def test_etags_are_compared_without_quotes(data: Make, server: FakeS3, listed: str, sent: str) -> None:
    server.rows = [row("f/a.jsonl", LINE, listed)]
    server.only_reads(lambda asked: asked.send(206, {**PART, "ETag": sent}, LINE))
    assert fetched(data()) == [LINE]
    assert server.asked[-1][2]["If-Match"] == '"e"'


def test_weak_etags_are_named(data: Make, server: FakeS3) -> None:
    server.rows = [row("f/a.jsonl", LINE, 'W/"e"')]
    assert "this S3 gives weak ETags (W/)" in refused(data())


# 3. Words.


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (400, "ExpiredToken", "the job's credentials must let it"),
        (403, "AccessDenied", "the job's credentials must let it"),
        (400, "AuthorizationHeaderMalformed", "AWS_REGION must be the bucket's"),
        (416, "InvalidRange", "a.jsonl became shorter while it was read"),
        (405, "MethodNotAllowed", "see the address, AWS_REGION and AWS_ENDPOINT_URL_S3"),
    ],
)
def test_a_refusal_says_what_helps_against_it(data: Make, server: FakeS3, status: int, code: str, says: str) -> None:
    server.only_reads(lambda asked: asked.send(status, {}, error(code)))
    message = refused(data())
    assert says in message
    assert ("credentials" in message) is ("credentials" in says)


def test_several_sets_blame_no_resumed_attempts_checkpoint(data: Make, server: FakeS3) -> None:
    server.rows = [row(f"f/{part}train-00000-of-00001.jsonl", LINE) for part in ("", "b/")]
    assert "has several sets to train on" in refused(data())
    with pytest.raises(TrainError, match="has several sets to train on") as caught:
        data(is_resumed=True).fetch(Progress())
    assert not isinstance(caught.value, BadData)


# 4. The node.


@pytest.mark.parametrize("lacks", [1, -1])
def test_disk_is_there_for_the_data_and_their_tokens(data: Make, monkeypatch: pytest.MonkeyPatch, lacks: int) -> None:
    free = shutil.disk_usage("/")._replace(free=2 * len(LINE) + module.RESERVE_BYTES - lacks)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    if lacks < 0:
        assert fetched(data()) == [LINE]
        return
    with pytest.raises(TrainError, match=r"of which tokens need as much again") as caught:
        data().fetch(Progress())
    assert not isinstance(caught.value, BadData)


def test_a_full_disk_is_known_before_a_byte_comes(data: Make, server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(TrainError, match=r"ask for more by resources.disk") as caught:
        data().fetch(Progress())
    assert not isinstance(caught.value, BadData)
    assert all("list-type" in path for _, path, _ in server.asked)


def test_no_proxy_or_name_of_the_node_is_used(data: Make, server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("AWS_SDK_UA_APP_ID", "bobs-own-app")
    monkeypatch.setenv("AWS_DEFAULTS_MODE", "bogus")
    assert fetched(data()) == [LINE]
    assert not [headers for _, _, headers in server.asked if "bobs" in headers.get("User-Agent", "")]


# 5. A checkpoint.


def test_a_checkpoint_of_other_objects_is_known_by_the_list(
    data: Make, server: FakeS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = {"s3": data().digest}
    monkeypatch.setattr(prepare, "read_trainer", lambda folder: json.loads(json.dumps(saved)))
    monkeypatch.setattr(prepare, "wait_for_results", lambda ranks, work, what: [work(Progress())])
    monkeypatch.setattr(prepare, "read_tokenizer", lambda folder: SimpleNamespace(to_str=lambda: "the checkpoint's"))
    monkeypatch.setattr(prepare, "is_trained", lambda known, size: True)
    monkeypatch.setattr(prepare, "Tokenizer", SimpleNamespace(from_str=str))
    ranks: Any = SimpleNamespace(is_leader=True)
    source: Any = SimpleNamespace(folder=None, has_weights=False, config=SimpleNamespace(vocab_size=300))
    config: Any = SimpleNamespace(vocabulary_size=300)

    def resume() -> Any:
        nothing: Any = None
        return prepare.prepare_tokenizer(config, nothing, ranks, source, tmp_path, s3=data(is_resumed=True))

    assert resume() == "the checkpoint's"
    server.rows = [row("f/a.jsonl", LINE, '"another"')]
    with pytest.raises(BadCheckpoint, match="trained on: the objects on S3 have changed since"):
        resume()
    saved.clear()
    assert resume() == "the checkpoint's", "of before"
    assert all("list-type" in path for _, path, _ in server.asked)

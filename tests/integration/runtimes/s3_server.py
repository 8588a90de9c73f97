"""A real S3 server, and in front of it a proxy that counts, and cuts or refuses where a test says so."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from moto.backends import get_backend
from moto.server import ThreadedMotoServer

from jobs.artifacts.s3 import make_client

BUCKET = "alices"


@dataclass
class Asked:
    """One request that came to the proxy."""

    method: str
    path: str
    headers: dict[str, str]

    @property
    def is_read(self) -> bool:
        """Whether it reads an object's content."""
        return self.method == "GET" and "list-type" not in self.path


@dataclass
class S3Server:
    """One bucket behind the proxy. `before` may answer in the server's place; `cut` says how many bytes come of it."""

    behind: str
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    before: Callable[[Asked], int | None] = lambda asked: None
    cut: Callable[[Asked], int | None] = lambda asked: None

    @property
    def owner(self) -> Any:
        """A client of the bucket's owner, who does not come through the proxy."""
        return make_client(endpoint=self.behind, region="", access_key="alice", secret_key="alices-secret")

    def put(self, objects: dict[str, bytes]) -> None:
        """What Alice keeps there."""
        for key, content in objects.items():
            self.owner.put_object(Bucket=BUCKET, Key=key, Body=content, ACL="public-read")

    def put_unchecked(self, key: str, content: bytes) -> None:
        """Under a key that the server's HTTP takes for another one."""
        get_backend("s3")["123456789012"]["aws"].put_object(BUCKET, key, content)

    def reads(self) -> list[str]:
        """The objects whose content was read, by path."""
        return [urlsplit(each.path).path for each in self.asked if each.is_read]


@contextmanager
def running_s3() -> Iterator[S3Server]:
    """A server with one empty bucket."""
    moto = ThreadedMotoServer(port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    s3 = S3Server(f"http://{host}:{port}")
    s3.owner.create_bucket(Bucket=BUCKET, ACL="public-read")
    proxy = _proxy(s3, host, port)
    s3.url = f"http://127.0.0.1:{proxy.server_address[1]}"
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield s3
    finally:
        proxy.shutdown()
        proxy.server_close()
        moto.stop()


def _proxy(s3: S3Server, host: str, port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            asked = Asked(self.command, self.path, dict(self.headers))
            s3.asked.append(asked)
            if (status := s3.before(asked)) is not None:
                self._send(status, {}, b"")
                return
            line = http.client.HTTPConnection(host, port)
            line.request(self.command, self.path, headers=asked.headers)
            answer = line.getresponse()
            content = answer.read()
            headers = {name: value for name, value in answer.getheaders() if name.lower() != "transfer-encoding"}
            self._send(answer.status, headers, content, upto=s3.cut(asked))
            line.close()

        def _send(self, status: int, headers: dict[str, str], content: bytes, upto: int | None = None) -> None:
            self.send_response_only(status)
            for name, value in (
                headers | ({} if self.command == "HEAD" else {"Content-Length": str(len(content))})
            ).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content[:upto])
            if upto is not None:
                self.close_connection = True

        do_GET = do_HEAD = _answer  # noqa: N815 - the names of http.server

        def log_message(self, *_: Any) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)

"""The HTTP side of the fake marketplace: requests as they come, and faults that tests put in front of the answers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from tests.unit.jobs.client.fake_server import FakeMarketplace


class Refusal(Exception):
    """An error of the API."""

    def __init__(self, status: int, code: str, message: str, **details: Any) -> None:
        self.status, self.body = status, {"code": code, "message": message, "details": details}


@dataclass
class Fault:
    """What goes wrong with the next `times` requests to `route` ("GET /jobs/"): before or after they take effect."""

    route: str
    times: int = 1
    status: int = 0  # 0: the connection breaks
    headers: dict[str, str] = field(default_factory=dict)
    is_after: bool = False
    cut_at: int | None = None  # break after this many bytes of the body


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def handler(market: FakeMarketplace) -> type[BaseHTTPRequestHandler]:
    """Serves one marketplace."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def do_PUT(self) -> None:
            self._serve()

        def do_DELETE(self) -> None:
            self._serve()

        def _serve(self) -> None:
            split = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(split.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            asked = Asked(self.command, split.path, query, headers, body)
            market.asked.append(asked)
            route = f"{self.command} {split.path.removeprefix('/api/v1')}"
            fault = market.take_fault(route, is_after=False)
            if fault is not None and fault.cut_at is None:
                self._break(fault)
                return
            if split.path.startswith("/store/"):
                self._store(asked, fault)
                return
            try:
                status, answer = 200, market.answer(asked)
            except Refusal as refusal:
                status, answer = refusal.status, refusal.body
            after = market.take_fault(route, is_after=True)
            if after is not None:
                self._break(after)
                return
            self._send(status, json.dumps(answer).encode(), {"Content-Type": "application/json"})

        def _store(self, asked: Asked, fault: Fault | None) -> None:
            name = asked.path.removeprefix("/store/")
            if asked.method == "PUT":
                market.uploaded[name] = market.uploaded.get(name, b"") + asked.body
                etag = {"ETag": f'"{name}-{asked.query["part"]}"'} if market.has_etags else {}
                self._send(200, b"", etag)
                return
            data = market.output[name]
            start = int(asked.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
            self._send(206 if "range" in asked.headers else 200, data[start:], {}, fault.cut_at if fault else None)

        def _break(self, fault: Fault) -> None:
            if fault.status:
                self._send(fault.status, b'{"code": "busy", "message": "Later.", "details": {}}', fault.headers)
            self.close_connection = True

        def _send(self, status: int, body: bytes, headers: dict[str, str], cut_at: int | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body if cut_at is None else body[:cut_at])
            self.close_connection = self.close_connection or cut_at is not None

    return Handler

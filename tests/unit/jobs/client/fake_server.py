"""A marketplace as the client sees it: a real HTTP server with the public API's routes, and faults on demand."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

from jobs.spec import SpecErrors, from_wire, spec_hash

KEY = "souk_test_alice"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


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


class FakeMarketplace:
    """Truth of one job of Alice's, told over HTTP. Tests change the attributes; `with` starts and stops it."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.faults: list[Fault] = []
        self.answers: dict[str, Any] = {}  # by idempotency key
        self.effects: list[str] = []
        self.is_fitting = True
        self.plan = fitting_plan()
        self.job = a_job()
        self.others: list[dict[str, Any]] = []  # more jobs, for lists
        self.logs: dict[int, bytes] = {}
        self.events: dict[int, bytes] = {}
        self.complete: set[int] = set()  # attempts whose streams are
        self.page_bytes = 1 << 16
        self.uploaded: dict[str, bytes] = {}
        self.part_bytes = 5
        self.output: dict[str, bytes] = {}
        self.output_sha256: dict[str, str] = {}  # where it lies about a file
        self.bill: dict[str, Any] = {}
        self.on_job: Callable[[FakeMarketplace], None] = lambda _: None  # before each GET of the job
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeMarketplace:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def job_id(self) -> UUID:
        return UUID(self.job["job_id"])

    def routes(self, method: str) -> list[str]:
        """Paths that were asked for with this method, in order."""
        return [asked.path for asked in self.asked if asked.method == method]

    def take_fault(self, route: str, *, is_after: bool) -> Fault | None:
        for fault in self.faults:
            if route.startswith(fault.route) and fault.times > 0 and fault.is_after == is_after:
                fault.times -= 1
                return fault
        return None

    # --- the API

    def answer(self, asked: Asked) -> Any:
        path = asked.path.removeprefix("/api/v1")
        if path not in ("/login", "/signup") and asked.headers.get("authorization") != f"Bearer {KEY}":
            raise Refusal(401, "unauthenticated", "No valid key.")
        if asked.method == "POST":
            return self._post_once(asked, path)
        return self._get(asked, path)

    def _post_once(self, asked: Asked, path: str) -> Any:
        key = asked.headers["idempotency-key"]
        if key not in self.answers:
            self.answers[key] = self._post(asked, path)
            self.effects.append(path)
        return self.answers[key]

    def _post(self, asked: Asked, path: str) -> Any:
        body = asked.json
        if path == "/login":
            if body["password"] != "correct horse":
                raise Refusal(401, "wrong_password", "E-mail or password is wrong.")
            return {"key": KEY, "organisation": {"id": str(uuid4()), "name": "Alice"}, "scopes": ["jobs:write"]}
        if path == "/signup":
            return {}
        if path == "/quotes":
            return self._quote(body["spec"])
        if path == "/uploads":
            return self._begin_upload(body["files"])
        if path.endswith("/complete"):
            self.etags = body["etags"]
            return {}
        if path == "/jobs":
            self.job |= {"name": body["spec"]["name"], "spec": body["spec"]}
            return self.job
        if path.endswith("/cancel"):
            self.job["is_cancelling"] = True
            return self.job
        if path.endswith("/resume"):
            self.job |= {"state": "queued", "cap_usd_micros": body["max_total_usd_micros"]}
            return self.job
        if path == "/provider":
            raise Refusal(409, "provider_exists", "You are a provider already.")
        if path == "/provider/enrolment-tokens":
            return {"token": "t", "expires_at": NOW.isoformat()}
        raise Refusal(404, "not_found", "No such route.")

    def _quote(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            digest = spec_hash(from_wire(body))
        except SpecErrors as errors:
            raise Refusal(422, "bad_spec", str(errors), **errors.details) from errors
        fits = self.is_fitting
        return {
            "quote_id": str(uuid4()) if fits else None,
            "spec_hash": digest,
            "plan": self.plan if fits else misfitting_plan(),
            "price_ceiling_usd_micros": 500_000 if fits else None,
            "expected_usd_micros": 40_000 if fits else None,
            "expected_seconds": 300.0 if fits else None,
            "cap_usd_micros": 2_000_000 if fits else None,
            "expires_at": (datetime.now(UTC) + timedelta(minutes=10)).isoformat() if fits else None,
            "signature": "s" if fits else None,
            "balance_usd_micros": 10_000_000,
        }

    def _begin_upload(self, files: list[dict[str, Any]]) -> dict[str, Any]:
        uploads = []
        for file in files:
            offsets = range(0, file["size"], self.part_bytes) if file["size"] else [0]
            parts = [
                {
                    "number": number,
                    "offset": offset,
                    "size": min(self.part_bytes, file["size"] - offset),
                    "url": f"{self.url}/store/{file['path']}?part={number}&signed=yes",
                }
                for number, offset in enumerate(offsets, 1)
            ]
            uploads.append({"path": file["path"], "parts": parts})
        return {"artifact_id": str(uuid4()), "uploads": uploads}

    def _get(self, asked: Asked, path: str) -> Any:
        if path == f"/jobs/{self.job_id}":
            self.on_job(self)
            return self.job
        for name, streams in (("logs", self.logs), ("events", self.events)):
            if path == f"/jobs/{self.job_id}/{name}":
                return self._stream(streams, asked.query)
        if path == "/jobs":
            return self._page([self.job, *self.others], asked)
        if path.endswith("/artifacts"):
            return self._page([self._artifact()], asked)
        if path.startswith("/artifacts/"):
            files = [
                {
                    "path": name,
                    "size": len(data),
                    "sha256": self.output_sha256.get(name, hashlib.sha256(data).hexdigest()),
                    "url": f"/store/{name}",
                }
                for name, data in self.output.items()
            ]
            return self._artifact() | {"files": files}
        if path.endswith("/bill"):
            return self.bill
        if path == "/balance":
            names = ("available", "held", "provider_pending", "provider_available")
            return {f"{name}_usd_micros": 5 for name in names}
        if path == "/me":
            return {"organisation": {"id": str(uuid4()), "name": "Alice", "slug": "alice"}}
        if path in ("/offers", "/provider/nodes"):
            return self._page([an_offer() if path == "/offers" else a_node()], asked)
        raise Refusal(404, "not_found", "No such route.")

    def _page(self, rows: list[Any], asked: Asked) -> dict[str, Any]:
        start = int(asked.query.get("cursor", 0))
        more = f"{self.url}{asked.path}?cursor={start + 2}" if start + 2 < len(rows) else None
        return {"next": more, "previous": None, "results": rows[start : start + 2]}

    def _stream(self, streams: dict[int, bytes], query: dict[str, str]) -> dict[str, Any]:
        attempt, offset = int(query["attempt"]), int(query["offset"])
        attempts = max([*self.logs, *self.events, 0])
        if attempt > attempts:
            raise Refusal(404, "stream_not_found", "No such attempt.")
        data = streams.get(attempt, b"")
        until = time.monotonic() + min(float(query.get("wait_seconds", 0)), 0.2)
        while len(data) <= offset and attempt not in self.complete and time.monotonic() < until:
            time.sleep(0.02)
            data = streams.get(attempt, b"")
        piece = data[offset : offset + self.page_bytes]
        return {
            "attempt": attempt,
            "node_rank": 0,
            "offset": offset,
            "next_offset": offset + len(piece),
            "text": piece.decode(),
            "is_complete": attempt in self.complete and offset + len(piece) >= len(data),
            "attempts": max([*self.logs, *self.events, 0]),
            "job_state": self.job["state"],
        }

    def _artifact(self) -> dict[str, Any]:
        return {
            "artifact_id": str(UUID(int=7)),
            "job_id": str(self.job_id),
            "kind": "output",
            "step": None,
            "state": "complete",
            "size_bytes": sum(map(len, self.output.values())),
            "file_count": len(self.output),
            "created_at": NOW.isoformat(),
            "completed_at": NOW.isoformat(),
        }


def _handler(market: FakeMarketplace) -> type[BaseHTTPRequestHandler]:
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
                self._send(200, b"", {"ETag": f'"{name}-{asked.query["part"]}"'})
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


def a_job(**changes: Any) -> dict[str, Any]:
    """A queued job of Alice's."""
    return {
        "job_id": str(uuid4()),
        "name": "tiny",
        "kind": "train",
        "state": "queued",
        "reason": "",
        "message": "",
        "waiting_for": "",
        "is_cancelling": False,
        "progress": {},
        "cost_so_far_usd_micros": 0,
        "cap_usd_micros": 2_000_000,
        "created_at": NOW.isoformat(),
        "running_at": None,
        "ended_at": None,
        "attempts": [],
        "spec": {},
    } | changes


DEVICES = [{"kind": "gpu", "model": "H100", "memory_mib": 81_559, "flops_per_second": {"bfloat16": 6e14}}] * 2
TERMS = {
    "price_usd_micros_per_device_hour": 1_990_000,
    "seconds_min": 60,
    "seconds_max": 86_400,
    "region": "eu-west",
    "available_until": None,
}


def an_offer() -> dict[str, Any]:
    """What Bob offers."""
    ids = {"id": str(uuid4()), "node_id": str(uuid4())}
    return ids | TERMS | {"node_name": "bob", "provider": "Bob", "executor": "docker", "devices": DEVICES}


def a_node() -> dict[str, Any]:
    """Bob's node."""
    about = {"id": str(uuid4()), "name": "bob", "state": "online", "executor": "docker"}
    link = {
        "node_id": str(UUID(int=2**128 - 1)),
        "node_name": "rack-2",
        "condition": "good",
        "round_trip_us": 120,
        "bandwidth_bytes_per_second": 1_250_000_000,
        "measured_at": NOW.isoformat(),
        "next_probe_at": NOW.isoformat(),
        "why": "",
    }
    offered = {"last_seen_at": NOW.isoformat(), "devices": DEVICES, "offer": TERMS}
    return about | offered | {"fabric": "rack", "links": [link]}


def an_attempt(number: int, node: str, **changes: Any) -> dict[str, Any]:
    """One try on one node."""
    lease = {
        "lease_id": str(uuid4()),
        "node_id": str(uuid4()),
        "node_name": node,
        "node_rank": 0,
        "state": "active",
        "devices": 2,
        "device_model": "CPU share",
        "rate_usd_micros_per_hour": 720_000,
        "billable_ms": None,
        "charge_usd_micros": None,
    }
    return {
        "attempt_id": str(uuid4()),
        "number": number,
        "state": "running",
        "reason": "",
        "fault": "",
        "message": "",
        "exit_code": None,
        "resumed_from_step": None,
        "created_at": NOW.isoformat(),
        "running_at": None,
        "ended_at": None,
        "leases": [lease],
    } | changes


def fitting_plan() -> dict[str, Any]:
    """Bob's node is dearer an hour and cheaper to complete than Carol's."""

    def candidate(name: str, price: int, seconds: float, usd: int, *, is_chosen: bool) -> dict[str, Any]:
        return {
            "node_ids": [str(uuid4())],
            "node_names": [name],
            "device_model": "CPU share",
            "devices": 2,
            "region": "eu-west",
            "price_usd_micros_per_device_hour": price,
            "flops_per_second": 5e10,
            "work_seconds": seconds,
            "startup_seconds": 5.0,
            "rework_seconds": 3.0,
            "expected_seconds": seconds + 8,
            "expected_usd_micros": usd,
            "usd_micros_per_exaflop": 1.0,
            "is_chosen": is_chosen,
        }

    candidates = [
        candidate("bob", 360_000, 292, 60_000, is_chosen=True),
        candidate("carol", 180_000, 900, 90_800, is_chosen=False),
    ]
    exclusions = [{"code": "memory", "nodes": 1, "message": "1 lacks 24 GB of memory per device"}]
    return {"nodes_seen": 3, "candidates": candidates, "exclusions": exclusions, "fixes": [], "work_flops": 1e13}


def misfitting_plan() -> dict[str, Any]:
    """Nothing fits, and a little more money would help."""
    fix = {
        "field": "budget.max_per_gpu_hour",
        "value": "0.45",
        "nodes": 9,
        "message": "+$0.05 per GPU-hour adds 9 nodes",
    }
    exclusions = [{"code": "price", "nodes": 90, "message": "90 are above your price"}]
    return {"nodes_seen": 412, "candidates": [], "exclusions": exclusions, "fixes": [fix], "work_flops": None}

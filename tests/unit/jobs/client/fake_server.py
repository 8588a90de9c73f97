"""A marketplace as the client sees it: a real HTTP server with the public API's routes, and faults on demand."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from typing import Any
from uuid import UUID, uuid4

from jobs.spec import SpecErrors, from_wire, spec_hash
from tests.unit.jobs.client.fake_answers import (
    NOW,
    a_job,
    a_node,
    an_offer,
    fitting_plan,
    misfitting_plan,
    signed_export,
)
from tests.unit.jobs.client.fake_http import Asked, Fault, Refusal, handler

KEY = "souk_test_alice"


class FakeMarketplace:
    """The state of one job of Alice's, served over HTTP. Tests change the attributes; `with` starts and stops it."""

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
        self.has_etags = True  # whether the store's answers name the part
        self.busy = 0  # how often it still puts the parts together
        self.output: dict[str, bytes] = {}
        self.more_artifacts: list[dict[str, Any]] = []  # as far as they differ from the output
        self.storage: dict[str, Any] = {}
        self.plan_checks: dict[str, Any] | None = None  # None: from before there were any
        self.output_sha256: dict[str, str] = {}  # where it lies about a file
        self.bill: dict[str, Any] = {}
        self.signup_answer: dict[str, Any] = {}
        self.code = ""  # of the second factor; empty: the account has none
        self.on_job: Callable[[FakeMarketplace], None] = lambda _: None  # before each GET of the job
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
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
        """Paths that were requested with this method, in order."""
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
        if asked.method == "DELETE" and path.startswith("/artifacts/"):
            return self._artifact() | {"artifact_id": path.removeprefix("/artifacts/"), "state": "deleted"}
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
            if self.code and body.get("code", "") != self.code:
                code = "second_factor_refused" if body.get("code") else "second_factor_required"
                raise Refusal(401, code, "This account has a second factor.")
            return {"key": KEY, "organisation": {"id": str(uuid4()), "name": "Alice"}, "scopes": ["jobs:write"]}
        if path == "/signup":
            return self.signup_answer
        if path == "/quotes":
            return self._quote(body["spec"])
        if path == "/uploads":
            return self._begin_upload(body["files"])
        if path.endswith("/complete"):
            if self.busy:
                self.busy -= 1
                raise Refusal(503, "upload_busy", "The parts of a large file are being put together.")
            self.etags = body["etags"]
            return {}
        if path == "/jobs":
            self.job |= {"name": body["spec"]["name"], "spec": body["spec"]}
            return self.job
        if path.endswith("/cancel"):
            self.job["is_cancelling"] = True
            return self.job
        if path.endswith("/retry"):
            return self.job | {"job_id": str(uuid4()), "state": "queued"}
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
        if path == "/storage":
            return self.storage
        if path == "/plan-checks" and self.plan_checks is not None:
            return self.plan_checks
        if path == f"/jobs/{self.job_id}":
            self.on_job(self)
            return self.job
        for name, streams in (("logs", self.logs), ("events", self.events)):
            if path == f"/jobs/{self.job_id}/{name}":
                return self._stream(streams, asked.query)
        if path == "/jobs":
            return self._page([self.job, *self.others], asked)
        if path.endswith("/artifacts"):
            return self._page([self._artifact() | each for each in [*self.more_artifacts, {}]], asked)
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
        if path.endswith("/bill/export"):
            return signed_export("souk-bill-1", self.bill)
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
        # Whether more may come is asked before what there is, as the server does: else the last bytes could be missed.
        job_state, is_complete, data = self.job["state"], attempt in self.complete, streams.get(attempt, b"")
        until = time.monotonic() + min(float(query.get("wait_seconds", 0)), 0.2)
        while len(data) <= offset and not is_complete and time.monotonic() < until:
            time.sleep(0.02)
            job_state, is_complete, data = self.job["state"], attempt in self.complete, streams.get(attempt, b"")
        piece = data[offset : offset + self.page_bytes]
        return {
            "attempt": attempt,
            "node_rank": 0,
            "offset": offset,
            "next_offset": offset + len(piece),
            "text": piece.decode(),
            "is_complete": is_complete and offset + len(piece) >= len(data),
            "attempts": max([*self.logs, *self.events, 0]),
            "job_state": job_state,
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

"""A marketplace in one thread, for agents that are real processes: it checks every signature and remembers everything.

Faults are set as attributes: a lost reply, a wrong clock, being away.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID, uuid4

import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from examples.market import free_ports
from provider_agent import protocol
from provider_agent.protocol import Assignment, Desired, Reason
from tests.integration.provider_agent.fake_leases import FakeLeases, Lease, Refusal

API = "/api/agent/v1"
Scope = dict[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class FakeServer(FakeLeases):
    """Serves one or more agents, on a loopback port unless another address is given.

    `enter` is called first thing in the thread that serves: what it makes of that thread's network is the server's.
    """

    def __init__(self, host: str = "127.0.0.1", enter: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.host, self.enter = host, enter
        self.key = Ed25519PrivateKey.generate()
        self.public_key = self.key.public_key().public_bytes_raw().hex()
        self.port = free_ports()
        self.url = f"http://{host}:{self.port}"
        self.token = "souk_enrol_0123456789abcdef"
        self.enrolled: protocol.EnrolRequest | None = None
        self.nodes: dict[UUID, protocol.EnrolRequest] = {}
        self.measurements: list[protocol.MeasurementRequest] = []
        self.syncs: list[protocol.SyncRequest] = []
        self.retired: list[UUID] = []
        self.drained: list[str] = []
        self.node_state = "online"
        self.price = 1_000_000
        self.schedule = protocol.Schedule()
        self.schedules_received = 0
        self.beat_seconds = 0.5
        self.lease_seconds = 30.0
        self.clock_offset = timedelta(0)
        self.lose_replies: dict[str, int] = {}  # path ending -> how many answers are lost after they took effect
        self.fail_with: dict[str, int] = {}  # path ending -> status of every answer
        self.link_demands: dict[UUID, protocol.LinkDemand] = {}  # node -> what it is to measure
        self.link_reports: list[tuple[UUID, protocol.LinkReport]] = []
        self._version = 0
        self._thread: threading.Thread | None = None
        self._server: uvicorn.Server | None = None

    # --- what tests do

    def start(self) -> None:
        """Listen, on the same port as before."""
        config = uvicorn.Config(
            self, host=self.host, port=self.port, log_level="critical", lifespan="off", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, args=[self._server], daemon=True)
        self._thread.start()
        until = time.monotonic() + 10
        while not self._server.started and time.monotonic() < until:
            time.sleep(0.01)

    def _serve(self, server: uvicorn.Server) -> None:
        if self.enter is not None:
            self.enter()
        server.run()

    def stop(self) -> None:
        """Stop, in the middle of open requests."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = self._server.force_exit = True
            self._thread.join(10)

    def give(self, assignment: Assignment, *, key: Ed25519PrivateKey | None = None) -> Lease:
        """Want this assignment to run."""
        signed = protocol.sign_assignment(key or self.key, assignment)
        desired = Desired(
            lease_id=assignment.lease_id,
            fence=assignment.fence,
            action="run",
            lease_until=self.now() + timedelta(seconds=self.lease_seconds),
            assignment=signed,
        )
        lease = Lease(assignment, desired)
        self.leases[assignment.lease_id] = lease
        self._version += 1
        return lease

    def regroup(self, lease: Lease, assignment: Assignment) -> None:
        """Want a later generation of a lease's assignment."""
        lease.assignment = assignment
        signed = protocol.sign_assignment(self.key, assignment)
        lease.desired = lease.desired.model_copy(update={"assignment": signed})
        self._version += 1

    def stop_lease(self, lease: Lease, reason: Reason) -> None:
        """Want it stopped."""
        lease.desired = lease.desired.model_copy(update={"action": "stop", "stop_reason": reason})
        self._version += 1

    def want_links(self, demands: dict[UUID, protocol.LinkDemand]) -> None:
        """Want these nodes to measure the way to each other; the demand stands until another one does."""
        self.link_demands = demands
        self._version += 1

    def forget_lease(self, lease: Lease) -> None:
        """Report to the agent that it is settled."""
        lease.forget = True
        self._version += 1

    def now(self) -> datetime:
        """The server's time."""
        return datetime.now(UTC) + self.clock_offset

    # --- ASGI

    async def __call__(self, scope: Scope, receive: Callable[[], Awaitable[dict[str, Any]]], send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":  # killed, or given up, in the middle of a request
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        path, query = scope["path"], scope["query_string"].decode()
        try:
            for ending, status in self.fail_with.items():
                if path.endswith(ending):
                    raise Refusal(status, "planted")
            status, answer, headers = await self._answer(scope, path, query, body)
        except Refusal as refusal:
            status, headers = refusal.status, {}
            answer = {"code": refusal.code, "message": refusal.code, "details": refusal.details}
        for ending, count in list(self.lose_replies.items()):
            if path.endswith(ending) and count > 0:
                self.lose_replies[ending] = count - 1
                raise ConnectionAbortedError("planted: the reply is lost")
        payload = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": payload})

    async def _answer(self, scope: Scope, path: str, query: str, body: bytes) -> tuple[int, Any, dict[str, str]]:
        if path.startswith("/store/"):
            return self.answer_store(scope["method"], path.removeprefix("/store/"), body)
        if path == f"{API}/enrol":
            return 201, self._enrol(protocol.EnrolRequest.model_validate_json(body)), {}
        node_id = self._authenticate(scope, path, query, body)
        if path == f"{API}/sync":
            return 200, await self._sync(node_id, protocol.SyncRequest.model_validate_json(body)), {}
        if path == f"{API}/measurements":
            self.measurements.append(protocol.MeasurementRequest.model_validate_json(body))
            return 200, {}, {}
        if path == f"{API}/retire":
            self.retired.append(node_id)
            return 200, {}, {}
        if path.removeprefix(f"{API}/") in {"drain", "resume", "price", "standing", "earnings"}:
            return 200, self._answer_request(path.removeprefix(f"{API}/"), body), {}
        if path == f"{API}/schedule":
            if scope["method"] == "POST":
                self.schedule = protocol.Schedule.model_validate_json(body)
                self.schedules_received += 1
            return 200, self.schedule.model_dump(mode="json"), {}
        if path.startswith(f"{API}/links/"):
            return self._take_link_report(node_id, path.removeprefix(f"{API}/links/"), body)
        if path == f"{API}/sample":
            return 200, b"x" * 65536, {}
        parts = path.removeprefix(f"{API}/leases/").split("/")
        lease = self.leases.get(UUID(parts[0]))
        if lease is None:
            raise Refusal(404, "lease_unknown")
        return 200, self.answer_lease(lease, parts[1:], {k: v[0] for k, v in parse_qs(query).items()}, body), {}

    def _take_link_report(self, node_id: UUID, probe_id: str, body: bytes) -> tuple[int, Any, dict[str, str]]:
        if str(self.link_demands[node_id].probe_id) != probe_id:
            raise Refusal(409, "probe_over")
        self.link_reports.append((node_id, protocol.LinkReport.model_validate_json(body)))
        return 204, b"", {}

    def _answer_request(self, name: str, body: bytes) -> dict[str, Any]:
        if name == "earnings":
            return protocol.Earnings(
                today_usd_micros=1_250_000,
                week_usd_micros=9_000_000,
                open_usd_micros=300,
                today_leases=2,
                week_leases=11,
                open_leases=1,
                fee_bps=1000,
            ).model_dump(mode="json")
        if name == "drain":
            self.drained.append(protocol.DrainRequest.model_validate_json(body).reason)
            self.node_state = "draining"
        elif name == "resume":
            protocol.ResumeRequest.model_validate_json(body)
            self.node_state = "online"
        elif name == "price":
            self.price = protocol.PriceRequest.model_validate_json(body).price_usd_micros_per_device_hour
        reason = self.drained[-1] if self.node_state == "draining" else ""
        standing = protocol.NodeStanding(
            node_state=self.node_state, drain_reason=reason, price_usd_micros_per_device_hour=self.price
        )
        return standing.model_dump(mode="json")

    def _is_leaving(self) -> bool:
        return self._server is not None and self._server.should_exit

    def _authenticate(self, scope: Scope, path: str, query: str, body: bytes) -> UUID:
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        node_id = UUID(headers[protocol.HEADER_NODE.lower()])
        time_ms = int(headers[protocol.HEADER_TIME.lower()])
        node = self.nodes[node_id]
        full = f"{path}?{query}" if query else path
        if not protocol.verify_request(
            node.transport_public_key, headers[protocol.HEADER_SIGNATURE.lower()], scope["method"], full, time_ms, body
        ):
            self.problems.append(f"bad signature on {full}")
            raise Refusal(401, "bad_signature")
        if abs(time_ms / 1000 - self.now().timestamp()) > protocol.REQUEST_WINDOW_SECONDS:
            raise Refusal(401, "clock_skew", server_time=self.now().isoformat())
        return node_id

    def _enrol(self, request: protocol.EnrolRequest) -> dict[str, Any]:
        self.enrolled = request
        if request.token != self.token:
            raise Refusal(403, "token_unknown")
        proof = protocol.enrol_proof_bytes(request.token, request.transport_public_key, request.receipt_address)
        if not protocol.verify_bytes(request.transport_public_key, request.proof, proof):
            raise Refusal(403, "bad_proof")
        self.token = ""
        node_id = uuid4()
        self.nodes[node_id] = request
        answer = protocol.EnrolResponse(
            node_id=node_id,
            server_public_key=self.public_key,
            sync_url=self.url,
            api_url=self.url,
            server_time=self.now(),
        )
        return answer.model_dump(mode="json")

    async def _sync(self, node_id: UUID, request: protocol.SyncRequest) -> dict[str, Any]:
        self.syncs.append(request)
        for report in request.leases:
            lease = self.leases.get(report.lease_id)
            if lease is not None:
                lease.report = report
                if not lease.states or lease.states[-1] != report.state:
                    lease.states.append(report.state)
        until = time.monotonic() + request.wait_seconds
        while request.known == str(self._version) and time.monotonic() < until and not self._is_leaving():
            await asyncio.sleep(0.02)
        desired = []
        for lease in self.leases.values():
            if lease.forget:
                continue
            lease_until = self.now() + timedelta(seconds=self.lease_seconds)
            update: dict[str, Any] = {"lease_until": lease_until}
            if lease.report is not None and lease.report.generation >= lease.assignment.generation:
                update["assignment"] = None
            desired.append(lease.desired.model_copy(update=update))
        answer = protocol.SyncResponse(
            server_time=self.now(),
            version=str(self._version),
            beat_seconds=self.beat_seconds,
            node_state=self.node_state,
            desired=desired,
            forget=[lease_id for lease_id, lease in self.leases.items() if lease.forget],
            link=self.link_demands.get(node_id),
        )
        return answer.model_dump(mode="json")

"""What an agent does, done by a test: makes keys, enrols, signs. Bob provides; the verbs are the real ones."""

from __future__ import annotations

import asyncio
import base64
import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings
from django.test import Client
from eth_account import Account
from eth_account.messages import encode_defunct
from redis.asyncio import Redis as AsyncRedis

from marketplace.foundation import clock
from marketplace.nodes.inventory import devices as inventory
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import Node, Provider
from marketplace.nodes.watching import liveness
from provider_agent import protocol
from provider_agent.protocol import (
    DeviceFacts,
    DeviceKind,
    DeviceMeasurement,
    EnrolRequest,
    MeasurementRequest,
    NodeFacts,
    OfferTerms,
)

DOLLAR = 1_000_000


def device(uuid: str = "GPU-1", *, index: int = 0, model: str = "NVIDIA H100", memory_mib: int = 80_000) -> DeviceFacts:
    return DeviceFacts(uuid=uuid, index=index, kind=DeviceKind.GPU, model=model, memory_mib=memory_mib)


def facts(*devices: DeviceFacts) -> NodeFacts:
    return NodeFacts(
        agent_version="0.1.0",
        operating_system="Debian 12",
        kernel="6.1",
        cpu_model="EPYC",
        cpu_count=16,
        memory_mib=128_000,
        disk_free_mib=500_000,
        executor="docker",
        devices=list(devices) or [device()],
    )


def terms(**changes: Any) -> OfferTerms:
    return OfferTerms(**{"price_usd_micros_per_device_hour": 2 * DOLLAR, "region": "eu-west", **changes})


def measurements(*uuids: str, flops: float = 4e14) -> MeasurementRequest:
    devices = [
        DeviceMeasurement(uuid=uuid, flops_per_second={"bfloat16": flops}, memory_bytes_per_second=3e12, seconds=2)
        for uuid in uuids or ("GPU-1",)
    ]
    return MeasurementRequest(probe_version=1, devices=devices)


@dataclass
class Agent:
    """One node's side: its two keys, and its id once it is enrolled."""

    transport: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    receipt: Any = field(default_factory=Account.create)
    node_id: UUID | None = None

    @property
    def transport_public_key(self) -> str:
        return self.transport.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()

    def enrol_request(self, token: str, **changes: Any) -> EnrolRequest:
        """With both proofs over what it says; `changes` come after the proofs."""
        proven = protocol.enrol_proof_bytes(token, self.transport_public_key, self.receipt.address)
        fields: dict[str, Any] = {
            "protocol": protocol.PROTOCOL_VERSION,
            "token": token,
            "name": "bobs-node",
            "transport_public_key": self.transport_public_key,
            "receipt_address": self.receipt.address,
            "proof": _base64(self.transport.sign(proven)),
            "receipt_proof": self.receipt.sign_message(encode_defunct(proven)).signature.hex(),
            "facts": facts(),
            "offer": terms(),
        }
        return EnrolRequest(**(fields | changes))

    def enrol(self, provider: Provider, **changes: Any) -> Node:
        """The whole way in, by the real verbs."""
        _, token = enrolment.issue_token(provider, actor="test")
        node = enrolment.enrol(self.enrol_request(token, **changes))
        self.node_id = node.pk
        return node

    def headers(self, method: str, path: str, body: bytes, *, time_ms: int | None = None) -> dict[str, str]:
        assert self.node_id is not None
        moment = time.time_ns() // 1_000_000 if time_ms is None else time_ms
        return protocol.sign_request(self.transport, self.node_id, method, path, moment, body)

    def post(self, path: str, body: bytes = b"", *, send_to: str | None = None, send: bytes | None = None) -> Any:
        """Sign `path` and `body`, and send them, or others in their place."""
        headers = self.headers("POST", path, body)
        data = body if send is None else send
        return Client().post(send_to or path, data, content_type="application/json", headers=headers)


def beat(node_id: UUID) -> None:
    """The node's beat is recorded, as the sync processes record it."""

    async def record() -> bool:
        async with AsyncRedis.from_url(settings.REDIS_URL) as client:
            return await liveness.record_beats_async(client, {node_id: clock.now()})

    assert asyncio.run(record())


def bring_online(node: Node) -> Node:
    """Measured, beating, and flushed: as any node comes online."""
    inventory.record_measurements(node, measurements(*node.devices.values_list("uuid", flat=True)))
    beat(node.pk)
    liveness.flush_beats()
    node.refresh_from_db()
    return node


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()

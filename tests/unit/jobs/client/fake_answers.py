"""Answers of the public API: Alice's job, Bob's node and offer, plans that fit and do not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from provider_agent.protocol import export_bytes, sign_bytes

SERVER_KEY = Ed25519PrivateKey.from_private_bytes(b"the marketplace signs with this.")
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


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


def an_endpoint(model: str) -> dict[str, Any]:
    """A served model without replicas."""
    return {
        "endpoint_id": str(uuid4()),
        "job_id": str(uuid4()),
        "model": model,
        "public_model": None,
        "base_url": "http://127.0.0.1:8003/v1",
        "state": "ready",
        "why": "",
        "replicas_desired": 1,
        "replicas_ready": 1,
        "rate_usd_micros_per_hour": 500_000,
        "input_usd_micros_per_million": None,
        "output_usd_micros_per_million": None,
        "in_flight": 0,
        "queued": 0,
        "created_at": NOW.isoformat(),
    }


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


def signed_export(kind: str, body: dict[str, Any], key: Ed25519PrivateKey = SERVER_KEY) -> dict[str, Any]:
    """A bill or earnings as the marketplace signs them."""
    public = key.public_key().public_bytes_raw().hex()
    signature = sign_bytes(key, export_bytes(kind, body))
    return {"format": kind, "server_public_key": public, "signature": signature, "body": body}

"""Rows of the table as tests want them."""

from __future__ import annotations

from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

from jobs.gateway.messages import EndpointRow, KeyGrant, ReplicaRow, VersionRow

ORGANISATION = UUID(int=0xA11CE)  # Alice's
GRANT_SECONDS = 60


def endpoint(model: str = "fake", **fields: Any) -> EndpointRow:
    """An endpoint of Alice's, with one version and no bounds that a test meets by chance."""
    given: dict[str, Any] = {
        "endpoint_id": uuid4(),
        "job_id": uuid4(),
        "organisation_id": ORGANISATION,
        "organisation": "alice",
        "model": model,
        "versions": [VersionRow(version=1, share=100)],
        "limits": {"in_flight": 10_000},
        "input_usd_micros_per_million": 100_000,
        "output_usd_micros_per_million": 400_000,
    }
    return EndpointRow.model_validate(given | fields)


def replica(of: EndpointRow, node_key: str, **fields: Any) -> ReplicaRow:
    """A replica of this endpoint, that the node with this public key may announce."""
    given: dict[str, Any] = {
        "lease_id": uuid4(),
        "attempt_id": uuid4(),
        "endpoint_id": of.endpoint_id,
        "version": 1,
        "node_id": uuid4(),
        "node_key": node_key,
        "state": "ready",
    }
    return ReplicaRow.model_validate(given | fields)


def grant(key: str, **fields: Any) -> KeyGrant:
    """What the holder of this key may do; without more, everything of Alice's. It is renewed with each sync."""
    given: dict[str, Any] = {
        "key_id": uuid4(),
        "key_hash": sha256(key.encode()).hexdigest(),
        "kind": "endpoint",
        "organisation_id": ORGANISATION,
        "expires_at_ms": 0,
    }
    return KeyGrant.model_validate(given | fields)

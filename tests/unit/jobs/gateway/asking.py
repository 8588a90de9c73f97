"""Requests as the door passes them on, without a door."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from jobs.gateway.asked import Asked, Kind
from jobs.gateway.table import EndpointLimits, EndpointRow, Grant

KEY = UUID(int=7, version=4)


def asked(kind: Kind = "chat", *, limits: EndpointLimits | None = None, verify: int = 0, **body: Any) -> Asked:
    """A request with this body."""
    endpoint = EndpointRow(
        endpoint_id=uuid4(),
        job_id=uuid4(),
        organisation_id=uuid4(),
        organisation="bob",
        model="otter",
        limits=limits or EndpointLimits(),
        verify_share=verify,
    )
    grant = Grant(key_id=KEY, key_hash="", kind="endpoint", organisation_id=uuid4(), expires_at_ms=1 << 50)
    default: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
    if kind != "chat":
        default = {"prompt": "Hello"} if kind == "completion" else {"input": "Hello"}
    whole = {"model": "bob/otter", **default, **body}
    return Asked(uuid4(), kind, whole, bool(body.get("stream")), grant, endpoint, 0.0, 60.0)

"""Requests as the gateway's frontend passes them on, without one."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from jobs.gateway.inference_request import InferenceRequest, Kind
from jobs.gateway.messages import EndpointLimits, EndpointRow, KeyGrant

KEY = UUID(int=7, version=4)


def make_request(
    kind: Kind = "chat", *, limits: EndpointLimits | None = None, verify: int = 0, **body: Any
) -> InferenceRequest:
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
    grant = KeyGrant(key_id=KEY, key_hash="", kind="endpoint", organisation_id=uuid4(), expires_at_ms=1 << 50)
    default: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
    if kind != "chat":
        default = {"prompt": "Hello"} if kind == "completion" else {"input": "Hello"}
    whole = {"model": "bob/otter", **default, **body}
    return InferenceRequest(uuid4(), kind, whole, bool(body.get("stream")), grant, endpoint, 0.0, 60.0)

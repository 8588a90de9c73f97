"""A schema of what agents and gateways send, made from the classes that read it: no document says it twice."""

from __future__ import annotations

from typing import Any

import schemathesis
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from jobs.gateway.messages import GatewaySync, KeyQuestion
from provider_agent.protocol import (
    PROTOCOL_VERSIONS_SPOKEN,
    ArtifactBegin,
    ArtifactComplete,
    CheckCommit,
    CheckRecall,
    CheckReveal,
    DrainRequest,
    EnrolRequest,
    LinkReport,
    MeasurementRequest,
    PriceRequest,
    ReceiptAppend,
    ResumeRequest,
    Schedule,
    SyncRequest,
)
from provider_agent.protocol.money.usage_statements import SignedStatement

AGENT, GATEWAY = "/api/agent/v1", "/internal/gateway/v1"
SYNC = f"POST {AGENT}/sync"
BYTES = {"type": "string", "format": "binary"}
LEASE = f"{AGENT}/leases/{{lease_id}}"

# Each call: what reads its body (None: it has none; bytes: any), and the numbers in its query.
CALLS: dict[str, tuple[type[BaseModel] | type[bytes] | None, tuple[str, ...]]] = {
    SYNC: (SyncRequest, ()),
    f"POST {AGENT}/enrol": (EnrolRequest, ()),
    f"POST {AGENT}/measurements": (MeasurementRequest, ()),
    f"POST {AGENT}/checks/{{check_id}}/begin": (None, ()),
    f"POST {AGENT}/checks/{{check_id}}/commit": (CheckCommit, ()),
    f"POST {AGENT}/checks/{{check_id}}/reveal": (CheckReveal, ()),
    f"POST {AGENT}/checks/{{check_id}}/filled": (None, ()),
    f"POST {AGENT}/checks/{{check_id}}/recall": (CheckRecall, ()),
    f"POST {AGENT}/links/{{probe_id}}": (LinkReport, ()),
    f"GET {AGENT}/sample": (None, ()),
    f"GET {AGENT}/standing": (None, ()),
    f"GET {AGENT}/earnings": (None, ()),
    f"POST {AGENT}/drain": (DrainRequest, ()),
    f"POST {AGENT}/resume": (ResumeRequest, ()),
    f"POST {AGENT}/price": (PriceRequest, ()),
    f"POST {AGENT}/schedule": (Schedule, ()),
    f"POST {AGENT}/retire": (None, ()),
    f"POST {LEASE}/logs": (bytes, ("fence", "offset")),
    f"POST {LEASE}/events": (bytes, ("fence", "offset")),
    f"POST {LEASE}/receipts": (ReceiptAppend, ("fence",)),
    f"POST {LEASE}/statement": (SignedStatement, ("fence",)),
    f"POST {LEASE}/artifacts": (ArtifactBegin, ("fence",)),
    f"GET {LEASE}/artifacts/{{artifact_id}}": (None, ()),
    f"POST {LEASE}/artifacts/{{artifact_id}}/complete": (ArtifactComplete, ("fence",)),
    f"POST {GATEWAY}/sync": (GatewaySync, ()),
    f"POST {GATEWAY}/keys": (KeyQuestion, ()),
}


def operations() -> dict[str, Any]:
    """Every call by its name here, ready to make cases of."""
    messages = [reads for reads, _ in CALLS.values() if reads not in (None, bytes)]
    refs, definitions = models_json_schema(
        [(each, "validation") for each in messages],  # type: ignore[misc]
        ref_template="#/components/schemas/{model}",
    )
    schemas = definitions["$defs"]
    for schema in schemas.values():
        if "protocol" in schema.get("properties", {}):
            schema["properties"]["protocol"] = {"enum": list(PROTOCOL_VERSIONS_SPOKEN)}
    paths: dict[str, dict[str, Any]] = {}
    for name, (reads, numbers) in CALLS.items():
        method, path = name.split(" ")
        call: dict[str, Any] = {"parameters": _parameters(path, numbers), "responses": {"200": {"description": "done"}}}
        if reads is bytes:
            call["requestBody"] = _body("application/octet-stream", BYTES)
        elif reads is not None:
            call["requestBody"] = _body("application/json", refs[(reads, "validation")])  # type: ignore[index]
        paths.setdefault(path, {})[method.lower()] = call
    document = {"openapi": "3.1.0", "info": {"title": "agents and gateways", "version": "1"}, "paths": paths}
    schema = schemathesis.openapi.from_dict({**document, "components": {"schemas": schemas}})
    return {found.ok().label: found.ok() for found in schema.get_all_operations()}


def _body(content_type: str, schema: Any) -> dict[str, Any]:
    return {"required": True, "content": {content_type: {"schema": schema}}}


def _parameters(path: str, numbers: tuple[str, ...]) -> list[dict[str, Any]]:
    ids = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    named = [(name, "path", {"type": "string", "format": "uuid"}) for name in ids]
    named += [(name, "query", {"type": "integer"}) for name in numbers]
    return [{"name": name, "in": where, "required": True, "schema": schema} for name, where, schema in named]

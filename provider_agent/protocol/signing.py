"""Ed25519 signatures: of requests by the node, of assignments by the marketplace."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from provider_agent.protocol.assignment import Assignment, SignedAssignment
from provider_agent.protocol.limits import HEADER_NODE, HEADER_SIGNATURE, HEADER_TIME
from provider_agent.protocol.serving import GATEWAYS_PREFIX, GatewayList, SignedGateways


def string_to_sign(method: str, path_and_query: str, time_ms: int, body: bytes) -> bytes:
    """The bytes that a signed request commits to: method, full path with query, time, and the body's SHA-256."""
    digest = hashlib.sha256(body).hexdigest()
    return f"souk-request-v1\n{method.upper()}\n{path_and_query}\n{time_ms}\n{digest}".encode()


def sign_request(  # noqa: PLR0917 - in the order in which they are signed
    key: Ed25519PrivateKey, node_id: UUID, method: str, path_and_query: str, time_ms: int, body: bytes
) -> dict[str, str]:
    """The three headers that authenticate a request of a node."""
    signature = key.sign(string_to_sign(method, path_and_query, time_ms, body))
    return {
        HEADER_NODE: str(node_id),
        HEADER_TIME: str(time_ms),
        HEADER_SIGNATURE: base64.b64encode(signature).decode(),
    }


def verify_request(  # noqa: PLR0917 - in the order in which they are signed
    public_key_hex: str, signature_base64: str, method: str, path_and_query: str, time_ms: int, body: bytes
) -> bool:
    """Whether the signature fits; the caller checks the time window."""
    return verify_bytes(public_key_hex, signature_base64, string_to_sign(method, path_and_query, time_ms, body))


def enrol_proof_bytes(token: str, transport_public_key: str, receipt_address: str) -> bytes:
    """What both keys sign at enrolment, so that nobody enrols a key that is not theirs."""
    token_hash = hashlib.sha256(token.encode()).hexdigest()
    return f"souk-enrol-v1\n{token_hash}\n{transport_public_key}\n{receipt_address.lower()}".encode()


def sign_assignment(key: Ed25519PrivateKey, assignment: Assignment) -> SignedAssignment:
    """Freeze an assignment's JSON and sign exactly those bytes."""
    payload = assignment.model_dump_json()
    return SignedAssignment(payload=payload, signature=base64.b64encode(key.sign(payload.encode())).decode())


def verify_assignment(server_public_key_hex: str, signed: SignedAssignment) -> Assignment:
    """The assignment, once its signature was verified; raises ValueError when it does not fit."""
    if not verify_bytes(server_public_key_hex, signed.signature, signed.payload.encode()):
        raise ValueError("the assignment is not signed by this marketplace's key")
    return Assignment.model_validate_json(signed.payload)


def sign_gateways(key: Ed25519PrivateKey, gateways: GatewayList) -> SignedGateways:
    """Freeze a list's JSON and sign exactly those bytes."""
    payload = gateways.model_dump_json()
    return SignedGateways(payload=payload, signature=sign_bytes(key, GATEWAYS_PREFIX + payload.encode()))


def verify_gateways(server_public_key_hex: str, signed: SignedGateways) -> GatewayList:
    """The list, once its signature was verified; raises ValueError when it does not fit."""
    if not verify_bytes(server_public_key_hex, signed.signature, GATEWAYS_PREFIX + signed.payload.encode()):
        raise ValueError("the gateways are not signed by this marketplace's key")
    return GatewayList.model_validate_json(signed.payload)


def export_bytes(kind: str, body: Mapping[str, Any]) -> bytes:
    """What the marketplace signs of an exported bill: the kind, and its JSON with sorted keys, no spaces, in ASCII."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return f"{kind}\n{text}".encode("ascii")


def sign_bytes(key: Ed25519PrivateKey, message: bytes) -> str:
    """An Ed25519 signature as base64; the counterpart of verify_bytes."""
    return base64.b64encode(key.sign(message)).decode()


def verify_bytes(public_key_hex: str, signature_base64: str, message: bytes) -> bool:
    """Whether an Ed25519 signature fits; malformed keys and signatures are a plain False."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key_hex))
        key.verify(base64.b64decode(signature_base64, validate=True), message)
    except (InvalidSignature, ValueError):
        return False
    return True

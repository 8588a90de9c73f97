"""What an agent counted of a serving lease: cumulative, chained, signed under EIP-712 by the node's receipt key.

Providers are paid by time, which receipts state. Token usage statements show how much was answered in
it, so that anybody can compare them with the gateways' count of the same requests.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from pydantic import Field

from provider_agent.protocol import ethereum
from provider_agent.protocol.bounds import Count
from provider_agent.protocol.message import Message
from provider_agent.protocol.money.receipts import HASH_PATTERN, NO_CONTRACT, ZERO_HASH, ReceiptDomain, id_bytes32

STATEMENT_TYPES: Final = {
    "ServeStatement": [
        {"name": "leaseId", "type": "bytes32"},
        {"name": "seq", "type": "uint64"},
        {"name": "requests", "type": "uint64"},
        {"name": "withoutUsage", "type": "uint64"},
        {"name": "inputTokens", "type": "uint64"},
        {"name": "outputTokens", "type": "uint64"},
        {"name": "prevDigest", "type": "bytes32"},
    ]
}


class ServeStatement(Message):
    """What one lease has answered so far: all figures are cumulative, so that only the newest statement matters."""

    lease_id: UUID
    seq: Count = Field(ge=1)
    requests: Count  # that reached the engine
    without_usage: Count = 0  # of them, whose answers did not report their tokens
    input_tokens: Count
    output_tokens: Count
    prev_digest: str = Field(default=ZERO_HASH, pattern=HASH_PATTERN)  # of statement seq-1; zero for the first


class SignedStatement(Message):
    """POST leases/{lease_id}/statement?fence=: a statement and the receipt key's signature over its digest."""

    statement: ServeStatement
    signature: str = Field(pattern=r"^0x[0-9a-f]{130}$")


class StatementAck(Message):
    """The newest statement that the server has."""

    seq: int = 0


def statement_digest(statement: ServeStatement, domain: ReceiptDomain = NO_CONTRACT) -> str:
    """EIP-712 digest as 0x-hex; what the key signs and the next statement points to."""
    return ethereum.typed_digest(_typed(statement, domain))


def sign_statement(
    private_key_hex: str, statement: ServeStatement, domain: ReceiptDomain = NO_CONTRACT
) -> SignedStatement:
    """Sign a statement with the node's secp256k1 receipt key."""
    signature = ethereum.sign_typed(private_key_hex, _typed(statement, domain))
    return SignedStatement(statement=statement, signature=signature)


def recover_statement_signer(signed: SignedStatement, domain: ReceiptDomain = NO_CONTRACT) -> str:
    """The address whose key signed; raises ValueError for a malformed signature."""
    return ethereum.recover_typed(_typed(signed.statement, domain), signed.signature)


def _typed(statement: ServeStatement, domain: ReceiptDomain) -> ethereum.TypedData:
    return ethereum.TypedData(
        domain=domain.as_typed(),
        types=STATEMENT_TYPES,
        message={
            "leaseId": id_bytes32(statement.lease_id),
            "seq": statement.seq,
            "requests": statement.requests,
            "withoutUsage": statement.without_usage,
            "inputTokens": statement.input_tokens,
            "outputTokens": statement.output_tokens,
            "prevDigest": bytes.fromhex(statement.prev_digest[2:]),
        },
    )

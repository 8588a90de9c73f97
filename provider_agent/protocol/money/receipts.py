"""Usage receipts: cumulative, chained, signed under EIP-712 by the receipt key of the node."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from pydantic import Field

from provider_agent.protocol import ethereum
from provider_agent.protocol.bounds import UINT64_MAX, Count, Whole
from provider_agent.protocol.message import Message

ZERO_ADDRESS: Final = "0x" + "0" * 40
ZERO_HASH: Final = "0x" + "0" * 64
MS_PER_HOUR: Final = 3_600_000

RECEIPT_TYPES: Final = {
    "UsageReceipt": [
        {"name": "jobId", "type": "bytes32"},
        {"name": "leaseId", "type": "bytes32"},
        {"name": "provider", "type": "address"},
        {"name": "customer", "type": "address"},
        {"name": "asset", "type": "address"},
        {"name": "seq", "type": "uint64"},
        {"name": "billableMs", "type": "uint64"},
        {"name": "cumulativeAmount", "type": "uint256"},
        {"name": "meterHash", "type": "bytes32"},
        {"name": "prevDigest", "type": "bytes32"},
    ]
}

HASH_PATTERN = r"^0x[0-9a-f]{64}$"
ADDRESS_PATTERN = r"^0x[0-9a-fA-F]{40}$"


class ReceiptDomain(Message):
    """The EIP-712 domain; chain id 0 and the zero address where no contract is involved."""

    chain_id: Count = 0
    verifying_contract: str = Field(default=ZERO_ADDRESS, pattern=ADDRESS_PATTERN)

    def as_typed(self) -> dict[str, Any]:
        """As typed data have it."""
        return {
            "name": "Souk",
            "version": "1",
            "chainId": self.chain_id,
            "verifyingContract": self.verifying_contract,
        }


NO_CONTRACT: Final = ReceiptDomain()


class UsageReceipt(Message):
    """What one lease has used so far: both figures are cumulative, so that only the newest receipt matters."""

    job_id: UUID
    lease_id: UUID
    provider: str = Field(default=ZERO_ADDRESS, pattern=ADDRESS_PATTERN)
    customer: str = Field(default=ZERO_ADDRESS, pattern=ADDRESS_PATTERN)
    asset: str = Field(default=ZERO_ADDRESS, pattern=ADDRESS_PATTERN)
    seq: Whole = Field(ge=1, le=UINT64_MAX)
    billable_ms: Whole = Field(ge=0, le=UINT64_MAX)
    cumulative_amount: Whole = Field(ge=0, lt=2**256)  # micro-USD, or base units of the asset
    meter_hash: str = Field(default=ZERO_HASH, pattern=HASH_PATTERN)  # SHA-256 of the lease's event bytes so far
    prev_digest: str = Field(default=ZERO_HASH, pattern=HASH_PATTERN)  # digest of receipt seq-1; zero for the first


class SignedReceipt(Message):
    """A receipt and the receipt key's signature over its EIP-712 digest."""

    receipt: UsageReceipt
    signature: str = Field(pattern=r"^0x[0-9a-f]{130}$")


def charge(rate_per_hour: int, billable_ms: int) -> int:
    """Cumulative charge of `billable_ms` at an hourly rate, rounded down in the customer's favour."""
    return rate_per_hour * billable_ms // MS_PER_HOUR


def payable_ms(rate_per_hour: int, cap: int) -> int:
    """The longest time whose charge stays within `cap`, in milliseconds; without end where the rate is 0."""
    return cap * MS_PER_HOUR // rate_per_hour if rate_per_hour else 2**63 - 1


def id_bytes32(value: UUID) -> bytes:
    """A UUID as bytes32: its 16 bytes, left-padded with zeros."""
    return value.bytes.rjust(32, b"\0")


def receipt_digest(receipt: UsageReceipt, domain: ReceiptDomain = NO_CONTRACT) -> str:
    """EIP-712 digest of a receipt as 0x-hex; what the key signs and the next receipt points to."""
    return ethereum.typed_digest(_typed(receipt, domain))


def sign_receipt(private_key_hex: str, receipt: UsageReceipt, domain: ReceiptDomain = NO_CONTRACT) -> SignedReceipt:
    """Sign a receipt with the node's secp256k1 receipt key."""
    signature = ethereum.sign_typed(private_key_hex, _typed(receipt, domain))
    return SignedReceipt(receipt=receipt, signature=signature)


def recover_receipt_signer(
    signed: SignedReceipt, domain: ReceiptDomain = NO_CONTRACT, *, in_any_form: bool = False
) -> str:
    """The address whose key signed; raises ValueError for a malformed signature. `in_any_form`: one that is stored."""
    return ethereum.recover_typed(_typed(signed.receipt, domain), signed.signature, in_any_form=in_any_form)


def _typed(receipt: UsageReceipt, domain: ReceiptDomain) -> ethereum.TypedData:
    return ethereum.TypedData(
        domain=domain.as_typed(),
        types=RECEIPT_TYPES,
        message={
            "jobId": id_bytes32(receipt.job_id),
            "leaseId": id_bytes32(receipt.lease_id),
            "provider": receipt.provider,
            "customer": receipt.customer,
            "asset": receipt.asset,
            "seq": receipt.seq,
            "billableMs": receipt.billable_ms,
            "cumulativeAmount": receipt.cumulative_amount,
            "meterHash": bytes.fromhex(receipt.meter_hash[2:]),
            "prevDigest": bytes.fromhex(receipt.prev_digest[2:]),
        },
    )

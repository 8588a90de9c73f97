"""What a wallet signs for the escrow contract: a customer's hold for one job, a provider's receipt key. EIP-712.

    HoldAuthorization      the customer's wallet: up to `max_amount` of its balance for one job, at most this rate
    ReceiptKeyDelegation   the provider's payout wallet: this receipt key may state what a lease has used

The contract checks the same bytes (billing/chain/contracts/GpuEscrow.sol). Both may be signed by an EOA; a contract
wallet (ERC-1271) can be checked on its chain only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import Field

from billing.proofs import merkle
from provider_agent.protocol import ethereum
from provider_agent.protocol.bounds import WalletInteger
from provider_agent.protocol.message import Message
from provider_agent.protocol.money.receipts import (
    ADDRESS_PATTERN,
    HASH_PATTERN,
    ZERO_HASH,
    ReceiptDomain,
    id_bytes32,
)

ANY_PROVIDER: Final = ZERO_HASH  # as a hold's root of providers
SIGNATURE_PATTERN: Final = r"^0x[0-9a-f]{130}$"
PROVIDERS_MAX: Final = 1_000  # that one hold may name

ProviderAddress = Annotated[str, Field(pattern=ADDRESS_PATTERN)]

ESCROW_TYPES: Final = {
    "HoldAuthorization": [
        {"name": "jobId", "type": "bytes32"},
        {"name": "customer", "type": "address"},
        {"name": "asset", "type": "address"},
        {"name": "maxAmount", "type": "uint256"},
        {"name": "rateCeilingPerHour", "type": "uint256"},
        {"name": "parallelLeases", "type": "uint32"},
        {"name": "providersRoot", "type": "bytes32"},
        {"name": "deadline", "type": "uint64"},
        {"name": "nonce", "type": "uint256"},
    ],
    "ReceiptKeyDelegation": [
        {"name": "provider", "type": "address"},
        {"name": "receiptKey", "type": "address"},
        {"name": "notAfter", "type": "uint64"},
        {"name": "nonce", "type": "uint256"},
    ],
}


class HoldAuthorization(Message):
    """The customer's wallet lets the contract set this much aside for one job, and pay leases from it."""

    job_id: UUID
    customer: str = Field(pattern=ADDRESS_PATTERN)
    asset: str = Field(pattern=ADDRESS_PATTERN)  # the token's contract
    max_amount: WalletInteger = Field(gt=0, lt=2**256)  # base units
    rate_ceiling_per_hour: WalletInteger = Field(gt=0, lt=2**256)  # of one lease, base units
    parallel_leases: WalletInteger = Field(default=1, gt=0, lt=2**32)  # that may bill at the same time
    providers_root: str = Field(default=ANY_PROVIDER, pattern=HASH_PATTERN)
    deadline: WalletInteger = Field(ge=0, lt=2**64)  # unix seconds; after it, and the grace, the rest goes back
    nonce: WalletInteger = Field(ge=0, lt=2**256)  # any that this wallet has not used


class ReceiptKeyDelegation(Message):
    """The provider's payout wallet lets a node's receipt key speak for it, until `not_after`."""

    provider: str = Field(pattern=ADDRESS_PATTERN)
    receipt_key: str = Field(pattern=ADDRESS_PATTERN)
    not_after: WalletInteger = Field(ge=0, lt=2**64)  # unix seconds
    nonce: WalletInteger = Field(ge=0, lt=2**256)


class SignedHoldAuthorization(Message):
    """An authorization and the wallet's signature; where its root names providers, their wallets."""

    authorization: HoldAuthorization
    signature: str = Field(pattern=SIGNATURE_PATTERN)
    providers: tuple[ProviderAddress, ...] = Field(default=(), max_length=PROVIDERS_MAX)


class SignedDelegation(Message):
    """A delegation and the payout wallet's signature."""

    delegation: ReceiptKeyDelegation
    signature: str = Field(pattern=SIGNATURE_PATTERN)


def sign_authorization(
    wallet_key_hex: str, authorization: HoldAuthorization, domain: ReceiptDomain, providers: Sequence[str] = ()
) -> SignedHoldAuthorization:
    """Sign a hold with the customer's wallet key; `providers` are those of its root."""
    signature = ethereum.sign_typed(wallet_key_hex, _typed_authorization(authorization, domain))
    return SignedHoldAuthorization(authorization=authorization, signature=signature, providers=tuple(providers))


def sign_delegation(wallet_key_hex: str, delegation: ReceiptKeyDelegation, domain: ReceiptDomain) -> SignedDelegation:
    """Sign a delegation with the provider's payout wallet key, which never lies on a node."""
    signature = ethereum.sign_typed(wallet_key_hex, _typed_delegation(delegation, domain))
    return SignedDelegation(delegation=delegation, signature=signature)


def is_signed_by_customer(signed: SignedHoldAuthorization, domain: ReceiptDomain) -> bool:
    """Whether the wallet that it names signed it, for this contract on this chain."""
    typed = _typed_authorization(signed.authorization, domain)
    return _is_signed_by(signed.authorization.customer, typed, signed.signature)


def is_signed_by_provider(signed: SignedDelegation, domain: ReceiptDomain) -> bool:
    """Whether the wallet that it names signed it, for this contract on this chain."""
    typed = _typed_delegation(signed.delegation, domain)
    return _is_signed_by(signed.delegation.provider, typed, signed.signature)


def names_its_providers(signed: SignedHoldAuthorization) -> bool:
    """Whether the signed root is that of the providers beside it; the root for any has none beside it."""
    try:
        return signed.authorization.providers_root == providers_root(signed.providers)
    except ValueError:  # one is named twice
        return False


def authorization_digest(authorization: HoldAuthorization, domain: ReceiptDomain) -> str:
    """EIP-712 digest as 0x-hex."""
    return ethereum.typed_digest(_typed_authorization(authorization, domain))


def delegation_digest(delegation: ReceiptKeyDelegation, domain: ReceiptDomain) -> str:
    """EIP-712 digest as 0x-hex."""
    return ethereum.typed_digest(_typed_delegation(delegation, domain))


def providers_tree(providers: Sequence[str]) -> merkle.MerkleTree:
    """The tree of the providers' wallets that a hold allows; its root goes into the authorization."""
    if not 1 <= len(providers) <= PROVIDERS_MAX:
        raise ValueError(f"a hold names 1 to {PROVIDERS_MAX} providers, not {len(providers)}")
    return merkle.build_tree([merkle.leaf_hash(provider) for provider in providers])


def providers_root(providers: Sequence[str]) -> str:
    """The root of the providers' wallets, as 0x-hex; any where none is named."""
    return "0x" + providers_tree(providers).root.hex() if providers else ANY_PROVIDER


def provider_proof(tree: merkle.MerkleTree, provider: str) -> list[str]:
    """What shows the contract that the hold allows this provider, as 0x-hex."""
    return ["0x" + node.hex() for node in tree.proof(merkle.leaf_hash(provider))]


def _is_signed_by(address: str, typed: ethereum.TypedData, signature: str) -> bool:
    try:
        return ethereum.recover_typed(typed, signature).lower() == address.lower()
    except ValueError:
        return False


def _typed_authorization(authorization: HoldAuthorization, domain: ReceiptDomain) -> ethereum.TypedData:
    message = {
        "jobId": id_bytes32(authorization.job_id),
        "customer": authorization.customer,
        "asset": authorization.asset,
        "maxAmount": authorization.max_amount,
        "rateCeilingPerHour": authorization.rate_ceiling_per_hour,
        "parallelLeases": authorization.parallel_leases,
        "providersRoot": bytes.fromhex(authorization.providers_root[2:]),
        "deadline": authorization.deadline,
        "nonce": authorization.nonce,
    }
    return _typed("HoldAuthorization", message, domain)


def _typed_delegation(delegation: ReceiptKeyDelegation, domain: ReceiptDomain) -> ethereum.TypedData:
    message = {
        "provider": delegation.provider,
        "receiptKey": delegation.receipt_key,
        "notAfter": delegation.not_after,
        "nonce": delegation.nonce,
    }
    return _typed("ReceiptKeyDelegation", message, domain)


def _typed(name: str, message: dict[str, Any], domain: ReceiptDomain) -> ethereum.TypedData:
    return ethereum.TypedData(
        domain=domain.as_typed(),
        types={name: ESCROW_TYPES[name]},
        message=message,
    )

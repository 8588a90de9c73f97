"""The keys that sign for the marketplace: from the environment, one a role, never in a log.

SOUK_CHAIN_KEY              every role that has none of its own
SOUK_CHAIN_SETTLER_KEY      opens, settles and closes holds
SOUK_CHAIN_PUBLISHER_KEY    proposes roots of payouts
SOUK_CHAIN_ARBITER_KEY      decides challenged leases, vetoes roots, compensates
SOUK_CHAIN_SLASHER_KEY      takes stake for offences
SOUK_CHAIN_PAUSER_KEY       stops money from coming in, vetoes roots
SOUK_CHAIN_ADMIN_KEY        sweeps what belongs to nobody

The last four belong to a multisig, which cannot sign here: what they would send is then printed for it
(billing/chain/operating.py). Whether a key has a role is read from the contract.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from django.conf import settings

from billing.chain.errors import SignerMissing
from provider_agent.protocol import ethereum

_KEY: Final = re.compile(r"(?:0x)?[0-9a-fA-F]{64}")


class Role(StrEnum):
    """What a key may do in the contract."""

    SETTLER = "settler"
    PUBLISHER = "publisher"
    ARBITER = "arbiter"
    SLASHER = "slasher"
    PAUSER = "pauser"
    ADMIN = "admin"

    @property
    def id(self) -> bytes:
        """What the contract calls the role by."""
        from eth_utils.crypto import keccak

        return bytes(32) if self is Role.ADMIN else bytes(keccak(self.name.encode()))


@dataclass(frozen=True)
class SigningKey:
    """A private key that shows only its address."""

    address: str
    _secret: str = field(repr=False)

    def sign(self, transaction: dict[str, Any]) -> tuple[str, str]:
        """(raw bytes as 0x-hex, hash) of a transaction; the same input gives the same bytes (RFC 6979)."""
        from eth_account import Account

        signed = Account.sign_transaction(transaction, self._secret)
        return "0x" + bytes(signed.raw_transaction).hex(), "0x" + bytes(signed.hash).hex()

    def __reduce__(self) -> Any:
        raise TypeError("a signing key does not leave its process")


def key_for(role: Role) -> SigningKey:
    """The key of a role; raises SignerMissing."""
    secret = getattr(settings, f"SOUK_CHAIN_{role.upper()}_KEY") or settings.SOUK_CHAIN_KEY
    if not _KEY.fullmatch(secret):
        raise SignerMissing(role=role)
    return SigningKey(ethereum.address_of(secret), secret)


def key_of(address: str) -> SigningKey:
    """The key with this address; raises SignerMissing."""
    for role in Role:
        try:
            key = key_for(role)
        except SignerMissing:
            continue
        if key.address == address:
            return key
    raise SignerMissing(role=f"the address {address}")

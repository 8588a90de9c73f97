"""Whose money the contract's accounts are, in the ledger's terms: every wallet and every organisation is an owner."""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID, uuid5

WALLET_NAMESPACE: Final = UUID("5f0c2a52-6d0e-4c8e-9a55-736f756b0002")
CREDIT_NAMESPACE: Final = UUID("5f0c2a52-6d0e-4c8e-9a55-736f756b0003")

_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")


def wallet_owner(address: str) -> UUID:
    """The owner of a wallet's accounts; it follows from the address, however that is written."""
    return uuid5(WALLET_NAMESPACE, address.lower())


def credit_owner(account: str) -> UUID:
    """Who bought credits: the organisation whose id is in the 32 bytes, or an owner that only the operator can help."""
    data = bytes.fromhex(account.removeprefix("0x"))
    return UUID(bytes=data[16:]) if not any(data[:16]) else uuid5(CREDIT_NAMESPACE, data.hex())


def is_organisation(account: str) -> bool:
    """Whether the 32 bytes are an id, left-padded."""
    data = bytes.fromhex(account.removeprefix("0x"))
    return len(data) == 32 and not any(data[:16]) and any(data[16:])


def checksummed(address: str) -> str:
    """The address as EIP-55 writes it; raises ValueError for what is none, and for a wrong checksum."""
    from eth_utils.address import is_checksum_address, to_checksum_address

    if not _ADDRESS.fullmatch(address):
        raise ValueError(f"{address[:60]!r} is not an address: 0x and 40 hex digits")
    right = str(to_checksum_address(address))
    has_both_cases = address[2:] not in {address[2:].lower(), address[2:].upper()}
    if has_both_cases and not is_checksum_address(address):
        raise ValueError(f"{address} has a wrong checksum: a character was mistyped")
    if int(address, 16) == 0:
        raise ValueError("the zero address belongs to nobody")
    return right

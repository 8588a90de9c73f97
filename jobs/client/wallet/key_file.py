"""A wallet's key in a file of this computer: read to sign, never sent, never shown."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from jobs.client.errors import UsageMistake
from provider_agent.protocol import ethereum, parse_units

FILE_BYTES_MAX: Final = 4096
OTHERS: Final = 0o077
COIN_DECIMALS: Final = 18
COIN: Final = 10**COIN_DECIMALS  # wei; of every EVM chain's own coins
FEE_MAX: Final = COIN // 20  # wei, for one transaction's gas, unless the user says more

_KEY = re.compile(r"(?:0x)?([0-9a-fA-F]{64})")


@dataclass(frozen=True)
class Wallet:
    """An address and its private key."""

    address: str
    key_hex: str = field(repr=False)


def read_wallet(path: Path) -> Wallet:
    """The wallet whose key, 64 hex characters, is all that the file holds; nobody else may be able to read it."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & OTHERS:
                raise UsageMistake(
                    f"{path} can be read by others; `chmod 600 {path}`, and think whether the key is still yours."
                )
            text = file.read(FILE_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError as error:
        raise UsageMistake(f"{path} cannot be read: {error.strerror}") from error
    match = _KEY.fullmatch(text)
    if match is None:
        raise UsageMistake(
            f"{path} holds no private key: 64 hex characters and nothing else, so neither words nor an encrypted file."
        )
    try:
        return Wallet(ethereum.address_of("0x" + match[1]), "0x" + match[1])
    except Exception:  # zero, or beyond the curve's order; the library's words may hold the key
        raise UsageMistake(f"{path} holds a number that is no private key.") from None


def require_fee(coins: str) -> int:
    """Wei of what the user allows for one transaction's gas; raises UsageMistake."""
    try:
        return parse_units(coins, scale=COIN_DECIMALS)
    except ValueError as error:
        raise UsageMistake(f"--max-fee: {coins!r} is no amount of coins: {error}") from error

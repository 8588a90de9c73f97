"""The node's keys: made here, kept at mode 0600, never sent.

Ed25519 signs requests; secp256k1 signs receipts; X25519 shuts the networks of its gangs. The payout wallet is never on
the node.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from provider_agent.errors import NotEnrolled
from provider_agent.protocol import ethereum
from provider_agent.system.atomic import write_atomically

TRANSPORT_KEY_NAME = "transport.key"
RECEIPT_KEY_NAME = "receipt.key"
FABRIC_KEY_NAME = "fabric.key"


@dataclass(frozen=True)
class NodeKeys:
    """The private keys of a node."""

    transport: Ed25519PrivateKey = field(repr=False)
    receipt_hex: str = field(repr=False)
    fabric: X25519PrivateKey = field(repr=False)

    @property
    def transport_public_hex(self) -> str:
        """The public key by which the server verifies the node's requests."""
        return self.transport.public_key().public_bytes_raw().hex()

    @property
    def fabric_public_hex(self) -> str:
        """The node's public key in its gangs' overlays."""
        return self.fabric.public_key().public_bytes_raw().hex()

    @property
    def receipt_address(self) -> str:
        """The address by which the server, customers and contracts verify the node's receipts."""
        return ethereum.address_of(self.receipt_hex)

    def sign_as_receipt_key(self, message: bytes) -> str:
        """EIP-191 signature by the receipt key, 0x-hex; the proof of enrolment."""
        return ethereum.sign_message(self.receipt_hex, message)


def make_keys(folder: Path) -> NodeKeys:
    """Make the keys in `folder`, or return those already there: a repeated enrolment keeps its identity."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (folder / TRANSPORT_KEY_NAME).exists():
        _write_secret(folder / TRANSPORT_KEY_NAME, Ed25519PrivateKey.generate().private_bytes_raw().hex())
    if not (folder / RECEIPT_KEY_NAME).exists():
        _write_secret(folder / RECEIPT_KEY_NAME, "0x" + secrets.token_bytes(32).hex())
    return load_keys(folder)


def load_keys(folder: Path) -> NodeKeys:
    """The keys of an enrolled node; raises NotEnrolled where there are none."""
    try:
        transport_hex = (folder / TRANSPORT_KEY_NAME).read_text().strip()
        receipt_hex = (folder / RECEIPT_KEY_NAME).read_text().strip()
    except FileNotFoundError as error:
        raise NotEnrolled from error
    return NodeKeys(
        Ed25519PrivateKey.from_private_bytes(bytes.fromhex(transport_hex)), receipt_hex, _fabric_key(folder)
    )


def _fabric_key(folder: Path) -> X25519PrivateKey:
    """Made at its first use: a node that enrolled with an older agent has none."""
    path = folder / FABRIC_KEY_NAME
    if not path.exists():
        mine = folder / f".{FABRIC_KEY_NAME}.{secrets.token_hex(4)}"
        _write_secret(mine, X25519PrivateKey.generate().private_bytes_raw().hex())
        with contextlib.suppress(FileExistsError):  # another process was faster: its key is the node's
            os.link(mine, path)
        mine.unlink()
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text().strip()))


def _write_secret(path: Path, text: str) -> None:
    write_atomically(path, text.encode(), mode=0o600)

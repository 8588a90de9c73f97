"""The marketplace's own keys: the Ed25519 key that signs assignments and quotes, and the one that encrypts secrets."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache

from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings


@lru_cache(maxsize=4)
def _key_of(seed_hex: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed_hex))


def server_key() -> Ed25519PrivateKey:
    """The key that agents pinned when they enrolled."""
    return _key_of(settings.SOUK_SIGNING_KEY)


def server_public_key_hex() -> str:
    """Its public half, 64 hex characters."""
    return server_key().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def sign(message: bytes) -> str:
    """Base64 Ed25519 signature of the marketplace."""
    return base64.b64encode(server_key().sign(message)).decode()


def encrypt_secret(plain: str) -> str:
    """Encrypted, so that only this marketplace can read it; for columns that hold customers' secrets."""
    return _fernet().encrypt(plain.encode()).decode()


def decrypt_secret(sealed: str) -> str:
    """The text that `encrypt_secret` encrypted; raises cryptography.fernet.InvalidToken for anything else."""
    return _fernet().decrypt(sealed.encode()).decode()


def _fernet() -> Fernet:
    digest = hashlib.sha256(b"souk-secrets-v1" + settings.SOUK_SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(digest))

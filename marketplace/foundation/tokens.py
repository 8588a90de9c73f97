"""Secrets that we give out once and recognise by their hash: API keys, invitations, enrolment tokens."""

from __future__ import annotations

import hashlib


def hash_token(plaintext: str) -> str:
    """SHA-256, hex: enough for a secret that is random and long; no password may be kept like this."""
    return hashlib.sha256(plaintext.encode()).hexdigest()

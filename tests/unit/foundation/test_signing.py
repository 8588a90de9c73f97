"""The marketplace's own keys."""

from __future__ import annotations

import pytest
from cryptography.fernet import InvalidToken

from marketplace.foundation import signing
from provider_agent.protocol import verify_bytes


def test_agents_can_verify_what_the_server_signs() -> None:
    signature = signing.sign(b"an assignment")
    assert verify_bytes(signing.server_public_key_hex(), signature, b"an assignment")
    assert not verify_bytes(signing.server_public_key_hex(), signature, b"another one")


def test_a_sealed_secret_opens_again() -> None:
    sealed = signing.encrypt_secret("hf_token")
    assert "hf_token" not in sealed
    assert signing.decrypt_secret(sealed) == "hf_token"


def test_a_changed_seal_does_not_open() -> None:
    sealed = signing.encrypt_secret("hf_token")
    with pytest.raises(InvalidToken):
        signing.decrypt_secret(sealed[:-4] + "AAA=")

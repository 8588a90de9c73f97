"""Which release an agent accepts: signed by its marketplace's key, the wanted one, and newer than its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from provider_agent.errors import UpdateRefused
from provider_agent.protocol import RELEASE_PREFIX, ReleaseManifest
from provider_agent.updating.manifest import refuse_unfit, verify_manifest

SERVER = "https://souk.example"
MANIFEST: dict[str, Any] = {
    "kind": "souk-agent-release",
    "format": 1,
    "wheel": "gpusouk-0.3.0-py3-none-any.whl",
    "version": "0.3.0",
    "sha256": "0" * 64,
    "size": 10,
    "server": SERVER,
}


def signed(**changes: Any) -> tuple[bytes, bytes, str]:
    """A manifest, its signature, and the marketplace's public key."""
    key = Ed25519PrivateKey.generate()
    data = json.dumps(MANIFEST | changes).encode()
    return data, key.sign(RELEASE_PREFIX + data), key.public_key().public_bytes_raw().hex()


def refuse(installed: str, **changes: Any) -> None:
    manifest = ReleaseManifest.model_validate(MANIFEST | changes)
    refuse_unfit(manifest, wanted="0.3.0", installed=installed, server=SERVER)


def test_a_signed_manifest_with_fields_of_a_later_version_is_read() -> None:
    data, signature, key = signed(invented_later=True)
    assert verify_manifest(data, signature, public_key=key).version == "0.3.0"


def test_mallorys_manifest_is_refused_before_it_is_read() -> None:
    data, _, key = signed(kind="anything")
    _, signature, _ = signed()
    with pytest.raises(UpdateRefused, match="not signed by this marketplace's key"):
        verify_manifest(data, signature, public_key=key)


def test_a_signed_manifest_of_another_format_names_the_field() -> None:
    data, signature, key = signed(format=2)
    with pytest.raises(UpdateRefused, match="cannot be used: format"):
        verify_manifest(data, signature, public_key=key)


def test_a_newer_version_is_accepted_and_an_older_or_equal_one_refused() -> None:
    refuse("0.2.9")
    for installed in ("0.3.0", "0.3", "0.10.0"):
        with pytest.raises(UpdateRefused, match="not newer"):
            refuse(installed)


def test_only_the_version_that_a_manifest_names_may_roll_back_to_it() -> None:
    refuse("0.4.0", rollback_from="0.4.0")
    with pytest.raises(UpdateRefused, match=r"not newer than 0\.5\.0"):
        refuse("0.5.0", rollback_from="0.4.0")


def test_another_version_than_the_wanted_one_is_refused() -> None:
    with pytest.raises(UpdateRefused, match=r"0\.3\.0 is wanted, and the manifest is of 0\.3\.1"):
        refuse("0.2.0", version="0.3.1")


def test_a_release_of_another_marketplace_is_refused() -> None:
    with pytest.raises(UpdateRefused, match=r"installed from https://souk\.example"):
        refuse("0.2.0", server="https://mallory.example")

"""Whether a release may be installed here: signed by the pinned key, the one that was wanted, and newer."""

from __future__ import annotations

import base64

from pydantic import ValidationError

from provider_agent.errors import UpdateRefused
from provider_agent.protocol import RELEASE_PREFIX, ReleaseManifest, version_key
from provider_agent.protocol.signing import verify_bytes


def verify_manifest(data: bytes, signature: bytes, *, public_key: str) -> ReleaseManifest:
    """The manifest, once its signature was verified; nothing in it is looked at before. Raises UpdateRefused."""
    if not verify_bytes(public_key, base64.b64encode(signature).decode(), RELEASE_PREFIX + data):
        raise UpdateRefused(f"The release is not signed by this marketplace's key ({public_key}).")
    try:
        return ReleaseManifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UpdateRefused(f"The signed manifest cannot be used: {where}: {first['msg']}") from error


def refuse_unfit(manifest: ReleaseManifest, *, wanted: str, installed: str, server: str) -> None:
    """Raises UpdateRefused for another release than the wanted one, another marketplace's, or an older one.

    Versions only rise: an old release, signed in its day, may have holes that were closed since. Back goes only who has
    exactly the version that the manifest names in `rollback_from`, so that a replay of it moves nobody else.
    """
    if manifest.version != wanted:
        raise UpdateRefused(f"Version {wanted} is wanted, and the manifest is of {manifest.version}.")
    if manifest.server != server:
        raise UpdateRefused(f"The manifest is of {manifest.server}, and this agent was installed from {server}.")
    if version_key(manifest.version) > version_key(installed):
        return
    if manifest.rollback_from != installed:
        raise UpdateRefused(f"Version {manifest.version} is not newer than {installed}, which is installed.")

"""How an agent's release is described, signed and wanted.

The manifest is public and signed by the marketplace's key over `souk-release-v1`, a newline and its exact bytes. A sync
answer only names the version that a node should have (SyncResponse.update, for agents that send FEATURE_UPDATES in
HEADER_FEATURES): what is installed is decided by the manifest, never by the answer.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from provider_agent.protocol.bounds import Moment, Whole
from provider_agent.protocol.message import Account, Message

FEATURE_UPDATES: Final = "updates"
RELEASE_KIND: Final = "souk-agent-release"
RELEASE_PREFIX: Final = b"souk-release-v1\n"
VERSION_PATTERN: Final = r"^[0-9]{1,6}(\.[0-9]{1,6}){1,3}$"
VERSION_CHARACTERS_MAX: Final = 40
ROLLBACK_CHARACTERS_MAX: Final = 300
WHEEL_BYTES_MAX: Final = 64 * 1024 * 1024
MANIFEST_BYTES_MAX: Final = 64 * 1024


class ReleaseManifest(BaseModel):
    """What the marketplace signed. Fields that a later marketplace adds are none of this agent's business."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: Literal["souk-agent-release"]
    format: Literal[1]
    wheel: str = Field(pattern=r"^gpusouk-[0-9.]+-py3-none-any\.whl$")
    version: str = Field(pattern=VERSION_PATTERN)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: Whole = Field(gt=0, le=WHEEL_BYTES_MAX)
    server: str
    sync_server: str = ""
    rollback_from: str = ""  # a node that has exactly this version may go down to the manifest's
    floors: dict[str, Any] = Field(default_factory=dict)


class UpdateOrder(Message):
    """The version that this node should have."""

    version: str = Field(pattern=VERSION_PATTERN)


class Rollback(Account):
    """A version that did not check in on this node, and was rolled back."""

    version: str = Field(max_length=VERSION_CHARACTERS_MAX)
    reason: str = Field(max_length=ROLLBACK_CHARACTERS_MAX)
    at: Moment


class UpdateFacts(Account):
    """Whether the node updates itself, and what came of it."""

    mode: Literal["auto", "manual", "none"] = "none"  # none: not installed by install.sh
    rolled_back: Rollback | None = None  # the newest; it stays until a newer version has checked in


def version_key(version: str) -> tuple[int, ...]:
    """For comparing; a local part (`+...`) does not count, and neither do zeros at the end."""
    numbers = [int(number) for number in re.findall(r"[0-9]+", version.split("+", maxsplit=1)[0])]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)

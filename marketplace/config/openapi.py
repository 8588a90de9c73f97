"""Which paths the published API description holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PUBLIC_PREFIX = "/api/v1/"


def keep_public_paths(endpoints: Sequence[tuple[str, str, str, Any]], **_: Any) -> list[tuple[str, str, str, Any]]:
    """Only the customers' and providers' API; a drf-spectacular preprocessing hook."""
    return [endpoint for endpoint in endpoints if endpoint[0].startswith(PUBLIC_PREFIX)]

"""Where the system's programs are looked for, whatever PATH a service has. Standard library only, for preflight."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import Final

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/usr/bin:/bin"


def missing(names: Iterable[str]) -> list[str]:
    """Those that are not installed."""
    return [name for name in names if shutil.which(name, path=SYSTEM_PATH) is None]

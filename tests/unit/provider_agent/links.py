"""A disk on which nobody may link another user's files."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest


def forbid_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel does where the program's user is another one and the agent is not root."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)

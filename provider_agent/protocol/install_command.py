"""The install command: it makes a computer a node."""

from __future__ import annotations

import shlex


def install_command(server: str, token: str) -> str:
    """What a provider pastes on the computer; quoted, whatever the address holds."""
    return f"curl -fsSL {shlex.quote(f'{server}/install.sh')} | sh -s -- --token {shlex.quote(token)}"

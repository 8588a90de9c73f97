"""Whose a lease is, noted in its folder: the journal must stay readable for the agent of the release before."""

from __future__ import annotations

import re
from pathlib import Path

from provider_agent.config import DataFolder
from provider_agent.protocol import CACHE_OWNER_PATTERN
from provider_agent.system.atomic import write_atomically

NAME = "cache-owner"  # in the lease's folder, where the program does not reach
PATTERN = re.compile(CACHE_OWNER_PATTERN)


def keep_owner(lease_folder: Path, owner: str) -> None:
    """Note it, where the assignment names one."""
    if owner:
        lease_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(lease_folder / NAME, owner.encode())


def load_owner(lease_folder: Path) -> str:
    """Whose the lease is; empty where it has no cache."""
    try:
        owner = (lease_folder / NAME).read_text("utf-8")
    except (OSError, ValueError):
        return ""
    return owner if PATTERN.fullmatch(owner) else ""


def owners_in_use(folder: DataFolder, *, but: Path | None = None) -> set[str]:
    """Of every lease that is not forgotten yet; `but`: one lease's folder that does not count."""
    return {load_owner(path.parent) for path in folder.leases.glob(f"*/{NAME}") if path.parent != but} - {""}


def owner_folder(folder: DataFolder, owner: str) -> Path:
    """Where the entries of one customer lie; made where it is not there."""
    path = folder.cache / owner
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o755)  # a container's user reads it; above it is the agent's own folder
    return path

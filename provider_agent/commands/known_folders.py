"""Which data folder a command is about, and which others this computer has."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import psutil

from provider_agent.config import DATA_BELOW_HOME, DATA_OF_ROOT, DataFolder, default_data_folder
from provider_agent.errors import NotEnrolled
from provider_agent.packaging.prefix import Prefix, own_prefix

PREFIX_OF_ROOT: Final = Path("/opt/souk-agent")
PREFIX_BELOW_HOME: Final = Path(".local/share/souk-agent")
FOLDERS_SHOWN_MAX: Final = 20


def find_node(data: Path | None, *, known: Iterable[Path] | None = None) -> DataFolder:
    """The folder of an enrolled node; raises NotEnrolled with those that are known where it is not clear which one."""
    folder = choose_folder(data, known=known)
    if _holds_node(folder.root) is not False:
        return folder
    others = list(known_folders() if known is None else known)
    if not others:
        raise NotEnrolled(
            f"{folder.root} holds no enrolled node, and no other is known on this computer. "
            "Run `souk-agent enrol --server URL --token TOKEN` first."
        )
    shown = ", ".join(_describe(each) for each in others[:FOLDERS_SHOWN_MAX])
    raise NotEnrolled(f"{folder.root} holds no enrolled node. Nodes of this computer: {shown}. Name one with --data.")


def choose_folder(data: Path | None, *, known: Iterable[Path] | None = None) -> DataFolder:
    """The folder that was named, else the usual one, else where that holds no node the only other one that does."""
    if data is not None:
        return DataFolder(data.absolute())
    folder = default_data_folder()
    if _holds_node(folder.root) is not False:
        return folder
    others = list(known_folders() if known is None else known)
    if len(others) != 1 or not _holds_node(others[0]):
        return folder
    sys.stderr.write(f"souk-agent: the node in {others[0]}, the only one here; --data names it.\n")
    return DataFolder(others[0])


def known_folders() -> Iterator[Path]:
    """Folders of nodes on this computer, each once: usual ones, those of installations, those of agents that run."""
    seen: set[Path] = set()
    for path in _candidates():
        if path not in seen and _holds_node(path) is not False:
            seen.add(path)
            yield path


def _candidates() -> Iterator[Path]:
    yield from (DATA_OF_ROOT, Path.home() / DATA_BELOW_HOME)
    prefixes = (own_prefix(), Prefix(PREFIX_OF_ROOT), Prefix(Path.home() / PREFIX_BELOW_HOME))
    for prefix in prefixes:
        if prefix is not None:
            yield from _installed(prefix)
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        is_agent = any("souk-agent" in word or "provider_agent" in word for word in words)
        if is_agent and "--data" in words[:-1]:
            yield Path(words[words.index("--data") + 1]).absolute()


def _installed(prefix: Prefix) -> list[Path]:
    try:
        return prefix.data_folders()
    except OSError:
        return []


def _holds_node(root: Path) -> bool | None:
    """None where only its owner may know."""
    try:
        return (root / "config.json").is_file()
    except PermissionError:
        return None


def _describe(root: Path) -> str:
    if _holds_node(root):
        return str(root)
    try:
        return f"{root} (of {root.owner()}, who alone may look into it)"
    except (KeyError, OSError):
        return f"{root} (of another user)"

"""Which data folder a command is about, and which others this computer has."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

import psutil

from provider_agent.config import DATA_BELOW_HOME, DATA_OF_ROOT, DataFolder, default_data_folder
from provider_agent.errors import ENROL_COMMAND, NotEnrolled
from provider_agent.packaging.prefix import Prefix, own_prefix

T = TypeVar("T")

PREFIX_OF_ROOT: Final = Path("/opt/souk-agent")
PREFIX_BELOW_HOME: Final = Path(".local/share/souk-agent")
FOLDERS_SHOWN_MAX: Final = 20


def find_node(data: Path | None, *, for_change: bool = False, known: Iterable[Path] | None = None) -> DataFolder:
    """The folder of an enrolled node; raises NotEnrolled with those that are known where it is not clear which one.

    `for_change`: another user's node is never chosen, only named; who changes it must mean it.
    """
    folder = choose_folder(data, for_change=for_change, known=known)
    if _holds_node(folder.root) is not False:
        return folder
    others = list(known_folders() if known is None else known)
    if not others:
        raise NotEnrolled(
            f"{folder.root} holds no enrolled node, and no other is known on this computer. "
            f"Run `{ENROL_COMMAND}` first."
        )
    shown = ", ".join(_describe(each) for each in others[:FOLDERS_SHOWN_MAX])
    raise NotEnrolled(f"{folder.root} holds no enrolled node. Nodes of this computer: {shown}. Name one with --data.")


def choose_folder(data: Path | None, *, for_change: bool = False, known: Iterable[Path] | None = None) -> DataFolder:
    """The folder that was named, else the usual one, else where that holds no node the only other one that does."""
    if data is not None:
        return DataFolder(data.absolute())
    folder = default_data_folder()
    if _holds_node(folder.root) is not False:
        return folder
    others = list(known_folders() if known is None else known)
    if len(others) != 1 or not _holds_node(others[0]):
        return folder
    if for_change and not _is_ours(others[0]):
        raise NotEnrolled(
            f"{folder.root} holds no enrolled node. The only one here belongs to {_owner_of(others[0])}; "
            f"to change that one, name it: --data {others[0]}"
        )
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
    for process in psutil.process_iter():
        words, current = _ask(process.cmdline) or [], _ask(process.cwd)
        is_agent = any("souk-agent" in word or "provider_agent" in word for word in words)
        given = _data_option(words) if is_agent else None
        if given is not None and (current or given.is_absolute()):
            yield Path(current or "/") / given


def _ask(question: Callable[[], T]) -> T | None:
    """What psutil says of a process; None of another user's, or of one that ended meanwhile."""
    try:
        return question()
    except (psutil.Error, OSError):  # psutil lets a bare FileNotFoundError through where its number was used again
        return None


def _data_option(words: list[str]) -> Path | None:
    """What a command line gives as --data, in either form; the last counts, as it does for the command itself."""
    found = ""
    for word, after in pairwise([*words, ""]):
        if word == "--data":
            found = after
        elif word.startswith("--data="):
            found = word.removeprefix("--data=")
    return Path(found) if found else None


def _installed(prefix: Prefix) -> list[Path]:
    try:
        return prefix.data_folders()
    except OSError:
        return []


def _holds_node(root: Path) -> bool | None:
    """None where only its owner may know. Not by Path.is_file, which says no there as of Python 3.14."""
    try:
        return stat.S_ISREG((root / "config.json").stat().st_mode)
    except PermissionError:
        return None
    except (OSError, ValueError):
        return False


def _is_ours(root: Path) -> bool:
    """Whether folder and node both belong to who runs this command."""
    try:
        return {root.stat().st_uid, (root / "config.json").stat().st_uid} == {os.geteuid()}
    except OSError:
        return False


def _owner_of(root: Path) -> str:
    try:
        return root.owner()
    except (KeyError, OSError):
        return "another user"


def _describe(root: Path) -> str:
    if _holds_node(root):
        return str(root)
    return f"{root} (of {_owner_of(root)}, who alone may look into it)"

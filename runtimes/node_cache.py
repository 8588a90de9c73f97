"""What earlier trainings of the same customer left on this node, found again by a digest. Standard library only.

    SOUK_CACHE_DIR/KIND/KEY/             an entry: a few files, and the MANIFEST with their SHA-256; read-only
    SOUK_WORK_DIR/.souk-cache/KIND/KEY/  the same, made by this program: the agent copies it once the manifest is there.
                                         Or made by an earlier attempt of the job, and put there by the agent before the
                                         start, from the artifact store

KEY is a SHA-256 of everything that decides what the files hold. The program writes below its own work folder alone, so
nothing of it can damage an entry, fill the node's disk or reach another customer. Every file is compared with the
manifest before an entry is used: one that differs is made anew.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runtimes.contract import (
    CACHE_USED_NAME,
    MADE_SECONDS_NAME,
    NEW_CACHE_NAME,
    Env,
    list_files,
    read_manifest,
    write_manifest,
)


@dataclass(frozen=True)
class Entry:
    """One that was found whole. `about`: what its maker wrote into the manifest."""

    folder: Path
    about: Mapping[str, Any]
    is_of_job: bool = False  # it lies in the work folder: an earlier attempt made it, or an earlier start of this one

    @property
    def made(self) -> str:
        """When it was made, for a line of the log."""
        try:
            return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(float(self.about["made_at"])))
        except (KeyError, TypeError, ValueError, OverflowError):
            return "at an unknown time"


class NodeCache:
    """The entries of this node, and those that this program makes."""

    def __init__(self, folder: Path | None, work_dir: Path) -> None:
        """`folder`: None where there is no cache; then nothing is found, and nothing kept."""
        self._folder, self._new = folder, work_dir / NEW_CACHE_NAME

    @property
    def is_there(self) -> bool:
        """Whether there is a cache at all."""
        return self._folder is not None

    def find(self, kind: str, key: str) -> Entry | None:
        """The entry, once each of its files has the digest of the manifest; None where there is none, or not whole."""
        for root in (self._folder, self._new):
            if root is not None and (found := _whole(root / kind / key)) is not None:
                if root == self._folder:
                    self._note_use(kind, key)
                return replace(found, is_of_job=root == self._new)
        return None

    def begin(self, kind: str, key: str) -> Path:
        """An empty folder for the files of a new entry."""
        folder = self._new / kind / key
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def complete(self, folder: Path, *, seconds: float = 0.0, **about: Any) -> None:
        """Write the manifest: from now on the entry counts. `about` must be JSON.

        `seconds`: how long the making took; by it the agent chooses what is worth keeping in the artifact store.
        """
        body: dict[str, Any] = {**about, MADE_SECONDS_NAME: round(seconds, 1), "made_at": round(time.time())}
        write_manifest(folder, **body)

    def _note_use(self, kind: str, key: str) -> None:
        """The agent removes first what was not used for the longest time."""
        self._new.mkdir(exist_ok=True)
        with (self._new / CACHE_USED_NAME).open("a") as out:
            out.write(f"{kind}/{key}\n")


def open_cache(env: Mapping[str, str], work_dir: Path) -> NodeCache:
    """The cache that the agent gave this program."""
    given = env.get(Env.CACHE_DIR, "")
    return NodeCache(Path(given) if given else None, work_dir)


def _whole(folder: Path) -> Entry | None:
    try:
        about = read_manifest(folder)
        listed = about["files"]
        is_whole = bool(listed) and [each.__dict__ for each in list_files(folder)] == listed
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return Entry(folder, about) if is_whole else None

"""Where a path of the configuration lies: among the job's files, or in a shared host folder. Standard library only.

    tuned/model           SOUK_INPUT_DIR/tuned/model: what the customer sent, or what an earlier job left
    lent/LABEL/llama      SOUK_LENT_DIR/LABEL/llama, where LABEL is among the job's `lent`: what a provider shares

The agent lays out exactly the folders that the job names, so these alone are looked into. Nothing of a shared folder
is believed: it is its provider's, and every node's may hold something else under the same label.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from runtimes.contract import lent_label

LINKS_MAX = 4096  # entries of one model's folder


@dataclass(frozen=True)
class Place:
    """A folder that paths may not leave, and one path below it. `label`: of a shared host folder; None: the files."""

    root: Path  # links followed
    rest: str
    label: str | None = None

    @property
    def text(self) -> str:
        """For messages: no path of the node stands in it."""
        return "the job's files" if self.label is None else f"the shared host folder {self.label!r} of this node"

    @property
    def path(self) -> Path:
        """The path, links followed; `holds` says whether it is below the folder still."""
        return (self.root / self.rest).resolve()

    @property
    def is_outside(self) -> bool:
        """Whether the path as it is written leads out."""
        return Path(self.rest).is_absolute() or ".." in Path(self.rest).parts

    def holds(self, path: Path) -> bool:
        """Whether a path lies below the folder, links followed."""
        return path.resolve().is_relative_to(self.root)

    def holds_all(self, folder: Path) -> bool:
        """Whether each file directly in the folder does: nothing is read by a link from elsewhere on the node.

        Of a folder with more than LINKS_MAX entries (`has_too_many`) only so many are looked at.
        """
        return all(self.holds(each) for each in islice(folder.iterdir(), LINKS_MAX))


def has_too_many(folder: Path) -> bool:
    """Whether the folder has more than LINKS_MAX entries."""
    return next(islice(folder.iterdir(), LINKS_MAX, None), None) is not None


@dataclass(frozen=True)
class JobFiles:
    """The folders in which this program finds what its configuration names."""

    input_dir: Path
    lent_dir: Path | None = None  # holds a folder for each label of the job; None: there are none

    def place_of(self, name: str) -> Place:
        """Where `name` is to be looked for, whether or not there is anything."""
        label = lent_label(name)
        if label is not None and self.lent_dir is not None and (self.lent_dir / label).is_dir():
            return Place((self.lent_dir / label).resolve(), str(PurePosixPath(*PurePosixPath(name).parts[2:])), label)
        return Place(self.input_dir.resolve(), name)

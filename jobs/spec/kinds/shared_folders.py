"""Paths of our own runtimes that lie in shared host folders: `lent/LABEL/...`, where LABEL is among the file's `lent`.

A folder of the job's own files or inputs may be called `lent`, too; a path in it is one of the job's own as long as no
such label is named. `runtimes/job_files.py` decides in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from jobs.spec.document import Path
from jobs.spec.kinds.base import Finding
from jobs.spec.section import listed
from runtimes.contract import LENT_NAME, lent_label

FEATURE: Final = "lent_paths"  # of a runtime that looks there


def lent_paths(names: Iterable[str | None], labels: Iterable[str]) -> list[str]:
    """Those of the names that lie in a shared host folder."""
    known = set(labels)
    return [name for name in names if name is not None and lent_label(name) in known]


def is_lent(name: str, data: Mapping[str, Any]) -> bool:
    """The same for one name, on a job file's raw data."""
    label = lent_label(name)
    return label is not None and label in _texts(data.get("lent"))


def check_lent(name: str, data: Mapping[str, Any], where: Path, *, may_be_hub: bool = False) -> Iterator[Finding]:
    """What is wrong with a path that lies in a shared host folder, or seems to.

    `may_be_hub`: a name of two parts may be a model of the hub.
    """
    label, path = lent_label(name), PurePosixPath(name)
    if label is None:
        return
    own = [each for each in _own(data) if each.parts[:1] == (LENT_NAME,)]
    if not is_lent(name, data):
        is_hub = may_be_hub and len(path.parts) == 2 and data.get("network") == "public"
        if not own and not is_hub and not _sends_all(data):
            yield where, f"{name!r} is in no shared host folder: {label!r} is not among lent", f"lent: [{label}]"
    elif ".." in path.parts:
        yield where, f"{name!r} leads out of the shared host folder {label!r}", f"a path below {LENT_NAME}/{label}"
    elif any(each.parts[1:2] in ((), (label,)) for each in own):
        message = f"{name!r} could be among your files and in the shared host folder {label!r}"
        yield where, message, f"your folder under another name than {LENT_NAME}"


def _own(data: Mapping[str, Any]) -> list[PurePosixPath]:
    inputs = data.get("inputs")
    return [PurePosixPath(each) for each in (*_texts(data.get("files")), *_texts(list(inputs or [])))]


def _sends_all(data: Mapping[str, Any]) -> bool:
    """Whether `files` names the job file's whole folder, of which nothing is known here."""
    return any(not each.parts for each in _own(data))


def _texts(value: object) -> list[str]:
    names = listed(value)
    return [each for each in names if isinstance(each, str)] if isinstance(names, list) else []

"""What is installed for a lease: the command for it, and the key under which the result may be used again."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from provider_agent.lease.dependencies.launcher import Step
from provider_agent.lease.workfolder import INPUT_NAME
from provider_agent.protocol import Assignment
from runtimes.contract import WHEELS_NAME, sha256_file

KEY_VERSION = 1  # raised when environments are made in another way
REQUIREMENTS_BYTES_MAX = 1 << 20
WHEELS_MAX = 1000
PIP = "-m pip install --disable-pip-version-check --no-input --progress-bar off"

# A line that names files of its own: what it installs is not known by the file of requirements alone.
_OF_FILES = re.compile(r"^(-r|-c|-e|-f|--requirement|--constraint|--editable|--find-links|\.|/)|file:")
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")  # what pip puts in from the environment
_OF_PIP = ("PIP_", "PYTHON")  # prefixes of variables that change what is installed


def install_step(assignment: Assignment, work: Path, seen_work: str) -> Step:
    """How pip installs into the environment of the launcher; without the internet where wheels lie beside the file."""
    file = PurePosixPath(INPUT_NAME, assignment.program.requirements or "")
    wheels = file.parent / WHEELS_NAME
    words = [*PIP.split(), "-r", f"{seen_work}/{file}"]
    if (work / wheels).is_dir():
        words += ["--no-index", "--find-links", f"{seen_work}/{wheels}"]
    return Step("requirements", f'"$VIRTUAL_ENV/bin/python" {shlex.join(words)}')


def environment_key(assignment: Assignment, work: Path, *, python: str, secrets: Mapping[str, str]) -> str | None:
    """SHA-256 of all that decides what is installed; None where that cannot be told, so that it is installed anew.

    A requirement without a version counts as its text: it stays as it was installed first, until it is evicted.
    """
    scope, named = assignment.environment_scope, assignment.program.requirements
    if scope is None or named is None:
        return None
    path = work / INPUT_NAME / named
    if not _is_plain(path) or path.stat().st_size > REQUIREMENTS_BYTES_MAX:
        return None
    try:
        text = path.read_text()
    except ValueError:
        return None
    lines = [line.strip() for line in text.splitlines()]
    if any(_OF_FILES.search(line) or ("/" in line.partition("#")[0] and "://" not in line) for line in lines):
        return None
    wheels = sorted((path.parent / WHEELS_NAME).glob("*"))
    if len(wheels) > WHEELS_MAX or not all(_is_plain(wheel) for wheel in wheels):
        return None
    variables = {**assignment.env, **secrets}
    names = set(_VARIABLE.findall(text)) | {name for name in variables if name.startswith(_OF_PIP)}
    body = [
        KEY_VERSION,
        scope,
        hashlib.sha256(text.encode()).hexdigest(),
        [(wheel.name, sha256_file(wheel)) for wheel in wheels],
        _interpreter(python),
        sorted((name, variables.get(name, "")) for name in names),
    ]
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _interpreter(python: str) -> list[str]:
    """Which one it is: another version of it, or another set of packages beside it, is another interpreter."""
    folder = Path(python).parent.parent
    packages = sorted(each.name for each in folder.glob("lib/python*/site-packages/*.dist-info"))
    return [python, os.path.realpath(python), sys.platform, *packages]

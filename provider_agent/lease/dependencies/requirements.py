"""How pip installs what a job file's `requirements` names, as a line for the launcher.

A uv.lock becomes a file of requirements first, with the hash of each package, by uv: the one that the node or the image
has, else one that pip fetches into the attempt's environment. pip installs both, because it leaves alone what the
interpreter below has in the same version: torch is not fetched again.
"""

from __future__ import annotations

import shlex
from pathlib import Path, PurePosixPath

from provider_agent.lease.workfolder import INPUT_NAME
from runtimes.contract import LOCK_NAME, WHEELS_NAME

UV = "uv>=0.8,<1"
EXPORT = (
    "export --frozen --offline --no-cache --no-python-downloads --no-dev --no-emit-workspace --no-progress"
    " --emit-index-url --emit-find-links --format requirements.txt"
)
PIP = "-m pip install --disable-pip-version-check --no-input --progress-bar off"


def install_line(requirements: str, work: Path, seen_work: str) -> str:
    """Installs a file below input/ into the launcher's environment; by wheels alone where they lie beside it.

    `seen_work`: the work folder as the program sees it.
    """
    file = PurePosixPath(INPUT_NAME, requirements)
    if file.name == LOCK_NAME:
        return _lock_line(f"{seen_work}/{file.parent}")
    wheels = file.parent / WHEELS_NAME
    words = [*PIP.split(), "-r", f"{seen_work}/{file}"]
    if (work / wheels).is_dir():
        words += ["--no-index", "--find-links", f"{seen_work}/{wheels}"]
    return f'"$VIRTUAL_ENV/bin/python" {shlex.join(words)}'


def shown_install(requirements: str) -> str:
    """What the log says in place of the line for a lock; empty where the line speaks for itself."""
    is_lock = PurePosixPath(requirements).name == LOCK_NAME
    return f"uv export of {requirements}, and pip install of what it names" if is_lock else ""


def _lock_line(project: str) -> str:
    """For the folder of a lock and its project, as the program sees it. The project itself is not installed.

    uv reads nothing but the two files: it asks no index, and no Python but the environment's.
    """
    export = [*EXPORT.split(), "--project", project]
    return "\n".join(
        (
            f"cd {shlex.quote(project)} || exit",
            'python="$VIRTUAL_ENV/bin/python" exported="$VIRTUAL_ENV/exported.txt"',
            'if command -v uv > /dev/null; then uv() { command uv "$@"; }; else uv() { "$python" -m uv "$@"; }; fi',
            f'if ! uv --version 2> /dev/null; then "$python" {shlex.join([*PIP.split(), UV])} || exit; hash -r; fi',
            f'uv {shlex.join(export)} --python "$python" --output-file "$exported" > /dev/null || exit',
            f'"$python" {PIP} -r "$exported"',
        )
    )

"""How pip installs what a job file's `requirements` names, as a line for the launcher."""

from __future__ import annotations

import shlex
from pathlib import Path, PurePosixPath

from provider_agent.lease.workfolder import INPUT_NAME
from runtimes.contract import WHEELS_NAME

PIP = "-m pip install --disable-pip-version-check --no-input --progress-bar off"


def install_line(requirements: str, work: Path, seen_work: str) -> str:
    """Installs a file below input/ into the launcher's environment; by wheels alone where they lie beside it.

    `seen_work`: the work folder as the program sees it.
    """
    file = PurePosixPath(INPUT_NAME, requirements)
    wheels = file.parent / WHEELS_NAME
    words = [*PIP.split(), "-r", f"{seen_work}/{file}"]
    if (work / wheels).is_dir():
        words += ["--no-index", "--find-links", f"{seen_work}/{wheels}"]
    return f'"$VIRTUAL_ENV/bin/python" {shlex.join(words)}'

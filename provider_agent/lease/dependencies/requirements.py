"""How pip installs what a job file's `requirements` names, as a line for the launcher.

A uv.lock becomes a file of requirements first, with the hash of each package, by uv: the one that the node or the image
has, else one that pip fetches into the attempt's environment. pip installs both, because it leaves alone what the
interpreter below has in the same version: torch is not fetched again. Both run isolated (`-I`): a file of the job's
beside the lock, called pip.py, is not what they import.
"""

from __future__ import annotations

import shlex
from pathlib import Path, PurePosixPath

from provider_agent.lease.cache.environments import archive_path
from provider_agent.lease.dependencies import packing
from provider_agent.lease.dependencies.environments import KeptEnvironment
from provider_agent.lease.workfolder import INPUT_NAME
from runtimes.contract import LOCK_NAME, WHEELS_NAME

PACKING = Path(packing.__file__).read_text("utf-8")
UV = "uv>=0.8,<1"
EXPORT = (
    "export --frozen --offline --no-cache --no-python-downloads --no-dev --no-emit-workspace --no-progress"
    " --emit-index-url --emit-find-links --format requirements.txt"
)
PIP = "-I -m pip install --disable-pip-version-check --no-input --progress-bar off"


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


def reuse_line(install: str, kept: KeptEnvironment, *, seen_entry: str, seen_work: str) -> str:
    """Unpacks what an earlier job left where there is such a thing; else installs it, and packs it for later jobs.

    `seen_entry`: the entry's folder as the program sees it; empty where there is none.
    """
    if not kept.key:
        said = shlex.quote(f"[souk] the environment is not kept on this node: {kept.why_not}")
        return f"echo {said}\n{install}"
    target = f"{seen_work}/{archive_path(kept.key)}"
    lines = [f'packing() {{ "$VIRTUAL_ENV/bin/python" -I -S -c {shlex.quote(PACKING)} "$@"; }}']
    if seen_entry:
        lines.append(f'if packing unpack {shlex.quote(seen_entry)} "$VIRTUAL_ENV"; then exit 0; fi')
    lines += [
        f"(\n{install}\n) || exit",
        f'packing pack "$VIRTUAL_ENV" {shlex.quote(target)} {kept.bytes_max}',
        # The log must have a line about it before the command begins, or the command could write one.
        f'code=$?; case "$code" in 0|{packing.NOT_DONE}) ;; *) echo "[souk] environment not packed: $code" ;; esac',
    ]
    return "\n".join(lines)


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
            'if command -v uv > /dev/null; then uv() { command uv "$@"; }; else uv() { "$python" -I -m uv "$@"; }; fi',
            f'if ! uv --version 2> /dev/null; then "$python" {shlex.join([*PIP.split(), UV])} || exit; hash -r; fi',
            f'uv {shlex.join(export)} --python "$python" --output-file "$exported" > /dev/null || exit',
            f'"$python" {PIP} -r "$exported"',
        )
    )

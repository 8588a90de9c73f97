"""Wheels that tests install: other versions of the agent's own, and a folder of the packages that it needs."""

from __future__ import annotations

import base64
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.contracts.executors.base_image import CACHE

LOCK = Path(__file__).parents[1] / "provider_agent" / "packaging" / "requirements.lock"
DOWNLOAD_SECONDS_MAX = 600
PIP_VARIABLES = ("PIP_NO_INDEX", "PIP_FIND_LINKS")
# This is read before any fixture sets them.
PIP_VARIABLES_BEFORE = {name: os.environ[name] for name in PIP_VARIABLES if name in os.environ}


def rebuild_wheel(
    wheel: Path, folder: Path, version: str, changes: Mapping[str, tuple[str, str]] | None = None
) -> Path:
    """The wheel as `version`, really built: the same code, with text replaced in some files; RECORD follows."""
    old = wheel.name.split("-")[1]
    made = folder / f"gpusouk-{version}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    record = []
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as out:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("/RECORD"):
                continue
            if name.endswith("/METADATA"):
                data = data.replace(f"\nVersion: {old}\n".encode(), f"\nVersion: {version}\n".encode())
            if change := (changes or {}).get(name):
                assert change[0].encode() in data, f"{name} has changed"
                data = data.replace(change[0].encode(), change[1].encode())
            new_name = name.replace(f"gpusouk-{old}.dist-info", f"gpusouk-{version}.dist-info")
            out.writestr(new_name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{new_name},sha256={digest},{len(data)}\n")
        at = f"gpusouk-{version}.dist-info/RECORD"
        out.writestr(at, "".join([*record, f"{at},,\n"]))
    return made


def agent_packages(python: str) -> Path:
    """A folder with a wheel of every package of the agent's lock for this interpreter, fetched once. Needs root."""
    version_command = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    version = subprocess.run(version_command, check=True, capture_output=True, text=True).stdout.strip()
    folder = CACHE / f"agent-wheels-{version}-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "agent-wheels.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(part), "--python-version", version]
        command += ["--only-binary", ":all:", "--require-hashes", "--requirement", str(LOCK)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS_MAX)
        assert done.returncode == 0, done.stderr[-2000:]
        part.rename(folder)
    return folder


@functools.cache
def pip_variables(path: str) -> dict[str, str]:
    """Variables with which install.sh finds the agent's packages in a folder, with the first python3 of this PATH.

    From an index pip weighs every file that each package ever had, which takes most of an installation's time; the demo
    installs from there. Empty where not root, or where that python3 would not do for install.sh.
    """
    python = shutil.which("python3", path=path)
    serves = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
    if os.geteuid() != 0 or python is None or subprocess.run([python, "-c", serves], check=False).returncode != 0:
        return {}
    return dict(zip(PIP_VARIABLES, ("1", str(agent_packages(python))), strict=True))


def environment_with_index() -> dict[str, str]:
    """The environment without `pip_variables`, for packages that folder lacks, such as torch."""
    kept = {name: value for name, value in os.environ.items() if name not in PIP_VARIABLES}
    return kept | PIP_VARIABLES_BEFORE

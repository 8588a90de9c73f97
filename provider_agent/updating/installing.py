"""A release beside the one that runs: an environment of its own, every package by the hash in the signed wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

from provider_agent.errors import ServiceFailed, UpdateRefused
from provider_agent.packaging.prefix import COMPLETE, ask_version

LOCK: Final = "provider_agent/packaging/requirements.lock"
PIP_SECONDS_MAX: Final = 1800
SPACE_MIB_MIN: Final = 512
MIB: Final = 1024 * 1024
PIP_PASSED_ON: Final = ("PIP_", "SSL_CERT_", "REQUESTS_CA_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")


def refuse_full_disk(folder: Path) -> None:
    """Raises ServiceFailed where a release would hardly fit: better now than in the middle."""
    free_mib = shutil.disk_usage(folder).free // MIB
    if free_mib < SPACE_MIB_MIN:
        raise ServiceFailed(f"{folder} has {free_mib} MiB free; an update needs {SPACE_MIB_MIN}.")


def install_release(wheel: Path, release: Path, *, version: str, proven: Path) -> None:
    """Make the environment `release` of a verified wheel; it is whole once COMPLETE lies in it. Repeating it repairs.

    Where the wheel asks for the very packages that `proven` has, they are copied from there: no index is asked, and
    what was checked by hash once is the same root's files still.
    """
    if (release / COMPLETE).is_file():
        return
    shutil.rmtree(release, ignore_errors=True)
    release.parent.mkdir(parents=True, exist_ok=True)
    kept = release / wheel.name
    lock = release / "requirements.lock"
    is_same = _read_lock(wheel) == _installed_lock(proven)
    _run([_base_python(), "-m", "venv", *(["--without-pip"] if is_same else []), str(release)], "the environment")
    shutil.copyfile(wheel, kept)  # stays: the environment of the process executor is made of it too
    lock.write_bytes(_read_lock(wheel))
    if is_same:
        shutil.copytree(_packages(proven), _packages(release), dirs_exist_ok=True, symlinks=True)
    else:
        _pip(release, "--require-hashes", "--only-binary", ":all:", "-r", str(lock))
    _pip(release, "--no-deps", "--no-index", "--force-reinstall", str(kept))
    if (version_found := ask_version(release)) != version:
        raise UpdateRefused(f"The release of {version} calls itself {version_found}.")
    os.sync()
    (release / COMPLETE).write_text(f"{version}\n")
    os.sync()


def _read_lock(wheel: Path) -> bytes:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(LOCK)
    except (KeyError, zipfile.BadZipFile) as error:
        raise UpdateRefused(f"{wheel.name} is not an agent's wheel: {error}") from error


def _installed_lock(release: Path) -> bytes:
    path = _packages(release) / LOCK
    return path.read_bytes() if path.is_file() else b""


def _packages(release: Path) -> Path:
    return release / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def _base_python() -> str:
    """The interpreter that our own environment was made of."""
    return str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}")


def _pip(release: Path, *words: str) -> None:
    command = [str(release / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*command, "--no-input", *words], "the packages")


def _run(command: list[str], what: str) -> None:
    """One program without this process' Python settings; raises ServiceFailed with the end of its output."""
    env = {name: value for name, value in os.environ.items() if name.upper().startswith(PIP_PASSED_ON)}
    env |= {"PATH": os.defpath, "HOME": os.environ.get("HOME", "/"), "PIP_USER": "0"}
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter
            command, capture_output=True, text=True, timeout=PIP_SECONDS_MAX, check=False, env=env, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceFailed(f"{what} of the release could not be installed: {error}") from error
    if done.returncode != 0:
        raise ServiceFailed(f"{what} of the release could not be installed: {done.stderr.strip()[-400:]}")

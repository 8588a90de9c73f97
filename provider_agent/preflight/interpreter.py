"""The interpreter of --runtime-python: whether the user that the agent is to run as can run it."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from pathlib import Path
from typing import Final

from provider_agent.preflight.abilities import DesiredSettings
from provider_agent.preflight.finding import Finding

SECONDS_MAX: Final = 30
LINKS_MAX: Final = 40  # as many as the kernel follows
ANYBODY: Final = "nobody"  # stands for a user that the installation has yet to make
CHECK: Final = "interpreter"


def check_interpreter(desired: DesiredSettings) -> Finding:
    """Whether the agent's user can run it; else the node would fail only after everything is installed."""
    if desired.executor != "process" or not desired.runtime_python:
        return Finding("SKIP", CHECK, "none was named; containers have their own, processes get one with torch")
    python, who = Path(desired.runtime_python).absolute(), _account(desired.user)
    if not python.exists():
        return Finding(
            "FIX", CHECK, f"{python} is not there", "name an interpreter with torch, or leave the option out"
        )
    if (why := _why_not_run(python, who)) is None:
        return Finding("PASS", CHECK, f"{python}")
    if who is None:
        return Finding("FIX", CHECK, f"{python} does not run: {why}", "name an interpreter with torch")
    user = desired.user
    closed = _closed_folder(python, who)
    found = f"the agent is to run as {user}, which cannot run {python}: {why}"
    if closed is not None:
        found = f"the agent is to run as {user}, which may not enter {closed}, where {python} lies or leads to"
    fix = (
        "leave --runtime-python out (the agent then builds an environment of its own), or make that environment where "
        f"{user} may enter, such as below /opt"
    )
    return Finding("FIX", CHECK, found, fix)


def _account(user: str) -> pwd.struct_passwd | None:
    """Whom to try it as; None where that is us, or where we may not become another."""
    if os.geteuid() != 0 or not user:
        return None
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        found = pwd.getpwnam(ANYBODY)
    return found if found.pw_uid != 0 else None


def _why_not_run(python: Path, who: pwd.struct_passwd | None) -> str | None:
    """None where it runs."""
    try:
        done = subprocess.run(  # noqa: S603 - the provider's own interpreter, before anything of others runs
            [python, "-c", ""],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
            cwd="/",
            env={"PATH": os.defpath},
            user=who.pw_uid if who else None,
            group=who.pw_gid if who else None,
            extra_groups=os.getgrouplist(who.pw_name, who.pw_gid) if who else None,
        )
    except OSError as error:
        return error.strerror or type(error).__name__
    except subprocess.TimeoutExpired:
        return f"it gave no answer in {SECONDS_MAX} s"
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]


def _closed_folder(python: Path, who: pwd.struct_passwd) -> Path | None:
    """The first folder on the way to the interpreter, along its links, that the user may not enter."""
    groups = {who.pw_gid, *os.getgrouplist(who.pw_name, who.pw_gid)}
    path = python
    for _ in range(LINKS_MAX):
        for folder in reversed(path.parents):
            if not _may_enter(folder.stat(), who.pw_uid, groups):
                return folder
        if not path.is_symlink():
            return None
        path = Path(os.path.normpath(path.parent / path.readlink()))
    return None


def _may_enter(seen: os.stat_result, uid: int, groups: set[int]) -> bool:
    if seen.st_uid == uid:
        return bool(seen.st_mode & stat.S_IXUSR)
    return bool(seen.st_mode & (stat.S_IXGRP if seen.st_gid in groups else stat.S_IXOTH))

"""`python under_unit.py UNIT COMMAND...` runs a command with the limits of a systemd unit, without systemd.

CapabilityBoundingSet, NoNewPrivileges, SystemCallFilter, RestrictAddressFamilies and RestrictNamespaces are put in
force as systemd.exec(5) describes them, through setpriv and libseccomp. A setting of the unit that is in no table below
is an error: what is not put in force must not look as if it were.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

# Of no weight for what a root agent can do with mounts, rules and interfaces.
NOT_OURS: Final = {
    *("Type", "ExecStart", "EnvironmentFile", "User", "Restart", "RestartSec", "RestartPreventExitStatus", "KillMode"),
    *("TimeoutStopSec", "UMask", "LockPersonality", "RestrictRealtime", "RestrictSUIDSGID", "AmbientCapabilities"),
    *("SystemCallArchitectures", "SystemCallErrorNumber"),
}
OURS: Final = {
    *("CapabilityBoundingSet", "NoNewPrivileges", "SystemCallFilter", "RestrictAddressFamilies", "RestrictNamespaces"),
}
NAMESPACES: Final = {
    "mnt": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
ALLOW: Final = 0x7FFF0000
EQUAL, MASKED_EQUAL = 4, 7  # of libseccomp's enum scmp_compare


class Comparison(ctypes.Structure):
    """struct scmp_arg_cmp"""

    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def read_unit(path: Path) -> dict[str, list[str]]:
    """The settings of [Service], each with its words in order."""
    service = path.read_text().split("[Service]\n")[1].split("\n[")[0]
    settings: dict[str, list[str]] = defaultdict(list)
    for line in filter(None, service.splitlines()):
        name, _, value = line.partition("=")
        words = value.split()
        # A line that begins with ~ takes away what it names.
        settings[name] += [f"~{word.lstrip('~')}" for word in words] if value.startswith("~") else words
    if unknown := set(settings) - NOT_OURS - OURS:
        raise SystemExit(f"under_unit.py does not know {', '.join(sorted(unknown))}.")
    return settings


def expand(words: list[str]) -> set[str]:
    """System calls by name: groups opened up, what is taken away left out."""
    names: set[str] = set()
    for word in words:
        bare = word.lstrip("~")
        found = _group(bare) if bare.startswith("@") else {bare}
        names = names - found if word.startswith("~") else names | found
    return names


def _group(name: str) -> set[str]:
    command = ["systemd-analyze", "syscall-filter", "--no-pager", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    words = [line.strip() for line in done.stdout.splitlines()[1:] if not line.strip().startswith("#")]
    names = set(filter(None, words))
    return {each for each in names if not each.startswith("@")}.union(
        *(_group(each) for each in names if each[0] == "@")
    )


def restrict(settings: dict[str, list[str]]) -> None:
    """Load the filters for this process and what it starts."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_rule_add_array.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(Comparison)),
    ]
    library.seccomp_load.argtypes = [ctypes.c_void_p]

    def add(context: int, action: int, name: str, *comparisons: Comparison) -> None:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number < 0:
            return  # of another architecture
        array = (Comparison * max(1, len(comparisons)))(*comparisons)
        if status := library.seccomp_rule_add_array(context, action, number, len(comparisons), array):
            raise SystemExit(f"{name}: {os.strerror(-status)}")

    def load(context: int) -> None:
        if status := library.seccomp_load(context):
            raise SystemExit(f"seccomp_load: {os.strerror(-status)}")

    # Made first, loaded last: a filter may forbid what making another needs.
    allowed = library.seccomp_init(_refused(errno.EPERM))
    for name in expand(settings["SystemCallFilter"]):
        add(allowed, ALLOW, name)
    families = library.seccomp_init(ALLOW)
    known = {int(getattr(socket, name)) for name in settings["RestrictAddressFamilies"]}
    for family in set(range(64)) - known:
        add(families, _refused(errno.EAFNOSUPPORT), "socket", Comparison(0, EQUAL, family, 0))
    spaces = library.seccomp_init(ALLOW)
    add(spaces, _refused(errno.ENOSYS), "clone3")
    add(spaces, _refused(errno.EPERM), "setns", Comparison(1, EQUAL, 0, 0))
    for flag in [bit for name, bit in NAMESPACES.items() if name not in settings["RestrictNamespaces"]]:
        for name, argument in (("unshare", 0), ("clone", 0), ("setns", 1)):
            add(spaces, _refused(errno.EPERM), name, Comparison(argument, MASKED_EQUAL, flag, flag))
    for context in (families, spaces, allowed):
        load(context)


def _refused(number: int) -> int:
    return 0x00050000 | number


def main(unit: str, *command: str) -> None:
    """In two steps: setpriv drops capabilities when it starts us anew."""
    settings = read_unit(Path(unit))
    if os.environ.pop("UNDER_UNIT", "") != unit:
        kept = [f"+{name.removeprefix('CAP_').lower()}" for name in settings["CapabilityBoundingSet"]]
        limits = [f"--bounding-set={','.join(['-all', *kept])}", "--inh-caps=-all", "--no-new-privs"]
        words = ["setpriv", *limits, sys.executable, __file__, unit, *command]
        os.execvpe(words[0], words, {**os.environ, "UNDER_UNIT": unit})
    restrict(settings)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])

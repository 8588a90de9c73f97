"""Hides one folder from a program and all that it starts, by Landlock: a kernel's rules that nobody can take off again.

Landlock allows and never forbids, so what is not hidden is listed: of each folder on the way to the hidden one every
other entry, as it is at the start. What is made there later cannot be opened. A program under rules cannot
trace one outside of them either, so the agent's memory and open files are out of its reach too; from Linux 6.12 on it
can neither signal one nor connect to its abstract sockets. A socket that has a path is open to whom its owner and mode
let in, wherever it lies: Landlock asks nothing there.

Standard library only, and nothing of ours: the supervisor of a program loads this file by its path.
https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable
from pathlib import Path

# System calls, the same on x86-64 and aarch64.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
CREATE_RULESET_VERSION = 1
RULE_PATH_BENEATH = 1
PR_SET_NO_NEW_PRIVS = 38

VERSION_MIN = 2  # the first version renames nothing from one folder to another
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
RIGHTS_BY_VERSION = {2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}  # with REFER, TRUNCATE, IOCTL_DEV
READING = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | 1 << 14 | 1 << 15  # what a rule about a file may name
SCOPE_VERSION, SCOPES = 6, 1 << 0 | 1 << 1  # Linux 6.12: abstract Unix sockets, and signals


class RulesetAttributes(ctypes.Structure):
    """`struct landlock_ruleset_attr`; older kernels take its beginning."""

    _fields_ = [
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class PathBeneath(ctypes.Structure):
    """`struct landlock_path_beneath_attr`."""

    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


def version() -> int:
    """What the kernel offers; 0 where it has no Landlock, or it is switched off."""
    return max(0, _call(CREATE_RULESET, None, 0, CREATE_RULESET_VERSION, may_fail=True))


def is_available() -> bool:
    """Whether programs can be kept out of a folder here."""
    return version() >= VERSION_MIN


def rules_without(hidden: Path, *, read: Iterable[Path] = (), written: Iterable[Path] = ()) -> int:
    """A ruleset's file descriptor: everything but `hidden`, and of it what may be read, or read and written.

    Raises OSError where the kernel has no Landlock, or a named folder is gone.
    """
    found = version()
    if found < VERSION_MIN:
        raise OSError("this kernel has no Landlock")
    everything = RIGHTS_BY_VERSION[max(known for known in RIGHTS_BY_VERSION if known <= found)]
    hidden = hidden.resolve()
    attributes = RulesetAttributes(everything, 0, SCOPES if found >= SCOPE_VERSION else 0)
    size = ctypes.sizeof(attributes) if found >= SCOPE_VERSION else ctypes.sizeof(ctypes.c_uint64)
    ruleset = _call(CREATE_RULESET, ctypes.byref(attributes), size, 0)
    os.set_inheritable(ruleset, False)
    _allow(ruleset, Path("/"), READ_DIR)  # names alone, also of what is hidden: programs list the folders above theirs
    for folder in hidden.parents:
        for entry in os.scandir(folder):
            if entry.path != str(hidden) and not hidden.is_relative_to(entry.path):
                _allow(ruleset, Path(entry.path), everything, may_be_gone=True)
    for path in read:
        _allow(ruleset, path, READING)
    for path in written:
        _allow(ruleset, path, everything)
    return ruleset


def restrict_self(ruleset: int) -> None:
    """From now on, for this process and all that it starts. Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs could not be set")
    _call(RESTRICT_SELF, ruleset, 0)


def _allow(ruleset: int, path: Path, rights: int, *, may_be_gone: bool = False) -> None:
    """A link is allowed as what it is, which gives no right to what it leads to."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        if may_be_gone:
            return
        raise
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= OF_FILES
        rule = PathBeneath(rights, descriptor)
        _call(ADD_RULE, ruleset, RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)


def _call(number: int, *arguments: object, may_fail: bool = False) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = int(library.syscall(ctypes.c_long(number), *words))
    if result < 0 and not may_fail:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return result

"""Gives a lease a disk of its own size: an ext4 file system in a sparse file, mounted below the lease's folder.

    leases/ID/disk.ext4          the file
    leases/ID/disk/work          the program's folder; leases/ID/work is a link to it
    leases/ID/disk/snapshots     checkpoints on their way out, on the same disk, so that taking one moves no bytes

Where that cannot be done the reason is reported, and the folders are ordinary ones. The kernel reads what a
program wrote, never a file system that a program made: the file itself is out of its reach.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from provider_agent.executors.base import SNAPSHOTS_NAME, WORK_NAME
from provider_agent.protocol import DISK_RESERVE_MIB
from provider_agent.system.capabilities import FOR_DISKS, lacking
from provider_agent.system.programs import SYSTEM_PATH, missing

FILE_NAME = "disk.ext4"
MOUNT_NAME = "disk"
COMMAND_SECONDS_MAX = 120
UNMOUNT_SECONDS_MAX = 10.0
DISK_MIB_MIN = 64
DISK_MIB_MAX = 16 * 1024**2  # 16 TiB, the most that such a file system holds
MIB = 1024**2
MOUNT_OPTIONS = "loop,nosuid,nodev,noatime"
OPENED_BY_EXT4 = {"lost+found"}


@dataclass(frozen=True)
class Scratch:
    """What a lease may take on disk; without a limit, why."""

    disk_mib_max: int = 0
    why_unlimited: str = ""

    def __str__(self) -> str:
        return f"{self.disk_mib_max} MiB" if self.disk_mib_max else f"no limit: {self.why_unlimited}"


def mount_scratch(folder: Path, disk_mib: int) -> Scratch:
    """Make and mount the disk of a lease whose folder has none yet; repeating it changes nothing."""
    why = why_not(disk_mib)
    if why:
        return Scratch(why_unlimited=why)
    file, point = folder / FILE_NAME, folder / MOUNT_NAME
    point.mkdir(exist_ok=True, mode=0o711)
    if not os.path.ismount(point):
        try:
            _make_and_mount(file, point, disk_mib)
        except (OSError, subprocess.SubprocessError) as error:
            unmount_scratch(folder)
            return Scratch(why_unlimited=f"this node cannot mount one ({_last_line(error)})")
    for name in (WORK_NAME, SNAPSHOTS_NAME):
        _link(folder / name, point / name)
    return Scratch(disk_mib_max=file.stat().st_size // MIB)


def unmount_scratch(folder: Path) -> None:
    """Let go of a lease's disk and remove its file. What is busy is unmounted as soon as it is not."""
    point = folder / MOUNT_NAME
    until = time.monotonic() + UNMOUNT_SECONDS_MAX
    while os.path.ismount(point):
        is_late = time.monotonic() > until
        _run("umount", *(["--lazy"] if is_late else []), str(point), is_checked=False)
        if is_late:
            break
        time.sleep(0.05)
    (folder / FILE_NAME).unlink(missing_ok=True)


def remount_scratch(folder: Path) -> None:
    """After a restart of the machine: the disk that is there, mounted again, so that what was saved can be sent."""
    file, point = folder / FILE_NAME, folder / MOUNT_NAME
    if file.exists() and point.is_dir() and not os.path.ismount(point):
        _run("mount", "-t", "ext4", "-o", MOUNT_OPTIONS, str(file), str(point))


def why_not(disk_mib: int) -> str:
    """Why no disk can be made; empty when one can."""
    if os.geteuid() != 0:
        return "the agent is not root"
    if without := lacking(FOR_DISKS):
        return f"root has no {' and no '.join(without)} here"
    if absent := missing(("mkfs.ext4", "mount", "umount")):
        return f"{', '.join(absent)} not installed"
    return "" if disk_mib >= DISK_MIB_MIN else f"only {disk_mib} MiB are left for it"


def share_of_disk(leases: Path, share: float) -> int:
    """MiB of the node's disk for a lease that has `share` of its devices; equal shares never add up to more.

    What other leases' disks hold already counts as free here: it is part of their shares.
    """
    held = sum(file.stat().st_blocks * 512 for file in leases.glob(f"*/{FILE_NAME}"))
    usable_mib = (shutil.disk_usage(leases).free + held) // MIB - DISK_RESERVE_MIB
    return max(0, min(int(usable_mib * share), DISK_MIB_MAX))


def give_to(work: Path, user: str) -> None:
    """The container's user owns its work folder and what was fetched into it, or one file. Links are not followed."""
    uid, gid = (int(part) for part in user.split(":"))
    if os.geteuid() != 0:
        work.chmod(0o777)
        return
    if not work.is_dir():
        os.chown(work, uid, gid, follow_symlinks=False)
    for folder, _folders, files in os.walk(work):
        os.chown(folder, uid, gid, follow_symlinks=False)
        for name in files:
            os.chown(Path(folder) / name, uid, gid, follow_symlinks=False)


def has_disk(folder: Path) -> bool:
    """Whether a lease has a disk of its own, mounted now."""
    return os.path.ismount(folder / MOUNT_NAME)


def is_full(folder: Path, bytes_min: int) -> bool:
    """Whether a lease's own disk, not the node's, has less than `bytes_min` left."""
    return has_disk(folder) and shutil.disk_usage(folder / MOUNT_NAME).free < bytes_min


def _make_and_mount(file: Path, point: Path, disk_mib: int) -> None:
    with file.open("wb") as out:
        file.chmod(0o600)
        out.truncate(disk_mib * MIB)
    # No journal: a lease's disk is never repaired. Inode tables are written when they are used, so this is quick.
    lazy = "lazy_itable_init=1,nodiscard"
    _run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", lazy, str(file))
    _run("mount", "-t", "ext4", "-o", MOUNT_OPTIONS, str(file), str(point))
    point.chmod(0o711)
    for name in OPENED_BY_EXT4:
        shutil.rmtree(point / name, ignore_errors=True)


def _link(link: Path, target: Path) -> None:
    """`link` names `target`, which is a folder; an ordinary folder in its place goes."""
    target.mkdir(exist_ok=True, mode=0o755)
    if link.is_symlink():
        return
    shutil.rmtree(link, ignore_errors=True)
    link.symlink_to(target.relative_to(link.parent))


def _run(*command: str, is_checked: bool = True) -> None:
    """In the mount namespace of the machine, so that the container engine sees the disk too."""
    subprocess.run(  # noqa: S603 - fixed programs and our own paths
        [*_in_first_namespace(), *command],
        check=is_checked,
        capture_output=True,
        timeout=COMMAND_SECONDS_MAX,
        env={"PATH": SYSTEM_PATH, "LC_ALL": "C"},
    )


def _in_first_namespace() -> list[str]:
    """A hardened service has a namespace of its own, into which mounts come and out of which they do not."""
    try:
        is_same = Path("/proc/1/ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
    except OSError:
        return []
    return [] if is_same else ["nsenter", "--mount=/proc/1/ns/mnt"]


def _last_line(error: Exception) -> str:
    text = error.stderr.decode(errors="replace").strip() if isinstance(error, subprocess.CalledProcessError) else ""
    return (text.splitlines() or [str(error)])[-1][:200]

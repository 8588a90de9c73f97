"""The data folder of `souk up`: one marketplace's data, used by one process at a time.

souk.json      what made it, in which format
souk.lock      held (flock) by the process that uses it
secrets.json   generated keys and the operator's first password, readable by the owner alone
children.json  the processes of the last start, so that the next one can end what a crash left
postgres/ redis/ run/ (sockets) logs/ artifacts/ metrics/ static/
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from marketplace.config.embedded.errors import DataFolderBroken, DataFolderInUse

FORMAT = 1
MARKER = "souk.json"
# What a fresh mount or an editor may leave in an otherwise empty folder.
HARMLESS = frozenset({"lost+found", ".DS_Store", "souk.lock"})


@dataclass(frozen=True)
class Secrets:
    """Generated once a data folder; losing them makes stored secrets and signatures unreadable."""

    secret_key: str
    signing_key: str
    admin_password: str


@dataclass
class DataFolder:
    """An open, locked data folder; the lock ends with the process, however it ends."""

    path: Path
    secrets: Secrets
    is_new: bool
    _lock: int

    def log(self, name: str) -> Path:
        """The log file of a child."""
        return self.path / "logs" / f"{name}.log"

    @property
    def sockets(self) -> Path:
        return self.path / "run"

    def is_first_welcome(self) -> bool:
        """True once: the operator's password is shown by the first start that came up, and by no later one."""
        try:
            (self.path / "welcomed").touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            return False
        return True

    def close(self) -> None:
        """Release the folder for other processes."""
        os.close(self._lock)


def default_path() -> Path:
    """/var/lib/souk for root, whose home PostgreSQL's unprivileged user may not enter; else ~/.souk."""
    return Path("/var/lib/souk") if os.geteuid() == 0 else Path.home() / ".souk"


def open_folder(path: Path) -> DataFolder:
    """Make or open the data folder and lock it; raises DataFolderBroken or DataFolderInUse with one clear sentence."""
    path = Path(os.path.abspath(path))  # noqa: PTH100  resolve() would follow the operator's own symbolic links
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = _lock(path)
        try:
            is_new = _check_marker(path)
            # 0711 lets PostgreSQL's own user pass through to its cluster, and see nothing else.
            path.chmod(0o711 if os.geteuid() == 0 else 0o700)
            for name in ("logs", "artifacts", "metrics", "static"):
                (path / name).mkdir(mode=0o700, exist_ok=True)
            return DataFolder(path, _load_secrets(path / "secrets.json"), is_new, lock)
        except BaseException:
            os.close(lock)
            raise
    except FileExistsError:
        raise DataFolderBroken(f"{path} is not a folder; choose another --data.") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataFolderBroken(
            f"The data folder {path} cannot be used ({reason}: {error.filename or path}); choose another --data."
        ) from error


def _lock(path: Path) -> int:
    lock = os.open(path / "souk.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 20, 0).decode(errors="replace").strip()
        os.close(lock)
        who = f" (process {holder})" if holder.isdigit() else ""
        raise DataFolderInUse(f"Another `souk up` uses {path}{who}; stop it first, or choose another --data.") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def _check_marker(path: Path) -> bool:
    """Whether the folder is new; raises DataFolderBroken for one that is not ours or from a newer Souk."""
    marker = path / MARKER
    if not marker.exists():
        strangers = sorted(entry.name for entry in path.iterdir() if entry.name not in HARMLESS)
        if strangers:
            raise DataFolderBroken(
                f"{path} holds files but no {MARKER}, so it is not Souk's ({strangers[0]} lies there); "
                "choose an empty or new folder with --data."
            )
        made = {"format": FORMAT, "made_by": _our_version(), "made_at": datetime.now(UTC).isoformat()}
        _write_private(marker, json.dumps(made, indent=2) + "\n")
        return True
    try:
        found = json.loads(marker.read_text())["format"]
    except (ValueError, KeyError, TypeError):
        found = None
    if not isinstance(found, int):
        raise DataFolderBroken(f"{marker} cannot be read; restore the folder from a backup, or choose another --data.")
    if found > FORMAT:
        raise DataFolderBroken(
            f"{path} was made by a newer Souk (folder format {found}; this one knows {FORMAT}); upgrade Souk first."
        )
    return False


def read_secrets(file: Path) -> Secrets:
    """The secrets of an existing data folder."""
    try:
        return Secrets(**json.loads(file.read_text()))
    except (ValueError, TypeError):
        raise DataFolderBroken(f"{file} cannot be read; restore it from a backup: stored secrets need it.") from None


def _load_secrets(file: Path) -> Secrets:
    try:
        return read_secrets(file)
    except FileNotFoundError:
        made = Secrets(secrets.token_urlsafe(48), secrets.token_hex(32), secrets.token_urlsafe(15))
        _write_private(file, json.dumps(asdict(made), indent=2) + "\n")
        return made


def _write_private(file: Path, text: str) -> None:
    """Write it whole or not at all, and never readable by others, not even for a moment."""
    part = file.with_suffix(".part")
    part.unlink(missing_ok=True)
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:  # noqa: PTH123
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    part.replace(file)


def _our_version() -> str:
    try:
        return version("gpusouk")
    except PackageNotFoundError:
        return "source"

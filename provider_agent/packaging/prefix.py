"""PREFIX: the releases side by side, which of them runs, which is proven, and what came of each update."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal

from provider_agent.errors import BadConfig, UpdateRefused
from provider_agent.system.atomic import flush_folder, write_atomically

RELEASE_CHARACTERS: Final = 12  # of the wheel's SHA-256: the folder's name, as install.sh has it
CLAIM_BYTES_MAX: Final = 64 * 1024
VERSION_SECONDS_MAX: Final = 60
COMPLETE: Final = ".complete"

Link = Literal["current", "good"]


@dataclass
class Trial:
    """A release that runs and is not proven yet."""

    version: str
    release: str  # the folder's name
    from_version: str
    from_release: str
    began_at: str
    counted_seconds: float = 0.0  # in which the server answered and a node had not checked in
    nodes: list[str] = field(default_factory=list)  # data folders whose agents ran before
    key: str = ""  # of the provider's request


@dataclass
class Record:
    """update.json: written by the updater, read by everybody."""

    trial: Trial | None = None
    bad: dict[str, dict[str, str]] = field(default_factory=dict)  # version -> reason, at
    last: dict[str, str] = field(default_factory=dict)  # outcome, version, reason, at
    problem: dict[str, str] = field(default_factory=dict)  # why the newest try came to nothing: reason, at

    @staticmethod
    def read(path: Path) -> Record:
        """What was written last; nothing where there is nothing that can be read."""
        found = read_claim(path)
        try:
            told = found.get("trial") or {}  # a newer updater, rolled back since, may have written more
            trial = (
                Trial(**{each.name: told[each.name] for each in fields(Trial) if each.name in told}) if told else None
            )
            return Record(trial, *(dict(found.get(name) or {}) for name in ("bad", "last", "problem")))
        except (TypeError, ValueError):
            return Record()


@dataclass(frozen=True)
class Market:
    """The marketplace and its key, as given to install.sh: the only root of trust."""

    server: str
    sync_server: str
    public_key: str  # Ed25519, hex


@dataclass(frozen=True)
class Prefix:
    """Where install.sh put the agent."""

    root: Path

    @property
    def releases(self) -> Path:
        return self.root / "releases"

    @property
    def record_path(self) -> Path:
        return self.root / "update.json"

    @property
    def program(self) -> Path:
        """What services start: the link is followed at each start."""
        return self.root / "current" / "bin" / "souk-agent"

    def market(self) -> Market:
        """The marketplace that this was installed from; raises BadConfig where it is not known."""
        found = read_claim(self.root / "market.json")
        server, key = found.get("server"), found.get("public_key")
        if not isinstance(server, str) or not isinstance(key, str):
            raise BadConfig(f"{self.root} does not know its marketplace; run the line of install.sh again.")
        return Market(server, str(found.get("sync_server") or server), key)

    def data_folders(self) -> list[Path]:
        """Of all nodes that use this installation."""
        with contextlib.suppress(FileNotFoundError):
            return [Path(line) for line in (self.root / "nodes").read_text().splitlines() if line.startswith("/")]
        return []

    def release(self, link: Link) -> Path | None:
        """The whole release that a link names; None where it names none."""
        found = (self.root / link).resolve()
        return found if found.parent == self.releases.resolve() and (found / COMPLETE).is_file() else None

    def point(self, link: Link, release: Path) -> None:
        """From now on the link names this release; never nothing in between, also after a power cut."""
        temporary = self.root / f".{link}.{secrets.token_hex(4)}"
        temporary.symlink_to(release)
        temporary.replace(self.root / link)
        flush_folder(self.root)

    def record(self) -> Record:
        return Record.read(self.record_path)

    def save(self, record: Record) -> None:
        write_atomically(self.record_path, json.dumps(asdict(record), indent=1).encode(), mode=0o644)

    def remove_others(self, *kept: Path) -> None:
        """Releases that no node needs, half-done ones among them, and links that a kill left behind."""
        for found in self.releases.glob("*"):
            if found.resolve() not in {each.resolve() for each in kept}:
                shutil.rmtree(found, ignore_errors=True)
        for pattern in (".current.*", ".good.*", ".update.json.*"):
            for left in self.root.glob(pattern):
                left.unlink(missing_ok=True)
        for left in self.root.glob(".fetch-*"):
            shutil.rmtree(left, ignore_errors=True)

    @contextlib.contextmanager
    def only_updater(self) -> Iterator[bool]:
        """Hold the prefix; yields False if another process does. Only our user can open the file, and so hold it."""
        descriptor = os.open(self.root / "update.lock", os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "a") as lock:
            os.fchmod(lock.fileno(), 0o600)  # install.sh makes it too
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True


def own_prefix() -> Prefix | None:
    """The installation that this very code runs in; None for a checkout, an image, or a pip install."""
    release = Path(sys.prefix)
    root = release.parent.parent
    return Prefix(root) if release.parent.name == "releases" and (root / "market.json").is_file() else None


def own_release() -> str:
    """The folder's name of the release that this code runs in; empty where it was not installed by install.sh."""
    return Path(sys.prefix).name if own_prefix() else ""


def version_of(release: Path) -> str:
    """What a whole release calls itself."""
    if text := (release / COMPLETE).read_text().strip():
        return text
    return ask_version(release)


def ask_version(release: Path) -> str:
    """What its program answers; raises UpdateRefused where it does not run."""
    command = [str(release / "bin" / "souk-agent"), "--version"]
    try:
        done = subprocess.run(  # noqa: S603 - a program of ours
            command,
            capture_output=True,
            text=True,
            timeout=VERSION_SECONDS_MAX,
            check=False,
            cwd="/",
            env={"PATH": os.defpath},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UpdateRefused(f"{command[0]} does not run: {error}") from error
    if done.returncode != 0:
        raise UpdateRefused(f"{command[0]} does not run: {done.stderr.strip()[-200:]}")
    return done.stdout.strip()


def read_claim(path: Path) -> dict[str, Any]:
    """A small JSON object; empty for anything else. Follows no link: another user may own the folder."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return {}
    with os.fdopen(descriptor, "rb") as file:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > CLAIM_BYTES_MAX:
            return {}
        try:
            found = json.loads(file.read(CLAIM_BYTES_MAX))
        except ValueError:
            return {}
    return found if isinstance(found, dict) else {}

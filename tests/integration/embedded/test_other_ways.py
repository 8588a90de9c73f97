"""`souk up` as an ordinary user, and against servers that the operator runs."""

from __future__ import annotations

import os
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

pytestmark = pytest.mark.timeout(600)  # whole marketplaces start, on whatever else the computer does

SITE_PACKAGES = Path(psycopg.__file__).resolve().parents[1]
SPARE_REDIS_DATABASE = 15


@pytest.fixture
def ordinary_user() -> Iterator[str]:
    if os.geteuid() != 0:
        pytest.skip("needs root, to make an ordinary user")
    name = f"souk-{uuid4().hex[:8]}"
    subprocess.run(["useradd", "--create-home", name], check=True)
    yield name
    subprocess.run(["userdel", "--remove", "--force", name], check=True, capture_output=True)


def python_for(user: str) -> str:
    """An interpreter that the user may run and that fits our packages: ours, or else the system's."""
    for python in (sys.executable, "/usr/bin/python3"):
        # One with compiled parts, so that an interpreter of another version does not pass.
        command = [
            "setpriv",
            "--reuid",
            user,
            "--regid",
            user,
            "--clear-groups",
            python,
            "-c",
            "import psycopg, coincurve",
        ]
        env = {"PYTHONPATH": f"{ROOT}:{SITE_PACKAGES}", "PATH": os.environ["PATH"]}
        if subprocess.run(command, env=env, capture_output=True, check=False, cwd="/").returncode == 0:
            return python
    pytest.skip(f"an ordinary user may not read {SITE_PACKAGES}, or there is no interpreter that fits it")


def test_an_ordinary_user_needs_no_root_and_no_option(ordinary_user: str) -> None:
    home = Path(f"/home/{ordinary_user}")
    env = {
        "HOME": str(home),
        "USER": ordinary_user,
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}:{SITE_PACKAGES}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with Up(None, free_port(), env=env, python=python_for(ordinary_user), user=ordinary_user) as up:
        assert up.folder == home / ".souk"
        assert up.is_well()
        assert {process.username() for process in up.processes()} == {ordinary_user}
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
                assert set(up.ready["pids"]) == {"web", "sync", "worker", "beat"}
                assert up.is_well()
                assert not (up.folder / "postgres").exists()
        finally:
            redis_client.Redis.from_url(redis_url).flushdb()
            connection.execute(f"DROP DATABASE {database} WITH (FORCE)")

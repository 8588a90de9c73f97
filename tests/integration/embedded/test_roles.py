"""Who may connect to the embedded PostgreSQL, and what the servers may do there."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from marketplace.config.embedded import children, postgres

pytestmark = pytest.mark.own_servers

ANOTHER_USER = "daemon"


@pytest.fixture
def cluster(short_folder: Path) -> Iterator[Path]:
    """The folder of a running cluster's socket."""
    child = start(short_folder)
    yield short_folder / "run"
    child.stop()


def start(folder: Path) -> children.Child:
    return postgres.start(folder / "postgres", socket_folder=folder / "run", log=folder / "postgres.log")


def connect_as(user: str, sockets: Path, role: str) -> str:
    """What PostgreSQL answers to another local user of this computer; "" is a connection."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        entry = pwd.getpwnam(user)
        os.setgroups([])
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
        try:
            psycopg.connect(postgres.url_for(sockets, user=role)).close()
        except psycopg.OperationalError as error:
            os.write(writing, str(error).encode()[:4000])
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as answer:
        return answer.read()


def test_the_servers_may_run_no_program_and_are_no_superuser(cluster: Path) -> None:
    with psycopg.connect(postgres.url_for(cluster, user=postgres.SERVERS_ROLE), autocommit=True) as servers:
        for statement in (
            "COPY (SELECT 1) TO PROGRAM 'true'",
            "COPY pg_class FROM PROGRAM 'id'",
            "CREATE TEMP TABLE billing_account (id int)",  # which functions of the owner would take for the real one
            "SELECT pg_read_file('/etc/passwd')",
            "CREATE TABLE mine (id int)",
            "CREATE ROLE mine SUPERUSER",
            "ALTER ROLE souk_servers SUPERUSER",
            "SET ROLE souk",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                servers.execute(statement)


def test_another_user_of_the_computer_cannot_connect(cluster: Path) -> None:
    is_root = os.geteuid() == 0  # who is not cannot become another user
    cluster.chmod(0o755)  # the folder's own permissions are not what is tested
    for role in (postgres.USER, postgres.SERVERS_ROLE):
        assert not is_root or "Peer authentication failed" in connect_as(ANOTHER_USER, cluster, role)
        psycopg.connect(postgres.url_for(cluster, user=role)).close()


def test_a_cluster_of_the_version_before_gets_the_role_and_its_rules(short_folder: Path) -> None:
    child = start(short_folder)
    with psycopg.connect(postgres.url_for(short_folder / "run"), autocommit=True) as owner:
        owner.execute(f"DROP ROLE {postgres.SERVERS_ROLE}")
        owner.execute("CREATE TABLE kept (word text)")
    child.stop()
    (short_folder / "postgres" / "pg_hba.conf").write_text("local all all trust\n")
    child = start(short_folder)
    try:
        can: Callable[[str], bool] = lambda role: bool(  # noqa: E731
            psycopg.connect(postgres.url_for(short_folder / "run", user=role)).execute("SELECT 1").fetchone()
        )
        assert can(postgres.SERVERS_ROLE) and can(postgres.USER)
        assert "trust" not in (short_folder / "postgres" / "pg_hba.conf").read_text()
    finally:
        child.stop()

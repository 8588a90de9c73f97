"""URLs of servers become settings; what cannot be understood is refused by name."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.core.exceptions import ImproperlyConfigured

from marketplace.config.settings import PROJECT_ROOT, broker_url_from, database_from_url


def test_socket_folder_and_password_are_read_from_the_database_url() -> None:
    found = database_from_url("postgresql://bob:p%40ss@/souk?host=/run/a%20b")
    assert (found["NAME"], found["USER"], found["PASSWORD"], found["HOST"]) == ("souk", "bob", "p@ss", "/run/a b")


def test_host_and_port_are_read_from_the_database_url() -> None:
    found = database_from_url("postgres://bob@db.example:6432/market")
    assert (found["NAME"], found["HOST"], found["PORT"]) == ("market", "db.example", "6432")


def test_another_database_than_postgresql_is_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match="PostgreSQL"):
        database_from_url("mysql://root@localhost/souk")


def test_a_broken_connection_is_not_handed_out_by_the_pool() -> None:
    assert database_from_url("postgresql:///souk")["CONN_HEALTH_CHECKS"] is True


@pytest.mark.parametrize(
    ("redis_url", "broker_url"),
    [
        ("redis://cache:6379/3", "redis://cache:6379/3"),
        ("rediss://cache:6379/0", "rediss://cache:6379/0"),
        ("unix:///run/souk/redis.sock?db=5", "redis+socket:///run/souk/redis.sock?virtual_host=5"),
        ("unix:///run/souk/redis.sock", "redis+socket:///run/souk/redis.sock?virtual_host=0"),
    ],
)
def test_celery_is_given_its_own_spelling_of_the_redis_url(redis_url: str, broker_url: str) -> None:
    assert broker_url_from(redis_url) == broker_url


@pytest.mark.parametrize("url", ["amqp://localhost", "unix://relative.sock", ""])
def test_another_broker_than_redis_is_refused(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="REDIS_URL"):
        broker_url_from(url)


@pytest.mark.parametrize("name", ["SOUK_SECRET_KEY", "SOUK_SIGNING_KEY", "DATABASE_URL", "REDIS_URL", "SOUK_DATA"])
def test_a_server_without_its_keys_does_not_start(name: str) -> None:
    env = {key: value for key, value in os.environ.items() if key != name}
    done = subprocess.run(
        [sys.executable, "-c", "import marketplace.config.settings"],
        env={**env, "PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert f"{name} is not set" in done.stderr

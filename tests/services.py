"""The real PostgreSQL and Redis of the tests: those that the environment names, else embedded ones of our own.

One pair a test session: pytest-xdist's workers inherit the URLs from the process that started them. The servers die
with that process, also when it is killed.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import redis as redis_client

from marketplace.config.embedded import postgres, redis

TEST_SECRETS = {
    "SOUK_SECRET_KEY": "tests-only-" + "k7" * 24,
    "SOUK_SIGNING_KEY": "0123456789abcdef" * 4,
    "SOUK_CHALLENGE_SECONDS": "0",
    "SOUK_THROTTLE_ANON": "100000/min",
    "SOUK_THROTTLE_USER": "100000/min",
    "SOUK_THROTTLE_SIGNIN": "100000/min",
    "SOUK_SHARED_MACHINE": "1",
    "SOUK_STAFF_SECOND_FACTOR": "optional",
    "SOUK_EMAIL_VERIFICATION": "off",
    "SOUK_ALLOWED_HOSTS": "127.0.0.1,localhost,testserver",
}


def prepare_environment() -> None:
    """Every variable that the settings read is set; servers run. Once a process; must come before Django loads."""
    if "DATABASE_URL" not in os.environ or "REDIS_URL" not in os.environ:
        _start_embedded_servers()
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker.startswith("gw"):
        os.environ["REDIS_URL"] = redis_url_for_worker(os.environ["REDIS_URL"], int(worker[2:]) + 1)
    require_empty_redis(os.environ["REDIS_URL"])
    # A worker ends without its `atexit`: its folder lies in that of the process that started it, which clears up.
    above = os.environ["SOUK_DATA"] if worker else None
    data = Path(tempfile.mkdtemp(prefix=f"{worker}-" if worker else "souk-tests-data-", dir=above))
    (data / "static").mkdir()
    atexit.register(shutil.rmtree, data, ignore_errors=True)
    os.environ["SOUK_DATA"] = str(data)
    os.environ.update(TEST_SECRETS)


def redis_url_for_worker(url: str, number: int) -> str:
    """The same server, a database of the worker's own: tests empty it."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"unix://{parts.path}?db={number}"
    return f"{parts.scheme}://{parts.netloc}/{number}"


def require_empty_redis(url: str) -> None:
    """Tests empty their Redis database; so that nobody loses one by mistake, it must be empty at the start."""
    client = redis_client.Redis.from_url(url)
    if client.dbsize():
        raise SystemExit(f"REDIS_URL names a database that is not empty, and the tests would empty it: {url}")
    client.close()


def _start_embedded_servers() -> None:
    folder = Path(tempfile.mkdtemp(prefix="souk-tests-"))
    folder.chmod(0o711)  # PostgreSQL runs as another user where the tests run as root
    sockets = folder / "run"
    database = postgres.start(
        folder / "postgres",
        socket_folder=sockets,
        log=folder / "postgres.log",
        settings=postgres.FAST_AND_FORGETFUL,
    )
    wakes = redis.start(folder / "redis", socket_folder=sockets, log=folder / "redis.log", is_durable=False)

    def stop() -> None:
        wakes.stop()
        database.stop()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    os.environ["SOUK_TEST_SERVERS"] = "embedded"
    os.environ["DATABASE_URL"] = postgres.url_for(sockets)
    os.environ["REDIS_URL"] = redis.url_for(sockets)

"""The web and sync processes as `souk up` starts them, on the tests' own database."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.db import connection

from marketplace.config.embedded import children, processes
from marketplace.config.embedded.children import Recipe
from tests.integration.jobs.conftest import alice, bob, lease

__all__ = ["alice", "bob", "lease"]

LOOPBACK = "127.0.0.1"
READY_SECONDS = 120


@pytest.fixture(scope="module")
def web(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a web process with all its workers and threads; one for a whole file."""
    yield from _serving(processes.web, tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="module")
def sync(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a sync process."""
    yield from _serving(processes.sync, tmp_path_factory.mktemp("sync"))


def _serving(recipe: Callable[[socket.socket, dict[str, str], Path], Recipe], folder: Path) -> Iterator[int]:
    listener = socket.create_server((LOOPBACK, 0), backlog=2048)
    port = listener.getsockname()[1]
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    env = {**os.environ, "DATABASE_URL": url, "SOUK_DATA": str(settings.SOUK_DATA)}
    child = children.start(recipe(listener, env, folder / "log"))
    addresses = processes.Addresses(LOOPBACK, port)
    try:
        children.wait_until(child, lambda: processes.answers(addresses, port), seconds=READY_SECONDS)
        yield port
    finally:
        child.stop()
        listener.close()

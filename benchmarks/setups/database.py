"""The embedded PostgreSQL as `souk up` starts it, durable (fsync on), and Django on it."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def postgres_running(**settings: str) -> Iterator[None]:
    """A database of its own, empty, which the environment names while the block lasts; `settings` join that."""
    from marketplace.config.embedded import postgres

    with tempfile.TemporaryDirectory(prefix="souk-benchmark-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o711)  # PostgreSQL runs as another user where we run as root
        database = postgres.start(folder / "postgres", socket_folder=folder / "run", log=folder / "log")
        try:
            os.environ.update(environment(postgres.url_for(folder / "run"), folder) | settings)
            yield
        finally:
            database.stop()


def environment(database_url: str, folder: Path) -> dict[str, str]:
    """What the settings ask for; nothing here touches Redis."""
    return {
        "DATABASE_URL": database_url,
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "SOUK_SECRET_KEY": secrets.token_hex(32),
        "SOUK_SIGNING_KEY": secrets.token_hex(32),
        "SOUK_DATA": str(folder),
        "DJANGO_SETTINGS_MODULE": "marketplace.config.settings",
    }


def set_up() -> None:
    """Django, from the environment."""
    import django

    django.setup()

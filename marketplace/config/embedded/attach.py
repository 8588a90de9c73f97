"""Lets the operator's commands reach the marketplace that `souk up` runs."""

from __future__ import annotations

import os
from pathlib import Path

from marketplace.config.embedded import devchain, folder, postgres, redis
from marketplace.config.embedded.errors import DataFolderBroken, EmbeddedError


def attach(data: Path | None) -> None:
    """Give this process the settings of the marketplace that runs in a data folder.

    Where DATABASE_URL and REDIS_URL are set, those servers are meant, as for `souk up`. Raises EmbeddedError with one
    clear sentence when no marketplace runs there.
    """
    has_servers = bool(os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL"))
    if data is None and has_servers and os.environ.get("SOUK_SECRET_KEY"):
        return
    path = (data or folder.default_path()).absolute()
    if not (path / "secrets.json").is_file():
        raise DataFolderBroken(f"There is no marketplace in {path}; name its folder with --data, or set DATABASE_URL.")
    if not has_servers and not postgres.can_connect(path / "run"):
        raise EmbeddedError(f"The marketplace in {path} is not running; start it with `souk up --data {path}`.")
    secrets = folder.read_secrets(path / "secrets.json")
    if not has_servers:
        database_url = postgres.url_for(path / "run", user=postgres.SERVERS_ROLE)
        os.environ.update(DATABASE_URL=database_url, REDIS_URL=redis.url_for(path / "run"))
    os.environ.update(
        SOUK_DATA=str(path),
        SOUK_SECRET_KEY=secrets.secret_key,
        SOUK_SIGNING_KEY=secrets.signing_key,
        **devchain.attach(path),
    )

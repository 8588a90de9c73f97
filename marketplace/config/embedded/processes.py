"""Souk's own processes: web, sync, gateway, worker, beat; the same in embedded mode and against real servers."""

from __future__ import annotations

import errno
import http.client
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from marketplace.config.embedded.children import Recipe
from marketplace.config.embedded.errors import PortTaken

PROJECT_ROOT = Path(__file__).resolve().parents[3]
WEB_WORKER = "marketplace.config.web.worker.WebWorker"
WEB_WORKERS = 2
WEB_THREADS = 8
TASK_THREADS = 4
WEB_SILENT_SECONDS_MAX = 60  # of an event loop; then gunicorn replaces the process
GRACE_SECONDS = 5
GATEWAY_DRAIN_SECONDS = 10  # of requests under way when the marketplace is stopped
BACKLOG = 2048  # connections that wait; the kernel may hold fewer


@dataclass(frozen=True)
class Addresses:
    """Where web, sync and the gateway listen."""

    bind: str
    port: int

    @property
    def sync_port(self) -> int:
        return self.port + 1

    @property
    def gateway_port(self) -> int:
        """After sync's, and that of a development chain."""
        return self.port + 3

    @property
    def visit_host(self) -> str:
        """The host at which this computer itself reaches the listeners."""
        return "127.0.0.1" if self.bind in {"0.0.0.0", "::"} else self.bind  # noqa: S104  compared, not bound

    def url(self, port: int, *, scheme: str = "http") -> str:
        host = f"[{self.visit_host}]" if ":" in self.visit_host else self.visit_host
        return f"{scheme}://{host}:{port}"


def web(listener: socket.socket, env: Mapping[str, str], log: Path) -> Recipe:
    """gunicorn with our own workers, which no slow visitor holds up: /api, /admin, /artifacts, the portal."""
    command = [sys.executable, "-m", "gunicorn", "marketplace.config.wsgi:application"]
    command += ["--bind", f"fd://{listener.fileno()}", "--worker-class", WEB_WORKER, "--preload"]
    command += ["--workers", str(WEB_WORKERS), "--threads", str(WEB_THREADS), "--no-control-socket"]
    command += [
        "--timeout",
        str(WEB_SILENT_SECONDS_MAX),
        "--graceful-timeout",
        str(GRACE_SECONDS),
        "--log-level",
        "warning",
    ]
    # SIGQUIT: the parent has ended, so no process waits for open requests.
    return Recipe(
        "web", command, log, env=env, sockets=[listener], death_signal=signal.SIGQUIT, stop_seconds=GRACE_SECONDS + 5
    )


def sync(listener: socket.socket, env: Mapping[str, str], log: Path) -> Recipe:
    """uvicorn: one process holds every waiting agent."""
    command = [sys.executable, "-m", "marketplace.config.embedded.serve_sync", "--fd", str(listener.fileno())]
    return Recipe("sync", command, log, env=env, sockets=[listener], stop_seconds=GRACE_SECONDS + 3)


def gateway(listener: socket.socket, env: Mapping[str, str], log: Path) -> Recipe:
    """`souk gateway`: it uses neither the database nor Redis, and gets neither their addresses nor our keys."""
    command = [sys.executable, "-m", "marketplace.config.commands.gateway", "--fd", str(listener.fileno())]
    own = {name: value for name, value in env.items() if name.startswith("SOUK_GATEWAY_") or not _is_ours(name)}
    return Recipe(
        "gateway", command, log, env=own, sockets=[listener], stop_seconds=GATEWAY_DRAIN_SECONDS + GRACE_SECONDS
    )


def _is_ours(name: str) -> bool:
    """A variable that concerns the marketplace, and that a gateway has no use for."""
    return name.startswith("SOUK_") or name in {"DATABASE_URL", "REDIS_URL"}


def worker(env: Mapping[str, str], log: Path) -> Recipe:
    """Celery worker: a few threads, since every task calls one function and waits for the database."""
    command = [sys.executable, "-m", "celery", "-A", "marketplace.config.celery", "worker"]
    command += ["--pool", "threads", "--concurrency", str(TASK_THREADS), "--hostname", "souk@%h"]
    command += ["--without-gossip", "--without-mingle", "--loglevel", "INFO"]
    return Recipe("worker", command, log, env=env, stop_seconds=GRACE_SECONDS + 5)


def beat(env: Mapping[str, str], log: Path) -> Recipe:
    """Celery beat: one a marketplace."""
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "marketplace.config.celery",
        "beat",
        "--pidfile=",
        "--loglevel",
        "INFO",
    ]
    return Recipe("beat", command, log, env=env)


def answers(addresses: Addresses, port: int) -> bool:
    """Whether the process behind this port reports that it is healthy."""
    connection = http.client.HTTPConnection(addresses.visit_host, port, timeout=5)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@dataclass(frozen=True)
class Listeners:
    """The three listening sockets; this process holds them from its start to its end.

    The children inherit them: no other program can take a port while the database is prepared or while a child that
    died is started again, and a connection made in between waits in the queue instead of being refused.
    """

    addresses: Addresses
    web: socket.socket
    sync: socket.socket
    gateway: socket.socket

    @classmethod
    def open(cls, addresses: Addresses) -> Listeners:
        """Raises PortTaken, naming the port, if another process listens where one of them should."""
        return cls(
            addresses,
            _listen(addresses.bind, addresses.port, what="web"),
            _listen(addresses.bind, addresses.sync_port, what="sync"),
            _listen(addresses.bind, addresses.gateway_port, what="the gateway"),
        )


def _listen(host: str, port: int, *, what: str) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = "is taken" if getattr(error, "errno", None) == errno.EADDRINUSE else f"cannot be used ({error})"
        raise PortTaken(
            f"Port {port} on {host} (for {what}) {reason}; "
            "stop what listens there, or choose four free ports in a row with --port."
        ) from None
    return listener

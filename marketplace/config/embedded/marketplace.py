"""Starts a whole marketplace in one data folder, in order, and stops it in reverse.

1. open and lock the data folder     2. end orphans of a crash     3. listen on three ports; a development chain
4. PostgreSQL and Redis (or those that DATABASE_URL and REDIS_URL name)
5. checks, migrations, the first operator     6. web, sync, gateway, worker, beat     7. wait until they are well
"""

from __future__ import annotations

import hmac
import json
import os
import resource
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from marketplace.config.embedded import children, devchain, orphans, postgres, processes, redis
from marketplace.config.embedded.child_supervisor import ChildSupervisor, Say
from marketplace.config.embedded.children import Child, Recipe
from marketplace.config.embedded.errors import ChildFailed, EmbeddedError
from marketplace.config.embedded.folder import DataFolder
from marketplace.config.embedded.processes import PROJECT_ROOT, Addresses, Listeners

PREPARE_SECONDS_MAX = 600
READY_SECONDS = 120
OPEN_FILES = 65_536  # every waiting agent is one of the sync process
OWNER_URL = "SOUK_DATABASE_OWNER_URL"  # of one's own PostgreSQL: who migrates; the servers are never given it


@dataclass(frozen=True)
class Servers:
    """PostgreSQL and Redis. `owner_url` migrates; `role`, where there are two, is that of `database_url`."""

    owner_url: str
    database_url: str
    role: str
    redis_url: str


@dataclass(frozen=True)
class Running:
    """What the terminal shows."""

    portal_url: str
    sync_url: str
    gateway_url: str
    operator: str
    operator_password: str | None  # None: the operator has set another one than ours


def start(
    folder: DataFolder,
    addresses: Addresses,
    supervisor: ChildSupervisor,
    *,
    admin_email: str,
    open_signup: bool,
    say: Say,
) -> Running:
    """Everything runs and answers when this returns; raises EmbeddedError with one clear sentence if it cannot."""
    for name in orphans.end_orphans(folder.path / "children.json"):
        say(f"ended {name}, which an earlier start had left behind")
    listeners = Listeners.open(addresses)
    _raise_file_limit()
    chain = devchain.start(folder, addresses, supervisor, say)
    servers = _start_servers(folder, supervisor, say)
    env = chain | environment(folder, addresses, database_url=servers.database_url, redis_url=servers.redis_url)
    if env["SOUK_FAKE_MONEY"] == "1":
        say("payments are pretended (FAKE): there is no SOUK_STRIPE_KEY, and only this computer can reach the site")
    if env["SOUK_STAFF_SECOND_FACTOR"] == "optional":
        say("operators may sign in without a second factor: only this computer can reach the site")
    if env["SOUK_EMAIL_VERIFICATION"] == "off":
        say("addresses are not verified: only this computer can reach the site, and no SOUK_SMTP_HOST is set")
    preparing = env | {"DATABASE_URL": servers.owner_url, "SOUK_DATABASE_ROLE": servers.role}
    operator, has_first_password = _prepare(
        folder, preparing, admin_email=admin_email, open_signup=open_signup, say=say
    )
    _start_programs(folder, listeners, supervisor, env, say)
    return Running(
        portal_url=env["SOUK_API_URL"],
        sync_url=env["SOUK_SYNC_URL"],
        gateway_url=env["SOUK_SERVING_URL"],
        operator=operator,
        operator_password=folder.secrets.admin_password if has_first_password else None,
    )


def environment(folder: DataFolder, addresses: Addresses, *, database_url: str, redis_url: str) -> dict[str, str]:
    """What every process of Souk is given; what the operator has set already stays."""
    api_url = os.environ.get("SOUK_API_URL") or addresses.url(addresses.port)
    is_private = _is_private(addresses, api_url)
    hosts = sorted({"127.0.0.1", "localhost", "[::1]", urlsplit(api_url).hostname or "localhost"})
    defaults = {
        "SOUK_SECRET_KEY": folder.secrets.secret_key,
        "SOUK_SIGNING_KEY": folder.secrets.signing_key,
        "SOUK_API_URL": api_url,
        "SOUK_SYNC_URL": addresses.url(addresses.sync_port),
        "SOUK_ALLOWED_HOSTS": ",".join(hosts),
        "SOUK_SERVING_URL": addresses.url(addresses.gateway_port),
        "SOUK_GATEWAY_URL": addresses.url(addresses.gateway_port, scheme="ws"),
        "SOUK_GATEWAY_CONTROL_URL": addresses.url(addresses.port),
        "SOUK_GATEWAY_DATA": str(folder.path / "gateway"),
        "SOUK_GATEWAY_DRAIN_SECONDS": str(processes.GATEWAY_DRAIN_SECONDS),
        "SOUK_GATEWAY_TOKEN": gateway_token(folder.secrets.secret_key),
        "SOUK_CHALLENGE_SECONDS": "0",
        "SOUK_SHARED_MACHINE": "1",
        # A site that nobody else can reach is for trying it out; elsewhere operators need a second factor.
        "SOUK_STAFF_SECOND_FACTOR": "optional" if is_private else "required",
        # Nor are addresses verified there, where no mail is sent.
        "SOUK_EMAIL_VERIFICATION": "off" if is_private and not os.environ.get("SOUK_SMTP_HOST") else "required",
        # Without a key for real payments, and where nobody else can reach it, the site pretends them and says so.
        "SOUK_FAKE_MONEY": "0" if os.environ.get("SOUK_STRIPE_KEY") or not is_private else "1",
    }
    fixed = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "SOUK_DATA": str(folder.path),
        "SOUK_BIND": addresses.bind,
        "SOUK_ADMIN_PASSWORD": folder.secrets.admin_password,
        "DJANGO_SETTINGS_MODULE": "marketplace.config.settings",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PROJECT_ROOT), os.environ.get("PYTHONPATH", "")])),
        "PYTHONUNBUFFERED": "1",
    }
    given = {name: value for name, value in os.environ.items() if name != OWNER_URL}
    return {**defaults, **given, **fixed}


def gateway_token(secret_key: str) -> str:
    """By which the marketplace of a data folder knows its own gateway: made of its secret, so kept nowhere."""
    return hmac.new(secret_key.encode(), b"souk gateway", "sha256").hexdigest()


def _is_private(addresses: Addresses, api_url: str) -> bool:
    """Whether the site listens, and names itself, on loopback only."""
    hosts = {addresses.bind, urlsplit(api_url).hostname}
    return hosts <= {"127.0.0.1", "localhost", "::1"} and not os.environ.get("SOUK_ALLOWED_HOSTS")


def _raise_file_limit() -> None:
    """As many open files as this user may have, up to OPEN_FILES; children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _start_servers(folder: DataFolder, supervisor: ChildSupervisor, say: Say) -> Servers:
    """The operator's, where DATABASE_URL and REDIS_URL are set, else our children."""
    given = os.environ.get("DATABASE_URL"), os.environ.get("REDIS_URL")
    if given[0] and given[1]:
        say("PostgreSQL and Redis: those of DATABASE_URL and REDIS_URL")
        owner_url = os.environ.get(OWNER_URL, "")
        role = unquote(urlsplit(given[0]).username or "") if owner_url else ""
        if owner_url and not role:
            raise EmbeddedError(f"{OWNER_URL} is set, so DATABASE_URL has to name the servers' own role as its user.")
        return Servers(owner_url or given[0], given[0], role, given[1])
    if given[0] or given[1]:
        raise EmbeddedError("Set both DATABASE_URL and REDIS_URL to use your own servers, or neither.")
    started = time.monotonic()
    cluster = folder.path / "postgres"
    postgres.remove_stale_lock(cluster, folder.sockets)
    supervisor.add(postgres.start(cluster, socket_folder=folder.sockets, log=folder.log("postgres")))
    say(f"PostgreSQL answers ({time.monotonic() - started:.1f} s)")
    started = time.monotonic()
    supervisor.add(redis.start(folder.path / "redis", socket_folder=folder.sockets, log=folder.log("redis")))
    say(f"Redis answers ({time.monotonic() - started:.1f} s)")
    role = postgres.SERVERS_ROLE
    owner_url, database_url = postgres.url_for(folder.sockets), postgres.url_for(folder.sockets, user=role)
    return Servers(owner_url, database_url, role, redis.url_for(folder.sockets))


def _prepare(
    folder: DataFolder, env: dict[str, str], *, admin_email: str, open_signup: bool, say: Say
) -> tuple[str, bool]:
    """Migrations and operator, in a process of their own; (e-mail, is the generated password theirs)."""
    started = time.monotonic()
    command = [sys.executable, "-m", "marketplace.config.embedded.prepare", "--admin-email", admin_email]
    log = folder.log("prepare")
    log.unlink(missing_ok=True)
    child = children.start(Recipe("prepare", command + ["--open-signup"] * open_signup, log, env=env))
    try:
        status = child.wait_or_kill(PREPARE_SECONDS_MAX)
    except BaseException:
        child.kill()
        raise
    answer = _last_answer(log)
    if "error" in answer:
        raise EmbeddedError(str(answer["error"]))
    if status != 0 or "operator" not in answer:
        raise ChildFailed(
            f"The database could not be prepared (status {status}); see {log}.", details=child.last_lines()
        )
    if answer.get("warning"):
        say(f"WARNING: {answer['warning']}")
    say(f"the database is at this version ({time.monotonic() - started:.1f} s)")
    return str(answer["operator"]), bool(answer["has_first_password"])


def _start_programs(
    folder: DataFolder, listeners: Listeners, supervisor: ChildSupervisor, env: dict[str, str], say: Say
) -> None:
    started = time.monotonic()
    env = {name: value for name, value in env.items() if name != "SOUK_ADMIN_PASSWORD"}
    counts = folder.path / "metrics"
    shutil.rmtree(counts, ignore_errors=True)
    counts.mkdir(mode=0o700)
    web = supervisor.start(
        processes.web(listeners.web, {**env, "PROMETHEUS_MULTIPROC_DIR": str(counts)}, folder.log("web"))
    )
    sync = supervisor.start(processes.sync(listeners.sync, env, folder.log("sync")))
    gateway = supervisor.start(processes.gateway(listeners.gateway, env, folder.log("gateway")))
    others = [
        supervisor.start(processes.worker(env, folder.log("worker"))),
        supervisor.start(processes.beat(env, folder.log("beat"))),
    ]
    _wait_for(web, listeners.addresses, listeners.addresses.port)
    _wait_for(sync, listeners.addresses, listeners.addresses.sync_port)
    _wait_for(gateway, listeners.addresses, listeners.addresses.gateway_port)
    for child in others:
        children.wait_until(child, child.is_alive, seconds=1)
    say(f"web, sync, gateway, worker and beat run ({time.monotonic() - started:.1f} s)")


def _wait_for(child: Child, addresses: Addresses, port: int) -> None:
    children.wait_until(child, lambda: child.is_alive() and processes.answers(addresses, port), seconds=READY_SECONDS)


def _last_answer(log: Path) -> dict[str, object]:
    for line in reversed(children.last_lines(log).splitlines()):
        if line.startswith("{"):
            try:
                answer = json.loads(line)
            except ValueError:
                continue
            if isinstance(answer, dict) and answer.keys() & {"operator", "error"}:
                return answer
    return {}

"""A marketplace for the demo, the benchmarks and the acceptance tests: `souk up` in a folder, used by its public
interfaces alone. Every process that is started here is ended here."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import psutil

from jobs.client.sdk import Souk

BIN = Path(sys.executable).parent
SOUK = str(BIN / "souk")
PASSWORD = "correct horse battery staple"
START_SECONDS, LIST_SECONDS, STOP_SECONDS, INSTALL_SECONDS = 120, 180, 30, 300
# What a start, `wait_for` and `run` may take is multiplied by this; more for a computer that does other things beside.
PATIENCE = float(os.environ.get("SOUK_PATIENCE", "1"))
LINK_SECONDS = 300  # several nodes measure each other on one computer
POLL_SECONDS, POLL_SECONDS_MAX = 0.25, 1.0  # a look takes time of processors that the jobs share
POLL_GROWTH = 1.1
LOG_CHARACTERS = 3_000
PORT_TRIES = 1_000
T = TypeVar("T")


class MarketError(Exception):
    """The marketplace did not do what was expected of it."""


class Market:
    """Up while the `with` block lasts; everything that it started is stopped after."""

    def __init__(
        self,
        folder: Path,
        *,
        open_signup: bool = True,
        env: dict[str, str] | None = None,
        bind: str = "",
        wrapper: Sequence[str] = (),
    ) -> None:
        """`bind` is another address than loopback to listen on; `wrapper` comes before the command that is started."""
        self.folder = folder
        self.processes = Processes()
        self.agents: dict[str, subprocess.Popen[str]] = {}
        self.install_seconds: dict[str, dict[str, int]] = {}  # node -> stage of install.sh -> seconds
        self.server = ""
        self.operator: dict[str, Any] = {}
        self.left: list[str] = []
        self.ways: dict[str, list[str]] = {}  # node -> what comes before the command that starts its agent
        # Its people are made up, and read no mail; its operator has no phone.
        people = {"SOUK_EMAIL_VERIFICATION": "off", "SOUK_STAFF_SECOND_FACTOR": "optional"}
        self._env = {**os.environ, "SOUK_CHALLENGE_SECONDS": "0", **people, **(env or {})}
        self._command = [*wrapper, SOUK, "up", "--data", str(folder / "market"), "--json"]
        self._command += ["--open-signup"] if open_signup else []
        self._command += ["--bind", bind] if bind else []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """`souk up` on free ports; returns when it says that it is ready."""
        # As root PostgreSQL has a user of its own, which must get through to its data; what is secret has its own mode.
        self.folder.chmod(0o711)
        log = self.folder / "up.log"
        command = [*self._command, "--port", str(free_ports(2))]
        up = self.processes.start("souk up", command, log, stdout=subprocess.PIPE, env=self._env)
        line: list[str] = []
        reader = threading.Thread(target=lambda: line.append(up.stdout.readline()), daemon=True)  # type: ignore[union-attr]
        reader.start()
        reader.join(START_SECONDS * PATIENCE)
        if not line or not line[0].startswith("{"):
            raise MarketError("the marketplace did not start:\n" + log.read_text()[-LOG_CHARACTERS:])
        self.operator = json.loads(line[0])
        self.server = self.operator["api_url"]

    def stop(self) -> None:
        """End everything; `left` names what would not end by itself."""
        self.left = self.processes.stop_all()

    def sign_up(self, name: str) -> Party:
        """An account like anybody's, and a key for the command line."""
        with httpx.Client(base_url=self.server, timeout=30) as web:
            account = {"email": f"{name}@example.org", "password": PASSWORD, "organisation": name.capitalize()}
            web.post("/api/v1/signup", json=account).raise_for_status()
            answer = web.post("/api/v1/login", json={"email": account["email"], "password": PASSWORD})
            signed_in = answer.raise_for_status().json()
        home = self.folder / f"home-{name}"
        home.mkdir()
        return Party(name, signed_in["key"], signed_in["organisation"]["id"], home)

    def deposit(self, party: Party, dollars: str) -> None:
        """The operator credits a customer in the admin pages."""
        fields = {"organisation": party.organisation_id, "amount": dollars, "reference": f"deposit of {party.name}"}
        with operator_browser(self.server, self.operator["admin_email"], self.operator["admin_password"]) as browser:
            post_form(browser, "/admin/billing/deposit/add/", fields)

    def customer(self, name: str, *, dollars: str = "100.00") -> Souk:
        """A customer with money."""
        party = self.sign_up(name)
        self.deposit(party, dollars)
        return Souk(self.server, party.key)

    def enrol(self, name: str, *, price: str, provider: Party | None = None, node: NodeOptions | None = None) -> Party:
        """A provider's own token, then the install command; `start_agent` starts it.

        The first node installs the agent into a folder of this marketplace; later ones find it there, whole.
        """
        provider, node = provider or self.sign_up(f"{name}-provider"), node or NodeOptions()
        env = provider.env(self.server)
        line = run_json([SOUK, "provider", "add-node"], env)["command"]
        # No containers here, and the providers are strangers to the customers: both sides say that this will do.
        options = ["--name", name, "--price", price, "--executor", "process", "--allow-strangers", "--no-start"]
        options += node.arguments()
        options += ["--benchmark-lock", str(self.folder / "benchmark.lock"), "--data", str(self.agent_folder(name))]
        options += ["--prefix", str(self.prefix), "--user", getpass.getuser()]
        printed = run(["sh", "-c", f"{line} {shlex.join(options)}"], env, seconds=INSTALL_SECONDS)
        if not (self.agent_folder(name) / "config.json").exists():  # a pipe's status is only that of its end
            raise MarketError(f"install.sh did not enrol {name}:\n{printed}")
        self.install_seconds[name] = _stage_seconds(printed)
        return provider

    def start_agent(self, name: str) -> subprocess.Popen[str]:
        """Start the agent of an enrolled node (again)."""
        command = [*self.ways.get(name, []), self.agent_program, "start", "--data", str(self.agent_folder(name))]
        log = self.folder / f"agent-{name}.log"
        self.agents[name] = self.processes.start(f"agent {name}", command, log)
        return self.agents[name]

    def add_node(
        self,
        name: str,
        *,
        price: str,
        provider: Party | None = None,
        node: NodeOptions | None = None,
        seconds: float = LIST_SECONDS,
    ) -> Party:
        """Enrol and start a node, and wait until it was measured and is listed."""
        provider = self.enrol(name, price=price, provider=provider, node=node)
        agent = self.start_agent(name)
        with Souk(self.server, provider.key) as souk:

            def is_listed() -> bool:
                if agent.poll() is not None:
                    raise MarketError(f"its agent ended with {agent.returncode}")
                return name in {offer.node_name for offer in souk.offers()}

            try:
                wait_for(f"{name} to be listed", is_listed, seconds)
            except MarketError as error:
                log = (self.folder / f"agent-{name}.log").read_text()[-LOG_CHARACTERS:]
                raise MarketError(f"{error}; the end of its agent's log:\n{log}") from error
        return provider

    def add_rack(self, names: Sequence[str], *, price: str, node: NodeOptions) -> Party:
        """Nodes of one provider that reach each other over loopback, listed, with every link between them measured."""
        provider = None
        for name in names:
            provider = self.add_node(
                name, price=price, provider=provider, node=replace(node, fabric_address="127.0.0.1")
            )
        if provider is None:
            raise MarketError("a rack without nodes")
        env, links = provider.env(self.server), len(names) * (len(names) - 1) // 2

        def are_measured() -> bool:
            return [link["condition"] for link in run_json([SOUK, "provider", "links"], env)] == ["good"] * links

        wait_for("all links to be measured", are_measured, LINK_SECONDS)
        return provider

    @property
    def prefix(self) -> Path:
        """Where install.sh puts the agent."""
        return self.folder / "agent"

    @property
    def agent_program(self) -> str:
        """The command of an agent that was installed."""
        return str(self.prefix / "current" / "bin" / "souk-agent")

    def agent_folder(self, name: str) -> Path:
        """Where an agent keeps its data."""
        return self.folder / f"agent-{name}"


@dataclass(frozen=True)
class NodeOptions:
    """What a node offers, beside its price. Without `runtime_python` the agent builds an environment with torch."""

    devices: int = 2
    cores: str = "0,1"
    region: str = "demo"
    fabric_address: str = ""  # of nodes that reach each other
    runtime_python: str = sys.executable

    def arguments(self) -> list[str]:
        """As options of `souk-agent enrol`."""
        options = {"--cpu-cores": self.cores, "--runtime-python": self.runtime_python}
        options |= {"--fabric": "rack", "--fabric-address": self.fabric_address} if self.fabric_address else {}
        given = [word for name, value in options.items() if value for word in (name, value)]
        return ["--devices", str(self.devices), "--region", self.region, *given]


@dataclass
class Party:
    """Somebody with an account: what the command line needs to act in their name."""

    name: str
    key: str
    organisation_id: str
    home: Path

    def env(self, server: str) -> dict[str, str]:
        """Their environment: a home of their own, their server, their key."""
        keep = {name: value for name, value in os.environ.items() if not name.startswith("SOUK_")}
        return {**keep, "HOME": str(self.home), "SOUK_SERVER": server, "SOUK_API_KEY": self.key, "COLUMNS": "110"}


class Processes:
    """Started processes, the newest stopped first, and nothing of them left, whatever happens."""

    def __init__(self) -> None:
        self._started: list[tuple[str, subprocess.Popen[str]]] = []
        self._seen: set[psutil.Process] = set()

    def start(self, name: str, command: list[str], log: Path, **options: Any) -> subprocess.Popen[str]:
        """Start in a session of its own, so that a Ctrl-C here reaches it only through `stop_all`."""
        with log.open("a") as out:
            options.setdefault("stdout", out)
            process = subprocess.Popen(command, stderr=out, text=True, start_new_session=True, **options)
        self._started.append((name, process))
        return process

    def pid_of(self, name: str) -> int:
        """The newest process of this name."""
        return next(process.pid for started, process in reversed(self._started) if started == name)

    def note_children(self) -> None:
        """Remember the descendants of all that runs, to find those that outlive their parents."""
        for _, process in self._started:
            with contextlib.suppress(psutil.NoSuchProcess):
                root = psutil.Process(process.pid)
                self._seen.update({root, *root.children(recursive=True)})

    def stop_all(self) -> list[str]:
        """Stop everything by SIGTERM, then by SIGKILL; returns what ignored SIGTERM and should not have."""
        self.note_children()
        for _, process in reversed(self._started):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_SECONDS)
        left = [process for process in self._seen if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
        _, left = psutil.wait_procs(left, timeout=5)
        names = []
        for survivor in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                names.append(f"{survivor.pid} {' '.join(survivor.cmdline())[:100]}")
                survivor.kill()
        return names


def wait_for(
    what: str, look: Callable[[], T | None], seconds: float, *, poll_seconds_max: float = POLL_SECONDS_MAX
) -> T:
    """The first true answer of `look`, or MarketError after `seconds`, times PATIENCE.

    It looks ever more seldom, down to once in `poll_seconds_max`; POLL_SECONDS is for who measures, or strikes in time.
    """
    seconds *= PATIENCE
    until = time.monotonic() + seconds
    pause = POLL_SECONDS
    while time.monotonic() < until:
        if found := look():
            return found
        time.sleep(pause)
        pause = min(poll_seconds_max, pause * POLL_GROWTH)
    raise MarketError(f"waited {seconds:.0f} s in vain for {what}")


def free_ports(count: int = 1) -> int:
    """The first of `count` ports in a row that nobody uses.

    Drawn below the range that kernels give to outgoing connections (from 32768 on), so that none takes it before the
    one who asked does.
    """
    for _ in range(PORT_TRIES):
        first = random.randrange(18_000, 28_000)
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise MarketError("no free ports between 18000 and 28000")


def run(command: list[str], env: dict[str, str], *, seconds: float = 120) -> str:
    """Run one of our commands as a user would; returns what it printed, raises MarketError when it failed."""
    limit = seconds * PATIENCE
    done = subprocess.run(command, check=False, env=env, capture_output=True, text=True, timeout=limit)
    if done.returncode != 0:
        raise MarketError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def run_json(command: list[str], env: dict[str, str]) -> Any:
    """Run a command with --json and read its answer."""
    return json.loads(run([*command, "--json"], env))


def _stage_seconds(printed: str) -> dict[str, int]:
    """How long each stage of install.sh took, as it printed."""
    found, stage = {}, ""
    for line in printed.splitlines():
        if line.startswith("== "):
            stage = line.removeprefix("== ")
        elif took := re.fullmatch(r" +took (\d+) s", line):
            found[stage.split(" into ")[0]] = int(took[1])
    return found


def kill_tree(process: subprocess.Popen[str]) -> list[int]:
    """SIGKILL a process and all below it, at once, without a chance to clean up. Returns the pids."""
    root = psutil.Process(process.pid)
    doomed = [root, *root.children(recursive=True)]
    for each in doomed:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait(STOP_SECONDS)
    return [each.pid for each in doomed]


@contextlib.contextmanager
def operator_browser(server: str, email: str, password: str) -> Iterator[httpx.Client]:
    """The operator, signed in to the admin pages with the password that `souk up` printed."""
    with httpx.Client(base_url=server, follow_redirects=True, timeout=30) as browser:
        page = post_form(browser, "/signin?next=/admin/", {"email": email, "password": password, "next": "/admin/"})
        if "Log out" not in page and "logout" not in page:
            raise MarketError("the operator could not sign in to the admin")
        yield browser


def post_form(browser: httpx.Client, path: str, fields: dict[str, str]) -> str:
    """Open a page with a form and send it, with its CSRF token; returns the page that follows."""
    page = browser.get(path).text
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    if found is None:
        raise MarketError(f"no form at {path}")
    answer = browser.post(
        path, data={**fields, "csrfmiddlewaretoken": found[1]}, headers={"Referer": str(browser.base_url.join(path))}
    )
    answer.raise_for_status()
    return answer.text

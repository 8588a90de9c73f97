"""The whole world, and the proof that nothing of it is left afterwards.

1 one world at a time; what a killed one left on disk goes     2 computers and cables     3 the marketplace, and wheels
4 an engine on each node, SSH where the provider comes by SSH     5 afterwards all of it ends, and `left` names the rest
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from examples.market import SOUK, Market, Party, free_ports, run_json
from tests import wheels
from tests.acceptance.customer import WITHOUT_CHECKS_AND_CHAIN
from tests.acceptance.world import engine, ssh, supplies
from tests.acceptance.world.computer import Computer
from tests.acceptance.world.network import MARKET, OUTSIDE_INTERFACE, ROUTER_INSIDE, Router, interfaces_here
from tests.contracts.executors.base_image import CACHE
from tests.contracts.executors.train_image import fill_engines

ROOT = Path(__file__).parents[3]
FOLDERS, PREFIX = Path("/tmp"), "souk-world-"
NODES = {"node-1": "10.77.0.11", "node-2": "10.77.0.12", "node-3": "10.77.0.13"}
LAPTOP = "10.77.0.5"
BY_SSH = "node-3"  # its SSH server answers the router alone: the provider has to jump
INSTALL_SECONDS_MAX = 300
END_SECONDS_MAX = 30.0
POLL_SECONDS = 0.1


@dataclass
class World:
    """All of it; `left` is filled when it has ended."""

    folder: Path
    market: Market
    router: Router
    laptop: Computer
    nodes: dict[str, Computer]
    fingerprints: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def computers(self) -> list[Computer]:
        return [self.router.computer, self.laptop, *self.nodes.values()]

    @property
    def namespaces(self) -> set[str]:
        """Of all computers, by the kernel's names."""
        return {found for each in self.computers for found in each.namespaces.values()}

    def install_by_line(self, name: str, provider: Party, *options: str) -> str:
        """The line that the provider is shown, pasted on the node; what install.sh printed."""
        line = run_json([SOUK, "provider", "add-node"], provider.env(self.market.server))["command"]
        words = " ".join(options)
        return self.nodes[name].shell(f"{line} {words}".strip(), seconds=INSTALL_SECONDS_MAX)

    def install_by_ssh(self, name: str, provider: Party, *options: str) -> str:
        """From the provider's own computer, through the router."""
        way = ["--ssh", f"root@{NODES[name]}", "--jump", f"root@{ROUTER_INSIDE}", "--key", ssh.KEY]
        known = [word for shown in self.fingerprints for word in ("--host-key", shown)]
        env = [f"SOUK_SERVER={self.market.server}", f"SOUK_API_KEY={provider.key}", f"PYTHONPATH={ROOT}"]
        command = ["env", *env, SOUK, "provider", "add-node", *way, *known, "--", *options]
        return self.laptop.run(*command, seconds=INSTALL_SECONDS_MAX)


@contextlib.contextmanager
def make_world() -> Iterator[World]:
    """Up while the block lasts. Needs root, and the tools that `supplies.missing_tools` lists."""
    packages = wheels.agent_packages(supplies.NODE_PYTHON)
    with alone(), tempfile.TemporaryDirectory(prefix=PREFIX, dir=FOLDERS) as name:
        folder = Path(name)
        folder.chmod(0o711)
        world = draw(folder)
        fill_engines(node.engine for node in world.nodes.values() if node.engine)
        try:
            connect(world)
            open_market(world, packages)
            with ThreadPoolExecutor(len(world.nodes)) as pool:
                list(pool.map(engine.start_engine, world.nodes.values()))
            _let_in_by_ssh(world)
            yield world
        finally:
            _end(world)
    world.left += [str(folder)] * folder.exists()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hold the lock that two worlds would have to share, and remove what a killed one could not."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "world.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        until = time.monotonic() + END_SECONDS_MAX
        while left := _processes_of(FOLDERS / PREFIX):  # its marketplace was stopped when it died
            for process in left if time.monotonic() > until else []:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            time.sleep(POLL_SECONDS)
        for folder in FOLDERS.glob(f"{PREFIX}*"):
            shutil.rmtree(folder, ignore_errors=True)
        engine.remove_cgroups()
        yield


def draw(folder: Path) -> World:
    """Its parts; nothing of it runs yet."""

    def computer(name: str, data: Path | None = None) -> Computer:
        return Computer(name, folder / name, data)

    kept = CACHE / "world-engines"
    for name in NODES:
        (kept / name).mkdir(parents=True, exist_ok=True)
    return World(
        folder=folder,
        # Stopped when these tests are killed, since nothing else would stop it.
        market=Market(
            folder / "outside", bind=MARKET,
            env={"SOUK_INSECURE_HTTP": "1", "PYTHONPATH": str(ROOT), **WITHOUT_CHECKS_AND_CHAIN},
            wrapper=["setpriv", "--pdeathsig", "TERM"],
        ),
        router=Router(computer("router")),
        laptop=computer("laptop"),
        nodes={name: computer(name, kept / name) for name in NODES},
    )  # fmt: skip


def connect(world: World) -> None:
    """Start the computers and lay the cables."""
    for each in world.computers:
        each.start()
    world.router.connect_outside()
    world.router.connect(world.laptop, LAPTOP)
    for name, address in NODES.items():
        world.router.connect(world.nodes[name], address)


def open_market(world: World, packages: Path) -> None:
    """Start the marketplace, and beside it a folder of wheels for those who install."""
    world.market.folder.mkdir()
    world.market.start()
    port = free_ports()
    serve = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "http.server", str(port)]
    serve += ["--bind", MARKET, "--directory", str(packages)]
    world.market.processes.start("wheels", serve, world.folder / "wheels.log")
    settings = f"[global]\nno-index = true\nfind-links = http://{MARKET}:{port}/\ntrusted-host = {MARKET}\n"
    for node in world.nodes.values():
        node.write("/etc/pip.conf", settings)


def _let_in_by_ssh(world: World) -> None:
    public, node = ssh.make_key(world.laptop), world.nodes[BY_SSH]
    world.fingerprints.append(ssh.start_ssh(world.router.computer, public, address=ROUTER_INSIDE))
    world.fingerprints.append(ssh.start_ssh(node, public, address=NODES[BY_SSH]))
    node.run("iptables", "-A", "INPUT", "-p", "tcp", "--dport", "22", "!", "-s", ROUTER_INSIDE, "-j", "DROP")


def _end(world: World) -> None:
    """Everything ends, in whatever state it is; afterwards it is looked for by other ways than it was made."""
    namespaces = world.namespaces
    for node in world.nodes.values():
        if node.namespaces:
            with contextlib.suppress(Exception):
                engine.stop_engine(node)
    for each in world.computers:
        each.stop()
    world.market.stop()
    until = time.monotonic() + END_SECONDS_MAX
    while (found := what_is_left(world.folder, namespaces)) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    world.left += [*world.market.left, *found]
    with contextlib.suppress(OSError):
        engine.remove_cgroups()


def what_is_left(folder: Path, namespaces: set[str]) -> list[str]:
    """Processes, namespaces, mounts, interfaces, control groups, disks: a line each."""
    found = [f"process {process.pid}" for process in _processes_of(folder)]
    for process in Path("/proc").glob("[0-9]*"):
        for kind in ("net", "mnt", "pid"):
            with contextlib.suppress(OSError):
                if str((process / "ns" / kind).readlink()) in namespaces:
                    found.append(f"namespace {kind} of process {process.name}")
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    held = [name.partition(":[")[2].rstrip("]") for name in namespaces]
    found += [line for line in mounts if str(folder) in line or any(f"[{number}]" in line for number in held)]
    found += [f"interface {OUTSIDE_INTERFACE}"] if OUTSIDE_INTERFACE in interfaces_here() else []
    routes = Path("/proc/net/route").read_text().splitlines()
    found += [f"route {line}" for line in routes if line.startswith(OUTSIDE_INTERFACE)]
    with contextlib.suppress(OSError):
        engine.remove_cgroups()
    found += [f"control group {path}" for path in engine.cgroups_left()]
    disks = [path for path in Path("/sys/block").glob("loop*/loop/backing_file") if path.exists()]
    found += [f"disk {path}" for path in disks if str(folder) in path.read_text()]
    return found


def _processes_of(folder: Path) -> list[psutil.Process]:
    """Those with a word on their command line, or a working directory, below a folder of ours."""
    found = []
    for process in psutil.process_iter():
        # An OSError: a stranger's working directory may have a name that is too long to read.
        with contextlib.suppress(psutil.Error, OSError):
            words = [*process.cmdline(), process.cwd()]
            if process.pid != os.getpid() and any(word.startswith(str(folder)) for word in words):
                found.append(process)
    return found

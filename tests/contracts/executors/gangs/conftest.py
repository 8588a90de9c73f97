"""Two real agents over two real engines in a fabric, and gangs of containers on them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import get_args
from uuid import UUID, uuid4

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from provider_agent.executors.scratch import unmount_scratch
from provider_agent.keys import FABRIC_KEY_NAME, load_keys
from provider_agent.overlay import Overlay, Overlays, rules
from provider_agent.overlay.overlays import NAMESPACES
from provider_agent.overlay.system import System
from provider_agent.overlay.wireguard import SOCKETS
from provider_agent.protocol import GangMember, GangPlace, OverlayKind, Program, gang_address
from tests.contracts.executors.engine import IMAGE, import_base_image, running_engine, skip_without_engine
from tests.contracts.executors.gangs.bare import Node, daemons, tables
from tests.contracts.executors.gangs.fabric import NODE_ADDRESSES, SWITCH_ADDRESS, Fabric, make_fabric
from tests.contracts.executors.world import World
from tests.integration.provider_agent.conftest import Bob, eventually
from tests.integration.provider_agent.fake_leases import Lease
from tests.integration.provider_agent.fake_server import FakeServer

PORT = 29_600
ROOT = Path(__file__).parents[4]
OVERLAY_PROGRAMS = ("wg", "wireguard-go", "bridge")


@pytest.fixture(scope="package")
def fabric() -> Iterator[Fabric]:
    """The namespaces."""
    skip_without_engine(*OVERLAY_PROGRAMS)
    with make_fabric() as made:
        yield made


@pytest.fixture(scope="package")
def engines(fabric: Fabric) -> Iterator[list[str]]:
    """An engine in each node's network, with the test image in it."""
    with ExitStack() as stack:
        addresses = [stack.enter_context(running_engine(World(name, fabric.switch))) for name in fabric.nodes]
        for address in addresses:
            import_base_image(address)
        yield addresses


class Member(Bob):
    """One of Bob's nodes, whose agent lives in the node's network."""

    def __init__(self, server: FakeServer, data: Path, fabric: Fabric, name: str, address: str) -> None:
        super().__init__(server, data)
        self.fabric, self.name, self.address = fabric, name, address
        self.engine = ""
        self.limits: list[str] = []  # a command that runs the agent with less than all of root's power

    def join(self, engine: str, kind: OverlayKind, **more: str) -> None:
        """Enrol and start; `more`: options of enrol."""
        site = Path(torch.__file__).parents[1]
        self.engine = engine
        options = {
            "server": self.server.url,
            "token": self.server.token,
            "name": self.name,
            "executor": "docker",
            "device-kind": "cpu",
            "engine-url": engine,
            "isolation": "runc",
            "train-image": IMAGE,
            "image-registry": "local",
            "fabric": "rack",
            "fabric-address": self.address,
            "fabric-privacy": kind,
            **more,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        words += ["--lend", f"site={site}", "--lend", f"souk={ROOT}", "--data", str(self.data)]
        done = subprocess.run([*self.agent(), "enrol", *words], capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 0, done.stderr
        self.mark_measured()
        self.start(program=self.agent())

    def agent(self) -> list[str]:
        """The agent's program, in the node's network."""
        return [*self.fabric.inside(self.name), *self.limits, sys.executable, "-m", "provider_agent"]

    def restart(self) -> None:
        """The agent comes back."""
        self.start(program=self.agent())

    def sweep(self) -> None:
        """What its next agent would do, once its containers are gone."""
        system = System(tuple(self.fabric.inside(self.name)))
        key_path = self.data / FABRIC_KEY_NAME
        Overlays(self.folder.gangs, key_path=key_path, kind="wireguard", address="", system=system).sweep(())

    def overlay(self, lease: Lease) -> Overlay:
        """What its lease's interface is made of."""
        return Overlay(lease.assignment.lease_id, lease.assignment.attempt_id, lease.assignment.gang)


class Gang:
    """Two members, and the leases of one attempt on them."""

    def __init__(self, members: list[Member], kind: OverlayKind) -> None:
        self.members, self.kind = members, kind
        self.leases: list[Lease] = []

    def start(self, program: Program, port: int = PORT, **changes: object) -> list[Lease]:
        """Have both run `program`; rank 0 first."""
        attempt_id, job_id = uuid4(), uuid4()
        for rank, member in enumerate(self.members):
            given = {"attempt_id": attempt_id, "job_id": job_id, "gang": self.place(rank, port), "program": program}
            self.leases.append(member.server.give(member.assignment(**given, **changes)))
        return self.leases

    def place(self, rank: int, port: int = PORT) -> GangPlace:
        """A member's place."""
        keys = [load_keys(member.data).fabric_public_hex for member in self.members]
        named = [
            GangMember(
                rank=rank, address=member.address, port=port, public_key=keys[rank], overlay_address=gang_address(rank)
            )
            for rank, member in enumerate(self.members)
        ]
        return GangPlace(
            nodes=len(named),
            node_rank=rank,
            master_address=gang_address(0),
            master_port=port,
            overlay=self.kind,
            members=named,
        )

    def saved(self) -> int:
        """The newest step of which both servers have a whole part; 0 for none."""
        steps = [
            {each.begin.step for each in member.server.artifacts.values() if each.is_complete and each.begin.step}
            for member in self.members
        ]
        return max(steps[0] & steps[1], default=0)

    def put_together(self, step: int) -> UUID:
        """A checkpoint of both parts, for both to fetch; its artifact."""
        artifact_id = uuid4()
        parts = [
            {name: data for name, data in each.files.items() if "#" not in name}  # else a piece of one
            for member in self.members
            for each in member.server.artifacts.values()
            if each.is_complete and each.begin.step == step
        ]
        for member in self.members:
            member.server.downloads[artifact_id] = parts[1] | parts[0]  # the first one's manifest, as it counts
            member.server.steps[artifact_id] = step
        return artifact_id

    def replace(self, rank: int, *, resume: UUID | None = None, port: int = PORT) -> Lease:
        """A lease in the place of one that has ended, in the next generation of both."""
        old, stays = self.leases[rank], self.leases[1 - rank]
        generation = old.assignment.generation + 1
        self.members[rank].server.forget_lease(old)
        own = {"lease_id", "fence", "node_id", "device_uuids", "generation", "gang", "resume_artifact_id"}
        later = {"generation": generation, "resume_artifact_id": resume}
        given = old.assignment.model_dump(exclude=own) | later
        assignment = self.members[rank].assignment(**given, gang=self.place(rank, port))
        self.leases[rank] = self.members[rank].server.give(assignment)
        changes = {**later, "gang": self.place(1 - rank, port)}
        self.members[1 - rank].server.regroup(stays, stays.assignment.model_copy(update=changes))
        return self.leases[rank]

    def command(self, code: str, **changes: object) -> list[Lease]:
        """Have both run a few lines of Python."""
        return self.start(Program(image=IMAGE, command=["python3", "-u", "-c", code]), **changes)

    def log(self, rank: int) -> str:
        return self.leases[rank].logs.decode(errors="replace")

    def says(self, rank: int, text: str, seconds: float = 60.0) -> None:
        eventually(lambda: text in self.log(rank), f"{text!r} in {self.log(rank)!r}", seconds=seconds)

    def left(self, rank: int) -> list[str]:
        """What is left of this member's lease on its node, by name."""
        member, lease = self.members[rank], self.leases[rank]
        overlay = member.overlay(lease)
        chains = tables(System(tuple(member.fabric.inside(member.name))))
        links = member.fabric.run(member.name, "ip -o link")
        seen_inside = [path.name for path in NAMESPACES.glob(f"{overlay.name}*")]
        sockets = [path.name for path in SOCKETS.glob(f"{overlay.name}*")]
        records = [path.name for path in member.folder.gangs.glob("*.json")]
        processes = [str(pid) for pid in daemons(overlay.name)]
        seen = [rules.chain_of(overlay.lease_id)] * (rules.chain_of(overlay.lease_id) in chains) + [overlay.name] * (
            overlay.name in links
        )
        return seen + seen_inside + sockets + records + processes


@pytest.fixture
def make_gang(fabric: Fabric, engines: list[str], tmp_path: Path) -> Iterator[Callable[..., Gang]]:
    """Both agents, with the kind of privacy that a test requests; whatever they left running is ended."""
    members: list[Member] = []

    def make(kind: OverlayKind, *, limits: Sequence[str] = (), **more: str) -> Gang:
        for number, (name, address) in enumerate(zip(fabric.nodes, NODE_ADDRESSES, strict=True)):
            server = FakeServer(SWITCH_ADDRESS, fabric.enter_switch)  # it sends every lease to every node: one each
            server.start()
            member = Member(server, tmp_path / f"n{number}", fabric, name, address)
            members.append(member)
            member.limits = list(limits)
            member.join(engines[number], kind, **more)
        return Gang(members, kind)

    yield make
    for member, address in zip(members, engines, strict=False):
        if member.process is not None:
            member.stop(signal.SIGKILL)
        for lease_id in member.server.leases:
            command = ["docker", "--host", address, "rm", "--force", f"souk-{lease_id}"]
            subprocess.run(command, capture_output=True, check=False)
            unmount_scratch(member.folder.lease(lease_id))
        member.sweep()
        member.server.stop()


@pytest.fixture(params=get_args(OverlayKind))
def node(request: pytest.FixtureRequest, fabric: Fabric, tmp_path: Path) -> Iterator[Node]:
    """The first node of the fabric, with each kind of overlay."""
    key = tmp_path / "fabric.key"
    key.write_text(X25519PrivateKey.generate().private_bytes_raw().hex())
    made = Node(fabric, tmp_path / "gangs", key, request.param)
    made.folder.mkdir(mode=0o700)
    yield made
    made.overlays.sweep(())

"""What a program is given: its folders, configuration and environment, as in runtimes/contract.py."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from provider_agent.devices.base import cores_of
from provider_agent.errors import ExecutorFailed
from provider_agent.executors.base import WORK_NAME
from provider_agent.overlay import INTERFACE, Overlay
from provider_agent.overlay.collectives import collective_environment, sees_infiniband, slowest_link
from provider_agent.protocol import (
    DEVICES_PER_NODE_MAX,
    GANG_PORT_FIRST,
    GANG_PORTS,
    Assignment,
    DeviceFacts,
    DeviceKind,
)
from provider_agent.system.atomic import write_atomically
from provider_agent.system.removal import remove_tree
from runtimes.contract import CONTRACT_VERSION, GANG_FILE, Env

JOINING_NAME = "joining"  # in the lease's folder, where the program does not reach
SECRETS_NAME = "secrets.json"
EVENTS_NAME = "events.jsonl"
CONFIG_NAME = "config.json"
INPUT_NAME = "input"
OUTPUT_NAME = "output"
ENVIRONMENT_NAME = ".environment"  # where packages are installed for an own command; never output
CHECKPOINT_NAME = "checkpoint"
RESUME_NAME = "resume"
LOOPBACK, LOOPBACK_INTERFACE = "127.0.0.1", "lo"
OWN_PORT_FIRST, OWN_PORTS = 31_500, 1_000  # after those of gangs, before those of outgoing connections
CONTRACT_PREFIX = "SOUK_"


def make_work_folder(lease_folder: Path, assignment: Assignment) -> Path:
    """An empty work folder with the contract's folders and the runtime's configuration; begins anew if repeated."""
    work = (lease_folder / WORK_NAME).resolve()  # our own link, where the lease has a disk of its own
    remove_tree(work)
    for name in (INPUT_NAME, OUTPUT_NAME, CHECKPOINT_NAME):
        (work / name).mkdir(parents=True)
    (work / CONFIG_NAME).write_text(json.dumps(assignment.program.config))
    (work / EVENTS_NAME).touch()
    if assignment.generation:  # it begins in this one, and waits for later ones alone
        (work / GANG_FILE).write_text(json.dumps({"generation": assignment.generation}))
    return work


def keep_secrets(lease_folder: Path, secrets: dict[str, str]) -> None:
    """Write the secrets to a 0600 file beside the work folder, so that a restart before the start still has them."""
    lease_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if secrets:
        write_atomically(lease_folder / SECRETS_NAME, json.dumps(secrets).encode(), mode=0o600)


def load_secrets(lease_folder: Path) -> dict[str, str]:
    """The secrets of a lease that has not started yet."""
    try:
        loaded: dict[str, str] = json.loads((lease_folder / SECRETS_NAME).read_text())
    except FileNotFoundError:
        return {}
    return loaded


def drop_secrets(lease_folder: Path) -> None:
    """Delete the file; the program has them, or will never need them."""
    (lease_folder / SECRETS_NAME).unlink(missing_ok=True)
    (lease_folder / "launch.json").unlink(missing_ok=True)


def keep_joining(lease_folder: Path) -> None:
    """Note that the lease's program, when it starts, waits for its gang's next generation. In a file of its own: the
    journal must stay readable for the agent of the release before."""
    lease_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(lease_folder / JOINING_NAME, b"1")


def is_joining(lease_folder: Path) -> bool:
    """Whether the program is to wait for that."""
    return (lease_folder / JOINING_NAME).exists()


@dataclass(frozen=True)
class Rendezvous:
    """How a program meets its gang; alone it meets itself on loopback."""

    interface: str
    address: str
    master_address: str
    master_port: int


def rendezvous_of(assignment: Assignment, overlay: Overlay | None, *, fabric_address: str, port: int) -> Rendezvous:
    """By its overlay, or by the node's own address in the fabric; `port` is for a program that is alone."""
    gang = assignment.gang
    if gang.nodes == 1:
        return Rendezvous(LOOPBACK_INTERFACE, LOOPBACK, LOOPBACK, port)
    if overlay is not None:
        # Another port in each generation: ranks of the one before that hang may still listen at theirs. All are the
        # gang's own there; of those without an overlay the server chooses one.
        port = GANG_PORT_FIRST + (gang.master_port - GANG_PORT_FIRST + assignment.generation) % GANG_PORTS
        return Rendezvous(INTERFACE, overlay.me.overlay_address, gang.master_address, port)
    return Rendezvous(_interface_of(fabric_address), fabric_address, gang.master_address, gang.master_port)


def own_port(device_index: int) -> int:
    """A rendezvous port for a program on one node, from a range that Linux gives to no outgoing connection.

    Two leases of one agent have different devices, so they start to look in different places; one that another program
    of the computer holds is passed over.
    """
    for number in range(device_index, OWN_PORTS, DEVICES_PER_NODE_MAX):
        with socket.socket() as probe:
            try:
                probe.bind(("", OWN_PORT_FIRST + number))
            except OSError:
                continue
            return OWN_PORT_FIRST + number
    raise ExecutorFailed(f"No port from {OWN_PORT_FIRST} to {OWN_PORT_FIRST + OWN_PORTS - 1} is free.")


def contract_environment(
    assignment: Assignment,
    devices: list[DeviceFacts],
    *,
    seen_work: str,
    seen_shared_folders: str,
    seen_cache: str,
    resume_path: str,
    rendezvous: Rendezvous,
    is_joining: bool,
) -> dict[str, str]:
    """The variables of the contract, by the paths that the program sees.

    `resume_path`: where in the work folder the checkpoint lies; empty where the program starts anew.
    """
    gang, checkpoint = assignment.gang, assignment.checkpoint
    return {
        Env.CONTRACT: str(CONTRACT_VERSION),
        Env.JOB_ID: str(assignment.job_id),
        Env.ATTEMPT_ID: str(assignment.attempt_id),
        Env.WORK_DIR: seen_work,
        Env.INPUT_DIR: f"{seen_work}/{INPUT_NAME}",
        Env.OUTPUT_DIR: f"{seen_work}/{OUTPUT_NAME}",
        Env.CHECKPOINT_DIR: f"{seen_work}/{CHECKPOINT_NAME}",
        Env.LENT_DIR: seen_shared_folders,
        Env.CACHE_DIR: seen_cache,
        Env.RESUME_FROM: f"{seen_work}/{resume_path}" if resume_path else "",
        Env.EVENTS: f"{seen_work}/{EVENTS_NAME}",
        Env.CONFIG: f"{seen_work}/{CONFIG_NAME}",
        Env.DEVICE_KIND: "cuda" if devices[0].kind is DeviceKind.GPU else "cpu",
        Env.DEVICES_PER_NODE: str(len(devices)),
        Env.NODES: str(gang.nodes),
        Env.NODE_RANK: str(gang.node_rank),
        Env.MASTER_ADDR: rendezvous.master_address,
        Env.MASTER_PORT: str(rendezvous.master_port),
        Env.INTERFACE: rendezvous.interface,
        Env.ADDRESS: rendezvous.address,
        Env.CHECKPOINT_EVERY_STEPS: str(checkpoint.every_steps),
        Env.CHECKPOINT_EVERY_SECONDS: str(checkpoint.every_seconds),
        Env.MEAN_SECONDS_TO_FAILURE: str(checkpoint.mean_seconds_to_failure),
        Env.CHECKPOINT_KEEP: str(checkpoint.keep),
        # Of our own launcher; a program of the customer's is told nothing.
        Env.GENERATION: str(assignment.generation) if gang.nodes > 1 and not assignment.program.command else "",
        Env.JOINS_NEXT: "1" if is_joining and not assignment.program.command else "",
    }


def program_environment(
    assignment: Assignment,
    secrets: dict[str, str],
    devices: list[DeviceFacts],
    *,
    defaults: dict[str, str],
    contract: dict[str, str],
    network: Mapping[str, str],
) -> dict[str, str]:
    """Defaults, then what the customer set, then the contract, which a customer cannot override.

    `network`: of NCCL and gloo (`gang_network`), defaults too.
    """
    cores = sum(len(cores_of(device)) for device in devices)
    threads = {"OMP_NUM_THREADS": str(max(cores // len(devices), 1))} if cores else {}
    theirs = {name: value for name, value in (assignment.env | secrets).items() if not name.startswith(CONTRACT_PREFIX)}
    return {"LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1", **defaults, **threads, **network, **theirs, **contract}


def gang_network(
    assignment: Assignment,
    secrets: dict[str, str],
    rendezvous: Rendezvous,
    *,
    overlay: Overlay | None,
    links: Mapping[str, Mapping[str, Any]],
) -> dict[str, str]:
    """What NCCL and gloo are told of the network between the gang's programs; `links` as `read_links` has them."""
    gang = assignment.gang
    # Without an overlay a node knows one other address at most, the first rank's: of a larger gang it knows too little.
    known = [member.address for member in gang.members if member.rank != gang.node_rank]
    if not gang.members and gang.nodes == 2 and gang.node_rank != 0:
        known = [gang.master_address]
    measured = slowest_link(links, known) if known else None
    # WireGuard's cores are the bound there, and the link was measured without it.
    is_plain = overlay is None or gang.overlay == "plain"
    return collective_environment(
        nodes=gang.nodes,
        interface=rendezvous.interface,
        address=rendezvous.address,
        interfaces=psutil.net_if_addrs() if overlay is None else (),
        has_infiniband=sees_infiniband(is_isolated=overlay is not None),
        bytes_per_second=measured if is_plain else None,
        theirs=assignment.env | secrets,
    )


def _interface_of(address: str) -> str:
    """The network interface that has this IP address; empty when none has."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in addresses):
            return name
    return ""

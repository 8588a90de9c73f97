"""A network of a lease's own, closed off before anything is on it, for a job that may reach the internet."""

from __future__ import annotations

from uuid import UUID

import docker
import requests
from docker.errors import APIError

from provider_agent.errors import ExecutorFailed
from provider_agent.executors.docker.create import LABEL
from provider_agent.executors.firewall import BRIDGE_PREFIX, Firewall

NAME_PREFIX = "souk-"
INTERFACE_HEX = 11  # an interface's name has 15 characters at most


def make_network(engine: docker.DockerClient, lease_id: UUID, firewall: Firewall | None) -> str:
    """The network's name; one that an earlier try left is made anew. Raises ExecutorFailed."""
    if firewall is not None:
        firewall.install()
    try:
        remove_network(engine, lease_id)
        engine.networks.create(
            name=name_of(lease_id),
            driver="bridge",
            labels={LABEL: str(lease_id)},
            options={
                "com.docker.network.bridge.name": f"{BRIDGE_PREFIX}{lease_id.hex[-INTERFACE_HEX:]}",
                "com.docker.network.bridge.enable_icc": "false",
            },
        )
    except (APIError, requests.RequestException) as error:
        raise ExecutorFailed(f"The engine did not make the lease's network: {error}") from error
    return name_of(lease_id)


def remove_network(engine: docker.DockerClient, lease_id: UUID) -> None:
    """Remove a lease's network, if it has one."""
    for network in engine.networks.list(filters={"label": f"{LABEL}={lease_id}"}):
        network.remove()


def sweep_networks(engine: docker.DockerClient, firewall: Firewall) -> int:
    """Remove networks whose container is gone, and the rules when no network is left; returns how many are left."""
    used = {container.labels.get(LABEL) for container in engine.containers.list(all=True, filters={"label": LABEL})}
    networks = engine.networks.list(filters={"label": LABEL})
    orphans = [network for network in networks if network.attrs.get("Labels", {}).get(LABEL) not in used]
    for network in orphans:
        network.remove()
    left = len(networks) - len(orphans)
    if not left and not firewall.why_not():
        firewall.remove()
    return left


def name_of(lease_id: UUID) -> str:
    """What the engine calls it."""
    return f"{NAME_PREFIX}{lease_id}"

"""A network of a lease's own, closed off before anything is on it, for a job that may reach the internet."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import docker
import requests
from docker.errors import APIError

from provider_agent.errors import ExecutorFailed
from provider_agent.executors.base import LaunchSpec
from provider_agent.executors.docker.create import LABEL
from provider_agent.executors.firewall import BRIDGE_PREFIX, Firewall

NAME_PREFIX = "souk-"
INTERFACE_HEX = 11  # an interface's name has 15 characters at most
RULES_SECONDS = 60.0  # rules are restored so often, in case the node's firewall was loaded anew
NO_NETWORK = "none"

log = logging.getLogger(__name__)


class Networks:
    """The networks of one engine's leases, and the rules that close them off where they are filtered."""

    def __init__(self, engine: docker.DockerClient, firewall: Firewall, *, is_filtered: bool) -> None:
        self._engine = engine
        self._firewall = firewall
        self._is_filtered = is_filtered
        self._held = threading.RLock()
        self._rules_at = 0.0

    def why_not(self) -> str:
        """Why no program may reach public addresses from here; empty when one may."""
        return self._firewall.why_not()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Nothing is swept meanwhile: a network that has no container yet looks like one that was left."""
        with self._held:
            yield

    def make(self, spec: LaunchSpec) -> str:
        """A lease that may reach the internet has its own; all others have none. A gang's interface comes later."""
        if spec.has_egress:
            return make_network(self._engine, spec.lease_id, self._firewall if self._is_filtered else None)
        return NO_NETWORK

    def remove(self, lease_id: UUID) -> None:
        """A lease's network, if it has one; with the last one go the rules. What fails is left to the next sweep."""
        with self._held:
            try:
                remove_network(self._engine, lease_id)
                sweep_networks(self._engine, self._firewall)
            except (APIError, requests.RequestException) as error:
                log.warning("A network was not removed yet: %s lease_id=%s", error, lease_id)

    def sweep(self) -> None:
        """Remove those whose container no longer exists; raises APIError."""
        sweep_networks(self._engine, self._firewall)

    def keep_rules(self) -> None:
        """Put the rules back, but not on every call."""
        if self._is_filtered and time.monotonic() >= self._rules_at:
            self._rules_at = time.monotonic() + RULES_SECONDS
            self._firewall.install()


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
    """Remove networks without a container, and the rules when no network is left; returns how many are left."""
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

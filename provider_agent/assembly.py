"""Puts the parts of an enrolled node together: which executor, which devices, which interpreter."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from provider_agent.client import Client
from provider_agent.config import AgentSettings, DataFolder, load_config
from provider_agent.context import AgentContext
from provider_agent.devices.base import find_devices
from provider_agent.errors import BadConfig
from provider_agent.executors.base import Executor
from provider_agent.executors.process import ProcessExecutor
from provider_agent.journal import Journal
from provider_agent.keys import FABRIC_KEY_NAME, load_keys
from provider_agent.overlay import Overlays
from provider_agent.process_venv import environment_python

KEY_PREFIX_CHARACTERS = 12
INSTALLED_FOLDERS = frozenset({"site-packages", "dist-packages"})


def assemble(folder: DataFolder) -> AgentContext:
    """Everything that the loops need; raises NotEnrolled, BadConfig or ExecutorFailed."""
    config = load_config(folder)
    keys = load_keys(folder.root)
    devices = find_devices(config, key_prefix=keys.transport_public_hex[:KEY_PREFIX_CHARACTERS])
    client = Client(api_url=config.api_url, sync_url=config.sync_url, node_id=config.node_id, key=keys.transport)
    return AgentContext(
        folder=folder,
        config=config,
        keys=keys,
        client=client,
        journal=Journal(folder.journal),
        executor=build_executor(folder, config),
        devices={device.uuid: device for device in devices},
    )


def build_executor(folder: DataFolder, settings: AgentSettings) -> Executor:
    """The executor that the provider chose; Docker's library is loaded only for it."""
    if settings.executor == "docker":
        from provider_agent.executors.docker import DockerExecutor

        return DockerExecutor(
            engine_url=settings.engine_url,
            user=settings.container_user,
            python=settings.image_python,
            isolation=settings.isolation,
            offers_egress=settings.egress == "public",
            dns=tuple(map(str, settings.dns)),
            overlays=_overlays(folder, settings),
        )
    python = settings.runtime_python or str(environment_python(folder))
    return ProcessExecutor(python, source_folder=source_folder())


def _overlays(folder: DataFolder, settings: AgentSettings) -> Overlays | None:
    """For a node of a fabric: what its gangs' networks are made with."""
    if not settings.fabric:
        return None
    return Overlays(
        folder.gangs,
        key_path=folder.root / FABRIC_KEY_NAME,
        kind=settings.fabric_privacy,
        address=settings.fabric_address,
    )


def source_folder() -> str:
    """Where `runtimes` can be imported from when it runs from a checkout; empty when it is installed."""
    found = importlib.util.find_spec("runtimes")
    if found is None or not found.origin:
        raise BadConfig("The package `runtimes` is not installed beside the agent.")
    root = Path(found.origin).parent.parent
    return "" if root.name in INSTALLED_FOLDERS else str(root)

"""What every loop of the agent shares: one node, its keys, its journal, its executor, its line to the server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from provider_agent.client import Client
from provider_agent.config import AgentConfig, DataFolder
from provider_agent.executors.base import Executor
from provider_agent.heartbeat import Heartbeat
from provider_agent.journal import Journal
from provider_agent.keys import NodeKeys
from provider_agent.protocol import DeviceFacts


@dataclass
class Porter:
    """The parts that the loops work with."""

    folder: DataFolder
    config: AgentConfig
    keys: NodeKeys
    client: Client
    journal: Journal
    executor: Executor
    devices: dict[str, DeviceFacts]
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    wake: asyncio.Event = field(default_factory=asyncio.Event)  # something changed: sync now
    turns: dict[str, asyncio.Lock] = field(default_factory=dict)  # one program a device at a time

    def __post_init__(self) -> None:
        self.turns = {uuid: asyncio.Lock() for uuid in self.devices}

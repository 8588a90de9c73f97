"""What every loop of the agent shares: one node, its keys, its journal, its executor, its connection to the server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from provider_agent.client import Client
from provider_agent.config import AgentConfig, DataFolder
from provider_agent.context.failure_count import FailureCount
from provider_agent.context.heartbeat import Heartbeat
from provider_agent.executors.base import Executor
from provider_agent.journal import Journal
from provider_agent.keys import NodeKeys
from provider_agent.protocol import DeviceFacts, GatewayList, Load
from provider_agent.tunnel import Tunnels


@dataclass
class AgentContext:
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
    device_locks: dict[str, asyncio.Lock] = field(default_factory=dict)  # one program per device at a time
    failures: FailureCount = field(default_factory=FailureCount)
    faults: dict[str, str] = field(default_factory=dict)  # device uuid -> why it may not be rented now
    facts_changed: bool = False  # send the facts with the next sync
    devices_changed: asyncio.Event = field(default_factory=asyncio.Event)
    load: Load | None = None  # the newest load figures of this node, until they are sent
    speeds: tuple[int, int] = (0, 0)  # of the disk and of the connection to the marketplace, in bytes per second
    why_no_serving: str = "it was not looked at yet"  # empty: models can be served here
    why_no_evaluation: str = "it was not looked at yet"  # empty: models can be evaluated here
    tunnels: Tunnels | None = None  # to the gateways, while the agent is up
    gateways: GatewayList | None = None  # the newest from the marketplace; None: only those of the assignments
    orphans_killed: int = 0  # programs without a lease that were ended here

    def __post_init__(self) -> None:
        self.device_locks = {uuid: asyncio.Lock() for uuid in self.devices}

    def devices_now(self) -> list[DeviceFacts]:
        """Every device, with its fault where it has one."""
        return [device.model_copy(update={"fault": self.faults.get(uuid, "")}) for uuid, device in self.devices.items()]

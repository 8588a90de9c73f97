"""A sync: the node reports its leases, the server answers with what should run."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from provider_agent.protocol.assignment import SignedAssignment
from provider_agent.protocol.bounds import Count, Measure, SmallCount, SmallNumber
from provider_agent.protocol.fabric import LinkDemand
from provider_agent.protocol.limits import LEASES_PER_NODE_MAX, MESSAGE_CHARACTERS_MAX
from provider_agent.protocol.load import Load
from provider_agent.protocol.message import Account, Message
from provider_agent.protocol.node import NodeFacts
from provider_agent.protocol.outcomes import AttemptState, Reason
from provider_agent.protocol.releases import UpdateOrder
from provider_agent.protocol.serving import SignedGateways


class Desired(Message):
    """One lease as the server wants it. `assignment` comes until the agent reports the lease, and its generation."""

    lease_id: UUID
    fence: int
    action: Literal["run", "stop"]
    stop_reason: Reason | None = None
    lease_until: datetime
    assignment: SignedAssignment | None = None


class LeaseReport(Account):
    """One lease as the agent has it."""

    lease_id: UUID
    fence: Count
    attempt_id: UUID
    state: AttemptState
    reason: Reason | None = None
    message: str = Field(default="", max_length=MESSAGE_CHARACTERS_MAX)
    exit_code: SmallNumber | None = None
    billable_ms: Count = 0
    log_bytes: Count = 0  # written so far; the final count once the state is an end
    event_bytes: Count = 0
    receipt_seq: Count = 0  # the newest receipt made
    generation: Count = 0  # of the assignment that it has
    follows_generations: bool = False  # its program's launcher outlives the ranks, and joins later ones
    follows_sizes: bool = False  # and goes on there in a gang of another size, at another rank
    lost_peer: bool = False  # the ranks of this generation ended here because they lost a peer


class SyncRequest(Account):
    """What is, on this node. `known` is the version of the last answer; the server waits for a newer one."""

    protocol: SmallCount
    boot_id: UUID  # new at each start of the agent
    known: str = Field(default="", max_length=64)
    wait_seconds: Measure = Field(default=0, le=60)
    leases: list[LeaseReport] = Field(default_factory=list, max_length=LEASES_PER_NODE_MAX)
    load: Load | None = None  # now and then; see Load
    facts: NodeFacts | None = None  # when they changed, and at the first sync of a boot


class SyncResponse(Message):
    """What should be, on this node."""

    server_time: datetime
    version: str
    beat_seconds: float
    node_state: str
    desired: list[Desired] = Field(default_factory=list)
    forget: list[UUID] = Field(default_factory=list)  # leases that are settled here: the agent may delete them
    check: UUID | None = None  # work that is demanded; left out for agents that do not know it (see device_checks.py)
    link: LinkDemand | None = None  # a link to be measured; the same (see fabric.py)
    update: UpdateOrder | None = None  # the version it should have; left out for agents that do not know it
    gateways: SignedGateways | None = None  # where its replicas are announced; the same (see serving.py)

"""How the marketplace demands work of a node's devices, and how the node answers.

    begin     the seeds            from here the marketplace's clock runs
    commit    roots of the chains  up to here; answered with what is to be revealed
    reveal    one block a call
    filled    memory is full       answered with the first step of reading it back
    recall    one step a call      answered with the next step, at the end with the verdict

All are signed POSTs under /api/agent/v1/checks/ID/. Repeating one gets the same answer and changes nothing; another
answer to the same demand is refused. A node learns of a check by SyncResponse.check, which is sent only to agents that
send FEATURE_CHECKS in HEADER_FEATURES: one that does not know the field never sees it.
"""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from pydantic import Field

from provider_agent.protocol.bounds import SmallCount
from provider_agent.protocol.limits import DEVICES_PER_NODE_MAX
from provider_agent.protocol.message import Message

HEADER_FEATURES: Final = "Souk-Features"
FEATURE_CHECKS: Final = "checks"

ROUNDS_MAX: Final = 256
REVEAL_CHARACTERS_MAX: Final = 800_000  # base64 of one block
HASHES_CHARACTERS_MAX: Final = 100_000
SUMS_CHARACTERS_MAX: Final = 400_000
UUID_CHARACTERS_MAX: Final = 96
ROOT_CHARACTERS_MAX: Final = 128


class DeviceTask(Message):
    """What one device has to do; see runtimes/probe/challenge."""

    uuid: str
    seed: str
    size: int
    grid: int
    rounds: int
    memory_blocks: int
    memory_block_words: int
    memory_passes: int


class CheckTask(Message):
    """Work for every device of the node, to be begun on all at once."""

    check_id: UUID
    devices: list[DeviceTask]


class DeviceCommitment(Message):
    """The roots of all states of one device's chain."""

    uuid: str = Field(max_length=UUID_CHARACTERS_MAX)
    roots: list[Annotated[str, Field(max_length=ROOT_CHARACTERS_MAX)]] = Field(max_length=ROUNDS_MAX + 1)


class CheckCommit(Message):
    """What every device computed, before it is known what must be shown."""

    devices: list[DeviceCommitment] = Field(min_length=1, max_length=DEVICES_PER_NODE_MAX)


class CheckOpen(Message):
    """Device UUID -> the (round, block) pairs to reveal, in this order."""

    openings: dict[str, list[tuple[int, int]]]


class CheckReveal(Message):
    """The `index`-th opening of one device; bytes in base64."""

    uuid: str = Field(max_length=UUID_CHARACTERS_MAX)
    index: SmallCount
    before: str = Field(max_length=REVEAL_CHARACTERS_MAX)
    after: str = Field(max_length=REVEAL_CHARACTERS_MAX)
    before_hashes: str = Field(max_length=HASHES_CHARACTERS_MAX)
    after_hashes: str = Field(max_length=HASHES_CHARACTERS_MAX)


class Finding(Message):
    """One thing that was looked at: the number measured and the number needed."""

    device: str  # UUID
    what: str  # products | work_seconds | memory_blocks | recall_seconds | identity
    measured: float
    needed: float
    is_passed: bool
    message: str = ""


class CheckVerdict(Message):
    """How a check ended."""

    check_id: UUID
    state: str
    findings: list[Finding] = Field(default_factory=list)


class RecallStep(Message):
    """Read all memory back under this key; an empty key asks for an empty answer at once. At the end the verdict."""

    step: int = 0
    key: str = ""
    verdict: CheckVerdict | None = None


class DeviceRecall(Message):
    """The sums of one device's blocks, little-endian words in base64."""

    uuid: str = Field(max_length=UUID_CHARACTERS_MAX)
    sums: str = Field(max_length=SUMS_CHARACTERS_MAX)


class CheckRecall(Message):
    """The answer to one step; without devices where the key was empty."""

    step: SmallCount
    devices: list[DeviceRecall] = Field(default_factory=list, max_length=DEVICES_PER_NODE_MAX)

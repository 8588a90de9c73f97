"""When programs fail in a row on this node, the node examines itself before it takes the next one.

1  FAILURES_IN_A_ROW_MAX endings in a row that the node could be to blame for
2  the doctor's checks of this machine, then a short run of the probe on the devices that are free
3  faulty: drain, and say what to fix (status, doctor, the operator's pages) until `souk-agent resume`
   healthy: the programs were at fault, and the node goes on
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from provider_agent.atomic import write_atomically
from provider_agent.client import with_retries
from provider_agent.config import DataFolder
from provider_agent.errors import AgentError, Retryable
from provider_agent.protocol import REASON_CHARACTERS_MAX, DrainRequest, Reason

if TYPE_CHECKING:
    from provider_agent.porter import Porter

FAILURES_IN_A_ROW_MAX = 3
PAUSE_SECONDS_MIN = 600.0  # between two examinations that found nothing: a probe costs the next customer time
PROBE_SECONDS = 1
FINDING_CHARACTERS_MAX = 400
REPORT_SECONDS = 5.0
# Endings that say something of the node. A stop, an image or an input that cannot be had, a network: do not.
SUSPICIOUS = frozenset(
    {
        Reason.EXIT_NONZERO,
        Reason.BAD_CONFIG,
        Reason.BAD_INPUT,
        Reason.OUT_OF_MEMORY,
        Reason.PROCESS_VANISHED,
        Reason.EXECUTOR_FAILED,
        Reason.DISK_FULL,
        Reason.DEVICE_FAILED,
        Reason.INTERNAL,
    }
)
# The doctor's checks that can make a program fail; a server that does not answer cannot.
OF_THIS_MACHINE = frozenset({"keys", "journal", "disk", "devices", "engine", "runtime"})

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Examination:
    """What the node found of itself."""

    at: str
    is_faulty: bool
    summary: str
    fixes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For the file, and --json."""
        return asdict(self)


class FailureCount:
    """Endings in a row that the node could be to blame for."""

    def __init__(self) -> None:
        self.in_a_row = 0
        self.reached = asyncio.Event()

    def note(self, reason: Reason) -> None:
        """One more program ended."""
        if reason is Reason.COMPLETED:
            self.in_a_row = 0
        elif reason in SUSPICIOUS:
            self.in_a_row += 1
            if self.in_a_row >= FAILURES_IN_A_ROW_MAX:
                self.reached.set()

    def clear(self) -> None:
        """Begin anew."""
        self.in_a_row = 0
        self.reached.clear()


async def examine_when_failing(porter: Porter) -> None:
    """Wait for failures in a row, examine, act. Runs until it is cancelled."""
    while True:
        await porter.failures.reached.wait()
        examined = await examine_self(porter)
        porter.failures.clear()
        save_examination(porter.folder, examined)
        if examined.is_faulty:
            log.error("This node is faulty and leaves the market: %s", examined.summary)
            await _leave(porter, examined)
            continue
        log.warning("Programs failed in a row, and this node is healthy: the programs were at fault. It goes on.")
        await asyncio.sleep(PAUSE_SECONDS_MIN)


async def examine_self(porter: Porter) -> Examination:
    """The doctor's checks, and a program of our own on the free devices."""
    from provider_agent.benchmark import probe_free_devices
    from provider_agent.doctor import examine

    log.warning("%s programs in a row failed here; this node examines itself.", porter.failures.in_a_row)
    findings = [each for each in await examine(porter.folder) if each.check in OF_THIS_MACHINE]
    wrong = [(f"{each.check}: {each.found}", each.fix) for each in findings if each.verdict == "FIX"]
    wrong += [(f"device {uuid}: {fault}", "see `souk-agent doctor`") for uuid, fault in porter.faults.items()]
    if not wrong:
        try:
            await probe_free_devices(porter, seconds=PROBE_SECONDS)
        except (AgentError, OSError, TimeoutError, KeyError, ValueError) as error:
            text = str(error)[-FINDING_CHARACTERS_MAX:]
            wrong.append((f"the probe failed: {text}", "souk-agent logs; souk-agent doctor"))
    summary = "; ".join(what for what, _ in wrong) or "nothing is wrong with this node"
    return Examination(
        at=datetime.now(UTC).isoformat(),
        is_faulty=bool(wrong),
        summary=f"faulty: {summary}" if wrong else summary,
        fixes=[fix for _, fix in wrong if fix],
    )


def save_examination(folder: DataFolder, examined: Examination) -> None:
    """For `souk-agent status` and `doctor`; a full disk keeps none."""
    try:
        write_atomically(folder.examination, json.dumps(examined.as_dict()).encode(), mode=0o600)
    except OSError as error:
        log.error("The examination could not be written down: %s", error)


def read_examination(folder: DataFolder) -> Examination | None:
    """The newest examination, if there was one since the last resume."""
    try:
        return Examination(**json.loads(folder.examination.read_text()))
    except (OSError, ValueError, TypeError):
        return None


async def _leave(porter: Porter, examined: Examination) -> None:
    """Drain, however long the server takes to hear it."""
    request = DrainRequest(reason=examined.summary[:REASON_CHARACTERS_MAX])
    while True:
        try:
            await with_retries(lambda: porter.client.wish("drain", request))
            return
        except Retryable as error:
            log.warning("The marketplace was not told yet that this node is faulty: %s", error)
        except AgentError as error:
            log.error("The marketplace refused to drain this node: %s", error)
            return
        await asyncio.sleep(REPORT_SECONDS)

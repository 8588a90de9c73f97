"""When programs fail in a row on this node, the node tests itself before it takes the next one.

1  FAILURES_IN_A_ROW_MAX endings in a row for which the node may be to blame (context/failure_count.py)
2  the doctor's checks of this computer, then a short run of the probe on the devices that are free
3  faulty: drain, and show what to fix (status, doctor, the operator's pages) until `souk-agent resume`
   healthy: the programs were at fault, and the node continues
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from provider_agent.client import with_retries
from provider_agent.context import AgentContext
from provider_agent.errors import AgentError, Retryable
from provider_agent.node.self_test_result import SelfTestResult, save_self_test
from provider_agent.protocol import REASON_CHARACTERS_MAX, DrainRequest

PAUSE_SECONDS_MIN = 600.0  # between two self-tests that found nothing: a probe takes time from the next customer
PROBE_SECONDS = 1
FINDING_CHARACTERS_MAX = 400
REPORT_SECONDS = 5.0
# The doctor's checks that can make a program fail; a server that does not answer cannot.
OF_THIS_COMPUTER = frozenset({"keys", "journal", "disk", "devices", "engine", "runtime"})

log = logging.getLogger(__name__)


async def run_self_tests(context: AgentContext) -> None:
    """Wait for failures in a row, test this node, drain it when it is faulty. Runs until it is cancelled."""
    while True:
        await context.failures.reached.wait()
        result = await test_this_node(context)
        context.failures.clear()
        save_self_test(context.folder, result)
        if result.is_faulty:
            log.error("This node is faulty and leaves the market: %s", result.summary)
            await _drain(context, result)
            continue
        log.warning("Programs failed in a row, and this node is healthy: the programs were at fault. It goes on.")
        await asyncio.sleep(PAUSE_SECONDS_MIN)


async def test_this_node(context: AgentContext) -> SelfTestResult:
    """Run the doctor's checks, and a program of our own on the free devices."""
    # Deferred: a resident agent whose programs do not fail never needs the doctor, and so saves its memory.
    from provider_agent.node.benchmark import probe_free_devices
    from provider_agent.node.doctor import examine

    log.warning("%s programs in a row failed here; this node tests itself.", context.failures.in_a_row)
    findings = [each for each in await examine(context.folder) if each.check in OF_THIS_COMPUTER]
    wrong = [(f"{each.check}: {each.found}", each.fix) for each in findings if each.verdict == "FIX"]
    wrong += [(f"device {uuid}: {fault}", "see `souk-agent doctor`") for uuid, fault in context.faults.items()]
    if not wrong:
        try:
            await probe_free_devices(context, seconds=PROBE_SECONDS)
        except (AgentError, OSError, TimeoutError, KeyError, ValueError) as error:
            text = str(error)[-FINDING_CHARACTERS_MAX:]
            wrong.append((f"the probe failed: {text}", "souk-agent logs; souk-agent doctor"))
    summary = "; ".join(what for what, _ in wrong) or "nothing is wrong with this node"
    return SelfTestResult(
        at=datetime.now(UTC).isoformat(),
        is_faulty=bool(wrong),
        summary=f"faulty: {summary}" if wrong else summary,
        fixes=[fix for _, fix in wrong if fix],
    )


async def _drain(context: AgentContext, result: SelfTestResult) -> None:
    """Drain this node; repeat until the server has answered, however long that takes."""
    request = DrainRequest(reason=result.summary[:REASON_CHARACTERS_MAX])
    while True:
        try:
            await with_retries(lambda: context.client.change_standing("drain", request))
            return
        except Retryable as error:
            log.warning("The marketplace does not know yet that this node is faulty: %s", error)
        except AgentError as error:
            log.error("The marketplace refused to drain this node: %s", error)
            return
        await asyncio.sleep(REPORT_SECONDS)

"""What a check found, each number measured beside the number needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from marketplace.nodes.device_challenges.calibration import DevicePlan
from marketplace.nodes.models import Check, Device
from provider_agent.protocol import Finding

PICKED_BLOCKS: Final = 4  # blocks picked of every device, in every step that reads memory
ROUND_TRIP_SECONDS_MAX: Final = 0.5  # the most that an empty step's round trip takes off the time of a read
NEVER_SECONDS: Final = 1e9
UNLISTED: Final = "missing"  # DeviceFacts.details["kernel"] where the kernel does not know the card


def find_all(check: Check, plans: dict[str, DevicePlan]) -> list[Finding]:
    """Every finding of every device, good or bad."""
    details = dict(Device.objects.filter(node_id=check.node_id).values_list("uuid", "details"))
    found = []
    for uuid, plan in plans.items():
        found += [
            _products(check, uuid, plan),
            _work_seconds(check, uuid, plan),
            _memory_blocks(check, uuid),
            _recall_seconds(check, uuid, plan),
        ]
        kernel = details.get(uuid, {}).get("kernel")
        if kernel is not None:
            found.append(_identity(uuid, str(kernel)))
    return found


def seconds_to_read(steps: Sequence[Mapping[str, Any]]) -> float:
    """Seconds that the quickest read took, less the round trip to the node, which the quickest empty step shows.

    A relay, or memory that has to be computed again, is late in every step; a node that was delayed once is not.
    """
    round_trip = min((float(step["seconds"]) for step in steps if not step["key"]), default=0.0)
    read = min((float(step["seconds"]) for step in steps if step["key"]), default=NEVER_SECONDS)
    return read - min(round_trip, ROUND_TRIP_SECONDS_MAX)


def _products(check: Check, uuid: str, plan: DevicePlan) -> Finding:
    """Opened blocks whose product was right; what was not shown counts as wrong."""
    faults = [check.revealed.get(f"{uuid} {index}", "not shown") for index in range(plan.openings)]
    right, fault = faults.count(""), next((fault for fault in faults if fault), "")
    return _at_least(uuid, "products", right, plan.openings, fault)


def _work_seconds(check: Check, uuid: str, plan: DevicePlan) -> Finding:
    seconds = (
        (check.committed_at - check.begun_at).total_seconds()
        if check.committed_at and check.begun_at
        else NEVER_SECONDS
    )
    return _at_most(
        uuid, "work_seconds", seconds, plan.work_seconds_max, "slower than it was measured, or its model is"
    )


def _memory_blocks(check: Check, uuid: str) -> Finding:
    """Picked blocks that were read back right."""
    steps = [step for step in check.recalls if step["key"]]
    picked = PICKED_BLOCKS * len(steps)
    wrong = sum(len(step["faults"].get(uuid, range(PICKED_BLOCKS))) for step in steps)
    return _at_least(uuid, "memory_blocks", picked - wrong, picked, "memory was not filled" if wrong else "")


def _recall_seconds(check: Check, uuid: str, plan: DevicePlan) -> Finding:
    seconds = seconds_to_read(check.recalls)
    return _at_most(uuid, "recall_seconds", seconds, plan.recall_seconds_max, "memory is elsewhere, or computed again")


def _identity(uuid: str, kernel: str) -> Finding:
    """The kernel knows the card that the driver's library reports."""
    is_listed = kernel != UNLISTED
    message = "" if is_listed else "the driver's library reports a card that the kernel does not list"
    return Finding(
        device=uuid, what="identity", measured=float(is_listed), needed=1, is_passed=is_listed, message=message
    )


def _at_least(uuid: str, what: str, measured: float, needed: float, message: str) -> Finding:
    return Finding(
        device=uuid, what=what, measured=measured, needed=needed, is_passed=measured >= needed, message=message
    )


def _at_most(uuid: str, what: str, measured: float, needed: float, message: str) -> Finding:
    is_passed = measured <= needed
    return Finding(
        device=uuid,
        what=what,
        measured=round(measured, 3),
        needed=round(needed, 3),
        is_passed=is_passed,
        message="" if is_passed else message,
    )

"""A check, step by step: seeds, commitments, openings, memory, verdict. Every time is read from the server's clock.

    begin     DEMANDED  -> BEGUN       the node gets the seeds: the clock runs
    commit    BEGUN     -> COMMITTED   the clock stops; what to reveal is chosen only now
    reveal                             each block is checked by proofs.find_fault, outside any transaction
    filled    COMMITTED -> RECALLING   the node gets the first key
    recall                             empty steps measure the round trip, the others how fast memory is read
    finish    RECALLING -> PASSED | FAILED

A repeated request gets the answer it got before; another answer to the same demand is refused. In shadow mode a check
is recorded and shown; in enforce mode a node that fails is suspended, checked again within minutes, and quarantined
after QUARANTINE_FAILURES in a row: verdicts.py.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
import secrets
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from marketplace.foundation import clock
from marketplace.foundation.errors import StateConflict
from marketplace.foundation.states import advance
from marketplace.nodes.device_challenges.calibration import DevicePlan
from marketplace.nodes.device_challenges.proofs import Revealed, find_fault, find_wrong_blocks
from marketplace.nodes.device_checks.findings import PICKED_BLOCKS, find_all
from marketplace.nodes.device_checks.verdicts import finish, plans_of, verdict_of
from marketplace.nodes.errors import BadAnswer, CheckAnswered, CheckOver
from marketplace.nodes.models import Check, Node
from marketplace.nodes.states import CHECK_LIVE, CheckState
from provider_agent.protocol import (
    CheckCommit,
    CheckOpen,
    CheckRecall,
    CheckReveal,
    CheckTask,
    DeviceTask,
    RecallStep,
)

logger = logging.getLogger(__name__)

BEGIN_SECONDS_MAX: Final = 600  # from the demand to the node's first request; loading torch may be slow
ANSWER_SECONDS_MAX: Final = 900  # from the node's first request to its last
RECALL_STEPS: Final = ("empty", "read", "empty", "read", "empty", "read")
KEY_BYTES: Final = 16
ROOT: Final = re.compile(r"[0-9a-f]{64}")
ENDS: Final = (CheckState.PASSED, CheckState.FAILED)


def begin(node: Node, check_id: UUID) -> CheckTask:
    """The seeds of all devices; the first request starts the clock, a repeated one does not move it."""
    check = _find(node, check_id)
    if check.state == CheckState.DEMANDED:
        advance(check, CheckState.BEGUN, actor=_actor(node), begun_at=clock.now())
    _expect(check, CheckState.BEGUN)
    names = DeviceTask.model_fields
    tasks = [
        DeviceTask(uuid=uuid, **{name: value for name, value in plan.items() if name in names})
        for uuid, plan in check.plan.items()
    ]
    return CheckTask(check_id=check.pk, devices=tasks)


def commit(node: Node, check_id: UUID, message: CheckCommit, *, received_at: datetime) -> CheckOpen:
    """Stop the clock, and only then choose what must be shown."""
    check = _find(node, check_id)
    roots = {device.uuid: device.roots for device in message.devices}
    if check.state == CheckState.BEGUN:
        _check_roots(check, roots)
        openings = {uuid: _choose(plan) for uuid, plan in plans_of(check).items()}
        advance(
            check,
            CheckState.COMMITTED,
            only_from=[CheckState.BEGUN],
            actor=_actor(node),
            committed_at=received_at,
            roots=roots,
            openings=openings,
        )
    _expect(check, CheckState.COMMITTED)
    if roots != check.roots:
        raise CheckAnswered
    return CheckOpen(openings=check.openings)


def reveal(node: Node, check_id: UUID, message: CheckReveal) -> None:
    """Check one opened block and keep what was wrong with it; the first answer to an opening counts."""
    check = _find(node, check_id)
    _expect(check, CheckState.COMMITTED)
    plan = plans_of(check).get(message.uuid)
    if plan is None or message.index >= len(check.openings[message.uuid]):
        raise BadAnswer(problem="nothing was to be shown at that place")
    round_number, block = check.openings[message.uuid][message.index]
    fields = ("before", "after", "before_hashes", "after_hashes")
    revealed = Revealed(**{name: _bytes(getattr(message, name)) for name in fields})
    fault = find_fault(plan.chain, check.roots[message.uuid], round_number, block, revealed)
    with transaction.atomic():
        locked = Check.objects.select_for_update().get(pk=check.pk)
        _expect(locked, CheckState.COMMITTED)
        locked.revealed.setdefault(f"{message.uuid} {message.index}", fault)
        locked.save(update_fields=["revealed"])


def begin_recall(node: Node, check_id: UUID) -> RecallStep:
    """The first step of reading memory back; sent once the agent reports that it is full."""
    check = _find(node, check_id)
    if check.state == CheckState.COMMITTED:
        advance(check, CheckState.RECALLING, actor=_actor(node), recalls=[_new_step(0)])
    _expect(check, CheckState.RECALLING)
    return _current_step(check)


def recall(node: Node, check_id: UUID, message: CheckRecall, *, received_at: datetime) -> RecallStep:
    """Take one step's answer; returns the next step or the verdict. The first answer to a step counts."""
    check = _find(node, check_id)
    if check.state in ENDS:
        return RecallStep(step=message.step, verdict=verdict_of(check))
    _expect(check, CheckState.RECALLING)
    number = len(check.recalls) - 1
    if message.step < number:
        return _current_step(check)
    if message.step > number:
        raise BadAnswer(problem=f"step {message.step} was not sent yet")
    step = check.recalls[number]
    seconds = (received_at - datetime.fromisoformat(step["told_at"])).total_seconds()
    sums = {device.uuid: _bytes(device.sums) for device in message.devices}
    faults = _read_faults(check, step["key"], sums) if step["key"] else {}
    answered = {**step, "seconds": seconds, "faults": faults}
    is_last = number + 1 == len(RECALL_STEPS)
    with transaction.atomic():
        locked = Check.objects.select_for_update().get(pk=check.pk)
        _expect(locked, CheckState.RECALLING)
        if len(locked.recalls) - 1 == number and "seconds" not in locked.recalls[number]:
            locked.recalls = [*locked.recalls[:-1], answered, *([] if is_last else [_new_step(number + 1)])]
            locked.save(update_fields=["recalls"])
    if not is_last:
        return _current_step(locked)
    finish(locked, find_all(locked, plans_of(locked)))
    return RecallStep(step=message.step, verdict=verdict_of(locked))


def expire_overdue() -> list[UUID]:
    """Fail the checks that were not answered in time: not answering must not be better than failing."""
    now = clock.now()
    never_begun = Q(state=CheckState.DEMANDED, demanded_at__lt=now - timedelta(seconds=BEGIN_SECONDS_MAX))
    begun_live = [state for state in CHECK_LIVE if state != CheckState.DEMANDED]
    not_ended = Q(state__in=begun_live, begun_at__lt=now - timedelta(seconds=ANSWER_SECONDS_MAX))
    ended = []
    for check in Check.objects.filter(never_begun | not_ended).select_related("node"):
        try:
            finish(check, [], reason="unanswered")
        except StateConflict:
            continue
        ended.append(check.node_id)
    return ended


def _find(node: Node, check_id: UUID) -> Check:
    """The node's own check: another node's is none."""
    check = Check.objects.filter(pk=check_id, node_id=node.pk).select_related("node").first()
    if check is None:
        raise CheckOver(state="unknown")
    return check


def _expect(check: Check, state: CheckState) -> None:
    if check.state != state:
        raise CheckOver(state=check.state)


def _actor(node: Node) -> str:
    return f"node:{node.pk}"


def _check_roots(check: Check, roots: dict[str, list[str]]) -> None:
    if set(roots) != set(check.plan):
        raise BadAnswer(problem="every device of the check answers once, and no other")
    for uuid, plan in plans_of(check).items():
        if len(roots[uuid]) != plan.rounds + 1 or not all(ROOT.fullmatch(root) for root in roots[uuid]):
            raise BadAnswer(problem=f"{uuid}: {plan.rounds + 1} SHA-256 in hex are needed")


def _choose(plan: DevicePlan) -> list[list[int]]:
    """Rounds and blocks, by the system's randomness: nothing that was sent before predicts them."""
    return [[1 + secrets.randbelow(plan.rounds), secrets.randbelow(plan.grid)] for _ in range(plan.openings)]


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadAnswer(problem="bytes that are not base64") from None


def _new_step(number: int) -> dict[str, Any]:
    key = secrets.token_hex(KEY_BYTES) if RECALL_STEPS[number] == "read" else ""
    return {"key": key, "told_at": clock.now().isoformat()}


def _current_step(check: Check) -> RecallStep:
    return RecallStep(step=len(check.recalls) - 1, key=check.recalls[-1]["key"])


def _read_faults(check: Check, key: str, sums: dict[str, bytes]) -> dict[str, list[int]]:
    """Of every device the picked blocks, then those of them that were read back wrong."""
    faults = {}
    for uuid, plan in plans_of(check).items():
        picked = [secrets.randbelow(plan.memory_blocks) for _ in range(PICKED_BLOCKS)]
        if len(sums.get(uuid, b"")) != plan.memory_blocks * 4:
            faults[uuid] = picked
            continue
        faults[uuid] = find_wrong_blocks(
            plan.seed, key, sums[uuid], picked, block_words=plan.memory_block_words, passes=plan.memory_passes
        )
    return faults

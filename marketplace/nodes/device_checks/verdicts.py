"""The end of a device check: the verdict, and what follows from it for the node.

In shadow mode a check is recorded and shown. In enforce mode a node that fails is suspended, checked again within
minutes, and quarantined after QUARANTINE_FAILURES in a row.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import F

from marketplace.foundation import clock
from marketplace.foundation.states import advance
from marketplace.nodes.device_challenges.calibration import DevicePlan
from marketplace.nodes.device_checks import demands
from marketplace.nodes.errors import CheckOver
from marketplace.nodes.inventory.devices import record_shown
from marketplace.nodes.models import Check, Node
from marketplace.nodes.offering import availability
from marketplace.nodes.states import CheckState, NodeState
from provider_agent.protocol import CheckVerdict, Finding

logger = logging.getLogger(__name__)

QUARANTINE_FAILURES: Final = 3


def finish(check: Check, findings: list[Finding], *, reason: str = "") -> Check:
    """The verdict, and what follows from it for the node; raises StateConflict where it has one."""
    is_passed = bool(findings) and all(finding.is_passed for finding in findings)
    failed = next((finding.what for finding in findings if not finding.is_passed), "")
    now, node = clock.now(), check.node
    with transaction.atomic():
        advance(
            check,
            CheckState.PASSED if is_passed else CheckState.FAILED,
            reason=reason or failed,
            findings=[finding.model_dump() for finding in findings],
            ended_at=now,
        )
        locked = Node.objects.select_for_update().get(pk=node.pk)
        fields = _passed(locked, now) if is_passed else _failed(locked, check, now)
        Node.objects.filter(pk=node.pk).update(wanted_check_id=None, **fields)
        if is_passed:
            shown = {uuid: plan.flops / _work_seconds(check) for uuid, plan in plans_of(check).items()}
            record_shown(locked, shown)
    node.refresh_from_db()
    _log(check, node)
    if check.is_enforced and node.checks_failed_in_row >= QUARANTINE_FAILURES and node.state != NodeState.QUARANTINED:
        availability.quarantine(node, actor="system", reason="verification")
    return check


def verdict_of(check: Check) -> CheckVerdict:
    """For the provider: each number measured, beside the number needed."""
    return CheckVerdict(check_id=check.pk, state=check.state, findings=[Finding(**one) for one in check.findings])


def plans_of(check: Check) -> dict[str, DevicePlan]:
    """Of each device, the work that the check demands."""
    return {uuid: DevicePlan(**plan) for uuid, plan in check.plan.items()}


def _passed(node: Node, now: datetime) -> dict[str, Any]:
    node.checks_passed += 1
    node.checks_failed_in_row = 0
    offer = node.offers.filter(is_open=True).first()
    seconds = demands.next_check_seconds(node, offer.price_usd_micros_per_device_hour if offer else 0)
    return {
        "checks_passed": F("checks_passed") + 1,
        "checks_failed_in_row": 0,
        "verified_at": now,
        "suspended_at": None,
        "next_check_at": now + timedelta(seconds=seconds),
    }


def _failed(node: Node, check: Check, now: datetime) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "checks_failed": F("checks_failed") + 1,
        "checks_failed_in_row": F("checks_failed_in_row") + 1,
        "next_check_at": now + timedelta(seconds=demands.RETEST_SECONDS),
    }
    return fields | ({"suspended_at": node.suspended_at or now} if check.is_enforced else {})


def _log(check: Check, node: Node) -> None:
    ids = {"node_id": str(node.pk), "check_id": str(check.pk)}
    if check.state == CheckState.PASSED:
        logger.info("A check was passed.", extra=ids)
        return
    consequence = "the node is suspended" if check.is_enforced else "nothing follows in shadow mode"
    failed = [one for one in check.findings if not one["is_passed"]]
    logger.warning("A check failed (%s): %s.", check.reason, consequence, extra=ids | {"failed_findings": failed})


def _work_seconds(check: Check) -> float:
    if check.begun_at is None or check.committed_at is None:
        raise CheckOver(state=check.state)
    return max((check.committed_at - check.begun_at).total_seconds(), 1e-3)

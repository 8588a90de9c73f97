"""When a check is demanded of a node: on joining, at random while idle, again soon after a failure.

    next = 6 h x history / price x a random factor between 0.5 and 1.5
    history   1 for a new node, up to 4 as checks are passed, 1 again after a failure
    price     the offer's price a device and hour over $0.50, between 0.5 and 4: dear nodes are checked more often

`jobs` has the nodes that hold a lease: a check never runs beside one.
"""

from __future__ import annotations

import hashlib
import logging
import random
import secrets
from collections.abc import Collection
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from marketplace.foundation import clock
from marketplace.foundation.errors import StateConflict
from marketplace.foundation.ids import new_id
from marketplace.foundation.states import advance, record_birth
from marketplace.nodes.device_challenges import calibration
from marketplace.nodes.models import Check, Node
from marketplace.nodes.states import CHECK_LIVE, CheckState, NodeState

logger = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 6 * 3600
HISTORY_CHECKS: Final = 10  # passed checks after which the interval has doubled
HISTORY_MAX: Final = 4.0
PRICE_USD_MICROS_USUAL: Final = 500_000
PRICE_FACTOR_MIN, PRICE_FACTOR_MAX = 0.5, 4.0
RETEST_SECONDS: Final = 180
WITHDRAWN_SECONDS: Final = 600
CHECKS_PER_SWEEP_MAX: Final = 50
SEED_BYTES: Final = 32


def demand_due(busy_node_ids: Collection[UUID]) -> list[UUID]:
    """Demand a check of every node whose turn it is; returns the nodes to wake."""
    if settings.SOUK_VERIFICATION == "off":
        return []
    is_due = Q(next_check_at=None) | Q(next_check_at__lte=clock.now())
    there = [NodeState.ONLINE, NodeState.DRAINING]
    free = Node.objects.filter(wanted_check_id=None, wanted_probe_id=None)
    due = free.filter(is_due, state__in=there, measured_at__isnull=False)
    demanded = []
    for node in due.exclude(pk__in=busy_node_ids).order_by("next_check_at")[:CHECKS_PER_SWEEP_MAX]:
        if demand(node) is not None:
            demanded.append(node.pk)
    return demanded


def demand(node: Node) -> Check | None:
    """A check of all healthy devices of the node at once; None where one is live or there is nothing to check."""
    with transaction.atomic():
        Node.objects.select_for_update().get(pk=node.pk)
        devices = list(node.devices.filter(is_healthy=True).exclude(flops_per_second={}))
        if not devices or node.checks.filter(state__in=CHECK_LIVE).exists():
            return None
        check_id, root = new_id(), secrets.token_hex(SEED_BYTES)
        plan = {
            device.uuid: calibration.plan_for(
                device, device_seed(root, node.pk, device.uuid, check_id), devices=len(devices)
            ).as_dict()
            for device in devices
        }
        check = Check.objects.create(
            id=check_id,
            node=node,
            seed=root,
            plan=plan,
            is_enforced=settings.SOUK_VERIFICATION == "enforce",
            demanded_at=clock.now(),
        )
        record_birth(check, data={"node_id": node.pk, "devices": len(devices)})
        Node.objects.filter(pk=node.pk).update(wanted_check_id=check.pk)
    logger.info("A check was demanded.", extra={"node_id": str(node.pk), "check_id": str(check.pk)})
    return check


def make_due(nodes: QuerySet[Node]) -> int:
    """Their next check is due now; returns the number of nodes."""
    return nodes.exclude(measured_at=None).update(next_check_at=clock.now())


def device_seed(root: str, node_id: UUID, device_uuid: str, check_id: UUID) -> str:
    """What a device's work comes from: no other device, node or check has the same."""
    return hashlib.sha256(f"souk-check-v1\n{root}\n{node_id}\n{device_uuid}\n{check_id}".encode()).hexdigest()


def withdraw_where_busy(busy_node_ids: Collection[UUID]) -> list[UUID]:
    """End the live checks of nodes that hold a lease, or are no longer online; neither passed nor failed."""
    is_away = ~Q(node__state__in=[NodeState.ONLINE, NodeState.DRAINING])
    live = Check.objects.filter(is_away | Q(node_id__in=busy_node_ids), state__in=CHECK_LIVE)
    return [check.node_id for check in live.select_related("node") if _withdraw(check)]


def next_check_seconds(node: Node, price_usd_micros: int) -> float:
    """How long until the node's next check, after one that it passed."""
    history = 1.0 if node.checks_failed_in_row else 1 + node.checks_passed / HISTORY_CHECKS
    price = price_usd_micros / PRICE_USD_MICROS_USUAL
    factor = min(history, HISTORY_MAX) / min(max(price, PRICE_FACTOR_MIN), PRICE_FACTOR_MAX)
    return INTERVAL_SECONDS * factor * random.uniform(0.5, 1.5)


def _withdraw(check: Check) -> bool:
    now = clock.now()
    try:
        with transaction.atomic():
            advance(check, CheckState.WITHDRAWN, reason="lease_or_away", ended_at=now)
            Node.objects.filter(pk=check.node_id, wanted_check_id=check.pk).update(
                wanted_check_id=None, next_check_at=now + timedelta(seconds=WITHDRAWN_SECONDS)
            )
    except StateConflict:
        return False
    return True

"""A training that prepares on its node before its first step: what is shown of it, and when it stands still.

    advance_preparing   the newest `preparing` event as the job's progress shows it, and when it last moved
    is_still            whether a running lease of our own runtime has neither moved nor started for too long

From its first `preparing` event on such a lease is metered. How far it is, is its node's word; so there are two limits:
PREPARE_SECONDS_MAX since anything moved, and PREPARING_SECONDS_MAX in all, after which nothing counts as a move. Who
passes one of them is not paid (`reports.lose_still`). The job's cap and deadline hold as at any other time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from jobs.models import Lease
from jobs.states import LEASE_LIVE
from marketplace.foundation import clock
from provider_agent.protocol import AttemptState

PREPARE_SECONDS_MAX: Final = 45 * 60  # without a sign that anything moved; the agent has shorter deadlines of its own
PREPARING_SECONDS_MAX: Final = 24 * 3600  # from an attempt's first `preparing` event to the last one that counts


def advance_preparing(before: Mapping[str, Any] | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What is shown after an event with these fields, as `contract.read_preparing` returns them.

    Beside the fields `since`, when the attempt's first one came, and `moved_at`, when the newest one that moved did:
    both ISO, by the server's clock. An event that moved nothing changes nothing.
    """
    now = clock.now()
    if before is None:
        return {**fields, "since": now.isoformat(), "moved_at": now.isoformat()}
    is_late = now - datetime.fromisoformat(before["since"]) > timedelta(seconds=PREPARING_SECONDS_MAX)
    if is_late or not _has_moved(before, fields):
        return dict(before)
    return {**fields, "since": before["since"], "moved_at": now.isoformat()}


def is_still(lease: Lease) -> bool:
    """Whether a running lease of our own runtime prepares, and nothing has moved for PREPARE_SECONDS_MAX.

    Of a gang it is the first node's: what is shown is its word, and the others end with it, not at fault. One that was
    ordered to stop ends for that reason.
    """
    attempt = lease.attempt
    progress, spec = attempt.job.progress, attempt.job.spec
    found = progress.get("preparing")
    if lease.state not in LEASE_LIVE or lease.reported_state != AttemptState.RUNNING or spec.get("command"):
        return False
    if lease.node_rank != 0 or lease.stop_reason:
        return False
    if found is None or progress.get("attempt") != attempt.number:
        return False
    return clock.now() - datetime.fromisoformat(found["moved_at"]) > timedelta(seconds=PREPARE_SECONDS_MAX)


def _has_moved(before: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """Where the amount is known it must change: a program that only counts seconds does no work."""
    if before["what"] != fields["what"] or ("done" in before) != ("done" in fields):
        return True
    if "done" in fields:
        return (before["done"], before.get("unit")) != (fields["done"], fields.get("unit"))
    return bool(before["seconds"] != fields["seconds"])

"""Spans of a lease's meter that are not paid, as [first ms, last ms or None, ms without a meter]: `Lease.unpaid`.

open_unpaid     from this reading on the lease is not paid
close_unpaid    all leases of an attempt are paid again
drop_unpaid     the open spans never were: the gang trained all the time
"""

from __future__ import annotations

from typing import Final

from billing.charging import metering
from jobs.models import Attempt, Lease

RECEIPT_AGE_MS_MAX: Final = 120_000


def is_unpaid(lease: Lease) -> bool:
    """Whether a span of its meter that is not paid has begun, and not ended."""
    return bool(lease.unpaid) and lease.unpaid[-1][1] is None


def open_unpaid(lease: Lease, start_ms: int) -> None:
    """Begin one, where none is open, and never before the last one ended."""
    if is_unpaid(lease):
        return
    paid_until = lease.unpaid[-1][1] if lease.unpaid else 0
    lease.unpaid = [*lease.unpaid, [max(start_ms, paid_until), None, _unmetered_ms(lease)]]
    lease.save(update_fields=["unpaid"])


def close_unpaid(attempt: Attempt) -> int:
    """Pay the leases of a locked job's attempt again; returns for how many that is.

    One node that never says that it runs keeps nobody unpaid: a checkpoint of all of them shows that they train, too.
    """
    count = 0
    for lease in filter(is_unpaid, attempt.leases.members()):
        start, _, unmetered_ms = lease.unpaid[-1]
        end = max(start, lease.observed_ms - unmetered_ms)
        lease.unpaid = [*lease.unpaid[:-1], *([[start, end]] if end > start else [])]
        lease.save(update_fields=["unpaid"])
        count += 1
    return count


def drop_unpaid(attempt: Attempt) -> None:
    """Forget the spans of a locked job's attempt that are open."""
    for lease in filter(is_unpaid, attempt.leases.members()):
        lease.unpaid = lease.unpaid[:-1]
        lease.save(update_fields=["unpaid"])


def _unmetered_ms(lease: Lease) -> int:
    """How long the lease was seen running and its meter did not count, as while its agent was away; 0 for a receipt
    that is only as old as receipts are."""
    newest = metering.newest(lease.pk)
    behind_ms = lease.observed_ms - (newest.billable_ms if newest else 0)
    return behind_ms if newest and behind_ms > RECEIPT_AGE_MS_MAX else 0

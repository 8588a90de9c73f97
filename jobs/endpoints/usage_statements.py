"""Token usage statements: an agent's signed count of what its lease answered, compared with the gateways' count.

    accept                   stores a signed statement: the newest is kept, its chain has no gap
    compare                  both counts of one lease, and whether they agree
    is_contested             they do not: the lease's pay is held back until somebody has decided
    raise_contested_alerts   a sweep: an alert for each such lease; where the counts agree again, the pay is released

They agree within TOLERANCE_PERCENT, a little more for what is under way: a request is counted by a gateway when it
has ended, and by an agent when it has come. An agent that states nothing says zero, SILENCE_MAX after the use at the
latest. Where an engine did not report how many tokens an answer took, the agent cannot count them: the gateways say for
which answers that was so, and only their tokens may be missing. Requests without a report (an answer that was cut off,
a second try beside a slow first one) may be more at the agent. So may tokens: a stream that moved has its prompt read
again, which no caller pays; an answer may be whole at the agent as its caller hangs up, and is cut off for the gateway.
A provider gains nothing by them, who is paid by time, and anybody could make them. Neither side counts what gateways
ask for themselves.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Sum

from billing.models import SettlementShare
from billing.notices import alerts
from jobs.errors import JobsError
from jobs.models import Lease, LeaseStatement, LeaseUse, UsageRecord
from marketplace.foundation import clock
from provider_agent.protocol import NO_CONTRACT, ZERO_HASH, ReceiptDomain
from provider_agent.protocol.money.usage_statements import (
    SignedStatement,
    recover_statement_signer,
    statement_digest,
)

TOLERANCE_PERCENT: Final = 1
REQUESTS_SLACK: Final = 20  # such as those that ended while a tunnel broke
TOKENS_SLACK: Final = 20_000
UNDER_WAY: Final = timedelta(minutes=3)  # how old the counts of a statement may be when it arrives
SILENCE_MAX: Final = timedelta(minutes=10)  # that an agent may be behind with its statements
COMPARED_MAX: Final = 2_000  # of those that stated, and of those that were used, in one sweep
COUNTS: Final = ("requests", "without_usage", "input_tokens", "output_tokens")
ALERT: Final = "serve_counts_differ"


log = logging.getLogger(__name__)


class StatementRefused(JobsError):
    message = (
        "The token usage statement of lease {lease_id} is refused: {why}. The newest that is kept is number {seq}."
    )
    code = "statement_refused"


@dataclass(frozen=True)
class Comparison:
    """Both counts of one lease; `agent` is None where it never stated anything."""

    gateways: LeaseUse
    agent: LeaseStatement | None
    differs: str  # what does; empty: they agree


def accept(lease: Lease, signed: SignedStatement) -> int:
    """Keep the lease's next token usage statement; the newest sequence that is kept. A repeat changes nothing.

    Raises StatementRefused.
    """
    statement = signed.statement
    with transaction.atomic():
        Lease.objects.select_for_update(of=("self",)).get(pk=lease.pk)
        newest = LeaseStatement.objects.filter(pk=lease.pk).first()
        seq = newest.seq if newest else 0
        digest = statement_digest(statement, _domain(lease))
        if newest is not None and (statement.seq, digest) == (newest.seq, newest.digest):
            return seq
        if why := _why_not(lease, signed, newest):
            raise StatementRefused(lease_id=str(lease.pk), why=why, seq=seq)
        LeaseStatement.objects.update_or_create(
            lease_id=lease.pk,
            defaults={
                "seq": statement.seq,
                "requests": statement.requests,
                "without_usage": statement.without_usage,
                "input_tokens": statement.input_tokens,
                "output_tokens": statement.output_tokens,
                "digest": digest,
                "prev_digest": statement.prev_digest,
                "signature": signed.signature,
                "signer": lease.node.receipt_address,
                "received_at": clock.now(),
            },
        )
        return statement.seq


def compare(lease: Lease) -> Comparison:
    """What both sides counted, and what of it differs by more than is under way."""
    gateways = LeaseUse.objects.filter(pk=lease.pk).first() or LeaseUse(lease_id=lease.pk)
    agent = LeaseStatement.objects.filter(pk=lease.pk).first()
    stated = agent or LeaseStatement(requests=0, without_usage=0, input_tokens=0, output_tokens=0)
    late = _under_way(lease, agent)
    # What either side's count may be below the other's, besides the tolerance: (figure, agent's, gateways', slack)
    rules = [
        ("requests", 0, stated.without_usage, REQUESTS_SLACK),
        ("input_tokens", gateways.unreported_input_tokens, None, TOKENS_SLACK),
        ("output_tokens", gateways.unreported_output_tokens, None, TOKENS_SLACK),
    ]
    for name, agent_below, gateways_below, slack in rules:
        ours, theirs = getattr(gateways, name), getattr(stated, name)
        below = agent_below if theirs < ours else gateways_below
        if below is None:
            continue
        off = max(0, abs(ours - theirs) - below)
        if off * 100 > max(ours, theirs) * TOLERANCE_PERCENT + (slack + late[name]) * 100:
            what = name.replace("_", " ")
            return Comparison(gateways, agent, f"{what}: the agent says {theirs}, the gateways {ours}")
    return Comparison(gateways, agent, "")


def is_contested(lease: Lease) -> bool:
    """Whether the two counts of the lease differ."""
    return bool(compare(lease).differs)


def raise_contested_alerts() -> int:
    """Raise an alert for each lease whose counts differ, and close those of leases where they agree again; how many."""
    since = clock.now() - timedelta(days=1)
    stated = LeaseStatement.objects.filter(received_at__gt=since).order_by("-received_at")
    used = LeaseUse.objects.filter(counted_at__gt=since).order_by("-counted_at")
    newest = {pk for rows in (stated, used) for pk in rows.values_list("pk", flat=True)[:COMPARED_MAX]}
    leases = Lease.objects.filter(pk__in=newest)
    count = 0
    for lease in leases.select_related("node"):
        differs = compare(lease).differs
        if differs:
            alert_contested(lease, differs)
            count += 1
        elif alerts.close(f"{ALERT}/{lease.pk}"):
            settle_contested(lease.pk, actor="the counts, which agree again")
    return count


def alert_contested(lease: Lease, differs: str) -> None:
    """Raise the lease's alert."""
    message = f"Lease {lease.pk} of node {lease.node_id}: {differs}. Its pay is held back."
    alerts.raise_once(f"{ALERT}/{lease.pk}", kind=ALERT, subject=lease.pk, message=message)


def settle_contested(lease_id: UUID, *, actor: str) -> int:
    """Somebody has looked, and the lease's pay is released in its time after all; of how many shares.

    Where the customer contests it, or a fine was taken of it, that decides instead.
    """
    held = SettlementShare.objects.filter(lease_id=lease_id, is_disputed=True, released_at=None, dispute=None)
    count = held.exclude(takings__isnull=False).update(is_disputed=False)
    log.info(
        "The pay of a lease whose counts differ was let go. lease_id=%s actor=%s shares=%s", lease_id, actor, count
    )
    return count


def _why_not(lease: Lease, signed: SignedStatement, newest: LeaseStatement | None) -> str:
    statement, seq = signed.statement, newest.seq if newest else 0
    falls = [name for name in COUNTS if newest is not None and getattr(statement, name) < getattr(newest, name)]
    rules = (
        (statement.lease_id != lease.pk, "it is of another lease"),
        (_signer_of(lease, signed) != lease.node.receipt_address.lower(), "another key signed it"),
        (statement.seq <= seq, "another one with its number, or a later one, is kept"),
        (statement.seq > seq + 1, "it leaves a gap"),
        (statement.prev_digest != (newest.digest if newest else ZERO_HASH), "it does not follow the one before"),
        (bool(falls), f"{', '.join(falls)} fell"),
    )
    return next((why for is_wrong, why in rules if is_wrong), "")


def _signer_of(lease: Lease, signed: SignedStatement) -> str:
    try:
        return recover_statement_signer(signed, _domain(lease)).lower()
    except ValueError:
        return ""


def _domain(lease: Lease) -> ReceiptDomain:
    return lease.payment_terms.domain if lease.payment_terms else NO_CONTRACT


def _under_way(lease: Lease, agent: LeaseStatement | None) -> dict[str, int]:
    """What the gateways counted since the agent's newest statement, or shortly before: it could not know of it.

    Of a silent agent, no more than the newest use: else one statement would agree to all that comes after it. A lease
    that ended is measured from its end on: a node that died states its last seconds never.
    """
    oldest = (lease.ended_at or clock.now()) - SILENCE_MAX
    since = max(agent.received_at if agent else oldest, oldest) - UNDER_WAY
    lately = UsageRecord.objects.filter(lease_id=lease.pk, at__gt=since)
    sums = lately.aggregate(requests=Count("pk"), input_tokens=Sum("input_tokens"), output_tokens=Sum("output_tokens"))
    return {name: int(sum_ or 0) for name, sum_ in sums.items()}

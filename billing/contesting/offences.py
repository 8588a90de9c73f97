"""Breaches of providers: each is recorded once, and costs what the table of penalties has for it.

judge     a sweep: ends and contradictory receipts that no offence was recorded for, of settled jobs (their pay is
          then there to be taken), and of those that a wallet's hold pays, at once
record    pending pay, then reserve, then stake -> slash_pool -> the customer; never more than is there. The
          rest is taken from the provider's stake in a contract (billing/chain/stakes.py)
release_rest   what an offence left of a share, when its challenge window is over
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid5

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Sum

from billing import prices
from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_account, open_accounts
from billing.charging import promotions
from billing.charging.releasing import lock_shares, release_shares
from billing.contesting.penalties import EQUIVOCATION, PENALTIES
from billing.errors import OffenceUnknown
from billing.models import (
    Account,
    Dispute,
    EndRecord,
    EscrowHold,
    Offence,
    OffenceTaking,
    ReceiptEvidence,
    Settlement,
    SettlementShare,
)
from billing.models.ledger import USD_ASSET_ID
from billing.money import BPS_WHOLE
from billing.notices import alerts
from billing.states import DisputeState
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures
from marketplace.foundation.ids import new_id

OFFENCE_NAMESPACE: Final = UUID("5f0c2a52-6d0e-4c8e-9a55-736f756b0002")
SHARES_MAX: Final = 1_000  # looked at for one offence
JUDGED_MAX: Final = 500  # in one sweep


@dataclass(frozen=True)
class Victim:
    """Whose job it was, and which lease."""

    customer_id: UUID
    job_id: UUID
    lease_id: UUID


def record(
    provider_id: UUID,
    offence_id: UUID,
    reason: str,
    evidence: Mapping[str, Any],
    *,
    claimed: int,
    victim: Victim | None = None,
    asset_id: int = USD_ASSET_ID,
) -> Offence:
    """Fine the provider by the table, once per offence id; a repeat returns the first and moves nothing.

    `claimed`: what its receipts claimed, in base units. Raises OffenceUnknown, PriceUnavailable.
    """
    rule = PENALTIES.get(reason)
    if rule is None:
        raise OffenceUnknown(reason=reason)
    penalty = rule.amount(claimed, prices.current(asset_id))
    with transaction.atomic():
        # 1. One offence of a provider at a time.
        _lock_provider(provider_id)
        present = Offence.objects.filter(pk=offence_id).first()
        if present is not None:
            return present
        if victim:
            promotions.lock_job(victim.job_id)
        # 2. Find the money, under the locks of where it lies.
        sources, takings = _find(provider_id, asset_id, penalty)
        taken = sum(amount for _, amount in sources)
        compensated = taken * rule.customer_bps // BPS_WHOLE if victim else 0
        # 3. Keep it, and move it.
        offence = Offence.objects.create(
            id=offence_id,
            provider_id=provider_id,
            customer_id=victim.customer_id if victim else None,
            job_id=victim.job_id if victim else None,
            lease_id=victim.lease_id if victim else None,
            reason=reason,
            evidence=dict(evidence),
            asset_id=asset_id,
            penalty=penalty,
            taken=taken,
            compensated=compensated,
            group_id=new_id() if taken else None,
        )
        for share, amount in takings:
            OffenceTaking.objects.create(offence=offence, share=share, amount=amount)
        SettlementShare.objects.filter(pk__in=[share.pk for share, _ in takings]).update(is_disputed=True)
        _post(offence, sources)
        if victim:  # what was paid with given credit comes back as that, not as cash
            promotions.return_refunded(victim.job_id)
        if taken < penalty:
            message = f"Provider {provider_id} owes {penalty} base units for {reason}; only {taken} were found."
            alerts.raise_once(f"offence/{offence_id}", kind="offence_unpaid", subject=provider_id, message=message)
        return offence


def judge(limit: int = JUDGED_MAX) -> int:
    """Record the offences that nobody recorded yet; how many."""
    settled = Exists(Settlement.objects.filter(job_id=OuterRef("job_id"))) | Exists(
        EscrowHold.objects.filter(pk=OuterRef("job_id"))
    )
    fined = [reason for reason in PENALTIES if reason != EQUIVOCATION]
    ended = EndRecord.objects.filter(settled, fault="provider", reason__in=fined)
    count = 0
    known = Offence.objects.filter(lease_id=OuterRef("lease_id"), reason=OuterRef("reason"))
    for end in ended.filter(~Exists(known)).order_by("ended_at")[:limit]:
        offence_id = uuid5(OFFENCE_NAMESPACE, f"{end.reason}/{end.lease_id}")
        with log_failures("An ending could not be judged.", lease_id=str(end.lease_id)):
            _judge_end(end, offence_id, end.reason, {"end_record": str(end.pk), "receipt": end.receipt_digest})
            count += 1
    judged = Exists(Offence.objects.filter(pk=OuterRef("pk")))
    for found in ReceiptEvidence.objects.filter(settled, ~judged).order_by("found_at")[:limit]:
        lease_end = EndRecord.objects.filter(lease_id=found.lease_id).first()
        if lease_end is None:
            continue
        digests = {"seq": found.seq, "accepted": found.accepted_digest, "other": found.other_digest}
        with log_failures("Contradictory receipts could not be judged.", lease_id=str(found.lease_id)):
            _judge_end(lease_end, found.pk, EQUIVOCATION, digests)
            count += 1
    return count


def release_rest(now: datetime | None = None) -> int:
    """Make spendable what offences left of shares whose window is over; how many shares that was."""
    now = now or clock.now()
    with transaction.atomic():
        held = SettlementShare.objects.filter(is_disputed=True, released_at=None, challenge_until__lte=now)
        contested = [DisputeState.OPENED, DisputeState.ANSWERED]
        held = held.filter(Exists(OffenceTaking.objects.filter(share=OuterRef("pk"))))
        shares = lock_shares(held.exclude(dispute__state__in=contested))
        taken = _taken_of(shares)
        return release_shares(shares, {share.pk: share.paid - taken.get(share.pk, 0) for share in shares}, now)


def _judge_end(end: EndRecord, offence_id: UUID, reason: str, evidence: Mapping[str, Any]) -> None:
    victim = Victim(end.customer_id, end.job_id, end.lease_id)
    record(end.provider_id, offence_id, reason, evidence, claimed=end.claimed, victim=victim, asset_id=end.asset_id)


def _find(
    provider_id: UUID, asset_id: int, penalty: int
) -> tuple[list[tuple[Account, int]], list[tuple[SettlementShare, int]]]:
    """From which accounts how much, and which shares lose it; in all at most the penalty, and what is there."""
    left, takings = penalty, []
    shares = SettlementShare.objects.filter(
        provider_id=provider_id, settlement__asset_id=asset_id, released_at=None, paid__gt=0
    ).exclude(dispute__state__in=[DisputeState.OPENED, DisputeState.ANSWERED])
    locked_shares = list(shares.order_by("challenge_until", "pk").select_for_update(of=("self",))[:SHARES_MAX])
    # Read again under the locks: waiting for a lock re-checks the share, but not a dispute that was opened meanwhile.
    contested = set(
        Dispute.objects.filter(
            share__in=locked_shares, state__in=[DisputeState.OPENED, DisputeState.ANSWERED]
        ).values_list("share_id", flat=True)
    )
    taken = _taken_of(locked_shares)
    for share in locked_shares:
        if share.pk in contested:
            continue
        amount = min(left, share.paid - taken.get(share.pk, 0))
        if amount > 0:
            takings.append((share, amount))
            left -= amount
        if not left:
            break
    kinds = [AccountKind.PROVIDER_PENDING, AccountKind.PROVIDER_RESERVE, AccountKind.PROVIDER_STAKE]
    opened = open_accounts([AccountName(kind, provider_id, asset_id=asset_id) for kind in kinds])
    # The same locks, in the same order, as the ledger takes: what is read here is still there when it is moved.
    rows = Account.objects.filter(pk__in=[each.pk for each in opened]).order_by("pk").select_for_update(no_key=True)
    locked = {row.pk: row for row in rows}
    sources = []
    pending = sum(amount for _, amount in takings)
    if pending:
        sources.append((opened[0], pending))
    for account in opened[1:]:
        amount = min(left, max(0, locked[account.pk].available))
        if amount and not locked[account.pk].is_frozen:
            sources.append((account, amount))
            left -= amount
    return sources, takings


def _post(offence: Offence, sources: Sequence[tuple[Account, int]]) -> None:
    """The provider's money -> slash_pool -> the customer, as one group."""
    if not sources:
        return
    pool = open_account(AccountKind.SLASH_POOL, asset_id=offence.asset_id)
    moves = [
        ledger.NewTransfer(account, pool, amount, TransferCode.SLASH, job_id=offence.job_id)
        for account, amount in sources
    ]
    if offence.compensated:
        customer = open_account(AccountKind.CUSTOMER_AVAILABLE, offence.customer_id, asset_id=offence.asset_id)
        code = TransferCode.COMPENSATION
        moves.append(ledger.NewTransfer(pool, customer, offence.compensated, code, job_id=offence.job_id))
    ledger.post(moves, group_id=offence.group_id, savepoint=False)


def _taken_of(shares: Sequence[SettlementShare]) -> dict[UUID, int]:
    """What offences took of each, by its id; the caller holds the shares' rows."""
    rows = OffenceTaking.objects.filter(share__in=shares).order_by().values("share_id").annotate(sum=Sum("amount"))
    return {row["share_id"]: int(row["sum"]) for row in rows}


def _lock_provider(provider_id: UUID) -> None:
    """Billing has no row for a provider, so the lock is advisory, until the commit."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"offences:{provider_id}"])

"""A customer contests what a lease cost; the money waits until a decision.

    open_dispute   provider_pending + fee_revenue -> disputed          (customer, inside the challenge window)
    complain_late  too late for a short window: nothing moves, short windows of this provider end
    answer         the provider's side                                 (provider, until `answer_until`)
    decide         disputed -> customer | provider | platform, exactly (operator, once)
    withdraw       disputed -> provider_pending + fee_revenue          (customer)
    sweep          no answer in time: all of it is the customer's; no decision in time: an alert

The money of each dispute lies in an account of its own, owned by the dispute's id: it is 0 when the dispute is over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Sum

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.charging import challenge_windows, promotions
from billing.errors import DisputeInvalid, DisputeNotFound, NothingToDispute, SplitInvalid
from billing.models import Alert, Dispute, EndRecord, EscrowHold, OffenceTaking, SettlementShare
from billing.notices import alerts
from billing.states import DisputeState
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock
from marketplace.foundation.errors import StateConflict
from marketplace.foundation.exclusive import log_failures
from marketplace.foundation.ids import new_id
from marketplace.foundation.states import advance, record_birth

TEXT_CHARACTERS_MAX: Final = 8_000
ATTACHMENTS_MAX: Final = 20
ATTACHMENT_NAME_CHARACTERS_MAX: Final = 200
SWEEP_MAX: Final = 500
SYSTEM: Final = "system"

_SHA256 = re.compile(r"[0-9a-f]{64}")


def open_dispute(
    *, customer_id: UUID, lease_id: UUID, text: str, attachments: Sequence[Mapping[str, str]] = (), actor: str
) -> Dispute:
    """Freeze what the lease cost and request its provider's answer; once a share, while its challenge window is open.

    Raises NothingToDispute, DisputeInvalid.
    """
    text, listed = _checked(text, attachments)
    with transaction.atomic():
        # 1. The share's row: a release that runs now either had it first, or leaves it alone from here on.
        shares = SettlementShare.objects.select_for_update(of=("self",)).select_related("settlement")
        # Of a lease that is settled in parts, what can be contested the longest and was not yet.
        mine = shares.filter(lease_id=lease_id, settlement__owner_id=customer_id).order_by("-challenge_until", "pk")
        share = mine.filter(dispute=None, charged__gt=0).first() or mine.first()
        now = clock.now()
        if share is None:
            raise NothingToDispute(why=_why_unknown(lease_id, customer_id))
        _check_can_open(share, now)
        taken = OffenceTaking.objects.filter(share=share).aggregate(sum=Sum("amount"))["sum"] or 0
        dispute = Dispute.objects.create(
            share=share,
            job_id=share.settlement.job_id,
            lease_id=lease_id,
            customer_id=customer_id,
            provider_id=share.provider_id,
            asset_id=share.settlement.asset_id,
            paid=share.paid - int(taken),
            fee=share.fee,
            text=text,
            attachments=listed,
            opened_by=actor[:120],
            opened_at=now,
            answer_until=now + timedelta(seconds=settings.SOUK_DISPUTE_ANSWER_SECONDS),
        )
        share.is_disputed = True
        share.save(update_fields=["is_disputed"])
        # 2. The money.
        _move(dispute, freeze=True)
        record_birth(dispute, actor=actor, data={"lease_id": str(lease_id), "amount": str(dispute.amount)})
        return dispute


def complain_late(*, customer_id: UUID, lease_id: UUID) -> Alert | None:
    """Note that a customer contests pay which a short window released, while the usual one would still be open.

    Nothing can be held any more, but its provider gets no further pay early before an operator has looked: else who
    lies would be paid within hours again every day, by customers who notice a day later. None: nothing of the kind.
    """
    now = clock.now()
    usual = now - timedelta(seconds=settings.SOUK_CHALLENGE_SECONDS)
    shares = SettlementShare.objects.filter(lease_id=lease_id, settlement__owner_id=customer_id, dispute=None)
    share = shares.filter(settlement__created_at__gt=usual, challenge_until__lte=now, charged__gt=0).first()
    if share is None:
        return None
    return alerts.raise_once(
        f"{challenge_windows.COMPLAINT}{share.provider_id}",
        kind="late_complaint",
        subject=share.provider_id,
        message=(
            f"A customer contests lease {lease_id}, whose pay a short window has released. This provider's pay waits as"
            " long as everybody's again. Look at the lease, and close this alert if the provider is honest."
        ),
    )


def answer(
    dispute_id: UUID, *, provider_id: UUID, text: str, attachments: Sequence[Mapping[str, str]] = (), actor: str
) -> Dispute:
    """The provider's side of it, once and in time. Raises DisputeNotFound, DisputeInvalid, StateConflict."""
    text, listed = _checked(text, attachments)
    with transaction.atomic():
        dispute = _lock(dispute_id, provider_id=provider_id)
        now = clock.now()
        if dispute.answer_until <= now:
            raise StateConflict(kind="dispute", id=str(dispute_id), to=DisputeState.ANSWERED, state="past its deadline")
        return advance(
            dispute,
            DisputeState.ANSWERED,
            reason="answered",
            actor=actor,
            answer=text,
            answer_attachments=listed,
            answered_by=actor[:120],
            answered_at=now,
            decide_until=now + timedelta(seconds=settings.SOUK_DISPUTE_DECIDE_SECONDS),
        )


def decide(
    dispute_id: UUID, *, to_customer: int, to_provider: int, to_platform: int, text: str, actor: str, reason: str = ""
) -> Dispute:
    """Split what is frozen, to the last unit and once. Raises SplitInvalid, DisputeNotFound, StateConflict."""
    with transaction.atomic():
        dispute = _lock(dispute_id)
        if dispute.state not in {DisputeState.OPENED, DisputeState.ANSWERED}:
            raise StateConflict(kind="dispute", id=str(dispute_id), to=DisputeState.DECIDED, state=dispute.state)
        parts = (to_customer, to_provider, to_platform)
        if min(parts) < 0 or sum(parts) != dispute.amount:
            raise SplitInvalid(amount=str(dispute.amount), sum=str(sum(parts)))
        now = clock.now()
        promotions.lock_job(dispute.job_id)
        _pay_out(dispute, to_customer=to_customer, to_provider=to_provider, to_platform=to_platform)
        SettlementShare.objects.filter(pk=dispute.share_id).update(released_at=now)
        alerts.close(_alert_key(dispute))
        return advance(
            dispute,
            DisputeState.DECIDED,
            reason=reason or "decided",
            actor=actor,
            data={"to_customer": str(to_customer), "to_provider": str(to_provider), "to_platform": str(to_platform)},
            to_customer=to_customer,
            to_provider=to_provider,
            to_platform=to_platform,
            decision=text[:TEXT_CHARACTERS_MAX],
            decided_by=actor[:120],
            closed_at=now,
        )


def withdraw(dispute_id: UUID, *, customer_id: UUID, actor: str) -> Dispute:
    """The customer withdraws it: everything is as before, and the lease cannot be contested again."""
    with transaction.atomic():
        dispute = _lock(dispute_id, customer_id=customer_id)
        advance(dispute, DisputeState.WITHDRAWN, reason="withdrawn", actor=actor, closed_at=clock.now())
        _move(dispute, freeze=False)
        if not OffenceTaking.objects.filter(share_id=dispute.share_id).exists():  # else offences releases the rest
            SettlementShare.objects.filter(pk=dispute.share_id).update(is_disputed=False)
        alerts.close(_alert_key(dispute))
        return dispute


def sweep(now: datetime | None = None) -> int:
    """Give unanswered disputes to their customers, and remind the operators of undecided ones; how many were due."""
    now = now or clock.now()
    silent = Dispute.objects.filter(state=DisputeState.OPENED, answer_until__lte=now).order_by("answer_until")
    count = 0
    for dispute in silent[:SWEEP_MAX]:
        # One that cannot be closed, such as one whose money is frozen, leaves those behind it their turn.
        with (
            suppress(StateConflict),
            log_failures("An unanswered dispute could not be closed.", dispute_id=str(dispute.pk)),
        ):
            decide(
                dispute.pk,
                to_customer=dispute.amount,
                to_provider=0,
                to_platform=0,
                text="The provider did not answer in time.",
                actor=SYSTEM,
                reason="no_answer",
            )
            count += 1
    waiting = Dispute.objects.filter(state=DisputeState.ANSWERED, decide_until__lte=now).order_by("decide_until")
    for dispute in waiting[:SWEEP_MAX]:
        message = f"The dispute of lease {dispute.lease_id} should have been decided by {dispute.decide_until}."
        alerts.raise_once(_alert_key(dispute), kind="dispute_undecided", subject=dispute.pk, message=message)
        count += 1
    return count


def _why_unknown(lease_id: UUID, customer_id: UUID) -> str:
    ended = EndRecord.objects.filter(lease_id=lease_id, customer_id=customer_id).values("job_id")
    if EscrowHold.objects.filter(pk__in=ended).exists():
        return (
            "a contract pays for this lease: challenge it there with `souk escrow challenge`, while its window is open"
        )
    return "there is no settled lease of this id among yours"


def _check_can_open(share: SettlementShare, now: datetime) -> None:
    if Dispute.objects.filter(share=share).exists():
        raise NothingToDispute(why="this lease was contested before")
    if share.released_at is not None or share.challenge_until <= now:
        raise NothingToDispute(why="its challenge window is over")
    if not share.charged:
        raise NothingToDispute(why="nothing was charged for it")


def _checked(text: str, attachments: Sequence[Mapping[str, str]]) -> tuple[str, list[dict[str, str]]]:
    text = text.strip()
    if not text or len(text) > TEXT_CHARACTERS_MAX:
        raise DisputeInvalid(why=f"say in 1 to {TEXT_CHARACTERS_MAX} characters what is wrong")
    if len(attachments) > ATTACHMENTS_MAX:
        raise DisputeInvalid(why=f"at most {ATTACHMENTS_MAX} attachments")
    listed = [{"name": str(each.get("name", "")), "sha256": str(each.get("sha256", ""))} for each in attachments]
    for each in listed:
        if not 0 < len(each["name"]) <= ATTACHMENT_NAME_CHARACTERS_MAX or not _SHA256.fullmatch(each["sha256"]):
            raise DisputeInvalid(why="an attachment has a name, and its SHA-256 as 64 hexadecimal digits")
    return text, listed


def _lock(dispute_id: UUID, **side: UUID) -> Dispute:
    """The dispute under its row lock; one of another organisation is as good as none."""
    dispute = Dispute.objects.select_for_update().filter(pk=dispute_id, **side).first()
    if dispute is None:
        raise DisputeNotFound(dispute_id=str(dispute_id))
    return dispute


def _names(dispute: Dispute) -> tuple[AccountName, AccountName, AccountName]:
    """What is frozen, the provider's pending pay, the platform's fee."""
    asset = dispute.asset_id
    return (
        AccountName(AccountKind.DISPUTED, dispute.pk, asset_id=asset),
        AccountName(AccountKind.PROVIDER_PENDING, dispute.provider_id, asset_id=asset),
        AccountName(AccountKind.FEE_REVENUE, asset_id=asset),
    )


def _move(dispute: Dispute, *, freeze: bool) -> None:
    """Into the dispute's own account, or back to where it came from."""
    frozen, *sources = open_accounts(_names(dispute))
    post = []
    for account, amount in zip(sources, (dispute.paid, dispute.fee), strict=True):
        debit, credit = (account, frozen) if freeze else (frozen, account)
        code = TransferCode.DISPUTE_FROZEN if freeze else TransferCode.DISPUTE_TO_PROVIDER
        if amount:
            post.append(ledger.NewTransfer(debit, credit, amount, code, job_id=dispute.job_id))
    ledger.post(post, group_id=new_id(), savepoint=False)


def _pay_out(dispute: Dispute, *, to_customer: int, to_provider: int, to_platform: int) -> None:
    asset, kind = dispute.asset_id, AccountKind
    parts = [
        (AccountName(kind.CUSTOMER_AVAILABLE, dispute.customer_id, asset_id=asset), to_customer, "TO_CUSTOMER"),
        (AccountName(kind.PROVIDER_AVAILABLE, dispute.provider_id, asset_id=asset), to_provider, "TO_PROVIDER"),
        (AccountName(kind.FEE_REVENUE, asset_id=asset), to_platform, "PLATFORM"),
    ]
    codes = {
        "TO_CUSTOMER": TransferCode.DISPUTE_TO_CUSTOMER,
        "TO_PROVIDER": TransferCode.DISPUTE_TO_PROVIDER,
        "PLATFORM": TransferCode.PLATFORM_FEE,
    }
    paid = [part for part in parts if part[1]]
    frozen, *credits = open_accounts([_names(dispute)[0], *(name for name, _, _ in paid)])
    ledger.post(
        [
            ledger.NewTransfer(frozen, credit, amount, codes[code], job_id=dispute.job_id)
            for credit, (_, amount, code) in zip(credits, paid, strict=True)
        ],
        savepoint=False,
    )
    # What the customer paid with given credit comes back as given credit, after what was paid with money.
    promotions.return_refunded(dispute.job_id)


def _alert_key(dispute: Dispute) -> str:
    return f"dispute/{dispute.pk}"

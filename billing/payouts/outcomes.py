"""Books what a rail reports of a payout, once; the report may come any number of times and in any order.

fate         payout was                  then
under_way    submitted                   its external id is kept
confirmed    submitted                   confirmed: the pending transfer is posted, the mirror follows
failed       reserved or submitted       failed: the pending transfer is voided, exactly the amount is back
returned     submitted or confirmed      (confirmed, then) returned: a new credit of the amount
failed       confirmed                   as returned: the rail revoked its confirmation
confirmed    failed or returned          nothing, and an alert: it may have been paid twice; reconciliation has the sums
absent       anything                    nothing; submission sends it
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db import OperationalError, transaction
from django.db.models import QuerySet

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import open_accounts
from billing.models import Account, Payout, PayoutSettings
from billing.notices import alerts
from billing.payouts import bank_legs, notifying
from billing.payouts.calendar import next_due
from billing.payouts.confirming import confirm, failed_key, name_of, ref_of, stuck_key
from billing.payouts.paying import FAILURES_MAX
from billing.rails import registry
from billing.rails.payouts import Fate, Outcome
from billing.states import PayoutState
from billing.transfer_codes import TransferCode, TransferMode
from marketplace.foundation import clock
from marketplace.foundation.errors import StateConflict
from marketplace.foundation.states import advance
from provider_agent.protocol.backoff import backoff_seconds

ERROR_CHARACTERS_MAX: Final = 500
FAILURE_SECONDS_FIRST: Final = 6 * 3600  # before the next try; doubles with every failure in a row
FAILURE_SECONDS_MAX: Final = 96 * 3600

log = logging.getLogger(__name__)


def apply_outcome(payout_id: UUID, outcome: Outcome, *, actor: str = "system") -> Payout:
    """Move one payout to the state that its rail reports; a webhook, an indexer and our own poll may all call this.

    The payout's row is locked, so that of two who received the same outcome one books it and the other finds it booked.
    Then its provider's settings, and the accounts last: the order of everybody who pays.
    """
    with transaction.atomic():
        payout = Payout.objects.select_for_update(of=("self",)).select_related("pending_transfer").get(pk=payout_id)
        _settings(payout).select_for_update().first()
        payout.checked_at = clock.now()
        if outcome.fate in {Fate.UNDER_WAY, Fate.CONFIRMED}:
            payout.external_id = outcome.external_id or payout.external_id
        payout.save(update_fields=["checked_at", "external_id"])
        state, fate = payout.state, outcome.fate
        if fate in {Fate.CONFIRMED, Fate.RETURNED} and state == PayoutState.RESERVED:
            # A rail that paid what we do not remember to have sent: we died between sending and writing it down.
            advance(payout, PayoutState.SUBMITTED, reason="found_outside", actor=actor)
        if fate in {Fate.CONFIRMED, Fate.RETURNED} and payout.state == PayoutState.SUBMITTED:
            confirm([payout], [outcome], actor=actor)
        if fate == Fate.FAILED and payout.state in {PayoutState.RESERVED, PayoutState.SUBMITTED}:
            _fail(payout, outcome, actor=actor)
        elif fate in {Fate.RETURNED, Fate.FAILED} and payout.state == PayoutState.CONFIRMED:
            _return(payout, outcome, actor=actor)
        elif fate == Fate.CONFIRMED and payout.state in {PayoutState.FAILED, PayoutState.RETURNED}:
            _alert_contradiction(payout)
        if outcome.bank is not None:
            bank_legs.record(payout, outcome.bank)
        return payout


def apply_outcomes(payouts: Sequence[Payout], outcomes: Mapping[str, Outcome], *, actor: str = "system") -> int:
    """apply_outcome for each of whom something is known; how many moved. One that cannot be applied stops no other.

    Those that arrived are confirmed in one transaction, for what costs most is a commit a payout.
    """
    known = [payout for payout in payouts if str(payout.pk) in outcomes]
    arrived = [
        payout
        for payout in known
        if outcomes[str(payout.pk)].fate == Fate.CONFIRMED and payout.state == PayoutState.SUBMITTED
    ]
    done: set[UUID] = set()
    try:
        done = {payout.pk for payout in _confirm_together(arrived, outcomes, actor=actor)}
    except Exception:  # whoever it was is found out below
        log.exception("Payouts could not be confirmed at once; each is tried alone.")
    moved = len(done)
    for payout in known:
        outcome = outcomes[str(payout.pk)]
        if payout.pk in done or outcome.fate == Fate.ABSENT:  # what the rail does not know, its call sends again
            continue
        try:
            moved += apply_outcome(payout.pk, outcome, actor=actor).state != payout.state
        except (StateConflict, OperationalError):
            raise  # the caller's to try again
        except Exception as error:
            log.exception("What a rail reported of a payout cannot be booked.", extra={"payout_id": str(payout.pk)})
            _alert_unbookable(payout, error)
    return moved


def _confirm_together(payouts: Sequence[Payout], outcomes: Mapping[str, Outcome], *, actor: str) -> list[Payout]:
    """Those of these that are still submitted become confirmed, all or none; which those were."""
    with transaction.atomic():
        # The order of everybody who pays: payouts, settings, accounts, and each by their ids.
        rows = Payout.objects.select_for_update(of=("self",)).filter(pk__in=[payout.pk for payout in payouts])
        mine = list(rows.filter(state=PayoutState.SUBMITTED).order_by("pk"))
        reported = [outcomes[str(payout.pk)] for payout in mine]
        for payout, outcome in zip(mine, reported, strict=True):
            payout.checked_at, payout.external_id = clock.now(), outcome.external_id or payout.external_id
        Payout.objects.bulk_update(mine, ["checked_at", "external_id"])
        confirm(mine, reported, actor=actor)
        for payout, outcome in zip(mine, reported, strict=True):
            if outcome.bank is not None:
                bank_legs.record(payout, outcome.bank)
        return mine


def _fail(payout: Payout, outcome: Outcome, *, actor: str) -> None:
    available, clearing = _accounts(payout, AccountKind.PROVIDER_AVAILABLE, AccountKind.PAYOUT_CLEARING)
    ledger.post(
        [
            ledger.NewTransfer(
                available,
                clearing,
                payout.amount,
                TransferCode.PAYOUT,
                mode=TransferMode.VOID,
                pending_id=payout.pending_transfer_id,
            )
        ],
        group_id=payout.pk,
    )
    cause = _cause(outcome)
    advance(
        payout,
        PayoutState.FAILED,
        reason="failed",
        actor=actor,
        data={"cause": cause},
        last_error=cause,
        closed_at=clock.now(),
    )
    _count_failure(payout, cause)


def _return(payout: Payout, outcome: Outcome, *, actor: str) -> None:
    book = registry.row_of(payout.rail)
    ref = outcome.external_id if outcome.external_id not in {"", payout.external_id} else f"{ref_of(payout)}:returned"
    source_kind = book.mirror if book.moves_mirror else AccountKind.PAYOUT_CLEARING
    source, available = _accounts(payout, source_kind, AccountKind.PROVIDER_AVAILABLE)
    ledger.post(
        [ledger.NewTransfer(source, available, payout.amount, TransferCode.PAYOUT_RETURNED, external_ref=ref)],
        group_id=payout.pk,
    )
    cause = _cause(outcome)
    advance(
        payout,
        PayoutState.RETURNED,
        reason="returned",
        actor=actor,
        data={"cause": cause},
        last_error=cause,
        closed_at=clock.now(),
    )
    _count_failure(payout, cause)


def _count_failure(payout: Payout, cause: str) -> None:
    """Put off the next try, longer each time, and report it; after FAILURES_MAX in a row none comes by itself."""
    row, failures = _settings(payout).first(), 1
    if row is not None:
        row.failures = failures = row.failures + 1
        row.last_error = cause
        if row.schedule != PayoutSettings.Schedule.MANUAL:
            pause = backoff_seconds(row.failures, first=FAILURE_SECONDS_FIRST, most=FAILURE_SECONDS_MAX)
            row.due_at = next_due(row.schedule, clock.now() + timedelta(seconds=pause))
        row.save(update_fields=["failures", "last_error", "due_at"])
    alerts.close(stuck_key(payout))
    has_to_act = failures >= FAILURES_MAX
    notifying.notify_failure(payout, row, cause=cause, has_to_act=has_to_act)
    alerts.raise_once(
        failed_key(payout),
        kind="payout_failed",
        severity=alerts.Severity.WARNING if has_to_act else alerts.Severity.INFO,
        subject=payout.pk,
        message=f"A payout by {payout.rail} {payout.state}, {failures} in a row of this provider: {cause}",
    )


def _alert_contradiction(payout: Payout) -> None:
    alerts.raise_once(
        f"payout_contradicted:{payout.pk}",
        kind="payout_contradicted",
        severity=alerts.Severity.CRITICAL,
        subject=payout.pk,
        message=f"The {payout.rail} rail says that a payout arrived which it called {payout.state} before.",
    )


def _alert_unbookable(payout: Payout, error: Exception) -> None:
    """It is read again, and booked once its cause is fixed: a frozen account, for example."""
    alerts.raise_once(
        stuck_key(payout),
        kind="payout_stuck",
        subject=payout.pk,
        message=f"What the {payout.rail} rail says of a payout cannot be booked: {error}",
    )


def _settings(payout: Payout) -> QuerySet[PayoutSettings]:
    return PayoutSettings.objects.filter(provider_id=payout.provider_id, asset_id=payout.asset_id)


def _accounts(payout: Payout, *kinds: AccountKind) -> list[Account]:
    return open_accounts([name_of(payout, kind) for kind in kinds])


def _cause(outcome: Outcome) -> str:
    return (outcome.message or "The rail gave no cause.")[:ERROR_CHARACTERS_MAX]

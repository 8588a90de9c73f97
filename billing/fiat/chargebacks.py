"""A customer's bank takes a top-up back: the loss is booked at once, recovered in a fixed order, and undone if won.

1. loss       chargeback_loss <-> stripe_balance, each of the dispute's bookings once, its fee too
2. recovery   the customer's balance, and what the customer earned as a provider; then the reserves, then the balances
              of the providers whom this customer has paid since, then what was transferred to them already
              (recovery.py); what is missing stays a loss
3. freeze     the customer's balance gives nothing out until the operator unfreezes it
4. won        every account gets back what the dispute took from it
"""

from __future__ import annotations

import logging
from typing import Final
from uuid import UUID

from django.db import transaction

from billing.account_kinds import AccountKind
from billing.books.chart_of_accounts import AccountName, open_account
from billing.fiat import claims, evidence, intents, recovery
from billing.fiat.errors import NotOurs
from billing.models import Account, CardDispute, FraudWarning, TopUp
from billing.money import format_usd
from billing.notices import alerts
from billing.rails.stripe import booking
from billing.rails.stripe import client as stripe_client
from billing.rails.stripe.records import Dispute
from billing.states.fiat import DisputeState
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock, outbox
from marketplace.foundation.ids import new_id
from marketplace.foundation.states import advance, record_birth

EVIDENCE_CALL: Final = "stripe.evidence"
ACTOR: Final = "stripe"
LOSS: Final = AccountName(AccountKind.CHARGEBACK_LOSS)
STATE_OF: Final = {
    "warning_needs_response": DisputeState.INQUIRY,
    "warning_under_review": DisputeState.INQUIRY,
    "warning_closed": DisputeState.CLOSED,
    "needs_response": DisputeState.OPEN,
    "under_review": DisputeState.OPEN,
    "won": DisputeState.WON,
    "lost": DisputeState.LOST,
    # The bank has decided against us, and may do so once more: the money stays gone, and what was taken stays taken.
    "appeal_needs_response": DisputeState.LOST,
    "appeal_under_review": DisputeState.LOST,
    "prevented": DisputeState.CLOSED,  # blocked, or given in to; where money is gone, see _wanted
}
APPEAL: Final = "appeal_needs_response"

ENDED: Final = frozenset({DisputeState.WON, DisputeState.LOST, DisputeState.CLOSED})

log = logging.getLogger(__name__)


def refresh_dispute(dispute_id: str) -> CardDispute:
    """Read a dispute's state at Stripe, and move ours there. Calls Stripe; raises NotOurs."""
    reported = stripe_client.connect().fetch_dispute(dispute_id)
    if reported.intent_id:
        # The top-up is credited before its loss is booked, in any order of events.
        intents.refresh_intent(reported.intent_id)
    return apply_dispute(reported)


def apply_dispute(reported: Dispute) -> CardDispute:
    """Book what the dispute moved, recover or give back, all in one transaction; then settle other claims."""
    dispute = _apply(reported)
    claims.settle(dispute.top_up.owner_id)
    return dispute


def request_evidence(dispute_id: UUID, *, text: str, actor: str) -> CardDispute:
    """Have our side of the dispute sent to the bank, once: the bank reads one submission only."""
    with transaction.atomic():
        dispute = CardDispute.objects.select_for_update().get(pk=dispute_id)
        if dispute.evidence_sent_at is None and dispute.state in {DisputeState.OPEN, DisputeState.INQUIRY}:
            dispute.evidence, dispute.evidence_sent_at = text[: evidence.CHARACTERS_MAX], clock.now()
            dispute.save(update_fields=["evidence", "evidence_sent_at"])
            outbox.enqueue(EVIDENCE_CALL, f"evidence:{dispute.pk}", {"dispute_id": str(dispute.pk)})
            log.info("Evidence goes to the bank. dispute_id=%s actor=%s", dispute.pk, actor)
        return dispute


def _apply(reported: Dispute) -> CardDispute:
    with transaction.atomic():
        top_up = TopUp.objects.filter(charge_id=reported.charge_id).exclude(charge_id="").first()
        if top_up is None:
            raise NotOurs
        dispute = _open(reported, top_up)
        recovery.lock_all(dispute)
        if reported.bookings:
            recovery.release_wait(top_up, reason="disputed")
        _book_loss(dispute, reported)
        for state in _path(DisputeState(dispute.state), _wanted(dispute, reported)):
            closed_at = clock.now() if state in ENDED else None
            dispute = advance(dispute, state, reason=reported.reason[:64], actor=ACTOR, closed_at=closed_at)
            if state in ENDED:
                alerts.close(_alert_key(dispute))
        _alert_status(dispute, reported)
        if dispute.state == DisputeState.WON:
            recovery.give_back(dispute)
        elif dispute.state in recovery.RECOVERED:
            recovery.recover(dispute)
        if reported.bookings:
            freeze_customer(top_up.owner_id, dispute)
        return dispute


def _wanted(dispute: CardDispute, reported: Dispute) -> DisputeState:
    """The state that Stripe's status means for us; a status that we do not know moves no further than the money."""
    is_gone = sum(entry.amount_cents for entry in reported.bookings) < 0
    was_quiet = dispute.state in {DisputeState.INQUIRY, DisputeState.CLOSED}
    as_before = DisputeState.OPEN if is_gone and was_quiet else DisputeState(dispute.state)
    wanted = STATE_OF.get(reported.status, as_before)
    return DisputeState.LOST if wanted == DisputeState.CLOSED and is_gone else wanted


def _path(state: DisputeState, wanted: DisputeState) -> list[DisputeState]:
    """The moves from one state to the other: events may be missed, so that a dispute seems to leap."""
    if state == DisputeState.OPEN and wanted == DisputeState.CLOSED:
        wanted = DisputeState.WON  # nothing is gone any more
    moves = CardDispute.STATE_MACHINE.transitions
    if wanted in moves[state]:
        return [wanted]
    if wanted in ENDED and DisputeState.OPEN in moves[state] and wanted in moves[DisputeState.OPEN]:
        return [DisputeState.OPEN, wanted]
    return []


def _alert_status(dispute: CardDispute, reported: Dispute) -> None:
    """What a person has to do about a status: an appeal goes by Stripe's dashboard only."""
    if reported.status == APPEAL:
        until = f" before {reported.due_at:%Y-%m-%d %H:%M} UTC" if reported.due_at else ""
        text = f"The bank's decision may be appealed against{until}, in Stripe's dashboard."
    elif reported.status in STATE_OF:
        alerts.close(_status_key(dispute))
        return
    else:
        text = f"It has a status that nothing here knows, {reported.status[:64]}: look at it in Stripe's dashboard."
    alerts.raise_once(
        _status_key(dispute),
        kind="card_dispute_status",
        subject=dispute.pk,
        message=f"Card dispute {dispute.stripe_id} over {format_usd(int(dispute.amount))}. {text}",
    )


def _status_key(dispute: CardDispute) -> str:
    return f"card_dispute_status:{dispute.stripe_id}"


def _open(reported: Dispute, top_up: TopUp) -> CardDispute:
    """Our row, locked; made with its evidence prepared when the dispute is first reported."""
    known = CardDispute.objects.select_for_update().filter(stripe_id=reported.id).first()
    if known is not None:
        return known
    defaults = {
        "top_up": top_up,
        "amount": booking.micros(reported.amount_cents),
        "reason": reported.reason[:64],
        "evidence_due_at": reported.due_at,
        "evidence": evidence.prepare(top_up),
    }
    dispute, is_new = CardDispute.objects.get_or_create(stripe_id=reported.id, defaults=defaults)
    if is_new:
        record_birth(dispute, actor=ACTOR, data={"top_up_id": str(top_up.pk), "reason": reported.reason})
        _raise_alert(dispute)
    return CardDispute.objects.select_for_update().get(pk=dispute.pk)


def _alert_key(dispute: CardDispute) -> str:
    return f"card_dispute:{dispute.stripe_id}"


def _raise_alert(dispute: CardDispute) -> None:
    """An operator has to send the evidence in time; closed when the bank has decided."""
    until = f"{dispute.evidence_due_at:%Y-%m-%d %H:%M} UTC" if dispute.evidence_due_at else "the bank's time is up"
    message = (
        f"A card payment of {format_usd(int(dispute.amount))} is disputed ({dispute.reason or 'no reason given'}): "
        f"read the prepared evidence and send it before {until}."
    )
    alerts.raise_once(_alert_key(dispute), kind="card_dispute", subject=dispute.pk, message=message)


def _book_loss(dispute: CardDispute, reported: Dispute) -> None:
    """Each of its bookings once: the amount and the bank's fee leave, and come back where the dispute is won."""
    for entry in reported.bookings:
        group_id = new_id()
        if not booking.take(entry, group_id):
            continue
        is_loss = entry.amount_cents < 0
        code = TransferCode.CHARGEBACK if is_loss else TransferCode.CHARGEBACK_WON
        booking.change_balance(entry, against=LOSS, code=code, fee_from=LOSS, group_id=group_id)
        dispute.loss += booking.micros(entry.fee_cents - entry.amount_cents)
    # What came back may be more than what was lost only by Stripe's error; a loss is never below zero.
    dispute.loss = max(dispute.loss, 0)
    dispute.save(update_fields=["loss"])


def freeze_customer(owner_id: UUID, cause: CardDispute | FraudWarning) -> None:
    """Once per dispute or warning: what the operator has unfrozen since stays so."""
    if cause.frozen_at is not None:
        return
    account = open_account(AccountKind.CUSTOMER_AVAILABLE, owner_id)
    Account.objects.filter(pk=account.pk).update(is_frozen=True)
    cause.frozen_at = clock.now()
    cause.save(update_fields=["frozen_at"])
    log.warning("A customer's balance is frozen until the operator decides. owner_id=%s", owner_id)

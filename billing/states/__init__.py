"""States of a hold, of a payout, of a dispute, of the breaker that stops payouts, and of a ledger's correction.

hold      open -> captured | released | expired
payout    requested -> reserved -> submitted -> confirmed | failed
          reserved -> failed;   confirmed -> returned
bank leg  sending -> sent -> paid;   sending -> refused -> sent;   sent | paid -> sent_back -> returned
          sending | refused -> left_at_stripe                      of a confirmed payout by Stripe
dispute   opened -> answered -> decided;   opened -> decided;   opened | answered -> withdrawn
breaker   open -> closed
correction  proposed -> approved | rejected

chain.py      states of transactions, roots, escrow holds and stake slashes
fiat.py       states of top-ups, refunds, reversals and card disputes
"""

from __future__ import annotations

from django.db import models

from marketplace.foundation.states import machine


class HoldState(models.TextChoices):
    """open: the money is set aside. captured: settled. released, expired: all of it went back."""

    OPEN = "open"
    CAPTURED = "captured"
    RELEASED = "released"
    EXPIRED = "expired"


HOLD_MACHINE = machine(
    "hold",
    {
        HoldState.OPEN: [HoldState.CAPTURED, HoldState.RELEASED, HoldState.EXPIRED],
        HoldState.CAPTURED: [],
        HoldState.RELEASED: [],
        HoldState.EXPIRED: [],
    },
)


class PayoutState(models.TextChoices):
    """reserved: a pending transfer stands. submitted: the rail was asked. returned: the bank sent it back."""

    REQUESTED = "requested"
    RESERVED = "reserved"
    SUBMITTED = "submitted"
    CONFIRMED = "confirmed"
    FAILED = "failed"
    RETURNED = "returned"


PAYOUT_MACHINE = machine(
    "payout",
    {
        PayoutState.REQUESTED: [PayoutState.RESERVED, PayoutState.FAILED],
        PayoutState.RESERVED: [PayoutState.SUBMITTED, PayoutState.FAILED],
        PayoutState.SUBMITTED: [PayoutState.CONFIRMED, PayoutState.FAILED],
        PayoutState.CONFIRMED: [PayoutState.RETURNED],
        PayoutState.FAILED: [],
        PayoutState.RETURNED: [],
    },
)


class BankState(models.TextChoices):
    """Of the way from a provider's account at Stripe to its bank.

    refused: Stripe does not send it on; tried again. paid: Stripe says that the bank has it; the bank may still send it
    back. sent_back: by the bank, and the transfer is not reversed yet. left_at_stripe: a part of the transfer was
    reversed before it was sent on; what is left is in the provider's account at Stripe.
    """

    SENDING = "sending"
    REFUSED = "refused"
    SENT = "sent"
    PAID = "paid"
    SENT_BACK = "sent_back"
    RETURNED = "returned"
    LEFT = "left_at_stripe"


_BANK_ANSWERS = [BankState.SENT, BankState.PAID, BankState.SENT_BACK, BankState.RETURNED]
BANK_MACHINE = machine(
    "bank_leg",
    {
        BankState.SENDING: [BankState.REFUSED, BankState.LEFT, *_BANK_ANSWERS],
        BankState.REFUSED: [BankState.LEFT, *_BANK_ANSWERS],
        BankState.SENT: [BankState.PAID, BankState.SENT_BACK, BankState.RETURNED],
        BankState.PAID: [BankState.SENT_BACK, BankState.RETURNED],
        BankState.SENT_BACK: [BankState.RETURNED],
        BankState.RETURNED: [],
        BankState.LEFT: _BANK_ANSWERS,
    },
)
BANK_STATES_RETRIED = frozenset({BankState.REFUSED, BankState.SENT_BACK})


class DisputeState(models.TextChoices):
    """opened: the provider may answer. answered: the operator decides. The other two are the end."""

    OPENED = "opened"
    ANSWERED = "answered"
    DECIDED = "decided"
    WITHDRAWN = "withdrawn"


DISPUTE_MACHINE = machine(
    "dispute",
    {
        DisputeState.OPENED: [DisputeState.ANSWERED, DisputeState.DECIDED, DisputeState.WITHDRAWN],
        DisputeState.ANSWERED: [DisputeState.DECIDED, DisputeState.WITHDRAWN],
        DisputeState.DECIDED: [],
        DisputeState.WITHDRAWN: [],
    },
)
PAYOUT_STATES_OPEN = frozenset({PayoutState.REQUESTED, PayoutState.RESERVED, PayoutState.SUBMITTED})


class BreakerState(models.TextChoices):
    """open: no payout leaves, until an operator closes it with a note."""

    OPEN = "open"
    CLOSED = "closed"


BREAKER_MACHINE = machine("payout_breaker", {BreakerState.OPEN: [BreakerState.CLOSED], BreakerState.CLOSED: []})


class CorrectionState(models.TextChoices):
    """proposed: nothing moved yet. approved: another person agreed, and it is posted. rejected: it never will be."""

    PROPOSED = "proposed"
    APPROVED = "approved"
    REJECTED = "rejected"


CORRECTION_MACHINE = machine(
    "ledger_correction",
    {
        CorrectionState.PROPOSED: [CorrectionState.APPROVED, CorrectionState.REJECTED],
        CorrectionState.APPROVED: [],
        CorrectionState.REJECTED: [],
    },
)

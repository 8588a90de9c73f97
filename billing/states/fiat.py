"""States of what happens at Stripe, as far as we have seen it. Money that came is credited even after the end.

top-up    requested -> open -> succeeded;   requested -> succeeded
          requested, open -> failed | expired -> succeeded (it was paid after all)
refund    requested -> succeeded | failed;   succeeded -> failed (the bank sent it back)
reversal  requested -> succeeded | refused
dispute   inquiry -> open | closed;   inquiry, open -> won | lost;   won <-> lost (the bank decided again)
"""

from __future__ import annotations

from django.db import models

from marketplace.foundation.states import machine


class TopUpState(models.TextChoices):
    """open: the customer, or the bank, has the next move. expired: nobody made it."""

    REQUESTED = "requested"
    OPEN = "open"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"


TOP_UP_UNDER_WAY = (TopUpState.REQUESTED, TopUpState.OPEN)
_TOP_UP_ENDS = [TopUpState.SUCCEEDED, TopUpState.FAILED, TopUpState.EXPIRED]

TOP_UP_MACHINE = machine(
    "top_up",
    {
        TopUpState.REQUESTED: [TopUpState.OPEN, *_TOP_UP_ENDS],
        TopUpState.OPEN: _TOP_UP_ENDS,
        TopUpState.FAILED: [TopUpState.SUCCEEDED],
        TopUpState.EXPIRED: [TopUpState.SUCCEEDED],
        TopUpState.SUCCEEDED: [],
    },
)


class RefundState(models.TextChoices):
    """requested: a pending transfer keeps the money apart. failed: the customer has it as balance again."""

    REQUESTED = "requested"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


REFUND_MACHINE = machine(
    "top_up_refund",
    {
        RefundState.REQUESTED: [RefundState.SUCCEEDED, RefundState.FAILED],
        RefundState.SUCCEEDED: [RefundState.FAILED],
        RefundState.FAILED: [],
    },
)


class DisputeState(models.TextChoices):
    """inquiry: the bank asks, no money moved. open: the money is gone until the bank decides."""

    INQUIRY = "inquiry"
    OPEN = "open"
    CLOSED = "closed"
    WON = "won"
    LOST = "lost"


DISPUTE_MACHINE = machine(
    "card_dispute",
    {
        DisputeState.INQUIRY: [DisputeState.OPEN, DisputeState.CLOSED, DisputeState.WON, DisputeState.LOST],
        DisputeState.OPEN: [DisputeState.WON, DisputeState.LOST],
        DisputeState.CLOSED: [DisputeState.OPEN],
        DisputeState.WON: [DisputeState.LOST],
        DisputeState.LOST: [DisputeState.WON],
    },
)


class ReversalState(models.TextChoices):
    """refused: Stripe cannot reverse it, and the platform bears the loss."""

    REQUESTED = "requested"
    SUCCEEDED = "succeeded"
    REFUSED = "refused"


REVERSAL_MACHINE = machine(
    "transfer_reversal",
    {
        ReversalState.REQUESTED: [ReversalState.SUCCEEDED, ReversalState.REFUSED],
        ReversalState.SUCCEEDED: [],
        ReversalState.REFUSED: [],
    },
)

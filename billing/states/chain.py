"""States of what we do on a chain.

transaction  planned -> nonced -> signed -> broadcast -> mined -> final
             planned -> refused                          a simulation shows that it would revert; no nonce was used
             mined -> reverted                           final too, and paid for; an operator looks at it
             mined -> reorged -> broadcast               its block is gone; the same bytes go out again
             signed | broadcast | reorged -> replaced    another transaction with its nonce is final
root         planned -> proposed -> active;   planned -> failed;   proposed -> vetoed
hold         requested -> open -> closed;     requested -> failed
             failed -> open                  the customer opened it after all, on the terms that were authorized
stake slash  waiting -> sent -> slashed -> compensated;   sent -> waiting, when it failed;   waiting -> forgone
             waiting | forgone -> slashed             a multisig sent it
"""

from __future__ import annotations

from django.db import models

from marketplace.foundation.states import machine


class TransactionState(models.TextChoices):
    """Nonces have no gaps, and each has one transaction that is final or reverted."""

    PLANNED = "planned"
    NONCED = "nonced"
    SIGNED = "signed"
    BROADCAST = "broadcast"
    MINED = "mined"
    FINAL = "final"
    REVERTED = "reverted"
    REORGED = "reorged"
    REPLACED = "replaced"
    REFUSED = "refused"


TRANSACTION_MACHINE = machine(
    "chain_transaction",
    {
        TransactionState.PLANNED: [TransactionState.NONCED, TransactionState.REFUSED],
        TransactionState.NONCED: [TransactionState.SIGNED],
        TransactionState.SIGNED: [TransactionState.BROADCAST, TransactionState.REPLACED],
        TransactionState.BROADCAST: [TransactionState.MINED, TransactionState.REPLACED],
        TransactionState.MINED: [TransactionState.FINAL, TransactionState.REVERTED, TransactionState.REORGED],
        TransactionState.REORGED: [TransactionState.BROADCAST, TransactionState.REPLACED],
        TransactionState.FINAL: [],
        TransactionState.REVERTED: [],
        TransactionState.REPLACED: [],
        TransactionState.REFUSED: [],
    },
)


class RootState(models.TextChoices):
    """proposed: the chain has it, and it can still be vetoed. active: providers can claim by it."""

    PLANNED = "planned"
    PROPOSED = "proposed"
    ACTIVE = "active"
    VETOED = "vetoed"
    FAILED = "failed"


ROOT_MACHINE = machine(
    "payout_root",
    {
        RootState.PLANNED: [RootState.PROPOSED, RootState.FAILED],
        RootState.PROPOSED: [RootState.ACTIVE, RootState.VETOED],
        RootState.ACTIVE: [],
        RootState.VETOED: [],
        RootState.FAILED: [],
    },
)


class EscrowHoldState(models.TextChoices):
    """requested: our transaction is on its way. open: final on the chain. closed: the rest went back."""

    REQUESTED = "requested"
    OPEN = "open"
    CLOSED = "closed"
    FAILED = "failed"


ESCROW_HOLD_MACHINE = machine(
    "escrow_hold",
    {
        EscrowHoldState.REQUESTED: [EscrowHoldState.OPEN, EscrowHoldState.FAILED],
        EscrowHoldState.OPEN: [EscrowHoldState.CLOSED],
        EscrowHoldState.CLOSED: [],
        EscrowHoldState.FAILED: [EscrowHoldState.OPEN],
    },
)


class StakeSlashState(models.TextChoices):
    """sent: our transaction is on its way. slashed: final on the chain. forgone: nothing was staked any more."""

    WAITING = "waiting"
    SENT = "sent"
    SLASHED = "slashed"
    COMPENSATED = "compensated"
    FORGONE = "forgone"


STAKE_SLASH_MACHINE = machine(
    "stake_slash",
    {
        StakeSlashState.WAITING: [StakeSlashState.SENT, StakeSlashState.SLASHED, StakeSlashState.FORGONE],
        StakeSlashState.SENT: [StakeSlashState.WAITING, StakeSlashState.SLASHED],
        StakeSlashState.SLASHED: [StakeSlashState.COMPENSATED],
        StakeSlashState.COMPENSATED: [],
        StakeSlashState.FORGONE: [StakeSlashState.SLASHED],
    },
)

"""What nobody mines is broadcast again, and the first in line is signed anew with the same nonce and higher fees."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.db import transaction

from billing.chain.transactions import fees
from billing.chain.transactions.fees import Fees
from billing.chain.transactions.sending import Sender, broadcast, broadcast_again, nonce_of
from billing.chain.transactions.signing import store_signed
from billing.models import ChainTransaction
from billing.notices import alerts
from billing.states.chain import TransactionState as State
from marketplace.foundation import clock
from marketplace.foundation.states import record_birth

RESEND_AFTER: Final = timedelta(seconds=30)  # nodes forget


def rebroadcast(sender: Sender) -> None:
    """Broadcast again what was sent long ago; the first in line gets higher fees if it waits for too long."""
    mined = sender.mine.filter(state=State.MINED).values("nonce")
    newest = {
        one.nonce: one  # the dearest: nodes take no cheaper one beside it
        for one in sender.mine.filter(state=State.BROADCAST).exclude(nonce__in=mined).order_by("nonce", "created_at")
    }
    now = clock.now()
    for place, one in enumerate(newest.values()):
        waited = now - (one.sent_at or now)
        if place == 0 and waited >= timedelta(seconds=sender.client.config.stuck_seconds):
            _replace(sender, one)
        elif waited >= RESEND_AFTER:
            broadcast_again(sender, one)


def _replace(sender: Sender, one: ChainTransaction) -> None:
    """The same call under the same nonce, dearer; whichever of the two is mined, the call is made once."""
    base_fee, priority_fee = sender.client.fee_now()
    limit = sender.client.config.max_fee
    offer = fees.next_offer(Fees.from_json(one.fees), base_fee, priority_fee, limit=limit)
    if offer is None:
        alerts.raise_once(
            f"chain:stuck:{one.signer}:{one.nonce}",
            kind="chain_stuck",
            subject=one.pk,
            message=f"{one.purpose} (nonce {one.nonce}) is not mined, and a higher fee would be above the limit of"
            f" {sender.client.config.max_fee_gwei} gwei on {sender.client.config.name}.",
        )
        broadcast_again(sender, one)
        return
    with transaction.atomic():
        other = ChainTransaction(
            purpose=one.purpose,
            chain_id=one.chain_id,
            signer=one.signer,
            to=one.to,
            data=one.data,
            gas=one.gas,
            replaces=one,
        )
        other.save(force_insert=True)
        record_birth(other, data={"replaces": str(one.pk)})
        store_signed(sender, other, nonce_of(one), one.gas, offer)
    broadcast(sender, other)

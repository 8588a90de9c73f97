"""A key of ours was used elsewhere, and an operator knows by whom: our row of nonces continues at the chain's.

    1. one at a time: under the dispatcher's own lock of the signer
    2. compare: the chain's number, the same in the newest and in the final block, or what is adopted may go away again
    3. adopt it, once, with an event that names who did

Nothing is booked and nothing is signed here. Of our own transactions those that were mined are found by the next
dispatch as ever, and those whose nonce another transaction used are given up there, so that no call is made twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid5

from django.db import transaction

from billing.chain.errors import NonceRefused
from billing.chain.reading.client import client_of
from billing.chain.transactions.planning import lock, nonce_alert_key
from billing.models import Signer
from billing.notices import alerts
from marketplace.foundation.models import Event

EVENT_KIND: Final = "chain_signer"
SIGNER_NAMESPACE: Final = UUID("5f0c2a52-6d0e-4c8e-9a55-736f756b0003")


@dataclass(frozen=True)
class Standing:
    """How many transactions of a key there are: by our count, on the chain, and in its final blocks."""

    chain_id: int
    address: str
    ours: int
    mined: int
    final: int


def standing_of(chain_id: int, address: str) -> Standing:
    """Read the chain; raises NonceRefused for a key that never signed here, ChainError."""
    signer = Signer.objects.filter(chain_id=chain_id, address=address).first()
    if signer is None:
        raise NonceRefused(address=address, why="it has signed nothing for this marketplace on this chain")
    client = client_of(chain_id)
    head, final = client.head(), client.final()
    return Standing(chain_id, address, signer.next_nonce, client.nonce(address, head), client.nonce(address, final))


def adopt_nonce(chain_id: int, address: str, *, expected: int, actor: str) -> Signer:
    """Take the chain's number, which the operator has seen as `expected`, for ours; a repeat is refused.

    Raises NonceRefused: nothing to adopt, not final yet, another number by now, or a dispatcher at work; ChainError.
    """
    with lock(f"signer:{chain_id}:{address}") as is_mine:
        if not is_mine:
            raise NonceRefused(address=address, why="its transactions are being sent at this moment: try again")
        now = standing_of(chain_id, address)
        if now.mined <= now.ours:
            raise NonceRefused(address=address, why=f"the chain has {now.mined} of it, and {now.ours} are ours")
        if now.mined != now.final:
            raise NonceRefused(address=address, why="its last transactions are not final yet: try again later")
        if now.mined != expected:
            raise NonceRefused(address=address, why=f"it is at {now.mined} by now, and not at {expected}")
        with transaction.atomic():
            signer = Signer.objects.select_for_update().get(chain_id=chain_id, address=address)
            signer.next_nonce = now.mined
            signer.save(update_fields=["next_nonce"])
            Event.objects.create(
                subject_kind=EVENT_KIND,
                subject_id=uuid5(SIGNER_NAMESPACE, f"{chain_id}/{address}"),
                from_state=str(now.ours),
                to_state=str(now.mined),
                reason="nonce_adopted",
                actor=actor,
                data={"chain_id": chain_id, "address": address},
            )
            alerts.close(nonce_alert_key(chain_id, address))
            return signer

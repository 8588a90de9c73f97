"""What is planned gets its nonce and its bytes in one commit, in the order of planning; what would revert waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.db import transaction

from billing import alerts
from billing.chain import fees
from billing.chain.closing import tell_failed
from billing.chain.errors import CallReverted, ChainError, EndpointsDisagree
from billing.chain.fees import Fees
from billing.chain.sending import Desk, broadcast
from billing.chain.states import TransactionState as State
from billing.models import ChainTransaction, Signer
from marketplace.foundation import clock
from marketplace.foundation.states import advance

IN_FLIGHT_MAX: Final = 16  # of one signer: a node keeps only so many of one sender
PLANNED_PER_RUN_MAX: Final = 50
SIMULATIONS_MAX: Final = 8  # what would revert so often is refused
SIMULATION_PAUSE: Final = timedelta(seconds=5)  # doubles: an earlier transaction may have to be mined first
PAUSE_DOUBLINGS_MAX: Final = 8
WAIT_PAUSE: Final = timedelta(minutes=10)  # for what time or a person changes
WAITS: Final = frozenset({"EnforcedPause", "RootPending", "ExceedsDailyCap"})
GAS_MARGIN: Final = (13, 10)
GAS_EXTRA: Final = 20_000
ERROR_CHARACTERS_MAX: Final = 1000


def sign_due(desk: Desk) -> int:
    """Sign and send what is planned and due, while there is room for it and gas is not too dear; how many moved."""
    in_flight = desk.mine.filter(state__in=[State.SIGNED, State.BROADCAST, State.REORGED])
    room = min(PLANNED_PER_RUN_MAX, IN_FLIGHT_MAX - in_flight.values("nonce").distinct().count())
    due = list(desk.mine.filter(state=State.PLANNED, next_at__lte=clock.now()).order_by("created_at")[: max(0, room)])
    offer = _offer(desk) if due else None
    return sum(_sign_one(desk, one, offer) for one in due) if offer else 0


def _offer(desk: Desk) -> Fees | None:
    """What we offer now; None, having told the operators, while gas costs more than the limit."""
    config, key = desk.client.config, f"chain:fees:{desk.chain_id}"
    base_fee, priority_fee = desk.client.fee_now()
    offer = fees.first_offer(base_fee, priority_fee, limit=config.max_fee)
    if offer is not None:
        alerts.close(key)
        return offer
    alerts.raise_once(
        key,
        kind="chain_fees",
        subject=desk.chain_id,
        message=f"A unit of gas on {config.name} costs {base_fee} base units and the limit is {config.max_fee_gwei}"
        " gwei: nothing new is sent until it costs less, or max_fee_gwei says more.",
    )
    return None


def _sign_one(desk: Desk, one: ChainTransaction, offer: Fees) -> bool:
    message = {"from": one.signer, "data": one.data} | ({"to": one.to} if one.to else {})
    try:
        gas = desk.client.estimate(message, purpose=one.purpose)
    except CallReverted as reverted:
        return _put_off(one, reverted)
    except EndpointsDisagree as error:  # one lags, or lies: no reason to give it up
        return _wait(one, error, SIMULATION_PAUSE)
    with transaction.atomic():
        signer = Signer.objects.select_for_update().get(address=one.signer, chain_id=one.chain_id)
        store_signed(desk, one, signer.next_nonce, gas * GAS_MARGIN[0] // GAS_MARGIN[1] + GAS_EXTRA, offer)
        signer.next_nonce += 1
        signer.save(update_fields=["next_nonce"])
        alerts.close(f"chain:waits:{one.pk}")
    broadcast(desk, one)
    return True


def store_signed(desk: Desk, one: ChainTransaction, nonce: int, gas: int, offer: Fees) -> None:
    """Nonce and bytes in one commit: what has a nonce can always be sent."""
    advance(one, State.NONCED, nonce=nonce, gas=gas, fees=offer.as_json())
    body: dict[str, Any] = {
        "type": 2,
        "chainId": one.chain_id,
        "nonce": nonce,
        "value": 0,
        "gas": gas,
        "maxFeePerGas": offer.max_fee,
        "maxPriorityFeePerGas": offer.priority_fee,
        "data": one.data,
    }
    raw, tx_hash = desk.key.sign(body | ({"to": one.to} if one.to else {}))
    advance(one, State.SIGNED, raw=raw, hash=tx_hash)


def _put_off(one: ChainTransaction, reverted: CallReverted) -> bool:
    key = f"chain:waits:{one.pk}"
    if reverted.details["why"] in WAITS:  # the call is good, and its time will come
        alerts.raise_once(key, kind="chain_waits", subject=one.pk, message=f"{one.purpose} waits: {reverted}")
        return _wait(one, reverted, WAIT_PAUSE)
    one.attempts += 1
    if one.attempts < SIMULATIONS_MAX:
        return _wait(one, reverted, SIMULATION_PAUSE * 2 ** min(one.attempts - 1, PAUSE_DOUBLINGS_MAX))
    last_error = str(reverted)[:ERROR_CHARACTERS_MAX]
    advance(one, State.REFUSED, reason="would_revert", attempts=one.attempts, last_error=last_error)
    alerts.close(key)
    tell_failed(one, f"was not sent, because the contract would refuse it: {reverted}")
    return True


def _wait(one: ChainTransaction, error: ChainError, pause: timedelta) -> bool:
    one.last_error, one.next_at = str(error)[:ERROR_CHARACTERS_MAX], clock.now() + pause
    one.save(update_fields=["attempts", "last_error", "next_at"])
    return False

"""What is planned gets its nonce and its bytes in one commit, in the order of planning; what would revert waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.db import transaction

from billing.chain.errors import CallReverted, ChainError, EndpointsDisagree
from billing.chain.transactions import fees
from billing.chain.transactions.closing import alert_failed
from billing.chain.transactions.fees import Fees
from billing.chain.transactions.sending import Sender, broadcast
from billing.models import ChainTransaction, Signer
from billing.notices import alerts
from billing.states.chain import TransactionState as State
from marketplace.foundation import clock
from marketplace.foundation.states import advance
from provider_agent.protocol.backoff import backoff_seconds

IN_FLIGHT_MAX: Final = 16  # of one signer: a node keeps only so many of one sender
PLANNED_PER_RUN_MAX: Final = 50
SIMULATIONS_MAX: Final = 8  # what would revert so often is refused
SIMULATION_SECONDS_FIRST: Final = 5  # doubles: an earlier transaction may have to be mined first
SIMULATION_SECONDS_MAX: Final = 1280
WAIT_PAUSE: Final = timedelta(minutes=10)  # for what time or a person changes
# A role that was taken away comes back by another key, days later, and a chain that stood still catches up: pay that
# was refused meanwhile would be lost, for its hold is closed over it.
WAITS: Final = frozenset(
    {"EnforcedPause", "RootPending", "ExceedsDailyCap", "AccessControlUnauthorizedAccount", "ExceedsTime"}
)
GAS_MARGIN: Final = (13, 10)
GAS_EXTRA: Final = 20_000
ERROR_CHARACTERS_MAX: Final = 1000


def sign_due(sender: Sender) -> int:
    """Sign and send what is planned and due, while IN_FLIGHT_MAX allows and gas is not too dear; how many moved."""
    in_flight = sender.mine.filter(state__in=[State.SIGNED, State.BROADCAST, State.REORGED])
    room = min(PLANNED_PER_RUN_MAX, IN_FLIGHT_MAX - in_flight.values("nonce").distinct().count())
    due = list(sender.mine.filter(state=State.PLANNED, next_at__lte=clock.now()).order_by("created_at")[: max(0, room)])
    offer = _offer(sender) if due else None
    return sum(_sign_one(sender, one, offer) for one in due) if offer else 0


def _offer(sender: Sender) -> Fees | None:
    """What we offer now; None, with an alert to the operators, while gas costs more than the limit."""
    config, key = sender.client.config, f"chain:fees:{sender.chain_id}"
    base_fee, priority_fee = sender.client.fee_now()
    offer = fees.first_offer(base_fee, priority_fee, limit=config.max_fee)
    if offer is not None:
        alerts.close(key)
        return offer
    alerts.raise_once(
        key,
        kind="chain_fees",
        subject=sender.chain_id,
        message=f"A unit of gas on {config.name} costs {base_fee} base units and the limit is {config.max_fee_gwei}"
        " gwei: nothing new is sent until it costs less, or max_fee_gwei says more.",
    )
    return None


def _sign_one(sender: Sender, one: ChainTransaction, offer: Fees) -> bool:
    message = {"from": one.signer, "data": one.data} | ({"to": one.to} if one.to else {})
    try:
        gas = sender.client.estimate(message, purpose=one.purpose)
    except CallReverted as reverted:
        return _put_off(one, reverted)
    except EndpointsDisagree as error:  # one lags, or lies: no reason to give it up
        return _wait(one, error, timedelta(seconds=SIMULATION_SECONDS_FIRST))
    with transaction.atomic():
        signer = Signer.objects.select_for_update().get(address=one.signer, chain_id=one.chain_id)
        store_signed(sender, one, signer.next_nonce, gas * GAS_MARGIN[0] // GAS_MARGIN[1] + GAS_EXTRA, offer)
        signer.next_nonce += 1
        signer.save(update_fields=["next_nonce"])
        alerts.close(f"chain:waits:{one.pk}")
    broadcast(sender, one)
    return True


def store_signed(sender: Sender, one: ChainTransaction, nonce: int, gas: int, offer: Fees) -> None:
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
    raw, tx_hash = sender.key.sign(body | ({"to": one.to} if one.to else {}))
    advance(one, State.SIGNED, raw=raw, hash=tx_hash)


def _put_off(one: ChainTransaction, reverted: CallReverted) -> bool:
    key = f"chain:waits:{one.pk}"
    if reverted.details["why"] in WAITS:  # the call is good, and its time will come
        alerts.raise_once(key, kind="chain_waits", subject=one.pk, message=f"{one.purpose} waits: {reverted}")
        return _wait(one, reverted, WAIT_PAUSE)
    one.attempts += 1
    if one.attempts < SIMULATIONS_MAX:
        seconds = backoff_seconds(one.attempts, first=SIMULATION_SECONDS_FIRST, most=SIMULATION_SECONDS_MAX)
        return _wait(one, reverted, timedelta(seconds=seconds))
    last_error = str(reverted)[:ERROR_CHARACTERS_MAX]
    advance(one, State.REFUSED, reason="would_revert", attempts=one.attempts, last_error=last_error)
    alerts.close(key)
    alert_failed(one, f"was not sent, because the contract would refuse it: {reverted}")
    return True


def _wait(one: ChainTransaction, error: ChainError, pause: timedelta) -> bool:
    one.last_error, one.next_at = str(error)[:ERROR_CHARACTERS_MAX], clock.now() + pause
    one.save(update_fields=["attempts", "last_error", "next_at"])
    return False

"""Our transactions on a chain: each is decided once, gets one nonce, and is followed until it is final.

    plan (in the decision's transaction) -> dispatch: estimate, [assign a nonce, sign, store the bytes] in one commit,
    broadcast -> mined -> final | reverted, with the gas booked

    1. settle   what is mined deep enough is final; what lost its block goes out again, the same bytes; what lost its
                nonce to somebody else is let go
    2. send     what is signed and not out yet, which is all that a crash can leave behind
    3. hurry    the oldest that nobody mines is signed anew with the same nonce and higher fees
    4. sign     what is planned, in the order of planning, while gas costs no more than the limit

One dispatcher a signer works at a time (an advisory lock). If that lock were lost, the signer's row still hands every
nonce out once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from django.db import connection, transaction

from billing import alerts
from billing.chain import closing, keys
from billing.chain import fees as fee_market
from billing.chain.client import ChainClient, Receipt, client_of
from billing.chain.closing import book_coins, close, has_failed, outcome_of, tell_failed
from billing.chain.errors import CallReverted, ChainError, EndpointsDisagree, EndpointsUnreachable
from billing.chain.fees import Fees
from billing.chain.keys import Role, SigningKey
from billing.chain.states import TransactionState as State
from billing.models import ChainTransaction, Signer
from marketplace.foundation import clock
from marketplace.foundation.errors import OutboxConflict
from marketplace.foundation.states import advance, record_birth

IN_FLIGHT_MAX: Final = 16  # of one signer: a node keeps only so many of one sender
PLANNED_PER_RUN_MAX: Final = 50
SIMULATIONS_MAX: Final = 8  # what would revert so often is refused
SIMULATION_PAUSE: Final = timedelta(seconds=5)  # doubles: an earlier transaction may have to be mined first
PAUSE_DOUBLINGS_MAX: Final = 8
RESEND_AFTER: Final = timedelta(seconds=30)  # nodes forget
WAIT_PAUSE: Final = timedelta(minutes=10)  # for what time or a person changes
WAITS: Final = frozenset({"EnforcedPause", "RootPending", "ExceedsDailyCap"})
DISPUTED_AFTER: Final = timedelta(minutes=15)  # a receipt about which endpoints disagree for longer is told
# What nodes say of a transaction that offers less than the newest block costs.
OFFERS_TOO_LITTLE: Final = ("less than block base fee", "less than the block base fee", "underpriced", "fee too low")
GAS_MARGIN: Final = (13, 10)
GAS_EXTRA: Final = 20_000
ERROR_CHARACTERS_MAX: Final = 1000
LOCK_CLASS: Final = 0x50C7

__all__ = ["SENT", "book_coins", "close", "dispatch", "has_failed", "lock", "outcome_of", "plan"]

SENT: Final = [State.SIGNED, State.BROADCAST, State.MINED, State.REORGED]

log = logging.getLogger(__name__)


def plan(*, chain_id: int, role: Role, purpose: str, to: str, data: str, business_key: str) -> ChainTransaction:
    """Write one transaction down in the caller's own, once per key; a repeat returns the first.

    Raises OutboxConflict when the key was used for something else, SignerMissing.
    """
    fields = {"chain_id": chain_id, "purpose": purpose, "to": to, "data": data}
    planned, is_new = ChainTransaction.objects.get_or_create(
        business_key=business_key, defaults=fields | {"signer": keys.key_for(role).address}
    )
    if is_new:
        record_birth(planned, data={"purpose": purpose, "business_key": business_key})
    elif any(getattr(planned, name) != value for name, value in fields.items()):
        raise OutboxConflict(business_key=business_key)
    return planned


def dispatch(chain_id: int) -> int:
    """Steps 1 to 4 for every signer of ours on this chain; how many transactions moved. Raises ChainError."""
    live = ChainTransaction.objects.filter(chain_id=chain_id, state__in=[State.PLANNED, State.NONCED, *SENT])
    moved = 0
    failures: list[ChainError] = []
    for address in sorted(set(live.values_list("signer", flat=True))):
        with lock(f"signer:{chain_id}:{address}") as is_mine:
            try:
                moved += _Dispatcher(client_of(chain_id), keys.key_of(address)).run() if is_mine else 0
            except ChainError as error:  # a key that is gone stops what it signs, and no other key
                failures.append(error)
    if failures:
        raise failures[0]
    return moved


@contextmanager
def lock(name: str) -> Iterator[bool]:
    """Whether this connection alone holds the name, until the block ends or the connection does."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", [LOCK_CLASS, name])
        is_mine = bool(cursor.fetchone()[0])
    try:
        yield is_mine
    finally:
        if is_mine:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", [LOCK_CLASS, name])


class _Dispatcher:
    """One run for one signer."""

    def __init__(self, client: ChainClient, key: SigningKey) -> None:
        self._client, self._key, self._chain_id = client, key, client.config.chain_id
        self._mine = ChainTransaction.objects.filter(chain_id=self._chain_id, signer=key.address)

    def run(self) -> int:
        signer = self._signer()
        head, final = self._client.head(), self._client.final()
        if self._is_used_elsewhere(signer, head):
            return 0
        moved = self._settle(final) + self._let_go(head, final)
        moved += self._send()
        self._hurry()
        return moved + self._sign()

    def _signer(self) -> Signer:
        """Our row of nonces; at the first use of a key it begins where the chain is."""
        found = Signer.objects.filter(address=self._key.address, chain_id=self._chain_id).first()
        if found is not None:
            return found
        nonce, coins = self._client.nonce(self._key.address), self._client.coins(self._key.address)
        with transaction.atomic():
            signer, is_new = Signer.objects.get_or_create(
                address=self._key.address, chain_id=self._chain_id, defaults={"next_nonce": nonce}
            )
            if is_new:
                book_coins(self._chain_id, coins, ref=f"first:{self._key.address}")
            return signer

    def _is_used_elsewhere(self, signer: Signer, head: int) -> bool:
        """Whether somebody else signs with our key: then nothing more is signed until a person has looked."""
        mined = self._client.nonce(self._key.address, head)
        key = f"chain:nonce:{self._chain_id}:{self._key.address}"
        if mined <= signer.next_nonce:
            alerts.close(key)
            return False
        alerts.raise_once(
            key,
            kind="chain_nonce",
            severity=alerts.Severity.CRITICAL,
            subject=self._key.address,
            message=f"The chain has {mined} transactions of {self._key.address}, and only {signer.next_nonce} are ours:"
            " the key is used elsewhere, or was stolen. Nothing more is signed with it.",
        )
        return True

    def _settle(self, final: int) -> int:
        moved = 0
        for one in self._mine.filter(state__in=[State.BROADCAST, State.MINED]).order_by("nonce", "created_at"):
            try:
                receipt = self._client.receipt(one.hash)
            except EndpointsDisagree as error:  # one of them is a block behind
                self._tell_disputed(one, error)
                continue
            moved += self._settle_one(one, receipt, final)
        return moved

    def _tell_disputed(self, one: ChainTransaction, error: EndpointsDisagree) -> None:
        if one.sent_at is not None and clock.now() - one.sent_at > DISPUTED_AFTER:
            key = f"chain:receipt:{one.pk}"
            alerts.raise_once(key, kind="chain_receipt", subject=one.pk, message=f"{one.purpose} waits: {error}")

    def _let_go(self, head: int, final: int) -> int:
        """A nonce that the chain has used up, and for none of the transactions that we signed with it."""
        mined = self._client.nonce(self._key.address, head)
        lost = [State.SIGNED, State.BROADCAST, State.REORGED]
        behind = self._mine.filter(nonce__lt=mined, state__in=lost).exclude(
            nonce__in=self._mine.filter(state=State.MINED).values("nonce")
        )
        if not behind.exists():
            return 0
        buried = self._client.nonce(self._key.address, final)
        gone = 0
        for nonce in sorted({_nonce_of(one) for one in behind.filter(nonce__lt=buried)}):
            ours = list(behind.filter(nonce=nonce))
            if all(self._client.receipt(one.hash) is None for one in ours):
                gone += len([closing.let_go(one) for one in ours])
        return gone

    def _settle_one(self, one: ChainTransaction, receipt: Receipt | None, final: int) -> bool:
        if one.state == State.MINED and (receipt is None or receipt.block_hash != one.block_hash):
            advance(one, State.REORGED, reason="block_gone", block_number=None, block_hash="")
            return True
        if receipt is None:
            return False
        if one.state == State.BROADCAST:
            advance(one, State.MINED, block_number=receipt.block_number, block_hash=receipt.block_hash)
        if receipt.block_number > final or self._client.header(receipt.block_number).hash != receipt.block_hash:
            return False
        close(one, receipt)
        return True

    def _send(self) -> int:
        sent = 0
        for one in self._mine.filter(state__in=[State.SIGNED, State.REORGED]).order_by("nonce", "created_at"):
            self._broadcast(one)
            sent += 1
        return sent

    def _broadcast(self, one: ChainTransaction) -> None:
        try:
            self._client.broadcast(one.raw)
        except EndpointsUnreachable as error:
            offers_too_little = any(words in str(error).lower() for words in OFFERS_TOO_LITTLE)
            # A node that has mined it may say so in any words; what is too cheap by now is hurried like the rest.
            if not offers_too_little and self._client.receipt(one.hash) is None:
                raise
        advance(one, State.BROADCAST, data={"hash": one.hash}, sent_at=clock.now())

    def _hurry(self) -> None:
        """Tell what was told long ago again; the first in line gets higher fees if it waits for too long."""
        mined = self._mine.filter(state=State.MINED).values("nonce")
        newest = {
            one.nonce: one  # the dearest: nodes take no cheaper one beside it
            for one in self._mine.filter(state=State.BROADCAST).exclude(nonce__in=mined).order_by("nonce", "created_at")
        }
        now = clock.now()
        for place, one in enumerate(newest.values()):
            waited = now - (one.sent_at or now)
            if place == 0 and waited >= timedelta(seconds=self._client.config.stuck_seconds):
                self._replace(one)
            elif waited >= RESEND_AFTER:
                self._tell_again(one)

    def _tell_again(self, one: ChainTransaction) -> None:
        """Nodes forget, and take nothing that offers less than the newest block costs: its turn comes, or more fees."""
        try:
            self._client.broadcast(one.raw)
        except EndpointsUnreachable as error:
            log.info("No node takes it again now. hash=%s error=%s", one.hash, error)

    def _replace(self, one: ChainTransaction) -> None:
        """The same call under the same nonce, dearer; whichever of the two is mined, the call is made once."""
        base_fee, priority_fee = self._client.fee_now()
        limit = self._client.config.max_fee
        offer = fee_market.next_offer(Fees.from_json(one.fees), base_fee, priority_fee, limit=limit)
        if offer is None:
            alerts.raise_once(
                f"chain:stuck:{one.signer}:{one.nonce}",
                kind="chain_stuck",
                subject=one.pk,
                message=f"{one.purpose} (nonce {one.nonce}) is not mined, and a higher fee would be above the limit of"
                f" {self._client.config.max_fee_gwei} gwei on {self._client.config.name}.",
            )
            self._tell_again(one)
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
            self._store_signed(other, _nonce_of(one), one.gas, offer)
        self._broadcast(other)

    def _sign(self) -> int:
        in_flight = self._mine.filter(state__in=[State.SIGNED, State.BROADCAST, State.REORGED])
        room = min(PLANNED_PER_RUN_MAX, IN_FLIGHT_MAX - in_flight.values("nonce").distinct().count())
        due = list(
            self._mine.filter(state=State.PLANNED, next_at__lte=clock.now()).order_by("created_at")[: max(0, room)]
        )
        offer = self._offer() if due else None
        return sum(self._sign_one(one, offer) for one in due) if offer else 0

    def _offer(self) -> Fees | None:
        """What we offer now; None, having told the operators, while gas costs more than the limit."""
        config, key = self._client.config, f"chain:fees:{self._chain_id}"
        base_fee, priority_fee = self._client.fee_now()
        offer = fee_market.first_offer(base_fee, priority_fee, limit=config.max_fee)
        if offer is not None:
            alerts.close(key)
            return offer
        alerts.raise_once(
            key,
            kind="chain_fees",
            subject=self._chain_id,
            message=f"A unit of gas on {config.name} costs {base_fee} base units and the limit is {config.max_fee_gwei}"
            " gwei: nothing new is sent until it costs less, or max_fee_gwei says more.",
        )
        return None

    def _sign_one(self, one: ChainTransaction, offer: Fees) -> bool:
        message = {"from": one.signer, "data": one.data} | ({"to": one.to} if one.to else {})
        try:
            gas = self._client.estimate(message, purpose=one.purpose)
        except CallReverted as reverted:
            return self._put_off(one, reverted)
        except EndpointsDisagree as error:  # one lags, or lies: no reason to give it up
            return self._wait(one, error, SIMULATION_PAUSE)
        with transaction.atomic():
            signer = Signer.objects.select_for_update().get(address=one.signer, chain_id=one.chain_id)
            self._store_signed(one, signer.next_nonce, gas * GAS_MARGIN[0] // GAS_MARGIN[1] + GAS_EXTRA, offer)
            signer.next_nonce += 1
            signer.save(update_fields=["next_nonce"])
            alerts.close(f"chain:waits:{one.pk}")
        self._broadcast(one)
        return True

    def _store_signed(self, one: ChainTransaction, nonce: int, gas: int, offer: Fees) -> None:
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
        raw, tx_hash = self._key.sign(body | ({"to": one.to} if one.to else {}))
        advance(one, State.SIGNED, raw=raw, hash=tx_hash)

    def _put_off(self, one: ChainTransaction, reverted: CallReverted) -> bool:
        key = f"chain:waits:{one.pk}"
        if reverted.details["why"] in WAITS:  # the call is good, and its time will come
            alerts.raise_once(key, kind="chain_waits", subject=one.pk, message=f"{one.purpose} waits: {reverted}")
            return self._wait(one, reverted, WAIT_PAUSE)
        one.attempts += 1
        if one.attempts < SIMULATIONS_MAX:
            return self._wait(one, reverted, SIMULATION_PAUSE * 2 ** min(one.attempts - 1, PAUSE_DOUBLINGS_MAX))
        last_error = str(reverted)[:ERROR_CHARACTERS_MAX]
        advance(one, State.REFUSED, reason="would_revert", attempts=one.attempts, last_error=last_error)
        alerts.close(key)
        tell_failed(one, f"was not sent, because the contract would refuse it: {reverted}")
        return True

    def _wait(self, one: ChainTransaction, error: ChainError, pause: timedelta) -> bool:
        one.last_error, one.next_at = str(error)[:ERROR_CHARACTERS_MAX], clock.now() + pause
        one.save(update_fields=["attempts", "last_error", "next_at"])
        return False


def _nonce_of(one: ChainTransaction) -> int:
    if one.nonce is None:
        raise ValueError(f"{one} was never signed")
    return one.nonce

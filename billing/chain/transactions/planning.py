"""Our transactions on a chain: each is decided once, gets one nonce, and is followed until it is final.

    plan (in the decision's transaction) -> dispatch: estimate, [assign a nonce, sign, store the bytes] in one commit,
    broadcast -> mined -> final | reverted, with the gas booked

    0. rotate   what a key planned that is ours no more gets the key of its role now (rotating.py)
    1. settle   what is mined deep enough is final; what lost its block goes out again, the same bytes; what lost its
                nonce to a foreign transaction is given up
    2. send     what is signed and not out yet, which is all that a crash can leave behind (sending.py)
    3. resend   what nobody mines goes out again; the oldest is replaced by one with higher fees (rebroadcast.py)
    4. sign     what is planned, in the order of planning, while gas costs no more than the limit (signing.py)

One dispatcher a signer works at a time (an advisory lock). If that lock were lost, the signer's row still hands every
nonce out once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from django.db import connection, transaction

from billing.chain import keys
from billing.chain.errors import ChainError, EndpointsDisagree
from billing.chain.keys import Role, SigningKey
from billing.chain.reading.client import ChainClient, Receipt, client_of
from billing.chain.transactions import closing, rotating
from billing.chain.transactions.closing import book_coins, close, has_failed, outcome_of
from billing.chain.transactions.rebroadcast import rebroadcast
from billing.chain.transactions.sending import Sender, nonce_of, send_due
from billing.chain.transactions.signing import sign_due
from billing.models import ChainTransaction, Signer
from billing.notices import alerts
from billing.states.chain import TransactionState as State
from marketplace.foundation import clock
from marketplace.foundation.errors import OutboxConflict
from marketplace.foundation.states import advance, record_birth

DISPUTED_AFTER: Final = timedelta(minutes=15)  # a receipt about which endpoints disagree for longer is reported
LOCK_CLASS: Final = 0x50C7

__all__ = ["SENT", "book_coins", "close", "dispatch", "has_failed", "lock", "outcome_of", "plan"]

SENT: Final = [State.SIGNED, State.BROADCAST, State.MINED, State.REORGED]


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
    """Steps 0 to 4, for every signer of ours on this chain; how many transactions moved. Raises ChainError."""
    live = ChainTransaction.objects.filter(chain_id=chain_id, state__in=[State.PLANNED, State.NONCED, *SENT])
    moved = 0
    failures: list[ChainError] = []
    for address in rotating.signers_gone(chain_id):
        with lock(f"signer:{chain_id}:{address}") as is_mine:  # no process that still has that key is about to sign
            try:
                moved += rotating.hand_over(chain_id, address) if is_mine else 0
            except ChainError as error:
                failures.append(error)
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


def nonce_alert_key(chain_id: int, address: str) -> str:
    """Of the alert that a key is used elsewhere."""
    return f"chain:nonce:{chain_id}:{address}"


def is_used_elsewhere(chain_id: int, address: str) -> bool:
    """Whether the chain has more transactions of this key than are ours: nothing is signed with it then."""
    signer = Signer.objects.filter(chain_id=chain_id, address=address).first()
    return signer is not None and client_of(chain_id).nonce(address) > signer.next_nonce


class _Dispatcher:
    """One run for one signer."""

    def __init__(self, client: ChainClient, key: SigningKey) -> None:
        self._client, self._key, self._chain_id = client, key, client.config.chain_id
        self._sender = Sender(client, key)
        self._mine = self._sender.mine

    def run(self) -> int:
        signer = self._signer()
        head, final = self._client.head(), self._client.final()
        if self._is_used_elsewhere(signer, head):
            return 0
        moved = self._settle(final) + self._let_go(head, final)
        moved += send_due(self._sender)
        rebroadcast(self._sender)
        return moved + sign_due(self._sender)

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
        """Whether another program signs with our key: then nothing more is signed until a person has looked."""
        mined = self._client.nonce(self._key.address, head)
        key = nonce_alert_key(self._chain_id, self._key.address)
        if mined <= signer.next_nonce:
            alerts.close(key)
            return False
        alerts.raise_once(
            key,
            kind="chain_nonce",
            severity=alerts.Severity.CRITICAL,
            subject=self._key.address,
            message=f"The chain has {mined} transactions of {self._key.address}, and only {signer.next_nonce} are ours:"
            " the key is used elsewhere, or was stolen. Nothing more is signed with it, until its key is changed or"
            " `souk chain adopt-nonce` says that it was you.",
        )
        return True

    def _settle(self, final: int) -> int:
        moved = 0
        for one in self._mine.filter(state__in=[State.BROADCAST, State.MINED]).order_by("nonce", "created_at"):
            try:
                receipt = self._client.receipt(one.hash)
            except EndpointsDisagree as error:  # one of them is a block behind
                self._alert_disputed(one, error)
                continue
            moved += self._settle_one(one, receipt, final)
        return moved

    def _alert_disputed(self, one: ChainTransaction, error: EndpointsDisagree) -> None:
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
        for nonce in sorted({nonce_of(one) for one in behind.filter(nonce__lt=buried)}):
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

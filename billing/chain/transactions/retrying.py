"""A call that failed for good is made again while it is still due; what others did first is withdrawn, and no alarm.

    newest_try   the try of a business key that counts: the last one, or the next when that failed a while ago
    claim_again  receipts that a lost nonce, or a block, kept from the contract go there before their hold is closed
    withdraw     what we planned, or failed at, and came about by other hands

A contract's function that anybody may call (finalize, refundExpired, registerReceiptKey) is often called by those whose
money it moves. A call of ours that comes later is refused, and that is as it should be.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from billing.chain.keys import Role
from billing.chain.transactions import planning
from billing.models import Alert, ChainTransaction, EscrowClaim, EscrowHold, EscrowLease, ReceiptKey
from billing.notices import alerts
from billing.states.chain import EscrowHoldState, TransactionState
from marketplace.foundation import clock
from marketplace.foundation.states import advance
from provider_agent.protocol.backoff import backoff_seconds

RETRY_SECONDS_FIRST: Final = 3600  # doubles with each try
RETRY_SECONDS_MAX: Final = 32 * 3600
TRIES_MAX: Final = 20  # of one business key: more than two weeks
CLAIM_TRIES_MAX: Final = 3  # at once: the customer's money waits for them
ROWS_PER_RUN_MAX: Final = 200
REPLACEMENTS_MAX: Final = 100  # of one nonce

FAILED: Final = (TransactionState.REVERTED, TransactionState.REFUSED, TransactionState.REPLACED)
Plan = Callable[[str], ChainTransaction]


def newest_try(key: str, plan: Plan) -> ChainTransaction:
    """Plan the call under its key, or under the key's next number where the last try failed long enough ago."""
    tries = ChainTransaction.objects.filter(Q(business_key=key) | Q(business_key__startswith=f"{key}#"))
    newest, number = tries.order_by("-created_at").first(), tries.count()
    if newest is None:
        return plan(key)
    pause = timedelta(seconds=backoff_seconds(number, first=RETRY_SECONDS_FIRST, most=RETRY_SECONDS_MAX))
    is_early = newest.created_at > clock.now() - pause
    if number >= TRIES_MAX or is_early or not planning.has_failed(newest):
        return newest
    return _again(newest, f"{key}#{number + 1}", plan)


def claim_again(chain_id: int) -> int:
    """Plan again the claims that were sent and never reached the contract, so that no hold is closed over them."""
    settled = EscrowLease.objects.filter(pk=OuterRef("lease_id")).values("seq")
    lost = (
        EscrowClaim.objects.select_related("transaction")
        .annotate(settled_seq=Coalesce(Subquery(settled), 0))
        .filter(
            hold__contract__chain_id=chain_id,
            hold__state=EscrowHoldState.OPEN,
            hold__closing=None,
            transaction__state__in=[TransactionState.REVERTED, TransactionState.REPLACED],
            seq__gt=F("settled_seq"),
        )
    )
    planned = 0
    for claim in lost.order_by("pk")[:ROWS_PER_RUN_MAX]:
        one = claim.transaction
        number = 1 + int(str(one.business_key).partition("#")[2] or 1)
        if number > CLAIM_TRIES_MAX or not planning.has_failed(one):
            continue
        with transaction.atomic():
            claim.transaction = _again(one, f"{str(one.business_key).partition('#')[0]}#{number}", _repeat(one))
            claim.save(update_fields=["transaction"])
        planned += 1
    return planned


def withdraw(chain_id: int) -> int:
    """Give up what is planned and needless by now, and close the alerts of what failed for that; how many."""
    mine = ChainTransaction.objects.filter(chain_id=chain_id)
    withdrawn = 0
    refused_once = mine.filter(state=TransactionState.PLANNED, attempts__gt=0, purpose__in=_CAME_ABOUT)
    for one in refused_once.order_by("created_at")[:ROWS_PER_RUN_MAX]:
        if _came_about(one):
            with planning.lock(f"signer:{chain_id}:{one.signer}") as is_mine:  # nobody is about to sign it
                if is_mine and mine.filter(pk=one.pk, state=TransactionState.PLANNED).exists():
                    advance(one, TransactionState.REFUSED, reason="came_about")
                    withdrawn += 1
    alarming = Alert.objects.open().filter(kind="chain_transaction").order_by("-opened_at")
    for subject in alarming.values_list("subject", flat=True)[:ROWS_PER_RUN_MAX]:
        failed = mine.filter(pk=subject, purpose__in=_CAME_ABOUT).first()
        if failed is not None and _came_about(failed):
            alerts.close(f"chain:failed:{failed.pk}")
            withdrawn += 1
    return withdrawn


def _again(failed: ChainTransaction, key: str, plan: Plan) -> ChainTransaction:
    """The next try; its alarm takes the place of the last one's."""
    made = plan(key)
    alerts.close(f"chain:failed:{failed.pk}")
    return made


def _repeat(one: ChainTransaction) -> Plan:
    def plan(key: str) -> ChainTransaction:
        return planning.plan(
            chain_id=one.chain_id,
            role=Role.SETTLER,
            purpose=one.purpose,
            to=one.to,
            data=one.data,
            business_key=key,
        )

    return plan


def _came_about(one: ChainTransaction) -> bool:
    """Whether final events report what this call of ours was to bring about."""
    for _ in range(REPLACEMENTS_MAX):  # the first of its nonce has the key
        if one.replaces is None:
            break
        one = one.replaces
    word = str(one.business_key).partition("#")[0].split(":")
    return _CAME_ABOUT[one.purpose](word[1:]).exists()


def _opened(words: list[str]) -> QuerySet[EscrowHold]:
    states = [EscrowHoldState.OPEN, EscrowHoldState.CLOSED]
    return EscrowHold.objects.filter(pk=UUID(words[0]), state__in=states)


def _closing(words: list[str]) -> QuerySet[EscrowHold]:
    return EscrowHold.objects.filter(Q(state=EscrowHoldState.CLOSED) | Q(closes_at__isnull=False), pk=UUID(words[0]))


def _closed(words: list[str]) -> QuerySet[EscrowHold]:
    return EscrowHold.objects.filter(pk=UUID(words[0]), state=EscrowHoldState.CLOSED)


def _settled(words: list[str]) -> QuerySet[EscrowLease]:
    return EscrowLease.objects.filter(pk=UUID(words[0]), seq__gte=int(words[1]))


def _released(words: list[str]) -> QuerySet[EscrowLease]:
    """Nothing waits, or what waits came later and has a call of its own."""
    return EscrowLease.objects.filter(Q(pending=0) | Q(seq__gt=int(words[1])), pk=UUID(words[0]))


def _registered(words: list[str]) -> QuerySet[ReceiptKey]:
    return ReceiptKey.objects.filter(
        contract=int(words[0]), provider__iexact=words[1], receipt_key__iexact=words[2], not_after__gt=0
    )


_CAME_ABOUT: Final[dict[str, Callable[[list[str]], QuerySet[Any]]]] = {
    "openHold": _opened,
    "closeHold": _closing,
    "refundExpired": _closed,
    "settleLease": _settled,
    "finalize": _released,
    "registerReceiptKey": _registered,
}

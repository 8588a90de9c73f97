"""The trust-minimised way to pay: a wallet's own money is held on the chain for one job, and settled per lease.

    open_hold    the customer's signed authorization becomes a transaction
    is_open      only when the hold is final: a job starts on nothing less
    settle_lease the newest receipt of a lease, signed by the agent, becomes a transaction
    close_hold   the job has ended: the rest goes back, at once or after the contract's time for it
    end_hold     the same, once the hold is open and nothing is on its way that settles from it
    sweep        close what ended, finalize what waited out its window, note what failed; again where it has to be

Each is planned once per business key and sent by the settler's key, which can pay nobody but the providers that the
customer allowed, and no more than they signed for.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import F, Max, Q

from billing.chain import displacing
from billing.chain.contract.registry import contract_of
from billing.chain.errors import AuthorizationRefused, ReceiptUnclaimable
from billing.chain.keys import Role
from billing.chain.reading import builds
from billing.chain.reading.confirmation import is_unconfirmed
from billing.chain.transactions import planning, retrying
from billing.chain.wallets import checksummed
from billing.errors import HoldConflict, HoldNotFound
from billing.models import (
    ChainBlock,
    ChainTransaction,
    ContractTerms,
    EscrowClaim,
    EscrowContract,
    EscrowHold,
    EscrowLease,
    ReceiptKey,
)
from billing.notices import alerts
from billing.proofs.escrow import (
    ANY_PROVIDER,
    SignedDelegation,
    SignedHoldAuthorization,
    is_signed_by_customer,
    is_signed_by_provider,
    names_its_providers,
    provider_proof,
    providers_tree,
)
from billing.states.chain import EscrowHoldState, TransactionState
from marketplace.foundation import clock
from marketplace.foundation.states import advance, record_birth
from provider_agent.protocol import ReceiptDomain, SignedReceipt, UsageReceipt, id_bytes32

DEADLINE_MIN: Final = timedelta(minutes=10)  # to open, run and settle before the customer can withdraw the money
DEADLINE_MAX: Final = timedelta(days=366)  # the contract's own
SEQ_MAX: Final = 2**63 - 1  # of the books; the contract's own has 64 bits, and a receipt comes after each second
SWEPT_PER_RUN_MAX: Final = 200
_OVER: Final = (
    TransactionState.FINAL,
    TransactionState.REVERTED,
    TransactionState.REFUSED,
    TransactionState.REPLACED,  # the one that was mined in its place is final
)


def domain_of(contract: EscrowContract) -> ReceiptDomain:
    """What wallets and receipt keys sign for."""
    return ReceiptDomain(chain_id=contract.chain_id, verifying_contract=contract.address)


def open_hold(asset_id: int, signed: SignedHoldAuthorization) -> EscrowHold:
    """Plan to hold what the wallet authorized; a repeat returns the first.

    Raises AuthorizationRefused, HoldConflict when the job has another hold, ContractUnknown. Wallets that are contracts
    (ERC-1271) open their holds themselves.
    """
    contract, authorization = contract_of(asset_id), signed.authorization
    _check(contract, signed)
    terms: dict[str, Any] = {
        "contract_id": contract.pk,
        "customer": _address(authorization.customer),  # as the contract's events write it
        "amount": authorization.max_amount,
        "rate_ceiling_per_hour": authorization.rate_ceiling_per_hour,
        "parallel_leases": authorization.parallel_leases,
        "providers_root": authorization.providers_root,
        "deadline": authorization.deadline,
    }
    with transaction.atomic():
        displacing.make_room(authorization.job_id, contract, terms["customer"])
        terms["providers"] = [_address(one) for one in signed.providers]
        hold, is_new = EscrowHold.objects.select_for_update().get_or_create(pk=authorization.job_id, defaults=terms)
        if not is_new:
            providers = terms.pop("providers")  # of a hold that the wallet opened itself the chain has the root alone
            if any(getattr(hold, name) != value for name, value in terms.items()):
                raise HoldConflict(job_id=str(authorization.job_id), held=str(hold.amount))
            if not hold.providers and providers:
                hold.providers = providers
                hold.save(update_fields=["providers"])
            return hold
        hold.transaction = _plan(
            contract, "openHold", [_struct(authorization), signed.signature], f"hold:{authorization.job_id}"
        )
        hold.save(update_fields=["transaction"])
        record_birth(hold, data={"customer": hold.customer, "amount": str(hold.amount)})
        return hold


def is_open(job_id: UUID) -> bool:
    """Whether the job's hold is open on the chain, finally, on the terms that were authorized.

    Not while what the chain reported is unconfirmed: what was final and is gone may have taken the hold with it.
    """
    hold = EscrowHold.objects.select_related("contract").filter(pk=job_id, state=EscrowHoldState.OPEN).first()
    return hold is not None and not is_unconfirmed(hold.contract.chain_id)


def register_receipt_key(asset_id: int, signed: SignedDelegation) -> ChainTransaction:
    """Plan the registration in the contract that this receipt key speaks for the provider's wallet."""
    contract = contract_of(asset_id)
    if not is_signed_by_provider(signed, domain_of(contract)):
        raise AuthorizationRefused(why="the delegation is not signed by the provider's wallet for this contract")
    one = signed.delegation
    struct = (_address(one.provider), _address(one.receipt_key), one.not_after, one.nonce)
    key = f"receipt_key:{contract.pk}:{one.provider}:{one.receipt_key}:{one.nonce}"
    with transaction.atomic():
        return _plan(contract, "registerReceiptKey", [struct, signed.signature], key)


def note_receipt_key(contract: EscrowContract, *, provider: str, receipt_key: str, not_after: int) -> ReceiptKey:
    """The contract accepts, by a final event, this key's receipts for the wallet until `not_after`; 0: no longer."""
    known, _ = ReceiptKey.objects.update_or_create(
        contract=contract,
        provider=_address(provider),
        receipt_key=_address(receipt_key),
        defaults={"not_after": not_after},
    )
    return known


def settle_lease(signed: SignedReceipt) -> ChainTransaction:
    """Plan to settle a lease for its newest receipt; a later receipt settles the increment.

    Where the hold names its providers, the proof that this one is among them goes with it.
    Raises HoldNotFound, ReceiptUnclaimable.
    """
    receipt = signed.receipt
    if receipt.seq > SEQ_MAX:
        raise ReceiptUnclaimable(lease_id=str(receipt.lease_id), seq=str(receipt.seq), why=f"the last is {SEQ_MAX}")
    hold = EscrowHold.objects.select_related("contract").filter(pk=receipt.job_id).first()
    if hold is None:
        raise HoldNotFound(job_id=str(receipt.job_id))
    struct, proof = receipt_struct(receipt), _provider_proof(hold, receipt)
    with transaction.atomic():
        displacing.make_room_for_lease(receipt.lease_id, hold)
        key = f"settle:{receipt.lease_id}:{receipt.seq}"
        planned = _plan(hold.contract, "settleLease", [struct, signed.signature, proof], key)
        claim = {"hold": hold, "provider": receipt.provider, "amount": receipt.cumulative_amount}
        EscrowClaim.objects.get_or_create(
            lease_id=receipt.lease_id, seq=receipt.seq, defaults=claim | {"transaction": planned}
        )
        return planned


def allows(job_id: UUID, provider: str) -> bool:
    """Whether the contract pays this wallet from the job's hold: it names no providers, or this one among them."""
    hold = EscrowHold.objects.filter(pk=job_id).only("providers_root", "providers").first()
    return hold is not None and _is_allowed(hold, provider)


def receipt_struct(receipt: UsageReceipt) -> tuple[Any, ...]:
    """A receipt as the contract's functions take it."""
    return (
        id_bytes32(receipt.job_id),
        id_bytes32(receipt.lease_id),
        _address(receipt.provider),
        _address(receipt.customer),
        _address(receipt.asset),
        receipt.seq,
        receipt.billable_ms,
        receipt.cumulative_amount,
        receipt.meter_hash,
        receipt.prev_digest,
    )


def close_hold(job_id: UUID) -> ChainTransaction:
    """Plan to give the rest back; planned after the job's settlements, it is also sent after them."""
    hold = EscrowHold.objects.select_related("contract").filter(pk=job_id).first()
    if hold is None:
        raise HoldNotFound(job_id=str(job_id))
    with transaction.atomic():
        call = partial(_plan, hold.contract, "closeHold", [hold.customer, id_bytes32(job_id)])
        planned = retrying.newest_try(f"close:{job_id}", call)
        EscrowHold.objects.filter(pk=job_id).exclude(closing=planned).update(closing=planned)
        return planned


def end_hold(job_id: UUID) -> None:
    """The job is over: its hold is closed once it is open and no claim on it is under way any more; also twice.

    A hold that was closed sooner would take the claims' money away from the providers.
    """
    EscrowHold.objects.filter(pk=job_id, end_asked_at=None).update(end_asked_at=clock.now())


def sweep(chain_id: int) -> int:
    """Plan to close what ended and to finalize what waited out its window, and note failed holds; how many."""
    again = retrying.claim_again(chain_id) + retrying.withdraw(chain_id)
    return again + _close_ended(chain_id) + _refund_closed(chain_id) + _finalize_due(chain_id) + _note_failed(chain_id)


def _close_ended(chain_id: int) -> int:
    ended = EscrowHold.objects.filter(
        Q(closing=None) | Q(closing__state__in=retrying.FAILED),
        contract__chain_id=chain_id,
        state=EscrowHoldState.OPEN,
        end_asked_at__isnull=False,
    )
    under_way = EscrowClaim.objects.filter(hold__in=ended).exclude(transaction__state__in=_OVER)
    now, planned = clock.now(), 0
    # Those that never were, first: what failed is in nobody's way.
    free = ended.exclude(pk__in=under_way.values("hold")).order_by(F("closing").asc(nulls_first=True), "end_asked_at")
    for hold in free[:SWEPT_PER_RUN_MAX]:
        planned += close_hold(hold.pk).created_at >= now
    return planned


def _refund_closed(chain_id: int) -> int:
    """Holds that we closed, and whose contract took its time for that."""
    closed = EscrowHold.objects.select_related("contract").filter(
        contract__chain_id=chain_id,
        state=EscrowHoldState.OPEN,
        end_asked_at__isnull=False,
        closes_at__lt=_chain_now(chain_id),
    )
    now, planned = clock.now(), 0
    for hold in closed.order_by("closes_at")[:SWEPT_PER_RUN_MAX]:
        with transaction.atomic():
            call = partial(_plan, hold.contract, "refundExpired", [hold.customer, id_bytes32(hold.pk)])
            planned += retrying.newest_try(f"refund:{hold.pk}", call).created_at >= now
    return planned


def _chain_now(chain_id: int) -> datetime:
    """The chain's clock counts, and may be ahead of ours."""
    newest = ChainBlock.objects.filter(chain_id=chain_id, state=ChainBlock.State.FINAL).aggregate(at=Max("mined_at"))
    now = clock.now()
    return max(now, newest["at"] or now)


def _finalize_due(chain_id: int) -> int:
    now, chain_now, planned = clock.now(), _chain_now(chain_id), 0
    waiting = EscrowLease.objects.select_related("hold__contract").filter(
        hold__contract__chain_id=chain_id, pending__gt=0, release_at__lte=chain_now
    )
    # A challenge that the arbiter did not decide in time is the provider's: the contract pays it, whoever calls.
    due = Q(is_challenged=False)
    for terms in ContractTerms.objects.filter(contract__chain_id=chain_id):
        decided_by = chain_now - timedelta(seconds=terms.dispute_seconds)
        due |= Q(is_challenged=True, hold__contract=terms.contract_id, release_at__lte=decided_by)
    for lease in waiting.filter(due).order_by("release_at")[:SWEPT_PER_RUN_MAX]:
        with transaction.atomic():
            # A challenge that our books did not know yet may have made the plain one fail.
            key = f"finalize:{lease.pk}:{lease.seq}" + (":undecided" if lease.is_challenged else "")
            call = partial(_plan, lease.hold.contract, "finalize", [lease.hold.customer, id_bytes32(lease.pk)])
            planned += retrying.newest_try(key, call).created_at >= now
    return planned


def _note_failed(chain_id: int) -> int:
    waiting = EscrowHold.objects.select_related("transaction").filter(
        contract__chain_id=chain_id, state=EscrowHoldState.REQUESTED, transaction__isnull=False
    )
    failed = 0
    for hold in waiting.order_by("created_at")[:SWEPT_PER_RUN_MAX]:
        if hold.transaction is not None and planning.has_failed(hold.transaction):
            advance(hold, EscrowHoldState.FAILED, reason=hold.transaction.last_error[:200] or "transaction_reverted")
            alerts.close(f"chain:failed:{hold.transaction.pk}")  # the customer's matter, and the customer is notified
            failed += 1
    return failed


def _is_allowed(hold: EscrowHold, provider: str) -> bool:
    if hold.providers_root == ANY_PROVIDER:
        return True
    return provider.lower() in {one.lower() for one in hold.providers}


def _provider_proof(hold: EscrowHold, receipt: UsageReceipt) -> list[str]:
    """Of a hold for any provider none; raises ReceiptUnclaimable for a provider that the customer did not allow."""
    if hold.providers_root == ANY_PROVIDER:
        return []
    if not _is_allowed(hold, receipt.provider):
        why = f"the job's customer did not allow the provider {receipt.provider}"
        raise ReceiptUnclaimable(lease_id=str(receipt.lease_id), seq=str(receipt.seq), why=why)
    return provider_proof(providers_tree(hold.providers), _address(receipt.provider))


def _check(contract: EscrowContract, signed: SignedHoldAuthorization) -> None:
    authorization, now = signed.authorization, clock.now()
    if authorization.asset.lower() != contract.asset.contract.lower():
        raise AuthorizationRefused(why=f"it is for the token {authorization.asset}, not {contract.asset.contract}")
    if authorization.deadline < (now + DEADLINE_MIN).timestamp():
        raise AuthorizationRefused(why=f"its deadline is less than {DEADLINE_MIN} ahead")
    if authorization.deadline > (now + DEADLINE_MAX).timestamp():
        raise AuthorizationRefused(why=f"its deadline is more than {DEADLINE_MAX.days} days ahead")
    if not names_its_providers(signed):
        raise AuthorizationRefused(why="its root of providers is not that of the providers it lists")
    if not is_signed_by_customer(signed, domain_of(contract)):
        raise AuthorizationRefused(why="it is not signed by the customer's wallet for this contract on this chain")


def _address(written: str) -> str:
    """However a wallet wrote it: its signature is over the bytes."""
    return checksummed(written.lower())


def _struct(one: Any) -> tuple[Any, ...]:
    return (
        id_bytes32(one.job_id),
        _address(one.customer),
        _address(one.asset),
        one.max_amount,
        one.rate_ceiling_per_hour,
        one.parallel_leases,
        one.providers_root,
        one.deadline,
        one.nonce,
    )


def _plan(contract: EscrowContract, function: str, arguments: list[Any], business_key: str) -> ChainTransaction:
    return planning.plan(
        chain_id=contract.chain_id,
        role=Role.SETTLER,
        purpose=function,
        to=contract.address,
        data=builds.encode(builds.ESCROW, function, arguments),
        business_key=business_key,
    )

"""A job that is paid from the customer's own wallet, by the contract: the ledger holds nothing for it.

    terms_of     a quote -> what the wallet has to sign; the job will have the quote's id
    hold         submit: what was signed becomes the hold's transaction, in the job's own
    waits_for    until the hold is final the job waits, and a sweep records the reason; a failed hold ends it
    is_covered   a lease needs a hold that is open, finally, on the terms that were signed
    settle       a lease ended: its charged receipt goes to the contract, before its key's delegation ends
    end          the job ended: once all of that is done the hold is closed

Billing's half is `billing.chain.escrow`; what happened to the money is read from the chain's final events alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import Sum

from billing.account_kinds import AccountKind
from billing.books.balances import balance
from billing.chain import escrow
from billing.chain.contract import periods
from billing.chain.displacing import own_id
from billing.chain.errors import AuthorizationRefused
from billing.chain.transactions.planning import outcome_of
from billing.chain.wallets import checksummed, wallet_owner
from billing.models import Asset, ContractTerms, EscrowHold, UsageReceipt
from billing.proofs.escrow import ANY_PROVIDER, PROVIDERS_MAX, SignedHoldAuthorization, names_its_providers
from billing.states.chain import EscrowHoldState
from jobs.errors import AuthorizationMissing, AuthorizationUnexpected, NoEscrowContract, WalletShort
from jobs.escrow import delegations
from jobs.models import Job, Lease, PaymentMode, Quote
from jobs.spec import Spec, from_wire
from jobs.wire import EscrowTerms
from marketplace.nodes.models import Node

SETTLE_MARGIN: Final = timedelta(minutes=10)  # between a job's end at the latest and its hold's deadline
SECONDS_UNKNOWN: Final = 3600  # to run, where a job declares neither work nor deadline
EXPECTED_MULTIPLE: Final = 2  # what a job is given over what it is expected to take
DEADLINE_AHEAD_MAX: Final = escrow.DEADLINE_MAX - timedelta(days=1)  # from when the quote expires


def is_escrow(spec: Spec) -> bool:
    """Whether the job file requests it."""
    return spec.payment.mode == PaymentMode.ESCROW.value


def terms_of(quote: Quote) -> EscrowTerms:
    """What the wallet signs for a job of this quote; the same each time. Raises NoEscrowContract."""
    known = _periods(quote)
    wanted = _seconds_wanted(quote) + SETTLE_MARGIN.total_seconds()
    latest = quote.expires_at + DEADLINE_AHEAD_MAX
    earliest = min(latest, quote.expires_at + timedelta(seconds=wanted))
    return EscrowTerms(
        job_id=quote.id,
        chain_id=known.contract.chain_id,
        contract=known.contract.address,
        token=known.contract.asset.contract,
        rate_ceiling_units_per_hour=rate_ceiling(quote),
        parallel_leases=parallel_leases(quote),
        providers=list(quote.providers),
        deadline_min=_unix(earliest),
        deadline_max=_unix(latest),
        challenge_seconds=known.challenge_seconds,
        grace_seconds=known.grace_seconds,
        close_seconds=known.close_seconds,
        fee_bps=known.fee_bps,
    )


def rate_ceiling(quote: Quote) -> int:
    """Base units an hour of the dearest lease that the quote allows: all devices of one node, of a gang too."""
    devices = from_wire(quote.spec).resources.gpus
    return quote.payment.units_up(quote.price_ceiling_usd_micros * devices)


def parallel_leases(quote: Quote) -> int:
    """How many leases bill at the same time: one a node."""
    return from_wire(quote.spec).resources.nodes


def providers_of(asset: Asset, node_ids: Sequence[UUID]) -> list[str]:
    """The wallets of these nodes' providers, each once, in the nodes' order; at most so many as a hold may name."""
    wallets = delegations.wallets_of(asset, node_ids)
    found = dict.fromkeys(wallets[node_id] for node_id in node_ids if node_id in wallets)
    return list(found)[:PROVIDERS_MAX]


def allowed_nodes(job: Job) -> frozenset[UUID] | None:
    """The nodes whose providers the contract pays from the job's hold; None: any."""
    held = EscrowHold.objects.filter(pk=job.id).only("providers_root", "providers").first()
    if held is None or held.providers_root == ANY_PROVIDER:
        return None
    return delegations.nodes_of(job.quote.asset, held.providers)


def allows(job: Job, node: Node) -> bool:
    """Whether the contract pays this node's provider from the job's hold, by what is registered now."""
    return escrow.allows(job.id, delegations.wallet_of(node, job.quote.asset))


def check(quote: Quote, spec: Spec, signed: SignedHoldAuthorization | None) -> None:
    """Refuse, before anything is written, what the wallet signed for another job or on other terms than the quote's.

    Raises AuthorizationMissing, AuthorizationUnexpected, AuthorizationRefused, WalletShort.
    """
    if not is_escrow(spec):
        if signed is not None:
            raise AuthorizationUnexpected()
        return
    terms, cap = terms_of(quote), quote.payment.units_up(quote.cap_usd_micros)
    if signed is None:
        raise AuthorizationMissing(job_id=str(quote.id), contract=terms.contract, amount=str(cap))
    said = signed.authorization
    if said.job_id != quote.id:
        raise AuthorizationRefused(why=f"it is for the job {said.job_id}, and this one will be {quote.id}")
    if said.max_amount != cap:
        raise AuthorizationRefused(why=f"it holds {said.max_amount} base units, and the quote's cap is {cap}")
    if said.rate_ceiling_per_hour < terms.rate_ceiling_units_per_hour:
        least = terms.rate_ceiling_units_per_hour
        raise AuthorizationRefused(why=f"its rate of {said.rate_ceiling_per_hour} is below the quote's {least} an hour")
    if not terms.deadline_min <= said.deadline <= terms.deadline_max:
        bounds = f"{_shown(terms.deadline_min)} to {_shown(terms.deadline_max)}"
        raise AuthorizationRefused(why=f"its deadline is not within {bounds}")
    if said.parallel_leases < terms.parallel_leases:
        least = terms.parallel_leases
        raise AuthorizationRefused(why=f"it lets {said.parallel_leases} leases bill at a time, and the job has {least}")
    if not names_its_providers(signed):
        raise AuthorizationRefused(why="its root of providers is not that of the providers it lists")
    if not signed.providers:  # with a stolen settler's key a false provider could be paid
        raise AuthorizationRefused(why="it names no provider, so that any could be paid from it")
    strangers = {one.lower() for one in signed.providers} - {one.lower() for one in terms.providers}
    if strangers:
        raise AuthorizationRefused(why=f"it allows {min(strangers)}, who is none of the quote's providers")
    _require_funds(quote, terms.contract, said.customer, cap)


def deadline_of(signed: SignedHoldAuthorization) -> datetime:
    """Until when the job may run, so that it is settled before the hold's deadline."""
    return datetime.fromtimestamp(signed.authorization.deadline, UTC) - SETTLE_MARGIN


def hold(quote: Quote, signed: SignedHoldAuthorization) -> EscrowHold:
    """Plan the hold in the transaction that submits its job; raises AuthorizationRefused, HoldConflict."""
    return escrow.open_hold(quote.asset_id, signed)


def hold_of(job_id: UUID) -> EscrowHold | None:
    """The job's hold in the contract."""
    return EscrowHold.objects.select_related("contract", "transaction").filter(pk=job_id).first()


def wallet_of(job: Job) -> str:
    """The customer's wallet whose hold pays."""
    return str(EscrowHold.objects.values_list("customer", flat=True).get(pk=job.id))


def held_units(job_id: UUID) -> int:
    """Base units that the wallet signed for."""
    return int(EscrowHold.objects.values_list("amount", flat=True).get(pk=job_id))


def is_covered(job_id: UUID) -> bool:
    """Whether the job may have leases now."""
    return escrow.is_open(job_id)


def waits_for(held: EscrowHold | None) -> str:
    """What a job without leases waits for, for people."""
    sent = outcome_of(held.transaction).hash if held and held.transaction else ""
    if not sent:
        return "the hold in the contract: its transaction is not sent yet"
    return f"the hold in the contract: transaction {sent} waits for final blocks"


def why_failed(held: EscrowHold) -> str:
    """Why the contract holds nothing for a job, for people."""
    if held.state == EscrowHoldState.CLOSED:
        return "its hold was closed."
    if held.reason == "opened_on_other_terms":
        return "the wallet opened a hold on other terms for the job. Launch again: the new job has a new id."
    short = "InsufficientAvailable" in held.reason
    help_ = " Deposit into the contract with `souk escrow deposit`, and launch again." if short else " Launch again."
    return f"it refused ({held.reason}).{help_}"


def settle(lease: Lease) -> None:
    """Plan to settle a lease for the receipt that it was charged by; nothing where it was charged nothing."""
    if lease.charge_units:
        receipt = UsageReceipt.objects.get(lease_id=lease.id, seq=lease.charged_seq or 0)
        escrow.settle_lease(receipt.as_signed())


def end(job: Job) -> int:
    """Let the job's hold end; what its leases are charged in all, in base units."""
    escrow.end_hold(job.id)
    charged = Lease.objects.filter(attempt__job=job).aggregate(units=Sum("charge_units"))["units"]
    return int(charged or 0)


def _periods(quote: Quote) -> ContractTerms:
    known = periods.terms_of(quote.asset_id)
    if known is None:
        raise NoEscrowContract(asset=quote.asset.code)
    return known


def _seconds_wanted(quote: Quote) -> float:
    deadline = from_wire(quote.spec).budget.deadline_seconds
    if deadline:
        return float(deadline)
    return EXPECTED_MULTIPLE * quote.expected_seconds if quote.expected_seconds else float(SECONDS_UNKNOWN)


def _require_funds(quote: Quote, contract: str, wallet: str, cap: int) -> None:
    """What the wallet has in the contract by final events, less what holds on their way will take.

    Nothing of it where she opened this job's hold herself, and it is final: its money is in the hold already.
    """
    ids = [quote.id, own_id(quote.id, contract, checksummed(wallet.lower()))]  # a stranger may have the first
    mine = EscrowHold.objects.filter(pk__in=ids, contract=quote.asset_id, customer__iexact=wallet)
    if mine.filter(state=EscrowHoldState.OPEN, amount=cap).exists():
        return
    has = balance(wallet_owner(wallet), AccountKind.WALLET_AVAILABLE, asset_id=quote.asset_id)
    coming = EscrowHold.objects.filter(
        contract=quote.asset_id, customer__iexact=wallet, state=EscrowHoldState.REQUESTED
    ).aggregate(units=Sum("amount"))["units"]
    missing = cap - (has - int(coming or 0))
    if missing > 0:
        raise WalletShort(quote.payment, wallet=wallet, missing_units=missing)


def _unix(moment: datetime) -> int:
    return int(moment.timestamp())


def _shown(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%F %T} UTC"

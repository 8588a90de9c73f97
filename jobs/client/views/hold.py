"""A hold in the contract, for people: what a wallet is about to sign, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.markup import escape

from billing.proofs.escrow import HoldAuthorization
from jobs.client.output import duration
from jobs.client.wallet.escrow_contract import at
from jobs.payment.terms import show_units
from jobs.wire import EscrowView, JobView, QuoteView

BPS_PER_PERCENT = 100
SHOWN_MAX = 10  # providers
TIME = "%Y-%m-%d %H:%M:%S"


def promise_lines(quote: QuoteView) -> list[str]:
    """What a quote in escrow mode asks of the wallet, whichever it is."""
    terms = quote.escrow
    if terms is None:
        return []
    where = f"Held from your own wallet in the contract {terms.contract} on chain {terms.chain_id}"
    contested = f"What a node bills can be contested for {duration(terms.challenge_seconds)}"
    back = f"back when the job ends, and without us {duration(terms.grace_seconds)} after its deadline"
    return [
        f"{where}, by your signature for this job alone.",
        f"Fee {_percent(terms.fee_bps)}, out of the provider's part. {contested}; what is left comes {back}.",
    ]


def signing_lines(authorization: HoldAuthorization, quote: QuoteView, allow: Sequence[str] = ()) -> list[str]:
    """Exactly what is about to be signed; `allow`: the providers that the customer named, if any."""
    offered = quote.escrow.providers if quote.escrow else []
    providers = list(allow or offered)
    to = f"to {len(providers)} provider{'s' if len(providers) > 1 else ''} alone"
    leases = authorization.parallel_leases
    at_once = f"{leases} leases at a time" if leases > 1 else "one lease at a time"
    show = _shower(quote.asset, quote.asset_scale)
    return [
        "Your wallet signs:",
        f"  wallet     {authorization.customer}",
        f"  job        {authorization.job_id}",
        f"  at most    {show(authorization.max_amount)}",
        f"  and        {show(authorization.rate_ceiling_per_hour)} an hour of a lease, {at_once}",
        f"  {to}{':' if len(providers) <= SHOWN_MAX else ''}",
        *[f"             {one}" for one in providers if len(providers) <= SHOWN_MAX],
        f"  until      {at(authorization.deadline):{TIME}} UTC",
    ]


def escrow_lines(job: JobView, *, scale: int | None) -> list[str]:
    """The job's hold as final blocks show it; `scale`: the token's decimals, where they are known."""
    found = job.escrow
    if found is None:
        return []
    show = _shower(job.asset, scale)
    lines = [
        f"hold      {_state(found)}",
        f"          {show(found.held_units)} of wallet {found.wallet}, until {found.deadline:{TIME}} UTC",
        f"          contract {found.contract}, chain {found.chain_id}",
    ]
    if found.transaction_hash:
        lines.append(f"          opened by {found.transaction_hash}")
    if found.settled_units or found.refunded_units:
        lines.append(f"settled   {show(found.settled_units)}, back to the wallet {show(found.refunded_units)}")
    for lease in found.leases:
        parts = [f"{show(lease.paid_units)} paid, {show(lease.fee_units)} fee"]
        if lease.refunded_units:
            parts.append(f"{show(lease.refunded_units)} refunded")
        if lease.pending_units:
            until = "contested" if lease.is_challenged else f"until {lease.release_at:{TIME}} UTC"
            parts.append(f"{show(lease.pending_units)} pending {until}")
        lines.append(f"  lease   {lease.lease_id} to {lease.provider}: {', '.join(parts)}")
    return [escape(line) for line in lines]


def _state(found: EscrowView) -> str:
    words = {
        "requested": "on its way to the contract",
        "open": "open in the contract",
        "closed": "closed",
        "failed": "was not opened",
    }
    why = f" ({found.reason})" if found.reason and found.state == "failed" else ""
    return words.get(found.state, found.state) + why


def _shower(asset: str, scale: int | None) -> Callable[[int], str]:
    if scale is None:
        return lambda units: f"{units} base units of {asset}"
    return lambda units: show_units(units, asset=asset, scale=scale)


def _percent(bps: int) -> str:
    return f"{bps / BPS_PER_PERCENT:g} %"

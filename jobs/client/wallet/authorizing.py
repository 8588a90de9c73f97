"""What a wallet signs so that the contract holds a job's money: made here of the job file, and compared with the quote.

Whatever the marketplace says is only compared: a job id, an amount, a rate, a time or a contract that does not follow
from the job file, the quote's own arithmetic and the list of assets is refused, and nothing is signed.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

from billing.proofs.escrow import HoldAuthorization, SignedHoldAuthorization, providers_root, sign_authorization
from jobs.client.errors import ChainFailed, TermsRefused, UsageMistake
from jobs.client.settings import settings_path, write_private
from jobs.client.wallet.chain_reader import ChainReader
from jobs.client.wallet.escrow_contract import EscrowContract
from jobs.client.wallet.key_file import Wallet
from jobs.payment.terms import Payment, show_units
from jobs.spec import Spec, spec_hash
from jobs.spec.units import parse_duration
from jobs.wire import AssetView, EscrowTerms, QuoteView
from provider_agent.protocol import ReceiptDomain

NONCE_BITS: Final = 256
SHOWN_MAX: Final = 10  # providers in a message
SLACK_SECONDS: Final = 86_400  # beyond the earliest deadline: for waiting in the queue, and for trying again
AHEAD_SECONDS_MAX: Final = 366 * 86_400  # the contract's own
FEE_BPS_MAX: Final = 2_000  # the contract's own
_SAME_ON_CHAIN: Final = {
    "fee_bps": "basis points of fee",
    "challenge_seconds": "seconds to contest",
    "grace_seconds": "seconds of grace",
    "close_seconds": "seconds until what is left goes back",
}


def is_escrow(spec: Spec) -> bool:
    """Whether the job is paid straight from a wallet."""
    return spec.payment.mode == "escrow"


def draw_up(
    spec: Spec,
    quote: QuoteView,
    token: AssetView,
    customer: str,
    *,
    hold_until: int | None = None,
    allow: Sequence[str] = (),
) -> HoldAuthorization:
    """The authorization for this job by this wallet, not signed yet; raises TermsRefused, UsageMistake.

    `hold_until`: unix seconds; else a day after the earliest deadline that the quote allows. `allow`: of the quote's
    providers only these may be paid.
    """
    terms = _compare(spec, quote, token)
    assert quote.cap_units is not None  # noqa: S101 - _compare has refused otherwise
    return HoldAuthorization(
        job_id=terms.job_id,
        customer=customer,
        asset=terms.token,
        max_amount=quote.cap_units,
        rate_ceiling_per_hour=terms.rate_ceiling_units_per_hour,
        parallel_leases=terms.parallel_leases,
        providers_root=_root_of(chosen_providers(terms, allow)),
        deadline=_choose_deadline(terms, hold_until),
        nonce=secrets.randbits(NONCE_BITS),
    )


def chosen_providers(terms: EscrowTerms, allow: Sequence[str]) -> list[str]:
    """Those of the quote's providers whom the wallet allows; raises UsageMistake where one is not the quote's.

    A root for any provider is never signed: with a stolen settler's key a false one could be paid. Raises TermsRefused.
    """
    _require(bool(terms.providers), "the quote names no provider, and any could be paid from the hold")
    if not allow:
        return list(terms.providers)
    offered = {one.lower() for one in terms.providers}
    missing = [one for one in allow if one.lower() not in offered]
    if missing:
        raise UsageMistake(
            f"--provider {missing[0]}: no node of that wallet can take the job now. The quote's are:"
            f" {', '.join(terms.providers[:SHOWN_MAX])}."
        )
    return list(allow)


def sign(
    wallet: Wallet, authorization: HoldAuthorization, quote: QuoteView, allow: Sequence[str] = ()
) -> SignedHoldAuthorization:
    """The wallet's signature of the authorization, for the quote's contract on its chain.

    The providers of its root, `allow` or all of the quote's, go with it: the marketplace pays them by it. It is kept in
    a file: who signed can show what, and give it up on the chain while it is not used.
    """
    assert quote.escrow is not None  # noqa: S101 - nothing was drawn up otherwise
    domain = ReceiptDomain(chain_id=quote.escrow.chain_id, verifying_contract=quote.escrow.contract)
    signed = sign_authorization(wallet.key_hex, authorization, domain, chosen_providers(quote.escrow, allow))
    body = {"domain": domain.model_dump(), "signed": signed.model_dump(mode="json")}
    write_private(kept_path(authorization.job_id), json.dumps(body, indent=1))
    return signed


def read_kept(job_id: UUID) -> tuple[SignedHoldAuthorization, ReceiptDomain]:
    """What was signed here for a job; raises UsageMistake where nothing was."""
    path = kept_path(job_id)
    try:
        body = json.loads(path.read_text())
        return SignedHoldAuthorization.model_validate(body["signed"]), ReceiptDomain.model_validate(body["domain"])
    except FileNotFoundError:
        raise UsageMistake(f"Nothing was signed on this computer for the job {job_id}.") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageMistake(f"{path} is damaged: {type(error).__name__}.") from error


def kept_path(job_id: UUID) -> Path:
    """Where what was signed for a job is kept."""
    return settings_path().parent / "holds" / f"{job_id}.json"


def compare_with_chain(quote: QuoteView, authorization: HoldAuthorization, rpc_url: str) -> None:
    """The contract itself has these terms, and the wallet enough in it; raises ChainFailed, TermsRefused."""
    terms = quote.escrow
    assert terms is not None  # noqa: S101 - nothing was drawn up otherwise
    with ChainReader(rpc_url, chain_id=terms.chain_id) as chain:
        contract = EscrowContract(chain, terms.contract)
        found = contract.terms
        _require(found.token.lower() == terms.token.lower(), f"the contract holds the token {found.token}")
        for name, word in _SAME_ON_CHAIN.items():
            has, named = getattr(found, name), getattr(terms, name)
            _require(has == named, f"the contract has {has} {word}, and the marketplace says {named}")
        _require(
            contract.hold(authorization.customer, authorization.job_id) is None,
            "your wallet has had a hold for this job already: ask for a new quote",
        )
        missing = authorization.max_amount - contract.available(authorization.customer)
    if missing > 0:
        shown = show_units(missing, asset=quote.asset, scale=quote.asset_scale)
        raise ChainFailed(
            f"The wallet {authorization.customer} has {shown} too little in the contract. `souk escrow deposit` pays it"
            " in."
        )


def parse_until(text: str) -> int:
    """Unix seconds of `--hold-until`: a duration from now such as 2d, or a time; raises UsageMistake."""
    try:
        return int(time.time()) + parse_duration(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise UsageMistake(
            f"--hold-until: {text!r} is neither a duration such as 12h or 2d, nor a time such as 2026-12-01T12:00+00:00"
        )
    return int(moment.timestamp())


def _compare(spec: Spec, quote: QuoteView, token: AssetView) -> EscrowTerms:
    """The quote's terms, once everything in them follows from what is known here."""
    terms = quote.escrow
    _require(is_escrow(spec), "the job file does not ask for payment.mode: escrow")
    _require(
        quote.spec_hash == spec_hash(spec),
        "the quote is for another job file, or the marketplace is of another version than this program: update souk",
    )
    if terms is None or quote.quote_id is None or quote.cap_units is None or quote.cap_usd_micros is None:
        raise TermsRefused("The quote says nothing to sign: this marketplace does not offer payment.mode: escrow.")
    _require(terms.job_id == quote.quote_id, f"the job {terms.job_id} is not the quote's, {quote.quote_id}")
    _require(quote.asset == spec.payment.asset == token.code, f"the quote is in {quote.asset}")
    _require(quote.asset_scale == token.scale, "the quote counts the token in other units")
    where = (terms.chain_id, terms.contract.lower(), terms.token.lower())
    known = (token.chain_id, token.contract.lower(), token.token.lower())
    _require(where == known, f"chain, contract and token {where} are not those of `souk assets`, {known}")
    _compare_amounts(spec, quote, terms)
    _require(0 <= terms.fee_bps <= FEE_BPS_MAX, f"a fee of {terms.fee_bps} basis points is more than can be")
    return terms


def _compare_amounts(spec: Spec, quote: QuoteView, terms: EscrowTerms) -> None:
    cap, ceiling = quote.cap_usd_micros or 0, quote.price_ceiling_usd_micros or 0
    budget = spec.budget
    try:
        payment = Payment(quote.asset, quote.asset_scale, quote.usd_micros_per_token)
    except ValueError as error:
        raise TermsRefused(f"The quote's price is none: {error}. Nothing was signed.") from error
    _require(0 < cap <= budget.max_total_usd_micros, f"the quote's {cap} micro-USD are above budget.max_total")
    due = payment.units_up(cap)
    _require(quote.cap_units == due, f"a hold of {quote.cap_units} base units; at the quote's price it is {due}")
    highest = budget.max_per_gpu_hour_usd_micros
    _require(ceiling > 0 and (highest is None or ceiling <= highest), "the quote's price is above max_per_gpu_hour")
    rate, most = terms.rate_ceiling_units_per_hour, payment.units_up(ceiling * spec.resources.gpus)
    _require(0 < rate <= most, f"a rate of {rate} base units an hour; the quote's price allows {most}")
    nodes = spec.resources.nodes
    _require(terms.parallel_leases == nodes, f"{terms.parallel_leases} leases at a time, and the job file has {nodes}")


def _root_of(providers: Sequence[str]) -> str:
    try:
        return providers_root(providers)
    except ValueError as error:
        raise TermsRefused(f"The quote's providers are none: {error}. Nothing was signed.") from error


def _choose_deadline(terms: EscrowTerms, wanted: int | None) -> int:
    now = time.time()
    _require(
        now < terms.deadline_min <= terms.deadline_max <= now + AHEAD_SECONDS_MAX,
        "the hold's deadlines are in the past, or further away than the contract allows, by this computer's clock:"
        f" {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )
    if wanted is None:
        return min(terms.deadline_max, terms.deadline_min + SLACK_SECONDS)
    if not terms.deadline_min <= wanted <= terms.deadline_max:
        hours = (terms.deadline_min - now) / 3600
        raise UsageMistake(
            f"--hold-until is too early or too late: for this job it is at least {hours:.1f} h from now (to run and to"
            f" settle) and at most {(terms.deadline_max - now) / 86_400:.0f} days."
        )
    return wanted


def _require(is_true: bool, why: str) -> None:
    if not is_true:
        raise TermsRefused(f"The marketplace wants something else signed: {why}. Nothing was signed.")

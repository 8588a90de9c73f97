"""A quote is a promise: make it, sign it, and hold a submitted job to it."""

from __future__ import annotations

import hmac
import json
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from django.conf import settings

from billing.models import Asset
from billing.proofs.escrow import providers_root
from jobs.errors import (
    AssetTooCoarse,
    ImageNotAllowed,
    QuoteExpired,
    QuoteForged,
    QuoteMismatch,
    QuoteNotFound,
    QuoteUsed,
)
from jobs.escrow import holding
from jobs.kinds.registry import kind_named
from jobs.matching import fleet
from jobs.matching.demand import Demand
from jobs.matching.fit import screen
from jobs.matching.link_speeds import with_links
from jobs.matching.plan import plan
from jobs.matching.reference import reference_price
from jobs.matching.snapshot import FleetSnapshot
from jobs.models import Job, Quote
from jobs.payment.terms import RATE_UNITS_MIN, Payment
from jobs.pricing import assets
from jobs.pricing.funds import spendable_units
from jobs.quoting.quote_terms import Terms, chosen_of, demand_of, terms_of
from jobs.results import find_results
from jobs.spec import Spec, canonical, spec_hash
from jobs.spec.following import name_after
from jobs.wire import EvaluationTerms, Plan, QuoteView
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock, signing
from provider_agent.protocol import is_allowed_registry, registry_of


def check_image(spec: Spec) -> None:
    """Raise ImageNotAllowed for an image of a registry that is not one of SOUK_IMAGE_REGISTRIES."""
    allowed = settings.SOUK_IMAGE_REGISTRIES
    if spec.image and not is_allowed_registry(spec.image, allowed):
        raise ImageNotAllowed(registry=registry_of(spec.image), allowed=", ".join(allowed))


def make_quote(spec: Spec, organisation: Organisation, *, after: Job | None = None) -> QuoteView:
    """A signed, stored promise for `spec`; where it fits nowhere, the reasons and the nearest fixes instead.

    A token's price of now is locked in it. `after`: as of `find_results`. Raises UnknownKind, ImageNotAllowed,
    ResultNotReady, AssetTooCoarse, and what `assets.choose` does.
    """
    kind = kind_named(spec.kind)
    check_image(spec)
    find_results(organisation, spec, after=after)
    asset, payment = assets.choose(spec.payment)
    demand, snapshot = demand_of(spec, organisation_id=organisation.pk), fleet.take_snapshot()
    found = with_links(plan(demand, snapshot))
    is_open = spec.budget.max_per_gpu_hour_usd_micros is None
    terms = terms_of(spec, found, reference_price(demand, snapshot) if is_open else None)
    _check_precision(found, payment)
    providers = _providers(demand, snapshot, terms, asset) if terms and holding.is_escrow(spec) else []
    quote = _store_quote(spec, organisation, found, terms, asset, payment, providers) if terms else None
    has = None if holding.is_escrow(spec) else spendable_units(organisation.pk, asset.pk)
    return QuoteView(
        quote_id=quote.id if quote else None,
        spec_hash=spec_hash(spec),
        plan=found,
        price_ceiling_usd_micros=quote.price_ceiling_usd_micros if quote else None,
        expected_usd_micros=terms.expected_usd_micros if terms else None,
        expected_seconds=terms.expected_seconds if terms else None,
        cap_usd_micros=quote.cap_usd_micros if quote else None,
        expires_at=quote.expires_at if quote else None,
        signature=quote.signature if quote else None,
        balance_usd_micros=payment.usd_micros(has or 0),
        asset=payment.asset,
        asset_scale=payment.scale,
        usd_micros_per_token=payment.usd_micros_per_token,
        price_source=payment.source,
        price_observed_at=payment.observed_at,
        cap_units=payment.units_up(quote.cap_usd_micros) if quote else None,
        balance_units=has,
        escrow=holding.terms_of(quote) if quote and holding.is_escrow(spec) else None,
        evaluation=_evaluation_terms(spec),
        window_usd_micros=kind.set_aside_usd_micros(quote, spec) if quote else None,
    )


def verify_quote(quote_id: UUID, *, organisation: Organisation, spec: Spec) -> Quote:
    """The quote under its row lock, when `organisation` may submit `spec` with it now. Inside a transaction.

    Raises QuoteNotFound, QuoteUsed, QuoteForged, QuoteMismatch or QuoteExpired.
    """
    quotes = Quote.objects.select_for_update(of=("self",)).select_related("asset")
    quote = quotes.filter(pk=quote_id, organisation=organisation).first()
    if quote is None:
        raise QuoteNotFound()
    if not hmac.compare_digest(signing.sign(quote_bytes(quote)), quote.signature):
        raise QuoteForged()
    used_by = Job.objects.filter(quote=quote).values_list("id", flat=True).first()
    if used_by is not None:
        raise QuoteUsed(job_id=str(used_by))
    if quote.spec_hash != spec_hash(spec):
        raise QuoteMismatch(quoted_spec_hash=quote.spec_hash)
    if quote.expires_at <= clock.now():
        raise QuoteExpired(expired_at=quote.expires_at.isoformat(timespec="seconds"))
    return quote


def quote_bytes(quote: Quote) -> bytes:
    """What the signature covers: the promise's terms as canonical JSON (sorted keys, no spaces, ASCII)."""
    body: dict[str, object] = {
        "quote_id": str(quote.id),
        "organisation_id": str(quote.organisation_id),
        "spec_hash": quote.spec_hash,
        "price_ceiling_usd_micros": quote.price_ceiling_usd_micros,
        "cap_usd_micros": quote.cap_usd_micros,
        "expires_at": quote.expires_at.isoformat(),
    }
    if not quote.payment.is_usd:  # a quote in dollars is signed as it always was
        assert quote.price_observed_at is not None  # noqa: S101 - the database has a CHECK
        body["payment"] = {
            "asset": quote.payment.asset,
            "scale": quote.payment.scale,
            "usd_micros_per_token": str(quote.usd_micros_per_token),
            "source": quote.price_source,
            "observed_at": quote.price_observed_at.isoformat(),
            **({"providers_root": providers_root(quote.providers)} if quote.providers else {}),
        } | ({"mode": mode} if (mode := quote.spec["payment"]["mode"]) != "credits" else {})
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _evaluation_terms(spec: Spec) -> EvaluationTerms | None:
    if spec.evaluation is None:
        return None
    return EvaluationTerms(name=name_after(spec.name), cap_usd_micros=spec.evaluation.budget.max_total_usd_micros)


def _check_precision(found: Plan, payment: Payment) -> None:
    """Refuse a token that cannot express the chosen price: each rate is rounded down, at the provider's cost."""
    chosen = chosen_of(found)
    rate = payment.units_down(chosen.price_usd_micros_per_device_hour) if chosen else RATE_UNITS_MIN
    if rate < RATE_UNITS_MIN and not payment.is_usd:
        raise AssetTooCoarse(asset=payment.asset, rate=rate)


def _providers(demand: Demand, snapshot: FleetSnapshot, terms: Terms, asset: Asset) -> list[str]:
    """Whom the wallet will be asked to allow: everybody whose node could take the job at its price, cheapest first."""
    slots = screen(replace(demand, price_ceiling_usd_micros=terms.price_ceiling_usd_micros), snapshot).slots
    rows = sorted((slot.row for slot in slots), key=lambda row: snapshot.prices_usd_micros[row])
    return holding.providers_of(asset, [snapshot.node_ids[row] for row in rows])


def _store_quote(  # noqa: PLR0917 - what a promise is made of
    spec: Spec,
    organisation: Organisation,
    found: Plan,
    terms: Terms,
    asset: Asset,
    payment: Payment,
    providers: list[str],
) -> Quote:
    quote = Quote(
        organisation=organisation,
        spec=canonical(spec),
        spec_hash=spec_hash(spec),
        price_ceiling_usd_micros=terms.price_ceiling_usd_micros,
        expected_usd_micros=terms.expected_usd_micros or 0,
        expected_seconds=terms.expected_seconds,
        cap_usd_micros=terms.cap_usd_micros,
        asset=asset,
        usd_micros_per_token=payment.usd_micros_per_token,
        price_source=payment.source,
        price_observed_at=payment.observed_at,
        providers=providers,
        plan=found.model_dump(mode="json"),
        expires_at=clock.now() + timedelta(seconds=settings.SOUK_QUOTE_SECONDS),
    )
    quote.signature = signing.sign(quote_bytes(quote))
    quote.save(force_insert=True)
    return quote

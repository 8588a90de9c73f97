"""The book of prices: which one counts now, and how an operator writes one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.conf import settings

from billing.errors import AmountInvalid, AssetUnknown, PriceUnavailable
from billing.fields import AMOUNT_MAX
from billing.models import Asset, TokenPrice
from billing.models.ledger import USD_ASSET_ID, USD_SCALE
from billing.models.prices import PriceSource
from billing.money import MICROS_PER_USD, parse_amount
from billing.prices.price import Price
from marketplace.foundation import clock

CLOCK_SKEW_SECONDS_MAX: Final = 5  # a price from further in the future is nobody's observation


def current(asset_id: int, *, now: datetime | None = None) -> Price:
    """The newest price of the asset that is not too old; a dollar costs a dollar, a configured price is always new.

    Raises AssetUnknown, and PriceUnavailable (503) where nothing is known, or only what is too old.
    """
    now = now or clock.now()
    if asset_id == USD_ASSET_ID:
        return Price(USD_ASSET_ID, MICROS_PER_USD, USD_SCALE, PriceSource.FIXED, now)
    asset = Asset.objects.filter(pk=asset_id).first()
    if asset is None:
        raise AssetUnknown(asset=str(asset_id))
    fixed = settings.SOUK_TOKEN_PRICES.get(asset.code)
    if fixed is not None:
        return Price(asset.pk, _micros(fixed), asset.scale, PriceSource.FIXED, now)
    newest = newest_observation(asset.pk, now=now)
    if newest is None:
        raise PriceUnavailable(asset=asset.code, why="none is known")
    age = now - newest.observed_at
    age_max = timedelta(seconds=age_seconds_max(newest.source))
    if age > age_max:
        why = f"the newest is {int(age.total_seconds())} s old, and {int(age_max.total_seconds())} s are allowed"
        raise PriceUnavailable(asset=asset.code, why=why)
    return Price(asset.pk, newest.usd_micros_per_token, asset.scale, newest.source, newest.observed_at)


def set_price(asset_id: int, usd_micros_per_token: int, *, actor: str) -> TokenPrice:
    """Write an operator's price; it counts until a newer one comes, or it is too old. Raises AmountInvalid."""
    if not 0 < usd_micros_per_token <= AMOUNT_MAX or asset_id == USD_ASSET_ID:
        raise AmountInvalid(value=str(usd_micros_per_token))
    return TokenPrice.objects.create(
        asset_id=asset_id, usd_micros_per_token=usd_micros_per_token, source=PriceSource.OPERATOR, detail=actor[:400]
    )


def newest_observation(asset_id: int, *, now: datetime) -> TokenPrice | None:
    """The last that was written, however old; nothing from the future."""
    latest = now + timedelta(seconds=CLOCK_SKEW_SECONDS_MAX)
    return TokenPrice.objects.filter(asset_id=asset_id, observed_at__lte=latest).order_by("-observed_at").first()


def age_seconds_max(source: str) -> float:
    """How long a price of this source may be used."""
    if source == PriceSource.OPERATOR:
        return float(settings.SOUK_PRICE_OPERATOR_AGE_SECONDS_MAX)
    return float(settings.SOUK_PRICE_AGE_SECONDS_MAX)


def _micros(text: str) -> int:
    """Micro-USD a whole token of a configured price such as "1.00"."""
    try:
        return parse_amount(text, scale=USD_SCALE)
    except ValueError as error:
        raise AmountInvalid(value=text) from error

"""Prices from elsewhere: several feeds are asked, those that agree with the median count, and their median is kept.

One feed is never believed: at least FEEDS_AGREEING_MIN have to be within SOUK_PRICE_DEVIATION_BPS_MAX of the median.
A median far from a price that still counts (SOUK_PRICE_JUMP_BPS_MAX) is not kept either: then the old one gets too old,
quotes in that token stop, an alert is open, and an operator types the price or the market has come back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation, localcontext
from time import monotonic
from typing import Any, Final

import httpx
from django.conf import settings

from billing.fields import AMOUNT_MAX
from billing.models import Asset, TokenPrice
from billing.models.prices import PriceSource
from billing.money import BPS_WHOLE, MICROS_PER_USD
from billing.notices import alerts
from billing.prices.book import age_seconds_max, newest_observation
from marketplace.foundation import clock

FEEDS_AGREEING_MIN: Final = 2
FEEDS_PER_ASSET_MAX: Final = 8
TIMEOUT_SECONDS: Final = 5.0
ANSWER_SECONDS_MAX: Final = 10.0
ANSWER_BYTES_MAX: Final = 64 * 1024
PATH_PARTS_MAX: Final = 8
DIGITS_MAX: Final = 78

log = logging.getLogger(__name__)


class FeedError(Exception):
    """This feed cannot be trusted now; its text has the reason."""


@dataclass(frozen=True)
class Feed:
    """One source of a price in dollars: GET `url`, follow `path` ("ethereum.usd") in its JSON."""

    name: str
    url: str
    path: str


def refresh_prices() -> int:
    """Ask the feeds of every asset that has some, outside of any transaction; how many prices were kept."""
    kept = 0
    for code, feeds in sorted(settings.SOUK_PRICE_FEEDS.items()):
        asset = Asset.objects.filter(code=code).first()
        if asset is not None:
            kept += refresh_price(asset, [Feed(**feed) for feed in feeds]) is not None
    return kept


def refresh_price(asset: Asset, feeds: Sequence[Feed]) -> TokenPrice | None:
    """Keep the median of the feeds that agree; None, and an open alert, where too few do or it jumps."""
    answers: dict[str, int] = {}
    failed: list[str] = []
    with httpx.Client(timeout=TIMEOUT_SECONDS, follow_redirects=False) as client:
        for feed in feeds[:FEEDS_PER_ASSET_MAX]:
            try:
                answers[feed.name] = ask(client, feed)
            except FeedError as error:
                failed.append(f"{feed.name}: {error}")
    agreed = agreeing(answers, settings.SOUK_PRICE_DEVIATION_BPS_MAX)
    now = clock.now()
    if len(agreed) < FEEDS_AGREEING_MIN:
        _refuse(asset, f"only {len(agreed)} feeds agree", answers, failed)
        return None
    price = median(list(agreed.values()))
    before = newest_observation(asset.pk, now=now)
    is_fresh = before is not None and (now - before.observed_at).total_seconds() <= age_seconds_max(before.source)
    if before is not None and is_fresh and _bps(price, before.usd_micros_per_token) > settings.SOUK_PRICE_JUMP_BPS_MAX:
        _refuse(asset, f"{price} is too far from {before.usd_micros_per_token}", answers, failed)
        return None
    alerts.close(_alert_key(asset))
    detail = ", ".join(f"{name} {value}" for name, value in sorted(answers.items()))
    return TokenPrice.objects.create(
        asset=asset, usd_micros_per_token=price, source=PriceSource.FEEDS, detail=detail[:400], observed_at=now
    )


def ask(client: httpx.Client, feed: Feed) -> int:
    """Micro-USD a whole token, rounded down; raises FeedError for anything but one positive, finite number."""
    try:
        with client.stream("GET", feed.url, headers={"Accept": "application/json"}) as answer:
            if answer.status_code != httpx.codes.OK:
                raise FeedError(f"answered {answer.status_code}")
            body, started = bytearray(), monotonic()
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > ANSWER_BYTES_MAX:
                    raise FeedError(f"answered more than {ANSWER_BYTES_MAX} bytes")
                if monotonic() - started > ANSWER_SECONDS_MAX:
                    raise FeedError(f"took more than {ANSWER_SECONDS_MAX} s")
    except httpx.HTTPError as error:
        raise FeedError(type(error).__name__) from error
    try:
        found: Any = json.loads(bytes(body), parse_float=Decimal, parse_int=Decimal)
        for part in feed.path.split(".", PATH_PARTS_MAX):
            found = found[int(part)] if isinstance(found, list) else found[part]
        number = Decimal(found) if isinstance(found, (str, Decimal)) else Decimal("NaN")
    except (ValueError, LookupError, TypeError, InvalidOperation, RecursionError) as error:
        raise FeedError(f"has no price at {feed.path}") from error
    if not number.is_finite() or number <= 0 or abs(number.adjusted()) > DIGITS_MAX:
        raise FeedError("says something that is not a price")
    with localcontext(prec=2 * DIGITS_MAX):  # the default would round what has more than 28 digits
        micros = int(number * MICROS_PER_USD)
    if not 0 < micros <= AMOUNT_MAX:
        raise FeedError("says a price that cannot be counted in micro-USD")
    return micros


def agreeing(answers: dict[str, int], deviation_bps_max: int) -> dict[str, int]:
    """Those within the deviation of the median of all: one liar among three is left out, one of two silences both."""
    if not answers:
        return {}
    middle = median(list(answers.values()))
    return {name: value for name, value in answers.items() if _bps(value, middle) <= deviation_bps_max}


def median(values: Sequence[int]) -> int:
    """The middle value; of two in the middle, their mean rounded down."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


def _bps(value: int, reference: int) -> int:
    """By how many basis points of the reference it differs, rounded up."""
    return -(-abs(value - reference) * BPS_WHOLE // reference) if reference else BPS_WHOLE


def _refuse(asset: Asset, why: str, answers: dict[str, int], failed: Sequence[str]) -> None:
    received = ", ".join([*(f"{name} says {value}" for name, value in sorted(answers.items())), *failed])
    message = f"The price of {asset.code} was not refreshed: {why}. Micro-USD a token: {received or 'nothing'}."
    alerts.raise_once(_alert_key(asset), kind="price", subject=asset.code, message=message)


def _alert_key(asset: Asset) -> str:
    return f"price/{asset.code}"

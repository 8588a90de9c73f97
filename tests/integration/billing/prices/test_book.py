"""Which price counts: configured, typed in, or the median of feeds that agree; never one that is too old."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client

from billing import prices
from billing.errors import AmountInvalid, AssetUnknown, PriceUnavailable
from billing.fields import AMOUNT_MAX
from billing.models import Alert, Asset, TokenPrice
from billing.prices import feeds
from billing.prices.feeds import Feed
from marketplace.accounts.models import User
from marketplace.foundation import clock

pytestmark = pytest.mark.django_db
WETH = "0x" + "22" * 20


class Exchange:
    """Feeds on loopback: the test sets what each path answers."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {}
        exchange = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = exchange.answers.get(self.path, (404, b"{}"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Location", "/a")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def says(self, **answers: object) -> list[Feed]:
        """Feeds by these names that say these things; bytes are sent as they are."""
        for name, value in answers.items():
            body = value if isinstance(value, bytes) else json.dumps({"ether": {"usd": value}}).encode()
            self.answers[f"/{name}"] = (200, body)
        return [Feed(name, f"http://127.0.0.1:{self.server.server_port}/{name}", "ether.usd") for name in answers]


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    made = Exchange()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def weth(db: None) -> Asset:
    return Asset.objects.create(id=7, code="WETH", scale=18, kind="erc20", chain_id=1337, contract=WETH)


def test_a_dollar_costs_a_dollar():
    price = prices.current(1)
    assert price.units_down(2_500_000) == price.usd_micros(2_500_000) == 2_500_000


def test_a_token_without_any_price_is_refused_by_name(weth):
    with pytest.raises(PriceUnavailable, match=r"WETH.*none is known"):
        prices.current(weth.pk)
    with pytest.raises(AssetUnknown):
        prices.current(999)


def test_a_configured_price_is_always_new(weth, settings):
    settings.SOUK_TOKEN_PRICES = {"WETH": "1.00"}
    assert prices.current(weth.pk).usd_micros_per_token == 1_000_000
    settings.SOUK_TOKEN_PRICES = {"WETH": "1.0000001"}
    with pytest.raises(AmountInvalid):
        prices.current(weth.pk)


def test_an_operators_price_counts_until_it_is_too_old(weth, settings):
    settings.SOUK_PRICE_OPERATOR_AGE_SECONDS_MAX = 60
    prices.set_price(weth.pk, 3_120_550_000, actor="op@example.org")
    now = clock.now()
    assert prices.current(weth.pk, now=now).units_up(3_120_550_000) == 10**18
    with pytest.raises(PriceUnavailable, match="61 s old, and 60 s"):
        prices.current(weth.pk, now=TokenPrice.objects.get().observed_at + timedelta(seconds=61))


def test_a_price_from_the_future_does_not_count(weth):
    TokenPrice.objects.create(
        asset=weth, usd_micros_per_token=1, source="feeds", observed_at=clock.now() + timedelta(minutes=5)
    )
    with pytest.raises(PriceUnavailable):
        prices.current(weth.pk)


@pytest.mark.parametrize("wrong", [0, -1, AMOUNT_MAX + 1])
def test_a_price_out_of_range_is_refused_by_verb_and_database(weth, wrong):
    with pytest.raises(AmountInvalid):
        prices.set_price(weth.pk, wrong, actor="op@example.org")
    with pytest.raises(IntegrityError, match="token_price_in_range"), transaction.atomic():
        TokenPrice.objects.create(asset=weth, usd_micros_per_token=wrong, source="operator")


def test_the_median_of_agreeing_feeds_is_kept_with_each_answer(weth, exchange):
    row = feeds.refresh_price(weth, exchange.says(a=3120.5, b="3121.25", c=3122))
    assert row.usd_micros_per_token == 3_121_250_000
    assert row.detail == "a 3120500000, b 3121250000, c 3122000000"
    assert prices.current(weth.pk).source == "feeds"


def test_one_liar_among_three_changes_nothing(weth, exchange):
    assert feeds.refresh_price(weth, exchange.says(a=3120, b=3121, mallory=1)).usd_micros_per_token == 3_120_500_000


def test_two_feeds_that_disagree_are_both_refused_and_an_alert_opens(weth, exchange):
    assert feeds.refresh_price(weth, exchange.says(a=3120, mallory=31)) is None
    assert Alert.objects.open().get().kind == "price"
    with pytest.raises(PriceUnavailable):
        prices.current(weth.pk)
    assert feeds.refresh_price(weth, exchange.says(a=3120, b=3120)) is not None
    assert not Alert.objects.open().exists()


def test_one_feed_alone_is_never_believed(weth, exchange):
    assert feeds.refresh_price(weth, exchange.says(a=3120)) is None


def test_a_jump_is_refused_while_the_last_price_counts_and_taken_when_it_does_not(weth, exchange, settings):
    feeds.refresh_price(weth, exchange.says(a=3000, b=3000))
    assert feeds.refresh_price(weth, exchange.says(a=1500, b=1500)) is None
    assert "too far" in Alert.objects.open().get().message
    settings.SOUK_PRICE_AGE_SECONDS_MAX = 0
    assert feeds.refresh_price(weth, exchange.says(a=1500, b=1500)).usd_micros_per_token == 1_500_000_000


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"not json",
        b"{}",
        b'{"ether": 5}',
        b'{"ether": {"usd": null}}',
        b'{"ether": {"usd": true}}',
        b'{"ether": {"usd": NaN}}',
        b'{"ether": {"usd": "Infinity"}}',
        b'{"ether": {"usd": -3}}',
        b'{"ether": {"usd": 0}}',
        b'{"ether": {"usd": 1e-9}}',
        b'{"ether": {"usd": 1e999999}}',
        b'{"ether": {"usd": [3120]}}',
        b"[" * 30_000,
        b" " * 70_000,
    ],
)
def test_an_answer_that_is_no_price_counts_as_none(weth, exchange, answer):
    assert feeds.refresh_price(weth, exchange.says(a=3120, mallory=answer)) is None
    assert feeds.refresh_price(weth, exchange.says(a=3120, b=3120, mallory=answer)) is not None


def test_errors_redirects_and_silence_count_as_none(weth, exchange):
    good = exchange.says(a=3120, broken=3120, moved=3120)
    exchange.answers["/broken"] = (500, b'{"ether": {"usd": 3120}}')
    exchange.answers["/moved"] = (302, b'{"ether": {"usd": 3120}}')
    silent = Feed("silent", "http://127.0.0.1:1/", "ether.usd")
    assert feeds.refresh_price(weth, [*good, silent]) is None


def test_many_digits_are_read_exactly(weth, exchange):
    digits = "9" * 60
    row = feeds.refresh_price(weth, exchange.says(a=digits, b=f'{{"ether": {{"usd": {digits}}}}}'.encode()))
    assert row.usd_micros_per_token == int(digits) * 10**6


def test_the_tick_asks_the_feeds_of_every_configured_asset(weth, exchange, settings):
    all_feeds = exchange.says(a=3120, b=3120)
    settings.SOUK_PRICE_FEEDS = {"WETH": [vars(feed) for feed in all_feeds], "NONE": []}
    assert feeds.refresh_prices() == 1


def test_an_observation_is_never_changed(weth):
    prices.set_price(weth.pk, 5, actor="op@example.org")
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE billing_tokenprice SET usd_micros_per_token = 6")


def test_an_operator_types_a_price_in_the_admin(weth):
    page = Client()
    page.force_login(User.objects.create_superuser("op@example.org", "correct horse battery"))
    wrong = page.post("/admin/billing/tokenprice/add/", {"asset": weth.pk, "price": "0"})
    assert wrong.status_code == 200 and not TokenPrice.objects.exists()
    done = page.post("/admin/billing/tokenprice/add/", {"asset": weth.pk, "price": "3120.55"})
    assert done.status_code == 302
    assert TokenPrice.objects.get().detail == "op@example.org"
    assert prices.current(weth.pk).usd_micros_per_token == 3_120_550_000

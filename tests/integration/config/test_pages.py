"""The pages that belong to no package: front page, health, metrics, documentation."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from pytest_django import Settings

from marketplace.portal.landing.counts import MarketCounts

pytestmark = pytest.mark.django_db


def test_everybody_sees_the_market_on_the_front_page(client: Client) -> None:
    page = client.get("/")
    text = page.content.decode()
    assert page.status_code == 200
    assert "nodes online" in text
    assert 'href="/admin/"' in text
    assert 'href="/signup"' in text
    assert 'href="/api/docs"' in text


def test_the_front_page_loads_nothing_from_elsewhere(client: Client) -> None:
    text = client.get("/").content.decode()
    loaded = re.findall(r"(?:src|href)=[\"'](?!#|/|data:)([^\"']*)", text)
    assert loaded == []


@pytest.mark.parametrize(
    ("micros", "shown"),
    [(None, "–"), (2_000_000, "$2.00"), (1_250_000, "$1.25"), (12_300, "$0.0123"), (10_000, "$0.01")],
)
def test_a_small_price_keeps_its_digits(micros: int | None, shown: str) -> None:
    assert MarketCounts(0, 0, 0, 0, micros).cheapest_usd == shown


def test_health_is_well_when_both_servers_answer(client: Client) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "down": []})


def test_metrics_are_for_loopback(client: Client) -> None:
    assert client.get("/metrics").status_code == 200
    assert client.get("/metrics", REMOTE_ADDR="203.0.113.9").status_code == 403
    # Behind a proxy everybody looks like loopback.
    assert client.get("/metrics", headers={"X-Forwarded-For": "203.0.113.9"}).status_code == 403


def test_metrics_are_for_who_has_the_token(client: Client, settings: Settings) -> None:
    settings.SOUK_METRICS_TOKEN = "t0ken"
    assert client.get("/metrics").status_code == 403
    assert client.get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 403
    answer = client.get("/metrics", REMOTE_ADDR="203.0.113.9", headers={"Authorization": "Bearer t0ken"})
    assert answer.status_code == 200
    assert b"souk_ledger_sum_usd_micros 0.0" in answer.content
    for name in (
        b"souk_orphans_ended",
        b"souk_ghosts_killed",
        b"souk_leases_without_program",
        b"souk_refunded_seconds",
    ):
        assert name + b" 0.0" in answer.content


def test_what_is_not_there_is_answered_in_json_below_the_api(client: Client) -> None:
    answer = client.get("/api/v1/nothing/here")
    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"


def test_the_schema_lists_customers_calls_and_not_those_of_agents(client: Client) -> None:
    text = client.get("/api/schema").content.decode()
    assert "/api/v1/quotes" in text
    assert "/api/agent/" not in text

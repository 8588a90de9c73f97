"""Tokens too few to cost a micro-dollar cost what they sum to: nothing is free for ever, and nothing is paid twice."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.db.models import Sum
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.endpoints import usage
from jobs.gateway.messages import UsageRow
from jobs.models import Endpoint, EndpointKey, UsageDay, UsageRecord
from marketplace.accounts.models import Organisation
from tests import stage
from tests.integration.jobs.serving import scenes
from tests.integration.racing import race
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)

PRICE = 20_000  # micro-USD a million tokens: $0.02
PICOS_PER_MICRO = 1_000_000


@pytest.fixture
def endpoint(alice: Organisation) -> Endpoint:
    return scenes.endpoint(alice, prices={"input_per_million": "0.02", "output_per_million": "0.02"})


@pytest.fixture
def key(transactional_db: None) -> EndpointKey:
    return scenes.key(stage.organisation("mallory", usd_micros=10 * DOLLAR))


def small(seq: int, key: EndpointKey, endpoint: Endpoint, tokens: int) -> UsageRow:
    """A request of so many tokens, as the gateway prices it."""
    picos = tokens * PRICE
    cost = -(-picos // PICOS_PER_MICRO)
    more = {"input_tokens": tokens, "output_tokens": 0, "cost_usd_micros": cost, "cost_usd_picos": picos}
    return scenes.row(seq, key, endpoint, **more)


def costs(key: EndpointKey) -> tuple[int, int, int]:
    """By records, by days, and by what counts against the budget."""
    key.refresh_from_db()
    records, days = UsageRecord.objects.filter(key_id=key.pk), UsageDay.objects.filter(key_id=key.pk)
    sums = [each.aggregate(sum=Sum("cost_usd_micros"))["sum"] or 0 for each in (records, days)]
    return sums[0], sums[1], key.spent_usd_micros


def test_thousand_requests_of_ten_tokens_cost_what_ten_thousand_tokens_cost(
    key: EndpointKey, endpoint: Endpoint
) -> None:
    gateway = scenes.gateway()
    rows = [small(seq, key, endpoint, 10) for seq in range(1, 1001)]
    for start in range(0, 1000, 100):
        usage.ingest_usage(gateway, rows[start : start + 100])
    assert costs(key) == (200, 200, 200)


def test_rest_of_a_request_that_came_twice_is_kept_once(key: EndpointKey, endpoint: Endpoint) -> None:
    first, second = scenes.gateway(), scenes.gateway()
    rows = [small(seq, key, endpoint, 10) for seq in range(1, 10)]
    for gateway in (first, second, first):
        usage.ingest_usage(gateway, rows)
    assert costs(key) == (1, 1, 1)  # of 1.8
    usage.ingest_usage(first, [small(10, key, endpoint, 10)])
    assert costs(key) == (2, 2, 2)


def test_two_gateways_at_once_keep_one_rest(key: EndpointKey, endpoint: Endpoint) -> None:
    def report(gateway: UUID) -> int:
        for seq in range(1, 31):
            usage.ingest_usage(gateway, [small(seq, key, endpoint, 10)])
        return 0

    race(*[lambda gateway=gateway: report(gateway) for gateway in (scenes.gateway(), scenes.gateway())])
    assert costs(key) == (12, 12, 12)


def test_rest_is_of_one_key_and_one_endpoint(key: EndpointKey, endpoint: Endpoint, alice: Organisation) -> None:
    other = scenes.key(alice)
    usage.ingest_usage(scenes.gateway(), [small(1, key, endpoint, 40), small(2, other, endpoint, 40)])
    assert (costs(key), costs(other)) == ((0, 0, 0), (0, 0, 0))
    usage.ingest_usage(scenes.gateway(), [small(1, key, endpoint, 10)])
    assert (costs(key), costs(other)) == ((1, 1, 1), (0, 0, 0))


def test_price_of_a_gateway_bounds_the_exact_cost(key: EndpointKey, endpoint: Endpoint) -> None:
    cheaper = small(1, key, endpoint, 1000).model_copy(update={"cost_usd_picos": 7 * PICOS_PER_MICRO})
    older = small(2, key, endpoint, 1000).model_copy(update={"cost_usd_picos": None, "cost_usd_micros": 5})
    usage.ingest_usage(scenes.gateway(), [cheaper, older])
    assert costs(key)[0] == 7 + 5


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 5000), max_size=8), max_size=6))
def test_cost_of_any_batches_is_the_exact_sum_rounded_down(endpoint: Endpoint, batches: list[list[int]]) -> None:
    key, gateway, seq = scenes.key(endpoint.organisation), scenes.gateway(), 0
    for batch in batches:
        usage.ingest_usage(gateway, [small(seq + i, key, endpoint, tokens) for i, tokens in enumerate(batch, 1)])
        seq += len(batch)
    exact = sum(map(sum, batches)) * PRICE // PICOS_PER_MICRO
    assert costs(key) == (exact, exact, exact)

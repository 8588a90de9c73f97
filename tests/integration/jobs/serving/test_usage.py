"""What gateways counted goes into the books once, whatever is repeated, lost or out of order; then it is paid."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db.models import Sum
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.account_kinds import AccountKind
from billing.books import deposits, ledger
from billing.books.balances import balance
from billing.models import Alert
from jobs.endpoints import token_payments, usage
from jobs.gateway.messages import UsageRow
from jobs.models import Endpoint, EndpointKey, Gateway, UsageAside, UsageDay, UsagePayment, UsageRecord
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from tests import stage
from tests.integration.billing.scenes import assert_ledger_is_true
from tests.integration.jobs.serving import scenes
from tests.integration.racing import race
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)

ROWS = 12
MILLION = 1_000_000


@pytest.fixture
def carol(transactional_db: None) -> Organisation:
    return stage.organisation("carol", usd_micros=10 * DOLLAR)


@pytest.fixture
def endpoint(alice: Organisation) -> Endpoint:
    return scenes.endpoint(alice)


@pytest.fixture
def key(carol: Organisation) -> EndpointKey:
    return scenes.key(carol)


@pytest.fixture
def gateway(transactional_db: None) -> UUID:
    return scenes.gateway()


def _books() -> tuple[object, ...]:
    """All fields of use but the times."""
    days = sorted(UsageDay.objects.values_list("key_id", "model", "requests", "input_tokens", "cost_usd_micros"))
    records = sorted(UsageRecord.objects.values_list("request_id", "part", "cost_usd_micros"))
    return records, days, sorted(EndpointKey.objects.values_list("pk", "spent_usd_micros"))


def test_use_is_recorded_added_up_by_day_and_counted_against_the_budget(
    gateway: UUID, key: EndpointKey, endpoint: Endpoint
) -> None:
    rows = [scenes.row(1, key, endpoint), scenes.row(2, key, endpoint, status="cancelled", output_tokens=0)]
    assert usage.ingest_usage(gateway, rows) == 2
    key.refresh_from_db()
    assert (key.spent_usd_micros, key.spent_month_usd_micros) == (4 * DOLLAR, 4 * DOLLAR)
    day = UsageDay.objects.get()
    assert (day.requests, day.failed, day.input_tokens, day.output_tokens) == (2, 0, 2_000_000, 1_000_000)
    assert day.cost_usd_micros == 4 * DOLLAR
    assert usage.ingest_usage(gateway, []) == 2


def test_cost_is_the_endpoints_price_whatever_the_gateway_says(
    gateway: UUID, key: EndpointKey, endpoint: Endpoint
) -> None:
    usage.ingest_usage(
        gateway,
        [
            scenes.row(1, key, endpoint, cost_usd_micros=10**12),
            scenes.row(2, key, endpoint, cost_usd_micros=5),  # such as of a part whose prompt was read before
            scenes.row(3, key, endpoint, status="failed"),
        ],
    )
    assert list(UsageRecord.objects.order_by("seq").values_list("cost_usd_micros", flat=True)) == [3 * DOLLAR, 5, 0]


def test_price_is_that_of_the_version_that_answered(gateway: UUID, key: EndpointKey, endpoint: Endpoint) -> None:
    dearer = json.loads(json.dumps(endpoint.job.spec))
    dearer["serve"]["prices"] = {"input_per_million": "2.00"}
    endpoint.versions.create(number=2, spec=dearer)
    usage.ingest_usage(gateway, [scenes.row(1, key, endpoint), scenes.row(2, key, endpoint, version=2)])
    assert list(UsageRecord.objects.order_by("seq").values_list("cost_usd_micros", flat=True)) == [
        3 * DOLLAR,
        2 * DOLLAR,
    ]


def test_what_cannot_be_booked_is_kept_apart_and_reported(
    alice: Organisation, gateway: UUID, key: EndpointKey, endpoint: Endpoint
) -> None:
    rows = [
        scenes.row(1, key, endpoint).model_copy(update={"key_id": uuid4()}),
        scenes.row(2, key, endpoint).model_copy(update={"endpoint_id": uuid4()}),
        scenes.row(3, key, endpoint).model_copy(update={"organisation_id": alice.pk}),
        scenes.row(4, key, endpoint, input_tokens=10**15),
        scenes.row(5, key, endpoint, at_ms=10**17, model="m\0"),
    ]
    assert usage.ingest_usage(gateway, rows) == 5
    whys = list(UsageAside.objects.order_by("seq").values_list("why", flat=True))
    assert whys == ["unknown_key", "unknown_endpoint", "key_of_another", "implausible"]
    assert UsageRecord.objects.get().seq == 5
    assert Alert.objects.filter(kind=usage.ASIDE_ALERT).count() == 1


def test_one_request_reported_by_two_gateways_is_billed_once(
    gateway: UUID, key: EndpointKey, endpoint: Endpoint
) -> None:
    row = scenes.row(1, key, endpoint)
    others = [scenes.gateway() for _ in range(3)]
    results = race(*[lambda each=each: usage.ingest_usage(each, [row]) for each in [gateway, *others]])
    assert results == [1, 1, 1, 1]
    assert UsageRecord.objects.count() == 1
    assert UsageDay.objects.get().requests == 1
    key.refresh_from_db()
    assert key.spent_usd_micros == 3 * DOLLAR
    assert UsageAside.objects.filter(why="counted_before").count() == 3


def test_same_batch_from_two_connections_is_booked_once(gateway: UUID, key: EndpointKey, endpoint: Endpoint) -> None:
    rows = [scenes.row(seq, key, endpoint) for seq in range(1, 30)]
    assert race(*[lambda: usage.ingest_usage(gateway, rows)] * 4) == [29] * 4
    assert UsageRecord.objects.count() == 29 == UsageDay.objects.get().requests


def test_gap_keeps_what_follows_out_and_is_reported_until_it_is_closed(
    gateway: UUID, key: EndpointKey, endpoint: Endpoint
) -> None:
    rows = [scenes.row(seq, key, endpoint) for seq in range(1, 5)]
    assert usage.ingest_usage(gateway, [rows[0], rows[2], rows[3]]) == 1
    assert usage.ingest_usage(gateway, rows[2:]) == 1
    assert Alert.objects.filter(kind=usage.GAP_ALERT, closed_at=None).count() == 1
    assert usage.ingest_usage(gateway, rows) == 4
    assert Alert.objects.filter(kind=usage.GAP_ALERT, closed_at=None).count() == 0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lost=st.lists(st.tuples(st.integers(0, ROWS), st.integers(1, ROWS), st.booleans()), max_size=8),
    order=st.randoms(use_true_random=False),
)
def test_any_order_repeat_or_loss_of_batches_gives_the_same_books(
    lost: list[tuple[int, int, bool]], order: object, carol: Organisation, alice: Organisation, endpoint: Endpoint
) -> None:
    for table in (UsageRecord, UsageDay, UsageAside, EndpointKey, Gateway):
        table.objects.all().delete()
    key, gateway = scenes.key(carol), scenes.gateway()
    rows = [scenes.row(seq, key, endpoint, model=f"m{seq % 3}", input_tokens=seq) for seq in range(1, ROWS + 1)]
    for start, length, is_shuffled in lost:  # whatever arrives, answered or not
        batch = rows[start : start + length]
        if is_shuffled:
            order.shuffle(batch)  # type: ignore[attr-defined]
        usage.ingest_usage(gateway, batch)
    while (known := usage.ingest_usage(gateway, [])) < ROWS:  # and then the gateway goes on from what it was answered
        usage.ingest_usage(gateway, rows[known : known + 5])
    cost = sum(usage.picos_of(row, DOLLAR, 2 * DOLLAR) // MILLION for row in rows)
    records, days, spent = _books()
    assert records == sorted((row.request_id, 0, usage.picos_of(row, DOLLAR, 2 * DOLLAR) // MILLION) for row in rows)
    assert sum(each[2] for each in days) == ROWS  # type: ignore[attr-defined]
    assert sum(each[4] for each in days) == cost  # type: ignore[attr-defined]
    assert spent == [(key.pk, cost)]


def test_hundreds_of_rows_take_a_few_queries(
    gateway: UUID, carol: Organisation, endpoint: Endpoint, django_assert_max_num_queries: Any
) -> None:
    made = [scenes.key(carol) for _ in range(20)]
    rows: list[UsageRow] = [scenes.row(seq, made[seq % 20], endpoint) for seq in range(1, 501)]
    with django_assert_max_num_queries(14):
        assert usage.ingest_usage(gateway, rows) == 500


def test_caller_of_another_organisation_pays_once_for_many_requests(
    gateway: UUID, alice: Organisation, carol: Organisation, key: EndpointKey, endpoint: Endpoint
) -> None:
    usage.ingest_usage(gateway, [scenes.row(seq, key, endpoint) for seq in range(1, 4)])
    assert token_payments.pay_due() == 1
    assert token_payments.pay_due() == 0
    payment = UsagePayment.objects.get()
    assert (payment.records, payment.charged_usd_micros) == (3, 9 * DOLLAR)
    assert balance(carol.id, AccountKind.CUSTOMER_AVAILABLE) == 1 * DOLLAR
    assert balance(alice.id, AccountKind.PROVIDER_AVAILABLE) == payment.paid_usd_micros == 8_100_000
    assert balance(None, AccountKind.FEE_REVENUE) == payment.fee_usd_micros == 900_000
    assert_ledger_is_true()


def test_calls_at_home_cost_nothing(gateway: UUID, alice: Organisation, endpoint: Endpoint) -> None:
    key = scenes.key(alice)
    usage.ingest_usage(gateway, [scenes.row(1, key, endpoint)])
    assert token_payments.pay_due() == 0
    key.refresh_from_db()
    assert key.spent_usd_micros == 3 * DOLLAR


def test_what_the_balance_does_not_cover_stays_due_and_the_key_is_refused(
    gateway: UUID, carol: Organisation, key: EndpointKey, endpoint: Endpoint
) -> None:
    usage.ingest_usage(gateway, [scenes.row(seq, key, endpoint) for seq in range(1, 6)])  # 15 of 10 dollars
    assert token_payments.pay_due() == 1
    assert UsagePayment.objects.get().records == 3
    assert token_payments.pay_due() == 0
    assert scenes.grant(gateway, key).refused == "no_money"
    deposits.credit(carol.id, 10 * DOLLAR, reference="more", actor="operator")
    assert token_payments.pay_due() == 1
    assert UsageRecord.objects.filter(payment=None).count() == 0
    assert UsagePayment.objects.aggregate(sum=Sum("charged_usd_micros"))["sum"] == 15 * DOLLAR
    assert ledger.verify().problems == []


def test_two_who_pay_at_once_pay_once(gateway: UUID, carol: Organisation, key: EndpointKey, endpoint: Endpoint) -> None:
    usage.ingest_usage(gateway, [scenes.row(seq, key, endpoint) for seq in range(1, 4)])
    results = race(*[token_payments.pay_due] * 4)
    assert not [each for each in results if isinstance(each, Exception)]
    token_payments.pay_due()
    assert balance(carol.id, AccountKind.CUSTOMER_AVAILABLE) == 1 * DOLLAR
    assert_ledger_is_true()


def test_old_records_are_forgotten_once_paid_and_their_sums_stay(
    gateway: UUID, key: EndpointKey, endpoint: Endpoint
) -> None:
    usage.ingest_usage(gateway, [scenes.row(1, key, endpoint)])
    UsageRecord.objects.update(at=clock.now() - token_payments.KEEP_RECORDS - timedelta(days=1))
    assert token_payments.forget_records() == 0  # it is due
    token_payments.pay_due()
    assert token_payments.forget_records() == 1
    assert UsageDay.objects.get().cost_usd_micros == 3 * DOLLAR

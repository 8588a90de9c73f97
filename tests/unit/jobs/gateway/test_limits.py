"""What a key may use is never exceeded, whatever the order in which requests come, are counted and end."""

from __future__ import annotations

import contextlib
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.gateway.accounting.limits import Limits, Ticket, cost_usd_micros
from jobs.gateway.errors import ApiError
from tests.unit.jobs.gateway.stage import BOB, endpoint_for, grant_for

ENDPOINT = endpoint_for("tiny")  # $1 and $2 a million tokens


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def limits_with(clock: Clock | None = None, **fields: int) -> Limits:
    return Limits(**({"requests_per_endpoint_max": 100} | fields), clock=clock or Clock())


def refusal(limits: Limits, grant, *tokens: int) -> ApiError:
    with pytest.raises(ApiError) as refused:
        limits.admit(grant, ENDPOINT, *tokens)
    return refused.value


def test_a_key_has_so_many_requests_a_minute_and_gets_them_back():
    clock = Clock()
    limits, grant = limits_with(clock), grant_for("alice", requests_per_minute=2)
    for _ in range(2):
        limits.release(limits.admit(grant, ENDPOINT, 1, 1))
    error = refusal(limits, grant, 1, 1)
    assert (error.status, error.code) == (429, "rate_limit_exceeded")
    assert error.retry_after == pytest.approx(30)
    clock.now += 30
    limits.admit(grant, ENDPOINT, 1, 1)


def test_headers_say_what_is_left():
    limits, grant = limits_with(), grant_for("alice", requests_per_minute=60, tokens_per_minute=1000)
    limits.admit(grant, ENDPOINT, 100, 300)
    headers = {name.decode(): value.decode() for name, value in limits.rate_headers(grant)}
    assert headers == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1.0s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "600",
        "x-ratelimit-reset-tokens": "24.0s",
    }


def test_tokens_that_were_reserved_and_not_used_come_back():
    limits, grant = limits_with(), grant_for("alice", tokens_per_minute=1000)
    ticket = limits.admit(grant, ENDPOINT, 100, 900)
    assert refusal(limits, grant, 1, 1).type == "tokens"
    limits.spend(grant.key_id, 150, 0)
    limits.release(ticket)
    limits.admit(grant, ENDPOINT, 100, 750)
    assert refusal(limits, grant, 1, 1).status == 429


def test_a_request_that_no_minute_could_take_is_refused_at_once():
    assert refusal(limits_with(), grant_for("alice", tokens_per_minute=10), 11, 1).retry_after is None


def test_an_answer_longer_than_a_minute_s_tokens_needs_a_full_minute():
    limits, grant = limits_with(), grant_for("alice", tokens_per_minute=10)
    limits.admit(grant, ENDPOINT, 5, 4096)
    assert refusal(limits, grant, 1, 0).status == 429


def test_requests_at_once_are_bounded_for_key_and_endpoint():
    limits, grant = limits_with(requests_per_endpoint_max=3), grant_for("alice", in_flight_max=2)
    tickets = [limits.admit(grant, ENDPOINT, 1, 1) for _ in range(2)]
    assert refusal(limits, grant, 1, 1).code == "rate_limit_exceeded"
    limits.admit(grant_for("bob"), ENDPOINT, 1, 1)
    assert refusal(limits, grant_for("bob"), 1, 1).code == "server_overloaded"
    limits.release(tickets[0])
    limits.admit(grant, ENDPOINT, 1, 1)


def test_a_budget_is_reserved_by_the_most_that_a_request_can_cost():
    limits, grant = limits_with(), grant_for("alice", budget_usd_micros=100)
    ticket = limits.admit(grant, ENDPOINT, 20, 40)  # 20 + 80
    assert refusal(limits, grant, 1, 0).code == "insufficient_quota"
    limits.spend(grant.key_id, 30, 50)
    limits.release(ticket)
    assert limits.budget_left(grant) == 50


def test_a_renewed_budget_is_not_lowered_by_what_was_taken_off_already():
    limits, grant = limits_with(), grant_for("alice", budget_usd_micros=100)
    limits.renew(grant)
    limits.spend(grant.key_id, 1, 60)
    limits.spend(grant.key_id, 1, 20)
    limits.acknowledge(grant.key_id, 60)  # the first row is in the books, the second is not
    renewed = grant_for("alice", budget_usd_micros=40)
    limits.renew(renewed)
    assert limits.budget_left(renewed) == 20


def test_other_organisations_endpoints_are_paid_from_a_balance_of_their_own():
    limits, grant = limits_with(), grant_for("bob", BOB, foreign_usd_micros=100)
    ticket = limits.admit(grant, ENDPOINT, 20, 40)
    assert refusal(limits, grant, 1, 0).code == "insufficient_quota"
    own = endpoint_for("own", BOB)
    limits.release(limits.admit(grant, own, 1000, 1000))
    limits.spend(grant.key_id, 1, 70, foreign=True)
    limits.spend(grant.key_id, 1, 70)
    limits.release(ticket)
    limits.release(limits.admit(grant, ENDPOINT, 30, 0))
    assert refusal(limits, grant, 31, 0).code == "insufficient_quota"
    limits.acknowledge(grant.key_id, 70, foreign=True)
    limits.renew(grant)
    limits.admit(grant, ENDPOINT, 100, 0)


def test_a_grant_without_a_balance_reaches_no_foreign_endpoint_that_costs_anything():
    limits, grant = limits_with(), grant_for("bob", BOB, foreign_usd_micros=None)
    assert refusal(limits, grant, 1, 0).code == "insufficient_quota"
    free = endpoint_for("free", input_usd_micros_per_million=0, output_usd_micros_per_million=0)
    limits.admit(grant, free, 1000, 1000)


def test_accounts_that_nothing_hangs_on_are_forgotten():
    clock = Clock()
    limits = limits_with(clock)
    for name in range(50):
        grant = grant_for(f"key{name}", key_id=UUID(int=name))
        limits.release(limits.admit(grant, ENDPOINT, 1, 1))
    limits.spend(UUID(int=7), 1, 5)  # not in the books yet
    clock.now += 10_000
    limits.sweep()
    assert len(limits) == 1


def test_a_key_that_owes_tokens_is_not_forgotten_before_it_has_made_them_good() -> None:
    clock = Clock()
    limits = limits_with(clock)
    grant = grant_for("alice", tokens_per_minute=10)
    limits.release(limits.admit(grant, ENDPOINT, 1, 1))
    limits.spend(grant.key_id, 1_000, 0)  # an answer that was longer than any limit says: 99 minutes' worth more
    for minutes, accounts in ((50, 1), (48, 1), (2, 0)):
        clock.now += minutes * 60
        limits.sweep()
        assert len(limits) == accounts


STEPS = st.lists(
    st.tuples(st.sampled_from(["admit", "spend", "release", "wait", "renew"]), st.integers(0, 400), st.integers(0, 3)),
    max_size=80,
)


@settings(max_examples=100, deadline=None)
@given(STEPS, st.integers(1, 2000), st.integers(1, 5), st.integers(1, 30))
def test_no_order_of_things_lets_a_key_spend_more_than_it_may(steps, budget, in_flight, per_minute):
    """The marketplace's budget less what it has booked is the amount of a renewed grant, as billing computes it."""
    clock = Clock()
    limits = limits_with(clock)
    grant = grant_for("alice", budget_usd_micros=budget, in_flight_max=in_flight, requests_per_minute=per_minute)
    limits.renew(grant)
    begun_at, admitted, spent, acked = clock.now, 0, 0, 0
    open_requests: list[tuple[Ticket, int]] = []
    unacked: list[int] = []
    for verb, amount, which in steps:
        if verb == "admit":
            with contextlib.suppress(ApiError):
                ticket = limits.admit(grant, ENDPOINT, amount, 0)
                open_requests.append((ticket, ticket.cost))
                admitted += 1
        elif verb == "spend" and open_requests:
            ticket, left = open_requests[which % len(open_requests)]
            cost = min(left, amount)  # never more than was reserved
            open_requests[which % len(open_requests)] = (ticket, left - cost)
            limits.spend(grant.key_id, 0, cost)
            spent += cost
            unacked.append(cost)
            limits.release(open_requests.pop(which % len(open_requests))[0])
        elif verb == "release" and open_requests:
            limits.release(open_requests.pop(which % len(open_requests))[0])
        elif verb == "wait":
            clock.now += amount / 10
        elif verb == "renew":
            for cost in unacked[:which]:
                limits.acknowledge(grant.key_id, cost)
                acked += cost
            del unacked[:which]
            grant = grant.model_copy(update={"budget_usd_micros": budget - acked})
            limits.renew(grant)
        assert spent <= budget
        assert limits.budget_left(grant) >= 0
        assert len(open_requests) <= in_flight
        assert admitted <= per_minute * (1 + (clock.now - begun_at) / 60)


def test_request_that_costs_less_than_a_micro_dollar_is_not_free_to_who_has_nothing():
    cheap = endpoint_for("cheap", input_usd_micros_per_million=20_000, output_usd_micros_per_million=20_000)
    limits, grant = limits_with(), grant_for("mallory", BOB, foreign_usd_micros=None)
    with pytest.raises(ApiError) as refused:
        limits.admit(grant, cheap, 5, 5)
    assert refused.value.code == "insufficient_quota"


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_cost_is_rounded_up(input_tokens, output_tokens):
    endpoint = endpoint_for("tiny", input_usd_micros_per_million=333_333, output_usd_micros_per_million=7)
    exact = (input_tokens * 333_333 + output_tokens * 7) / 1_000_000
    assert 0 <= cost_usd_micros(endpoint, input_tokens, output_tokens) - exact < 1

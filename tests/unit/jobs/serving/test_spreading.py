"""Where the next replica goes, and which one goes first."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from jobs.scaling.spreading import (
    Candidate,
    Placed,
    Requirements,
    choose,
    leaving_order,
    promises_to_stay,
    rank,
    tokens_bound,
)

HOUR = 3600.0
DAY = 24 * HOUR


def node(number, provider=None, price=1_000_000, speed=1000.0, **more):
    return Candidate(UUID(int=number), UUID(int=provider or number), price, speed, **more)


def placed(number, provider=None, node_number=None, **more):
    return Placed(UUID(int=number), UUID(int=node_number or number), UUID(int=provider or number), **more)


def numbers(found):
    return [each.node_id.int for each in found]


def leaving(found, requirements=None):
    return [pk.int for pk in leaving_order(found, requirements or Requirements())]


def test_cheapest_is_by_token_and_not_by_hour():
    assert numbers(rank([node(1, price=1_000_000), node(2, price=1_500_000, speed=2000.0)], [], Requirements())) == [
        2,
        1,
    ]


def test_node_that_often_breaks_costs_more_a_token():
    assert numbers(rank([node(1, failures=10, successes=10), node(2, price=1_100_000)], [], Requirements())) == [2, 1]


def test_node_too_slow_for_what_is_asked_comes_later_however_cheap():
    slow, fast = node(1, price=1, speed=80.0), node(2, speed=800.0)
    assert numbers(rank([slow, fast], [], Requirements(streams=8, tokens_per_second_min=20))) == [2, 1]
    assert numbers(rank([slow, fast], [], Requirements(streams=8, tokens_per_second_min=10))) == [1, 2]


def test_second_replica_goes_to_another_provider():
    candidates = [node(1, provider=7), node(2, provider=7), node(3, provider=8, price=9_000_000)]
    there = [placed(1, provider=7)]
    assert numbers(rank(candidates, there, Requirements(spread="provider"))) == [3, 2, 1]
    assert numbers(rank(candidates, there, Requirements(spread="node"))) == [2, 3, 1]
    assert numbers(rank(candidates, there, Requirements(spread="none"))) == [1, 2, 3]


def test_node_that_failed_this_endpoint_lately_is_last():
    candidates = [node(1, price=1, failed_here_seconds=60.0), node(2), node(3, failed_here_seconds=2 * HOUR)]
    assert numbers(rank(candidates, [], Requirements())) == [2, 3, 1]


def test_nodes_that_promise_to_stay_come_first_until_their_floor_is_reached():
    spot, stays = node(1, price=1, open_seconds=HOUR), node(2, price=9_000_000)
    assert numbers(rank([spot, stays], [], Requirements(on_demand_min=1))) == [2, 1]
    assert numbers(rank([spot, stays], [placed(5, is_on_demand=True)], Requirements(on_demand_min=1))) == [1, 2]
    assert numbers(rank([spot, stays], [], Requirements(only_on_demand=True))) == [2]


def test_promise_to_stay_is_hours_terms_and_a_record():
    assert promises_to_stay(DAY, 7 * DAY, failures=0, successes=0)
    assert not promises_to_stay(DAY - 1, 7 * DAY, failures=0, successes=0)
    assert not promises_to_stay(DAY, DAY - 1, failures=0, successes=0)
    assert not promises_to_stay(DAY, DAY, failures=3, successes=20)
    assert promises_to_stay(DAY, DAY, failures=3, successes=200)


def test_where_costs_are_equal_the_weights_decide():
    assert numbers(rank([node(1), node(2, has_weights=True)], [], Requirements())) == [2, 1]


def test_bound_of_tokens_is_memory_for_few_streams_and_computing_for_many():
    def tokens(streams):
        return tokens_bound(weights_bytes=16e9, streams=streams, memory_bytes_per_second=2e12, flops_per_second=300e12)

    assert tokens(2) == 2 * tokens(1)
    assert tokens(10_000) == tokens(20_000) == 0.5 * 300e12 * 0.4 / 16e9


def test_failing_one_goes_before_all_others_and_one_on_a_leaving_node_next():
    there = [placed(1, usd_micros_per_token=9.0), placed(2, is_node_leaving=True), placed(3, is_failing=True)]
    assert leaving(there) == [3, 2, 1]


def test_one_that_starts_goes_before_one_that_is_ready():
    assert leaving([placed(1), placed(2, is_ready=False), placed(3)])[0] == 2


def test_doubled_provider_goes_before_the_dearest_token():
    there = [placed(1, provider=7, usd_micros_per_token=1.0), placed(2, provider=7, usd_micros_per_token=2.0)]
    there.append(placed(3, provider=8, usd_micros_per_token=5.0))
    assert leaving(there) == [2, 3, 1]
    assert leaving(there, Requirements(spread="none")) == [3, 2, 1]


def test_floor_of_nodes_that_promise_to_stay_goes_last():
    there = [placed(1, is_on_demand=True, usd_micros_per_token=9.0), placed(2), placed(3)]
    assert leaving(there, Requirements(on_demand_min=1))[-1] == 1
    assert leaving(there, Requirements(on_demand_min=0))[0] == 1


def test_coldest_cache_goes_first_among_equals():
    assert leaving([placed(1, served_lately=50), placed(2, served_lately=5)]) == [2, 1]


candidates = st.lists(
    st.builds(
        node,
        number=st.integers(1, 10**6),
        provider=st.integers(1, 6),
        price=st.integers(1, 10**7),
        speed=st.floats(1, 1e5),
        open_seconds=st.sampled_from([HOUR, 10 * DAY]),
    ),
    max_size=12,
    unique_by=lambda each: each.node_id,
)
places = st.lists(
    st.builds(
        placed,
        number=st.integers(1, 10**6),
        provider=st.integers(1, 4),
        node_number=st.integers(1, 5),
        is_ready=st.booleans(),
        is_on_demand=st.booleans(),
        is_failing=st.booleans(),
        is_node_leaving=st.booleans(),
        usd_micros_per_token=st.floats(0, 100),
        served_lately=st.integers(0, 100),
    ),
    max_size=12,
    unique_by=lambda each: each.id,
)


@given(candidates, st.integers(0, 12))
def test_spread_is_as_wide_as_it_can_be(found, count):
    chosen = choose(found, [], Requirements(spread="provider"), count)
    providers = {each.provider_id for each in found}
    assert len(chosen) == min(count, len(found))
    assert len({each.provider_id for each in chosen}) == min(len(chosen), len(providers))


@given(candidates, st.integers(0, 12), st.integers(0, 4))
def test_floor_is_kept_wherever_it_can_be(found, count, floor):
    chosen = choose(found, [], Requirements(spread="provider", on_demand_min=floor), count)
    there = sum(each.is_on_demand for each in found)
    assert sum(each.is_on_demand for each in chosen) >= min(floor, there, len(chosen))


@given(candidates, places)
def test_ranking_leaves_nobody_out_and_does_not_depend_on_the_order(found, there):
    ranked = rank(found, there, Requirements())
    assert set(ranked) == set(found)
    assert ranked == rank(found[::-1], there, Requirements())


@given(places, st.integers(0, 4), st.sampled_from(["none", "node", "provider"]))
def test_leaving_is_an_order_of_all_that_keeps_the_floor_of_the_sound(there, floor, spread):
    requirements = Requirements(spread=spread, on_demand_min=floor)
    order = leaving_order(there, requirements)
    assert sorted(order) == sorted(each.id for each in there)
    known = {each.id: each for each in there}
    sound = [pk for pk in order if not (known[pk].is_failing or known[pk].is_node_leaving)]
    stays = sum(known[pk].is_on_demand for pk in sound)
    for count in range(len(sound)):
        kept = sum(known[pk].is_on_demand for pk in sound[count:])
        assert kept >= min(floor, stays, len(sound) - count)

"""Which replica is failing or slow against its peers."""

import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.scaling.spreading import Sample, outliers, wilson_low


def sample(number, served=100, failed=0, first=100.0, speed=50.0, node_class="A100"):
    return Sample(UUID(int=number), node_class, served, failed, first, speed)


def found(*samples):
    return [each.id.int for each in outliers(samples)]


def test_equal_replicas_are_no_outliers():
    assert found(*[sample(number) for number in range(1, 6)]) == []


def test_far_slower_first_token_is_found():
    samples = [sample(number, first=100.0 + number) for number in range(1, 5)]
    assert found(*samples, sample(9, first=400.0)) == [9]
    assert outliers([*samples, sample(9, first=400.0)])[0].why == "400 ms until the first token, its peers 103 ms"


def test_far_slower_stream_is_found():
    assert found(*[sample(number, speed=50.0 + number) for number in range(1, 5)], sample(9, speed=10.0)) == [9]


def test_somewhat_slower_is_not_far_slower():
    assert found(*[sample(number) for number in range(1, 5)], sample(9, first=190.0)) == []


def test_where_peers_differ_widely_the_slowest_is_no_outlier():
    assert found(*[sample(number, first=first) for number, first in enumerate([100, 250, 400, 600, 1300], 1)]) == []


def test_of_two_neither_is_slow_against_the_other():
    assert found(sample(1), sample(2, first=9000.0, speed=1.0)) == []


def test_slower_kind_of_node_is_not_compared_with_a_faster_one():
    fast = [sample(number) for number in range(1, 5)]
    assert found(*fast, *[sample(number, first=900.0, speed=5.0, node_class="L4") for number in (8, 9)]) == []


def test_few_samples_judge_nobody():
    peers = [sample(number) for number in range(1, 5)]
    assert found(*peers, sample(9, served=19, failed=19, first=9000.0)) == []
    assert found(*peers, sample(9, served=20, failed=20, first=9000.0)) == [9]


def test_replica_that_fails_more_than_its_peers_is_found():
    peers = [sample(number, failed=1) for number in range(1, 5)]
    assert found(*peers, sample(9, failed=25)) == [9]
    assert found(*peers, sample(9, failed=5)) == []


def test_where_all_fail_alike_it_is_not_the_replica():
    assert found(*[sample(number, failed=40) for number in range(1, 5)]) == []


def test_only_replica_is_replaced_where_most_requests_fail():
    assert found(sample(1, failed=80)) == [1]
    assert found(sample(1, failed=50)) == []


def test_never_more_than_a_share_is_replaced_and_the_worst_first():
    bad = [sample(7, failed=60), sample(8, failed=90), sample(9, failed=70)]
    assert found(*[sample(number) for number in range(1, 5)], *bad) == [8, 9]


def test_chance_alone_is_hardly_ever_an_outlier():
    chance, wrong = random.Random(6), 0
    for _ in range(300):
        samples = [
            sample(
                number,
                served=60,
                failed=sum(chance.random() < 0.03 for _ in range(60)),
                first=chance.gauss(100, 15),
                speed=chance.gauss(50, 5),
            )
            for number in range(1, 6)
        ]
        wrong += bool(outliers(samples))
    assert wrong <= 6


@given(
    st.lists(
        st.builds(
            sample,
            number=st.integers(1, 10**6),
            served=st.integers(0, 1000),
            failed=st.integers(0, 1000),
            first=st.none() | st.floats(0, 1e6),
            speed=st.none() | st.floats(0, 1e4),
            node_class=st.sampled_from(["A", "B"]),
        ),
        max_size=12,
        unique_by=lambda each: each.id,
    )
)
def test_at_most_a_third_is_found_and_each_with_a_reason(samples):
    bad = outliers(samples)
    assert len(bad) <= max(len(samples) // 3, 1)
    assert all(each.why for each in bad)
    assert len({each.id for each in bad}) == len(bad)


@pytest.mark.parametrize(("failed", "served", "low"), [(0, 10, 0.0), (10, 10, 0.6482), (5, 10, 0.2034)])
def test_lower_end_is_wilsons(failed, served, low):
    assert wilson_low(failed, served) == pytest.approx(low, abs=5e-4)

"""How a new version takes over, and how it is rolled back."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.scaling.rollout import VersionView, decide, fails_more, is_slower, worse
from jobs.spec.kinds.serve import Rollout

BLUE_GREEN = Rollout(step="5m")
CANARY = Rollout(strategy="canary", shares=[10, 50], step="5m")


def version(number, state="live", share=0, ready=0, **more):
    return VersionView(number, state, share, ready, **more)


def rows(plan):
    """(number, state, share, desired) of each."""
    return [(each.number, each.state, each.share, each.desired) for each in plan.versions]


def test_first_version_has_all_requests_from_the_beginning():
    assert rows(decide(BLUE_GREEN, 2, [version(1, "starting")])) == [(1, "starting", 100, 2)]
    ready = decide(BLUE_GREEN, 2, [version(1, "starting", 100, ready=1)])
    assert rows(ready) == [(1, "live", 100, 2)]
    assert ready.why == "Version 1 answers."


def test_blue_green_waits_until_the_new_version_has_as_many_ready_as_the_old_one():
    old = version(1, share=100, ready=3)
    assert rows(decide(BLUE_GREEN, 3, [old, version(2, "starting", ready=2)])) == [
        (1, "live", 100, 3),
        (2, "starting", 0, 3),
    ]
    plan = decide(BLUE_GREEN, 3, [old, version(2, "starting", ready=3)])
    assert rows(plan) == [(1, "live", 0, 3), (2, "live", 100, 3)]
    assert plan.why == "Version 2 answers 100 % of the requests."


def test_old_version_stays_for_the_way_back_and_is_retired_then():
    old, new = version(1, ready=3), version(2, share=100, ready=3, step_seconds=299)
    assert rows(decide(BLUE_GREEN, 3, [old, new]))[0] == (1, "live", 0, 3)
    later = version(2, share=100, ready=3, step_seconds=300)
    assert rows(decide(BLUE_GREEN, 3, [old, later])) == [(1, "retired", 0, 0), (2, "live", 100, 3)]


def test_canary_goes_from_share_to_share():
    old = version(1, share=100, ready=4)
    assert rows(decide(CANARY, 4, [old, version(2, "starting")])) == [(1, "live", 100, 4), (2, "starting", 0, 1)]
    first = decide(CANARY, 4, [old, version(2, "starting", ready=1)])
    assert rows(first) == [(1, "live", 90, 4), (2, "live", 10, 1)]
    old = version(1, share=90, ready=4, served=500)
    early = decide(CANARY, 4, [old, version(2, share=10, ready=1, step_seconds=200, served=50)])
    assert rows(early) == [(1, "live", 90, 4), (2, "live", 10, 1)]
    due = decide(CANARY, 4, [old, version(2, share=10, ready=1, step_seconds=300, served=50)])
    assert rows(due) == [(1, "live", 90, 4), (2, "live", 10, 2)]  # first the replicas, then the share
    grown = decide(CANARY, 4, [old, version(2, share=10, ready=2, step_seconds=310, served=50)])
    assert rows(grown) == [(1, "live", 50, 4), (2, "live", 50, 2)]
    last = decide(
        CANARY, 4, [version(1, share=50, ready=4), version(2, share=50, ready=4, step_seconds=300, served=99)]
    )
    assert rows(last) == [(1, "live", 0, 4), (2, "live", 100, 4)]


def test_step_that_hardly_anybody_asked_lasts_longer_but_not_forever():
    old, few = version(1, share=90, ready=1), {"share": 10, "ready": 1, "served": 3}
    assert rows(decide(CANARY, 1, [old, version(2, step_seconds=800, **few)]))[1][2] == 10
    assert rows(decide(CANARY, 1, [old, version(2, step_seconds=900, **few)]))[1][2] == 50


def test_version_that_fails_more_is_rolled_back_at_once():
    old = version(1, share=90, ready=2, served=500, failed=2)
    plan = decide(CANARY, 2, [old, version(2, share=10, ready=1, served=60, failed=20)])
    assert rows(plan) == [(1, "live", 100, 2), (2, "rolled_back", 0, 0)]
    assert plan.why == "Version 2 is rolled back: 20 of 60 requests failed, of version 1 2 of 500."


def test_version_that_proved_bad_after_it_took_all_is_rolled_back_to_the_old_one():
    bad = version(2, share=100, ready=2, step_seconds=30, served=60, failed=20)
    assert rows(decide(BLUE_GREEN, 2, [version(1, ready=2, served=500), bad])) == [
        (1, "live", 100, 2),
        (2, "rolled_back", 0, 0),
    ]


def test_bad_version_goes_on_answering_until_the_old_one_is_ready_again():
    bad = version(2, share=100, ready=2, step_seconds=30, served=60, failed=20)
    plan = decide(BLUE_GREEN, 2, [version(1, ready=0, served=500), bad])
    assert rows(plan) == [(1, "live", 0, 2), (2, "live", 100, 2)]


def test_owner_rolls_a_version_back():
    plan = decide(BLUE_GREEN, 2, [version(1, ready=2), version(2, share=100, ready=2)], is_rollback_requested=True)
    assert rows(plan) == [(1, "live", 100, 2), (2, "rolled_back", 0, 0)]


def test_slower_version_is_rolled_back():
    old = version(1, share=90, ready=2, first_tokens=200, first_token_log_mean=5.0, first_token_log_sd=0.5)
    slow = {"first_tokens": 100, "first_token_log_sd": 0.5}
    assert worse(CANARY, version(2, share=10, ready=1, first_token_log_mean=6.0, **slow), old) == (
        "its first token takes 403 ms, that of version 1 148 ms"
    )
    assert not worse(CANARY, version(2, share=10, ready=1, first_token_log_mean=5.2, **slow), old)


def test_version_that_never_starts_is_rolled_back():
    old = version(1, share=100, ready=2)
    assert rows(decide(BLUE_GREEN, 2, [old, version(2, "starting", starts_failed=3)]))[1][1] == "rolled_back"
    assert rows(decide(BLUE_GREEN, 2, [old, version(2, "starting", age_seconds=3601)]))[1][1] == "rolled_back"
    assert rows(decide(BLUE_GREEN, 2, [old, version(2, "starting", starts_failed=2)]))[1][1] == "starting"


def test_version_without_room_for_all_its_replicas_is_rolled_back_after_an_hour():
    old, new = version(1, share=100, ready=3), {"state": "starting", "ready": 2}
    assert worse(BLUE_GREEN, version(2, age_seconds=3600, **new), old) == ""
    plan = decide(BLUE_GREEN, 3, [old, version(2, age_seconds=3601, **new)])
    assert rows(plan) == [(1, "live", 100, 3), (2, "rolled_back", 0, 0)]
    assert plan.why == "Version 2 is rolled back: too few of its replicas were ready after 60 min."


def test_broken_version_of_an_endpoint_that_nobody_asked_before_is_found_too():
    old = version(1, share=90, ready=1, served=2)
    assert worse(CANARY, version(2, share=10, ready=1, served=20, failed=20), old)
    assert not worse(CANARY, version(2, share=10, ready=1, served=20, failed=8), old)


def test_version_without_a_ready_replica_is_given_nothing_while_another_has_one():
    plan = decide(CANARY, 2, [version(1, share=90, ready=2), version(2, share=10, ready=0)])
    assert rows(plan) == [(1, "live", 100, 2), (2, "live", 0, 1)]
    plan = decide(CANARY, 2, [version(1, share=90, ready=0), version(2, share=10, ready=1)])
    assert rows(plan) == [(1, "live", 0, 2), (2, "live", 100, 2)]


def test_old_version_answers_again_where_the_new_one_lost_its_replicas_too_soon():
    plan = decide(BLUE_GREEN, 2, [version(1, ready=2), version(2, share=100, ready=0, step_seconds=30)])
    assert rows(plan) == [(1, "live", 100, 2), (2, "live", 0, 2)]


def test_sleeping_endpoint_starts_one_replica_to_see_the_new_version_answer():
    plan = decide(BLUE_GREEN, 0, [version(1, share=100), version(2, "starting")])
    assert rows(plan) == [(1, "live", 100, 0), (2, "starting", 0, 1)]
    plan = decide(BLUE_GREEN, 0, [version(1, share=100), version(2, "starting", ready=1)])
    assert rows(plan) == [(1, "live", 0, 0), (2, "live", 100, 0)]


def test_third_version_passes_over_the_one_that_was_on_its_way():
    plan = decide(CANARY, 2, [version(1, share=90, ready=2), version(2, share=10, ready=1), version(3, "starting")])
    assert rows(plan) == [(1, "live", 100, 2), (2, "retired", 0, 0), (3, "starting", 0, 1)]


@pytest.mark.parametrize(("failed", "served"), [(1, 20), (2, 20), (3, 20), (10, 100)])
def test_few_failures_in_a_small_sample_are_no_proof(failed, served):
    assert not fails_more(0.05, version(2, served=served, failed=failed), version(1, served=1000, failed=5))


@pytest.mark.parametrize("share", [0.0, 0.02, 0.2, 0.5])
def test_version_like_the_old_one_is_hardly_ever_rolled_back(share):
    # Decided after every answer, as at each tick: over 300 rollouts of 400 answers.
    chance, taken = random.Random(3), 0
    for _ in range(300):
        new_failed = old_failed = 0
        for served in range(1, 401):
            new_failed += chance.random() < share
            old_failed += chance.random() < share
            pair = version(2, served=served, failed=new_failed), version(1, served=served, failed=old_failed)
            if served >= 20 and fails_more(0.05, *pair):
                taken += 1
                break
    assert taken <= 3


def test_version_that_fails_a_fifth_more_is_found_within_two_hundred_answers():
    chance, found = random.Random(4), 0
    for _ in range(100):
        new_failed = sum(chance.random() < 0.22 for _ in range(200))
        found += fails_more(0.05, version(2, served=200, failed=new_failed), version(1, served=1000, failed=20))
    assert found >= 90


def test_equal_latencies_are_hardly_ever_slower():
    chance, slower = random.Random(5), 0
    for _ in range(300):
        for count in (20, 50, 100, 200):
            logs = [[chance.gauss(5, 1) for _ in range(count)] for _ in range(2)]
            new, old = (
                version(0, first_tokens=count, first_token_log_mean=sum(one) / count, first_token_log_sd=1.0)
                for one in logs
            )
            slower += is_slower(new, old)
    assert slower <= 3


views = st.builds(
    version,
    number=st.just(0),
    state=st.sampled_from(["starting", "live", "retired", "rolled_back"]),
    share=st.sampled_from([0, 10, 50, 90, 100]),
    ready=st.integers(0, 4),
    age_seconds=st.floats(0, 5000),
    step_seconds=st.floats(0, 2000),
    starts_failed=st.integers(0, 4),
    served=st.integers(0, 300),
    failed=st.integers(0, 300),
)
version_lists = st.lists(views, max_size=4).map(
    lambda found: [version(**{**fields(each), "number": number}) for number, each in enumerate(found, 1)]
)


def fields(each):
    return {name: getattr(each, name) for name in each.__dataclass_fields__}


@given(st.sampled_from([BLUE_GREEN, CANARY]), st.integers(0, 10), version_lists, st.booleans())
def test_shares_add_up_and_go_to_whoever_is_ready(policy, desired, versions, rollback):
    plan = decide(policy, desired, versions, is_rollback_requested=rollback)
    active = {each.number: each for each in versions if each.state in {"starting", "live"}}
    assert {each.number for each in plan.versions} == set(active)
    if not active:
        return
    assert sum(each.share for each in plan.versions) == 100
    left = [each for each in plan.versions if each.state in {"starting", "live"}]
    assert left
    assert all(each.share == each.desired == 0 for each in plan.versions if each not in left)
    if any(active[each.number].ready for each in left):
        assert all(active[each.number].ready for each in plan.versions if each.share)


@given(st.sampled_from([BLUE_GREEN, CANARY]), st.integers(1, 10), st.integers(1, 10), version_lists)
def test_way_back_is_always_possible_until_the_old_version_is_retired(policy, desired, ready, versions):
    active = [each for each in versions if each.state in {"starting", "live"}]
    plan = decide(policy, desired, versions)
    left = [each for each in plan.versions if each.state in {"starting", "live"}]
    if len(active) < 2 or len(left) < 2:
        return
    assert all(each.desired >= desired for each in left[:1])  # the old one keeps what the load takes
    now = [version(each.number, each.state, each.share, ready) for each in left]
    back = decide(policy, desired, now, is_rollback_requested=True)
    assert rows(back)[0][2] == 100
    assert rows(back)[1][1] == "rolled_back"


@given(st.sampled_from([BLUE_GREEN, CANARY]), st.integers(0, 8), st.integers(0, 40))
def test_good_version_always_gets_everything_and_the_old_one_ends(policy, desired, rate):
    # A tick a minute: replicas that are wanted are ready at the next one.
    now = {1: version(1, "live", 100, desired), 2: version(2, "starting")}
    served = dict.fromkeys(now, 0)
    since = dict.fromkeys(now, 0)
    for tick in range(120):
        seen = [
            version(
                each.number,
                each.state,
                each.share,
                each.ready,
                step_seconds=60.0 * (tick - since[each.number]),
                served=served[each.number],
            )
            for each in now.values()
        ]
        plan = decide(policy, desired, seen)
        for each in plan.versions:
            if each.share != now[each.number].share:
                since[each.number] = tick
            served[each.number] += rate * each.share // 100
            now[each.number] = version(each.number, each.state, each.share, each.desired)
        if len(plan.versions) == 1:
            break
    assert [(each.number, each.share) for each in plan.versions] == [(2, 100)]
    assert now[1].state == "retired"

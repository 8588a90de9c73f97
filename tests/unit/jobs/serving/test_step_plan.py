"""What is started, and what goes."""

from hypothesis import given
from hypothesis import strategies as st

from jobs.scaling.autoscaling import EndpointView, ReplicaView
from jobs.scaling.step_plan import plan_steps
from tests.unit.jobs.serving.loads import policy, replica, view


def steps(wanted, seen, serve=None, **more):
    return plan_steps(wanted, serve or policy(), seen, [each.id for each in seen.replicas], **more)


def numbers(found):
    return [pk.int for pk in found.drain]


def test_what_is_missing_is_started_at_once():
    assert steps(4, view(ready=1)).start == 3


def test_replicas_that_start_already_count():
    assert steps(4, view(ready=1, starting=3)).start == 0


def test_starts_of_one_tick_are_bounded():
    assert steps(90, view(), policy(most=100)).start == 10


def test_one_replica_drains_at_a_time():
    assert numbers(steps(1, view(ready=4))) == [1]
    assert numbers(steps(1, view(ready=3, draining=1))) == []


def test_large_endpoint_drains_a_tenth_at_a_time():
    assert len(steps(1, view(ready=40)).drain) == 4


def test_sleeping_endpoint_drains_all():
    assert numbers(steps(0, view(ready=2, starting=1))) == [1, 2, 3]


def test_no_ready_replica_goes_before_its_successor_is_ready():
    seen = EndpointView([replica(1), replica(2, "starting", 1.0)])
    assert (steps(1, seen).start, numbers(steps(1, seen))) == (0, [2])


def test_failing_replica_is_replaced_before_it_goes():
    failing, fine = replica(1, is_failing=True), replica(2)
    first = steps(2, EndpointView([failing, fine]))
    assert (first.start, numbers(first)) == (1, [])
    second = steps(2, EndpointView([failing, fine, replica(3, "starting", 5.0)]))
    assert (second.start, numbers(second)) == (0, [])
    third = steps(2, EndpointView([failing, fine, replica(3)]))
    assert (third.start, numbers(third)) == (0, [1])


def test_only_replica_is_replaced_by_one_beyond_max():
    serve = policy(most=1)
    assert steps(1, EndpointView([replica(1, is_failing=True)]), serve).start == 1
    both = EndpointView([replica(1, is_failing=True), replica(2, "starting", 1.0)])
    assert steps(1, both, serve).start == 0


def test_where_max_has_no_room_failing_replicas_are_replaced_one_by_one():
    serve, failing = policy(most=3), [replica(1, is_failing=True), replica(2, is_failing=True)]
    assert steps(3, EndpointView([*failing, replica(3)]), serve).start == 1
    assert steps(3, EndpointView([*failing, replica(3)]), policy(most=5)).start == 2
    after = steps(3, EndpointView([*failing, replica(3), replica(4)]), serve)
    assert (after.start, numbers(after)) == (0, [1])


def test_start_that_takes_far_too_long_is_not_waited_for():
    slow = EndpointView([replica(1, "starting", 181.0)], cold_start_seconds=60.0)
    assert steps(1, slow).start == 1
    patient = EndpointView([replica(1, "starting", 179.0)], cold_start_seconds=60.0)
    assert steps(1, patient).start == 0


def test_replica_that_was_ready_and_is_not_reached_is_replaced_sooner():
    lost = EndpointView([replica(1, "starting", 16.0, was_ready=True), replica(2)])
    assert steps(2, lost).start == 1


def test_where_all_are_lost_at_once_not_all_are_replaced():
    lost = [replica(number, "starting", 60.0 + number, was_ready=True) for number in range(1, 7)]
    assert steps(6, EndpointView(lost), policy(most=12)).start == 2
    assert steps(1, EndpointView(lost[:1])).start == 1


def test_floor_of_nodes_that_promise_to_stay_is_made_before_a_cheap_one_goes():
    serve = policy(on_demand_min=1)
    spot = EndpointView([replica(1), replica(2)])
    assert (steps(2, spot, serve).start, steps(2, spot, serve).start_on_demand) == (0, 1)
    assert steps(2, spot, serve, has_on_demand=False).start_on_demand == 0
    assert steps(2, EndpointView([replica(1), replica(2), replica(3)]), serve).start_on_demand == 0  # first one goes
    made = EndpointView([replica(1), replica(2), replica(3, "starting", 1.0, is_on_demand=True)])
    assert (steps(2, made, serve).start_on_demand, numbers(steps(2, made, serve))) == (0, [])
    ready = EndpointView([replica(1), replica(2), replica(3, is_on_demand=True)])
    assert numbers(steps(2, ready, serve)) == [1]


replica_lists = st.lists(
    st.builds(
        lambda **more: more,
        state=st.sampled_from(["starting", "ready", "ready", "draining"]),
        seconds=st.floats(0, 1000),
        was_ready=st.booleans(),
        is_on_demand=st.booleans(),
        is_failing=st.booleans(),
    ),
    max_size=20,
).map(lambda rows: [replica(number, **row) for number, row in enumerate(rows, 1)])


@given(replica_lists, st.integers(0, 20), st.integers(1, 20), st.integers(0, 5))
def test_at_most_one_is_there_beyond_max_and_ready_ones_are_never_fewer_than_wanted(live, wanted, most, floor):
    wanted = min(wanted, most)
    serve = policy(least=0, most=most, on_demand_min=min(floor, most))
    found = steps(wanted, EndpointView(live), serve)
    there = [each for each in live if each.state != "draining"]
    started = found.start + found.start_on_demand
    assert started == 0 or len(there) + started <= most + 1
    assert set(found.drain) <= {each.id for each in there}
    sound_ready = [each for each in there if each.state == "ready" and not each.is_failing]
    left = [each for each in sound_ready if each.id not in found.drain]
    assert len(left) >= min(wanted, len(sound_ready))


@given(replica_lists, st.integers(1, 10))
def test_starting_and_draining_as_planned_comes_to_rest(live, wanted):
    # Whoever starts is ready at the next tick, whoever drains is gone: the worst that the steps can do to themselves.
    serve, replicas = policy(least=0, most=10), live
    for _ in range(60):
        found = steps(wanted, EndpointView(replicas), serve)
        if not (found.start or found.start_on_demand or found.drain) and all(
            each.state == "ready" for each in replicas
        ):
            break
        replicas = [
            ReplicaView(each.id, "draining" if each.id in found.drain else "ready", 50.0, is_failing=each.is_failing)
            for each in replicas
            if each.state != "draining"
        ]
        top = max((each.id.int for each in replicas), default=100)
        replicas += [replica(top + 1 + number, "starting", 1.0) for number in range(found.start)]
    assert len(replicas) == wanted
    assert not any(each.is_failing for each in replicas)

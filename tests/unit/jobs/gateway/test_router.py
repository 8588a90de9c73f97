"""Who is chosen, for any fleet."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.gateway.messages import VersionRow
from jobs.gateway.routing import router
from jobs.gateway.routing.router import Candidate, Conversation, choose

ANY_TIME = settings(deadline=None)  # the machine may be slow
ROUNDING = 1e-9  # of floats that are multiplied in another order

NUMBERS = st.integers(0, (1 << 64) - 1)
VERSIONS = [VersionRow(version=1, share=70), VersionRow(version=2, share=30), VersionRow(version=3, share=0)]


@st.composite
def fleets(draw):
    ids = draw(st.lists(st.uuids(version=4), min_size=0, max_size=8, unique=True))
    return [
        Candidate(
            lease_id,
            draw(st.integers(1, 3)),
            draw(st.integers(0, 6)),
            5,
            draw(st.floats(0.01, 20)),
            draw(st.integers(0, 1000)),
        )
        for lease_id in ids
    ]


CONVERSATIONS = st.builds(Conversation, NUMBERS, st.none() | NUMBERS)


@ANY_TIME
@given(fleets(), CONVERSATIONS, NUMBERS)
def test_the_chosen_has_room_and_is_found_whenever_somebody_of_a_live_version_has(fleet, conversation, draw):
    choice = choose(fleet, VERSIONS, conversation, draw=draw)
    alive = {each.version for each in fleet}
    served = {version for version in alive if version in (1, 2)} or alive
    able = [each.lease_id for each in fleet if each.has_room and each.version in served]
    assert (choice is None) == (not able)
    if choice is not None:
        assert choice.lease_id in able and choice.why
        assert choose(list(reversed(fleet)), VERSIONS, conversation, draw=draw).lease_id == choice.lease_id


@ANY_TIME
@given(fleets().filter(lambda fleet: len(fleet) > 1), NUMBERS)
def test_nobody_gets_more_than_its_part_while_others_have_room(fleet, prefix):
    fleet = [Candidate(each.lease_id, 1, each.in_flight, 100, each.seconds) for each in fleet]
    choice = choose(fleet, VERSIONS, Conversation(0, prefix))
    chosen = next(each for each in fleet if each.lease_id == choice.lease_id)
    total = sum(each.in_flight for each in fleet) + 1
    fair = router.LOAD_BOUND * total * (1 / chosen.seconds) / sum(1 / each.seconds for each in fleet)
    assert chosen.in_flight < fair * (1 + ROUNDING)


@ANY_TIME
@given(st.lists(st.uuids(version=4), min_size=2, max_size=10, unique=True), NUMBERS)
def test_a_new_replica_takes_only_what_becomes_its_own(ids, prefix):
    fleet = [Candidate(lease_id, 1, 0, 5, 1.0) for lease_id in ids]
    before = choose(fleet[:-1], VERSIONS, Conversation(0, prefix)).lease_id
    assert choose(fleet, VERSIONS, Conversation(0, prefix)).lease_id in (before, ids[-1])


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 99), NUMBERS)
def test_the_shares_are_kept_and_moving_them_moves_only_the_difference(share, seed):
    fleet = [Candidate(UUID(int=1, version=4), 1, 0, 5, 1.0), Candidate(UUID(int=2, version=4), 2, 0, 5, 1.0)]

    def chosen(part: int) -> list[int | None]:
        versions = [VersionRow(version=1, share=100 - part), VersionRow(version=2, share=part)]
        return [router.choose_version(fleet, versions, router.mix(seed, number)) for number in range(2000)]

    before, after = chosen(share), chosen(min(100, share + 10))
    assert abs(Counter(before)[2] / 2000 - share / 100) < 0.06
    assert not any(old == 2 and new == 1 for old, new in zip(before, after, strict=True))


def test_the_soonest_is_chosen_and_among_equals_the_cheapest():
    slow = Candidate(UUID(int=1), 1, 0, 5, 10.0, 1)
    quick = Candidate(UUID(int=2), 1, 3, 5, 1.0, 90)
    cheap = Candidate(UUID(int=3), 1, 3, 5, 1.05, 20)
    assert choose([slow, quick, cheap], VERSIONS, Conversation(0, None)).lease_id == cheap.lease_id
    assert choose([slow, quick], VERSIONS, Conversation(0, None)).lease_id == quick.lease_id


def test_equals_are_drawn_between():
    fleet = [Candidate(UUID(int=number, version=4), 1, 0, 5, 1.0) for number in range(4)]
    counts = Counter(choose(fleet, VERSIONS, Conversation(0, None), draw=number).lease_id for number in range(400))
    assert len(counts) == 4 and min(counts.values()) > 50

"""P6: one key and one body have one effect and one answer, however often and in whatever order they come."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marketplace.accounts.models import User
from tests.integration.foundation.sending import effects, send
from tests.integration.racing import race

BODIES = ({"name": "a"}, {"name": "b"}, {"name": "a", "then": "refuse"})
REQUESTS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(["k-1", "k-2"]), st.integers(0, len(BODIES) - 1)),
    min_size=1,
    max_size=10,
)


@pytest.fixture
def people(db: None) -> Iterator[list[User]]:
    yield [User.objects.create_user(f"{name}@example.org") for name in ("alice", "mallory")]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=REQUESTS)
def test_P06_any_sequence_of_requests_has_one_effect_a_key_and_answers_alike(
    people: list[User], requests: list[tuple[int, str, int]]
) -> None:
    first: dict[tuple[int, str], tuple[int, bytes]] = {}  # what a key was used for, and its answer
    made = 0
    with transaction.atomic():
        before = effects()
        for who, key, body in requests:
            answer = send(people[who], BODIES[body], key=key)
            known = first.get((who, key))
            if known is None:
                first[who, key] = (body, answer.content)
                made += body != 2  # what is refused has no effect
                assert answer.status_code == (403 if body == 2 else 201)
            elif known[0] == body:
                assert answer.content == known[1]
            else:
                assert (answer.status_code, answer.data["code"]) == (409, "idempotency_mismatch")
            assert effects() == before + made
        transaction.set_rollback(True)


@pytest.mark.django_db(transaction=True)
def test_P06_of_two_bodies_that_race_under_one_key_only_one_has_its_effect() -> None:
    alice = User.objects.create_user("alice@example.org")
    for _ in range(5):
        before, key = effects(), str(uuid4())
        bodies = [{"name": "a"}, {"name": "b"}] * 2
        answers = race(*[lambda body=body, key=key: send(alice, body, key=key) for body in bodies])
        codes = sorted(answer.status_code for answer in answers if not isinstance(answer, Exception))
        assert codes == [201, 201, 409, 409], answers
        assert effects() == before + 1

"""A request sent twice under one key has one effect and one answer."""

from __future__ import annotations

from datetime import timedelta

import pytest
from rest_framework.request import Request
from rest_framework.response import Response

from marketplace.accounts.models import User
from marketplace.foundation import clock, idempotency
from marketplace.foundation.idempotency import idempotent
from marketplace.foundation.models import IdempotencyKey
from tests.integration.foundation.sending import SECRET, CreateView, effects, send
from tests.integration.racing import race


class StrictCreateView(CreateView):
    @idempotent(required=True)
    def post(self, request: Request) -> Response:
        return Response(status=201)


@pytest.fixture
def alice(transactional_db: None) -> User:
    return User.objects.create_user("alice@example.org")


def test_a_repeat_gets_the_same_answer_and_has_no_second_effect(alice: User) -> None:
    first, second = send(alice, {"name": "a"}), send(alice, {"name": "a"})
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content
    assert "Idempotency-Replayed" not in first.headers
    assert second.headers["Idempotency-Replayed"] == "true"
    assert effects() == 1


def test_the_order_of_fields_does_not_make_another_request(alice: User) -> None:
    send(alice, {"a": 1, "b": 2})
    assert send(alice, {"b": 2, "a": 1}).headers["Idempotency-Replayed"] == "true"


def test_the_same_key_with_another_body_is_refused(alice: User) -> None:
    send(alice, {"name": "a"})
    second = send(alice, {"name": "b"})
    assert (second.status_code, second.data["code"]) == (409, "idempotency_mismatch")
    assert effects() == 1


def test_the_keys_of_two_actors_do_not_meet(alice: User) -> None:
    mallory = User.objects.create_user("mallory@example.org")
    send(alice, {})
    assert "Idempotency-Replayed" not in send(mallory, {}).headers
    assert effects() == 2


def test_without_a_key_each_request_counts(alice: User) -> None:
    send(alice, {}, key=None)
    send(alice, {}, key=None)
    assert effects() == 2


def test_where_a_key_is_required_its_absence_is_refused(alice: User) -> None:
    response = send(alice, {}, key=None, view=StrictCreateView)
    assert (response.status_code, response.data["code"]) == (400, "idempotency_key_refused")


@pytest.mark.parametrize("key", ["x" * 201, "tab\there", "schlüssel"])
def test_what_is_no_key_is_refused(alice: User, key: str) -> None:
    assert send(alice, {}, key=key).status_code == 400
    assert effects() == 0


def test_five_at_once_have_one_effect_and_get_one_answer(alice: User) -> None:
    answers = race(*[lambda: send(alice, {"name": "a"})] * 5)
    assert {answer.status_code for answer in answers if isinstance(answer, Response)} == {201}
    assert len({answer.content for answer in answers if isinstance(answer, Response)}) == 1
    assert effects() == 1


def test_a_refusal_leaves_no_effect_and_is_repeated(alice: User) -> None:
    first, second = send(alice, {"then": "refuse"}), send(alice, {"then": "refuse"})
    assert (first.status_code, second.status_code) == (403, 403)
    assert second.headers["Idempotency-Replayed"] == "true"
    assert effects() == 0


def test_an_answer_of_500_is_not_kept(alice: User) -> None:
    with pytest.raises(RuntimeError):
        send(alice, {"then": "break"})
    assert effects() == 0
    assert not IdempotencyKey.objects.exists()


def test_a_second_request_does_not_wait_for_ever(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "WAIT_SECONDS", 0.1)
    send(alice, {})
    IdempotencyKey.objects.update(state="in_progress")
    response = send(alice, {})
    assert (response.status_code, response.data["code"]) == (409, "idempotency_in_progress")


def test_the_request_of_a_server_that_died_is_taken_over(alice: User) -> None:
    send(alice, {})
    died_at = clock.now() - timedelta(seconds=idempotency.STALE_SECONDS + 1)
    IdempotencyKey.objects.update(state="in_progress", started_at=died_at)
    assert send(alice, {}).status_code == 201
    assert IdempotencyKey.objects.get().state == "done"


def test_two_cannot_both_take_over(alice: User) -> None:
    send(alice, {})
    died_at = clock.now() - timedelta(seconds=idempotency.STALE_SECONDS + 1)
    IdempotencyKey.objects.update(state="in_progress", started_at=died_at)
    race(*[lambda: send(alice, {})] * 4)
    assert effects() == 2  # the one before it died, and one


def test_who_was_taken_over_loses_its_effect(alice: User) -> None:
    assert send(alice, {"then": "be late"}).status_code == 409
    assert effects() == 0


def test_the_database_does_not_hold_the_answer_in_clear(alice: User) -> None:
    assert SECRET in send(alice, {}).content.decode()
    assert SECRET not in IdempotencyKey.objects.get().response_sealed


def test_old_keys_are_forgotten(alice: User) -> None:
    send(alice, {}, key="old")
    send(alice, {}, key="new")
    old = clock.now() - timedelta(days=idempotency.KEEP_DAYS, seconds=1)
    IdempotencyKey.objects.filter(key="old").update(created_at=old)
    assert idempotency.forget_old_keys() == 1
    assert IdempotencyKey.objects.get().key == "new"

"""Calls of others' models stay within the spend limits of the organisation and of the member who made the key."""

from __future__ import annotations

from datetime import timedelta

import pytest

from billing.charging import limits
from jobs.endpoints import keys, usage
from jobs.gateway.accounting.key_grants import _refused
from jobs.models import EndpointKey, KeySlice
from marketplace.accounts.models import Membership, Organisation, Role, User
from marketplace.foundation import clock
from tests import stage
from tests.integration.jobs.serving import scenes
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def carol(transactional_db: None) -> Organisation:
    return stage.organisation("carol", usd_micros=10 * DOLLAR)


@pytest.fixture
def erin(carol: Organisation) -> User:
    """A member of Carol's organisation."""
    user = User.objects.create_user("erin@example.org")
    Membership.objects.create(organisation=carol, user=user, role=Role.MEMBER)
    return user


def limit(owner: Organisation, amount: int, *, member: User | None = None, period: str = "month") -> None:
    limits.set_limit(owner.pk, member_id=member.pk if member else None, period=period, amount=amount, actor="test")


def key_of(organisation: Organisation, user: User) -> EndpointKey:
    return keys.issue(organisation=organisation, user=user, name="program")[0]


@pytest.mark.parametrize("period", ["month", "job"])
def test_a_member_with_a_limit_of_nothing_calls_no_public_model(
    alice: Organisation, carol: Organisation, erin: User, period: str
) -> None:
    scenes.endpoint(alice)
    limit(carol, 0, member=erin, period=period)
    assert scenes.grant(scenes.gateway(), key_of(carol, erin)).refused == "spend_limit"
    owner = carol.memberships.get(role=Role.OWNER).user
    owners = scenes.grant(scenes.gateway(), key_of(carol, owner))
    assert owners.refused == "" and owners.foreign_usd_micros


def test_an_organisation_with_a_limit_of_nothing_calls_no_public_model(
    alice: Organisation, carol: Organisation
) -> None:
    endpoint = scenes.endpoint(alice)
    limit(carol, 0)
    named = scenes.key(carol, endpoint_ids=[endpoint.pk])
    assert {scenes.grant(scenes.gateway(), each).refused for each in (named, scenes.key(carol))} == {"spend_limit"}


def test_a_refusal_names_the_limit_and_who_can_raise_it() -> None:
    error = _refused("spend_limit")
    assert (error.status, error.code) == (429, "insufficient_quota")
    assert "spend limit" in error.message and "owner" in error.message


def test_who_may_spend_nothing_elsewhere_still_calls_the_own_models(alice: Organisation, carol: Organisation) -> None:
    scenes.endpoint(alice)
    scenes.endpoint(carol, model="own")
    limit(carol, 0)
    given = scenes.grant(scenes.gateway(), scenes.key(carol))
    assert (given.refused, given.foreign_usd_micros) == ("", 0)


def test_what_calls_cost_counts_against_their_member_and_their_organisation(
    alice: Organisation, carol: Organisation, erin: User
) -> None:
    endpoint, key = scenes.endpoint(alice), key_of(carol, erin)
    limit(carol, 4 * DOLLAR, member=erin)
    limit(carol, 9 * DOLLAR)
    gateway = scenes.gateway()
    given = scenes.grant(gateway, key).foreign_usd_micros
    assert given is not None and 0 < given <= 4 * DOLLAR
    usage.ingest_usage(gateway, [scenes.row(1, key, endpoint)])  # three dollars
    KeySlice.objects.update(expires_at=clock.now() - timedelta(seconds=1))
    used = {each.limit.member_id: each.used for each in limits.standings(carol.pk, erin.pk)}
    cost = used[None]
    assert used == {None: cost, erin.pk: cost} and 0 < cost <= 3 * DOLLAR
    limit(carol, cost, member=erin)
    assert scenes.grant(gateway, key).refused == "spend_limit"


def test_what_was_spent_counts_while_the_slice_that_it_was_spent_of_lives(
    alice: Organisation, carol: Organisation, erin: User
) -> None:
    endpoint, key, gateway = scenes.endpoint(alice), key_of(carol, erin), scenes.gateway()
    limit(carol, 9 * DOLLAR, member=erin)
    assert scenes.grant(gateway, key).foreign_usd_micros
    usage.ingest_usage(gateway, [scenes.row(1, key, endpoint)])
    (standing,) = limits.standings(carol.pk, erin.pk)
    slices = KeySlice.objects.filter(expires_at__gt=clock.now()).values_list("foreign_usd_micros", flat=True)
    limit(carol, standing.used - sum(slices), member=erin)  # as much as was spent
    for _ in range(3):  # each renewal replaces the slice, and gives nothing
        assert scenes.grant(gateway, key).refused == "spend_limit"


def test_slices_of_many_keys_and_gateways_stay_within_one_limit(
    alice: Organisation, carol: Organisation, erin: User
) -> None:
    scenes.endpoint(alice)
    limit(carol, DOLLAR, member=erin)
    made = [key_of(carol, erin).pk for _ in range(30)]
    for gateway in [scenes.gateway() for _ in range(3)]:
        for _ in range(2):  # a renewal
            keys.key_grants_for(gateway, key_ids=made)
    live = KeySlice.objects.filter(expires_at__gt=clock.now())
    assert 0 < sum(live.values_list("foreign_usd_micros", flat=True)) <= DOLLAR


def test_a_page_that_spent_counts_for_its_member_until_the_month_is_over(carol: Organisation, erin: User) -> None:
    made, _ = keys.issue_session(organisation=carol, user=erin)
    EndpointKey.objects.filter(pk=made.pk).update(expires_at=clock.now() - timedelta(days=2), spent_usd_micros=1)
    assert keys.forget_sessions() == 0
    EndpointKey.objects.filter(pk=made.pk).update(expires_at=clock.now() - timedelta(days=33))
    assert keys.forget_sessions() == 1

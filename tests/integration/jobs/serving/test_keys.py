"""Keys for endpoints: their key grants at a gateway, and how much money several gateways may give out."""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from jobs.endpoints import key_grants, keys
from jobs.endpoints.errors import KeyLifeInvalid, KeyNotFound, KeyReachesNothing, TooManyEndpointKeys
from jobs.models import EndpointKey, Gateway, KeySlice, UsageRemainder
from marketplace.accounts import api_keys, organisations
from marketplace.accounts.errors import NotAMember
from marketplace.accounts.models import Membership, Organisation, Role, User
from marketplace.foundation import clock
from marketplace.foundation.tokens import hash_token
from tests import stage
from tests.integration.jobs.serving import scenes
from tests.integration.racing import race, wait_for_blocked
from tests.stage import DOLLAR

RACES = 8

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def carol(transactional_db: None) -> Organisation:
    return stage.organisation("carol", usd_micros=10 * DOLLAR)


def test_key_is_shown_once_and_known_again_by_its_hash(alice: Organisation) -> None:
    made, text = keys.issue(organisation=alice, user=None, name="program")
    assert re.fullmatch(r"sk-souk-[0-9A-Za-z]{43}", text)
    assert text.startswith(made.prefix) and text not in str(made.__dict__)
    [grant] = keys.key_grants_for(scenes.gateway(), key_hashes=[hash_token(text)])
    assert (grant.key_id, grant.organisation_id, grant.refused) == (made.pk, alice.pk, "")


def test_unknown_keys_are_left_out(alice: Organisation) -> None:
    assert keys.key_grants_for(scenes.gateway(), key_hashes=["0" * 64], key_ids=[uuid4()]) == []


def test_revoked_key_is_refused_at_the_next_sync_without_being_asked_for(alice: Organisation) -> None:
    gateway, key = scenes.gateway(), scenes.key(alice)
    assert scenes.grant(gateway, key).refused == ""
    assert keys.refused_key_grants(gateway) == []
    keys.revoke(key.pk, organisation=alice)
    first = keys.revoke(key.pk, organisation=alice).revoked_at
    assert first is not None
    assert [(each.key_id, each.refused) for each in keys.refused_key_grants(gateway)] == [(key.pk, "revoked")]
    assert keys.refused_key_grants(scenes.gateway()) == []  # which never held it
    assert scenes.grant(gateway, key).refused == "revoked"


def test_keys_of_who_left_the_organisation_open_nothing(alice: Organisation, carol: Organisation) -> None:
    gateway, hers, erin = scenes.gateway(), scenes.key(alice), User.objects.create_user("erin@example.org")
    for each in (alice, carol):
        Membership.objects.create(organisation=each, user=erin, role=Role.MEMBER)
    here, there = (keys.issue(organisation=each, user=erin, name="program")[0] for each in (alice, carol))
    assert [scenes.grant(gateway, each).refused for each in (here, there, hers)] == [""] * 3
    organisations.remove(alice, erin.pk)
    assert [each.key_id for each in keys.refused_key_grants(gateway)] == [here.pk]
    assert [scenes.grant(gateway, each).refused for each in (here, there, hers)] == ["revoked", "", ""]
    with pytest.raises(NotAMember):
        keys.issue(organisation=alice, user=erin, name="program")


def test_a_key_that_is_made_while_its_maker_is_removed_opens_nothing(alice: Organisation) -> None:
    erin = User.objects.create_user("erin@example.org")
    Membership.objects.create(organisation=alice, user=erin, role=Role.MEMBER)

    def remove() -> None:
        organisations.remove(alice, erin.pk)
        connections.close_all()

    removal = threading.Thread(target=remove)
    with transaction.atomic():
        for_a_program, _ = keys.issue(organisation=alice, user=erin, name="program")
        for_the_api, _ = api_keys.issue(organisation=alice, user=erin, name="laptop", scopes=["jobs:read"])
        removal.start()
        wait_for_blocked()
    removal.join(timeout=30)
    for each in (for_a_program, for_the_api):
        each.refresh_from_db()
        assert each.revoked_at is not None


def test_nobody_revokes_the_key_of_another_organisation(alice: Organisation, carol: Organisation) -> None:
    key = scenes.key(alice)
    with pytest.raises(KeyNotFound):
        keys.revoke(key.pk, organisation=carol)


def test_expired_key_is_refused_and_none_is_made_expired(alice: Organisation) -> None:
    with pytest.raises(KeyLifeInvalid):
        scenes.key(alice, expires_at=clock.now())
    gateway, key = scenes.gateway(), scenes.key(alice, expires_at=clock.now() + timedelta(seconds=30))
    given = scenes.grant(gateway, key)
    assert given.expires_at_ms == int(key.expires_at.timestamp() * 1000)
    EndpointKey.objects.filter(pk=key.pk).update(expires_at=clock.now() - timedelta(seconds=1))
    assert scenes.grant(gateway, key).refused == "expired"
    assert [each.refused for each in keys.refused_key_grants(gateway)] == ["expired"]


def test_key_names_only_endpoints_that_it_could_call(alice: Organisation, carol: Organisation) -> None:
    public, private = scenes.endpoint(alice), scenes.endpoint(alice, model="mine", public=False)
    assert scenes.key(carol, endpoint_ids=[public.pk]).endpoint_ids == [str(public.pk)]
    assert scenes.key(alice, endpoint_ids=[private.pk]).endpoint_ids == [str(private.pk)]
    for refused in ([private.pk], [uuid4()], []):
        with pytest.raises(KeyReachesNothing):
            scenes.key(carol, endpoint_ids=refused)


def test_gateways_together_never_give_out_more_than_the_budget(alice: Organisation) -> None:
    gateways, key = [scenes.gateway() for _ in range(3)], scenes.key(alice, budget_usd_micros=300_000)
    for _ in range(4):  # renewals in between
        cuts = [scenes.grant(gateway, key).budget_usd_micros or 0 for gateway in gateways]
        assert 0 < sum(cuts) <= 300_000
        live = KeySlice.objects.filter(key=key, expires_at__gt=clock.now())
        assert sum(live.values_list("budget_usd_micros", flat=True)) <= 300_000


def test_racing_gateways_never_give_out_more_than_the_budget(alice: Organisation) -> None:
    gateways = [scenes.gateway() for _ in range(4)]
    for _ in range(RACES):
        _race_for_budget(alice, gateways)


def _race_for_budget(alice: Organisation, gateways: list[UUID]) -> None:
    key = scenes.key(alice, budget_usd_micros=12_000)
    answers: list[Any] = race(*[lambda gateway=gateway: scenes.grant(gateway, key) for gateway in gateways])
    assert not [each for each in answers if isinstance(each, Exception)]
    assert sum(each.budget_usd_micros or 0 for each in answers) <= 12_000
    assert [each.refused for each in answers].count("budget_exhausted") >= 1


def test_dead_gateways_slice_is_free_again_when_its_grant_expired(alice: Organisation) -> None:
    dead, key = scenes.gateway(), scenes.key(alice, budget_usd_micros=5_000)
    assert scenes.grant(dead, key).budget_usd_micros == 5_000
    alive = scenes.gateway()
    assert scenes.grant(alive, key).refused == "budget_exhausted"
    KeySlice.objects.filter(gateway_id=dead).update(expires_at=clock.now() - timedelta(seconds=1))
    Gateway.objects.filter(pk=dead).update(seen_at=clock.now() - timedelta(hours=1))
    assert scenes.grant(alive, key).budget_usd_micros == 5_000


def test_months_budget_starts_anew_with_the_month(alice: Organisation) -> None:
    key = scenes.key(alice, budget_usd_micros=DOLLAR, budget_period="month")
    now = clock.now()
    EndpointKey.objects.filter(pk=key.pk).update(
        spent_usd_micros=DOLLAR, spent_month_usd_micros=DOLLAR, spent_month=key_grants.month_of(now)
    )
    assert scenes.grant(scenes.gateway(), key).refused == "budget_exhausted"
    EndpointKey.objects.filter(pk=key.pk).update(spent_month=key_grants.month_of(now) - timedelta(days=31))
    assert scenes.grant(scenes.gateway(), key).refused == ""


def test_callers_of_others_get_slices_of_their_balance(alice: Organisation, carol: Organisation) -> None:
    endpoint = scenes.endpoint(alice)
    named = scenes.key(carol, endpoint_ids=[endpoint.pk])
    gateways = [scenes.gateway() for _ in range(2)]
    cuts = [scenes.grant(gateway, named).foreign_usd_micros or 0 for gateway in gateways]
    assert all(cuts) and sum(cuts) <= 10 * DOLLAR
    own = scenes.key(alice, endpoint_ids=[endpoint.pk])
    assert scenes.grant(gateways[0], own).foreign_usd_micros is None


def test_callers_without_money_are_refused_elsewhere_and_not_at_home(alice: Organisation) -> None:
    dave = stage.organisation("dave")
    endpoint, gateway = scenes.endpoint(alice), scenes.gateway()
    assert scenes.grant(gateway, scenes.key(dave, endpoint_ids=[endpoint.pk])).refused == "no_money"
    assert scenes.grant(gateway, scenes.key(dave)).refused == "no_money"  # it has no endpoint of its own
    own = scenes.endpoint(dave, model="own")
    at_home = scenes.grant(gateway, scenes.key(dave))
    assert (at_home.refused, at_home.foreign_usd_micros, at_home.endpoint_ids) == ("", 0, [own.pk])


def test_many_keys_share_one_balance(alice: Organisation, carol: Organisation) -> None:
    scenes.endpoint(alice)
    made = [scenes.key(carol) for _ in range(30)]
    given = keys.key_grants_for(scenes.gateway(), key_ids=[each.pk for each in made])
    assert len(given) == 30
    assert sum(each.foreign_usd_micros or 0 for each in given) <= 10 * DOLLAR


def test_thousand_grants_take_a_few_queries(alice: Organisation, django_assert_max_num_queries: Any) -> None:
    made = [scenes.key(alice, budget_usd_micros=DOLLAR) for _ in range(50)]
    with django_assert_max_num_queries(16):
        assert len(keys.key_grants_for(scenes.gateway(), key_ids=[each.pk for each in made])) == 50


def test_session_key_is_short_lived_and_forgotten(alice: Organisation) -> None:
    user = alice.members.first()
    assert user is not None
    made, _ = keys.issue_session(organisation=alice, user=user, seconds=10**9)
    assert made.expires_at is not None
    assert made.expires_at <= clock.now() + timedelta(seconds=keys.SESSION_SECONDS)
    assert scenes.grant(scenes.gateway(), made).kind == "session"
    UsageRemainder.objects.create(key_id=made.pk, endpoint_id=uuid4(), picos=1)
    assert keys.forget_sessions() == 0
    EndpointKey.objects.filter(pk=made.pk).update(expires_at=clock.now() - timedelta(days=2))
    assert keys.forget_sessions() == 1
    assert not UsageRemainder.objects.exists()


def test_keys_of_one_organisation_are_bounded(alice: Organisation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "LIVE_KEYS_MAX", 2)
    first = scenes.key(alice)
    scenes.key(alice)
    with pytest.raises(TooManyEndpointKeys):
        scenes.key(alice)
    keys.revoke(first.pk, organisation=alice)
    scenes.key(alice)


def test_grant_that_is_asked_for_every_second_is_written_twice_a_minute(alice: Organisation) -> None:
    gateway, key = scenes.gateway(), scenes.key(alice, budget_usd_micros=DOLLAR)
    first = scenes.grant(gateway, key)
    with CaptureQueriesContext(connection) as asked:
        again = scenes.grant(gateway, key)
    assert (again.budget_usd_micros, again.expires_at_ms) == (first.budget_usd_micros, first.expires_at_ms)
    assert not [each for each in asked if "INSERT" in each["sql"]]
    EndpointKey.objects.filter(pk=key.pk).update(spent_usd_micros=DOLLAR - 7)  # what it spent is in the books
    assert scenes.grant(gateway, key).budget_usd_micros == 7
    KeySlice.objects.update(expires_at=clock.now() + timedelta(seconds=20))
    assert scenes.grant(gateway, key).expires_at_ms > int((clock.now().timestamp() + 50) * 1000)

"""After a reset nothing that the user's old password made opens anything, what raced with the reset included."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from jobs.endpoints import keys as endpoint_keys
from marketplace.accounts import api_keys, organisations, passwords, signin
from marketplace.accounts.errors import InvitationRefused, PasswordChanged
from marketplace.accounts.models import ApiKey, Invitation, Membership, User
from marketplace.accounts.passwords import NewPassword
from marketplace.accounts.scopes import ROLE_SCOPES
from marketplace.foundation.errors import NotFound
from tests.integration.racing import race
from tests.people import PASSWORD

pytestmark = pytest.mark.django_db

NEW = NewPassword("staple battery horse", "staple battery horse")


@pytest.fixture
def alice(db: None) -> Membership:
    return organisations.create(User.objects.create_user("alice@example.org", PASSWORD), "alice's")


def reset(user: User) -> User:
    found = passwords.link_token(user.email)
    assert found is not None
    return passwords.reset(str(user.pk), found[1], NEW)


def issue(alice: Membership, user: User) -> ApiKey:
    return api_keys.issue(user=user, organisation=alice.organisation, name="x", scopes=ROLE_SCOPES["owner"])[0]


def test_a_reset_revokes_keys_endpoint_keys_and_invitations(alice: Membership) -> None:
    thief = Client()
    thief.force_login(alice.user)
    key = issue(alice, alice.user)
    endpoint_key, _ = endpoint_keys.issue(organisation=alice.organisation, user=alice.user, name="x")
    _, invitation = organisations.invite(alice.organisation, email="m@example.org", role="owner", invited_by=alice.user)
    reset(alice.user)
    assert thief.get("/chat").status_code == 302
    for each in (key, endpoint_key):
        each.refresh_from_db()
        assert each.revoked_at is not None
    mallory = User.objects.create_user("m@example.org", PASSWORD)
    with pytest.raises(InvitationRefused):
        organisations.accept(mallory, invitation)


def test_a_reset_leaves_what_colleagues_made(alice: Membership) -> None:
    carol = User.objects.create_user("carol@example.org", PASSWORD)
    Membership.objects.create(organisation=alice.organisation, user=carol, role="owner")
    key = issue(alice, carol)
    organisations.invite(alice.organisation, email="d@example.org", invited_by=carol)
    reset(alice.user)
    key.refresh_from_db()
    assert key.revoked_at is None
    assert Invitation.objects.count() == 1


def test_a_sign_in_that_raced_with_a_reset_gets_no_key(alice: Membership) -> None:
    user = signin.check_password("alice@example.org", PASSWORD)  # the password was right at this moment
    reset(alice.user)
    with pytest.raises(PasswordChanged):
        signin.sign_in(user)
    assert not ApiKey.objects.filter(revoked_at=None).exists()


def test_a_request_from_before_a_reset_makes_nothing_that_stays(alice: Membership) -> None:
    stale, key = User.objects.get(pk=alice.user_id), issue(alice, alice.user)
    reset(User.objects.get(pk=alice.user_id))
    verbs: list[Any] = [
        lambda: issue(alice, stale),
        lambda: endpoint_keys.issue(organisation=alice.organisation, user=stale, name="x"),
        lambda: organisations.invite(alice.organisation, email="m@example.org", invited_by=stale),
        lambda: api_keys.rotate(key),
    ]
    for verb in verbs:
        with pytest.raises((PasswordChanged, NotFound)):
            verb()


@pytest.mark.django_db(transaction=True)
def test_no_key_outlives_a_reset_at_the_same_moment(alice: Membership) -> None:
    user = signin.check_password("alice@example.org", PASSWORD)
    race(lambda: signin.sign_in(user), lambda: reset(alice.user), lambda: signin.sign_in(user))
    assert not ApiKey.objects.filter(revoked_at=None).exists()

"""The operator's pages of this package open, and do what they show."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from jobs.endpoints import keys
from marketplace.accounts import api_keys, organisations
from marketplace.accounts.mailing import MAIL_KIND
from marketplace.accounts.models import ApiKey, Membership, User
from marketplace.foundation.models import OutboxMessage
from tests.people import PASSWORD

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(db: None) -> Client:
    User.objects.create_superuser("operator@example.org", PASSWORD)
    client = Client()
    assert client.login(username="Operator@example.org", password=PASSWORD)
    return client


@pytest.mark.parametrize("model", ["user", "organisation", "membership", "invitation", "apikey", "sitepolicy"])
def test_every_list_opens(operator: Client, alice: Membership, model: str) -> None:
    assert operator.get(f"/admin/accounts/{model}/").status_code == 200


def test_the_operator_makes_a_user(operator: Client) -> None:
    form = {"email": "New@Example.org", "usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}
    inline = {"memberships-TOTAL_FORMS": 0, "memberships-INITIAL_FORMS": 0}
    response = operator.post("/admin/accounts/user/add/", {**form, **inline})
    assert response.status_code == 302, response.content.decode()
    assert User.objects.get(email="new@example.org").check_password(PASSWORD)


def test_the_operator_invites_and_sees_the_text_once(operator: Client, bob: Membership) -> None:
    form = {"email": "alice@example.org", "role": "member", "organisation": ""}
    page = operator.post("/admin/accounts/invitation/add/", form, follow=True).content.decode()
    (plaintext,) = re.findall(r"souki_[\w-]{43}", page)
    assert organisations.use_invitation(plaintext, email="alice@example.org").role == "member"
    assert plaintext not in operator.get("/admin/accounts/invitation/").content.decode()


def test_the_operator_revokes_a_key(operator: Client, alice: Membership) -> None:
    key, plaintext = api_keys.issue(user=alice.user, organisation=alice.organisation, name="x", scopes=["jobs:read"])
    operator.post("/admin/accounts/apikey/", {"action": "revoke", "_selected_action": [str(key.pk)]})
    assert api_keys.verify(plaintext) is None
    assert key.key_hash not in operator.get(f"/admin/accounts/apikey/{key.pk}/change/").content.decode()


@pytest.mark.parametrize("way", ["membership", "user", "deactivation"])
def test_whom_an_operator_removes_has_no_key_left(
    operator: Client, alice: Membership, carol: Membership, way: str
) -> None:
    _, text = api_keys.issue(user=carol.user, organisation=carol.organisation, name="x", scopes=["jobs:read"])
    for_programs, _ = keys.issue(user=carol.user, organisation=carol.organisation, name="program")
    if way == "deactivation":
        form = {"email": carol.user.email, "name": "Carol"}
        inline = {"memberships-TOTAL_FORMS": 0, "memberships-INITIAL_FORMS": 0}
        answer = operator.post(f"/admin/accounts/user/{carol.user.pk}/change/", {**form, **inline})
        assert answer.status_code == 302, answer.content.decode()
    else:
        (carol if way == "membership" else carol.user).delete()
    assert api_keys.verify(text) is None
    for_programs.refresh_from_db()
    assert for_programs.revoked_at is not None


def staff_who_may(*names: str) -> Client:
    """An operator with these permissions, and no others."""
    staff = User.objects.create_user("staff@example.org", PASSWORD, is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(codename__in=names))
    client = Client()
    assert client.login(username=staff.email, password=PASSWORD)
    return client


def test_staff_who_may_change_users_make_themselves_nothing_more(alice: Membership) -> None:
    client = staff_who_may("change_user", "view_user", "delete_user")
    chief = User.objects.create_superuser("chief@example.org", PASSWORD)
    inline = {"memberships-TOTAL_FORMS": 0, "memberships-INITIAL_FORMS": 0}
    form = {"email": alice.user.email, "is_active": "on", "is_staff": "on", "is_superuser": "on", **inline}
    assert client.post(f"/admin/accounts/user/{alice.user.pk}/change/", form).status_code == 302
    alice.user.refresh_from_db()
    assert (alice.user.is_staff, alice.user.is_superuser) == (False, False)
    other = {"password1": "another battery staple", "password2": "another battery staple", "usable_password": "true"}
    assert client.post(f"/admin/accounts/user/{chief.pk}/password/", other).status_code == 403
    form = {**form, "email": "mallory@example.org"}
    assert client.post(f"/admin/accounts/user/{chief.pk}/change/", form).status_code == 403
    erase = {"action": "erase", "_selected_action": [str(chief.pk)]}
    assert client.post("/admin/accounts/user/", erase).status_code == 403
    chief.refresh_from_db()
    assert (chief.email, chief.check_password(PASSWORD)) == ("chief@example.org", True)


def test_a_password_that_an_operator_sets_is_told_to_its_user(operator: Client, alice: Membership) -> None:
    new = "another battery staple"
    form = {"password1": new, "password2": new, "usable_password": "true", "set-password": "1"}
    assert operator.post(f"/admin/accounts/user/{alice.user.pk}/password/", form).status_code == 302
    alice.user.refresh_from_db()
    assert alice.user.check_password(new)
    mails = [message.payload for message in OutboxMessage.objects.filter(kind=MAIL_KIND)]
    assert [(mail["user_id"], mail["subject"]) for mail in mails] == [
        (str(alice.user.pk), "An operator set your password")
    ]


def test_staff_who_may_only_look_revoke_nothing(alice: Membership) -> None:
    client = staff_who_may("view_apikey")
    key, _ = api_keys.issue(user=alice.user, organisation=alice.organisation, name="x", scopes=["jobs:read"])
    client.post("/admin/accounts/apikey/", {"action": "revoke", "_selected_action": [str(key.pk)]})
    assert ApiKey.objects.get(pk=key.pk).revoked_at is None

"""Keys: shown once, kept hashed, revocable, and never more than who made them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from marketplace.accounts import api_keys, organisations
from marketplace.accounts.models import ApiKey, Membership
from marketplace.foundation import clock
from marketplace.foundation.errors import NotFound
from tests.people import sign

pytestmark = pytest.mark.django_db


def issue(membership: Membership, **more: Any) -> tuple[ApiKey, str]:
    fields = {"name": "test", "scopes": ["jobs:read"], **more}
    return api_keys.issue(user=membership.user, organisation=membership.organisation, **fields)


def test_a_key_opens_and_is_kept_only_as_a_hash(alice: Membership) -> None:
    key, plaintext = issue(alice)
    assert api_keys.verify(plaintext) == key
    row = ApiKey.objects.filter(pk=key.pk).values().get()
    assert plaintext.split("_", 2)[2] not in str(row)


def test_a_changed_key_opens_nothing(alice: Membership) -> None:
    _, plaintext = issue(alice)
    _, prefix, secret = plaintext.split("_", 2)
    flipped = ("A" if secret[0] != "A" else "B") + secret[1:]
    wrong = [
        f"souk_{prefix}_{flipped}",
        f"souk_{prefix}_",
        f"souk_{prefix}",
        f"bazaar_{prefix}_{secret}",
        f"zouk_{prefix}_{secret}",
        "",
        "_",
        "souk",
    ]
    assert [api_keys.verify(text) for text in wrong] == [None] * len(wrong)


def test_revoked_expired_and_orphaned_keys_open_nothing(alice: Membership, bob: Membership) -> None:
    revoked, plaintext_revoked = issue(alice)
    api_keys.revoke(revoked)
    _, plaintext_expired = issue(alice, expires_at=clock.now() - timedelta(seconds=1))
    _, plaintext_inactive = issue(bob)
    bob.user.is_active = False
    bob.user.save()
    for plaintext in (plaintext_revoked, plaintext_expired, plaintext_inactive):
        client = APIClient()
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {plaintext}")
        response = client.get("/api/v1/me")
        assert (response.status_code, response.json()["code"]) == (401, "api_key_refused")
        assert response.headers["WWW-Authenticate"] == "Bearer"


def test_the_last_use_is_noted_at_most_once_a_minute(alice: Membership) -> None:
    key, plaintext = issue(alice)
    api_keys.verify(plaintext)
    first = ApiKey.objects.get(pk=key.pk).last_used_at
    api_keys.verify(plaintext)
    assert first is not None
    assert ApiKey.objects.get(pk=key.pk).last_used_at == first
    ApiKey.objects.update(last_used_at=first - timedelta(seconds=api_keys.LAST_USED_SECONDS + 1))
    api_keys.verify(plaintext)
    assert (ApiKey.objects.get(pk=key.pk).last_used_at or first) > first - timedelta(seconds=1)


def test_rotating_replaces_a_key(alice: Membership) -> None:
    client = sign(alice)
    key, plaintext = issue(alice, name="ci")
    response = client.post(f"/api/v1/api-keys/{key.pk}/rotate")
    assert (response.status_code, response.json()["name"]) == (201, "ci")
    assert api_keys.verify(plaintext) is None
    assert api_keys.verify(response.json()["key"]) is not None


def test_a_key_that_is_revoked_already_gets_no_successor(alice: Membership) -> None:
    key, _ = issue(alice)
    api_keys.revoke(key)
    with pytest.raises(NotFound):
        api_keys.rotate(key)
    assert not ApiKey.objects.filter(name=key.name).exclude(pk=key.pk).exists()


def test_a_key_cannot_make_rotate_or_revoke_one_that_may_do_more(alice: Membership) -> None:
    weak, (strong, _) = sign(alice, ["jobs:read"]), issue(alice, scopes=["jobs:read", "account:admin"])
    body = {"name": "more", "scopes": ["jobs:read", "jobs:write"]}
    answers = [
        weak.post("/api/v1/api-keys", body, format="json"),
        weak.post(f"/api/v1/api-keys/{strong.pk}/rotate"),
        weak.delete(f"/api/v1/api-keys/{strong.pk}"),
    ]
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(403, "scope_not_yours")] * 3


def test_a_key_does_not_outlive_itself_through_another(alice: Membership) -> None:
    until = clock.now() + timedelta(minutes=5)
    _, plaintext = issue(alice, expires_at=until)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {plaintext}")
    body = {"name": "for ever", "scopes": ["jobs:read"]}
    made = client.post("/api/v1/api-keys", body, format="json").json()
    assert ApiKey.objects.get(pk=made["id"]).expires_at == until


def test_a_key_does_not_outlive_itself_by_rotating_another(alice: Membership) -> None:
    until = clock.now() + timedelta(minutes=5)
    _, plaintext = issue(alice, expires_at=until)
    endless, _ = issue(alice, name="endless")
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {plaintext}")
    made = client.post(f"/api/v1/api-keys/{endless.pk}/rotate").json()
    assert ApiKey.objects.get(pk=made["id"]).expires_at == until


def test_a_member_sees_own_keys_an_owner_all(alice: Membership, carol: Membership) -> None:
    (of_alice, _), (of_carol, _) = issue(alice, name="a"), issue(carol, name="c")
    seen = [row["id"] for row in sign(carol).get("/api/v1/api-keys").json()["results"]]
    assert str(of_carol.pk) in seen
    assert str(of_alice.pk) not in seen
    seen = [row["id"] for row in sign(alice).get("/api/v1/api-keys").json()["results"]]
    assert {str(of_alice.pk), str(of_carol.pk)} <= set(seen)


def test_mallory_reaches_no_key_of_alice(alice: Membership, mallory: Membership) -> None:
    key, _ = issue(alice)
    client = sign(mallory)
    assert client.delete(f"/api/v1/api-keys/{key.pk}").status_code == 404
    assert client.post(f"/api/v1/api-keys/{key.pk}/rotate").status_code == 404
    assert str(key.pk) not in client.get("/api/v1/api-keys").content.decode()


def test_a_demoted_members_keys_shrink_with_the_role(alice: Membership, carol: Membership) -> None:
    client = sign(carol)
    organisations.change_role(alice.organisation, carol.user_id, "billing")
    assert client.get("/api/v1/me").json()["scopes"] == ["billing:read"]


def test_a_removed_members_keys_are_revoked(alice: Membership, carol: Membership) -> None:
    client = sign(carol)
    organisations.remove(alice.organisation, carol.user_id)
    assert client.get("/api/v1/me").status_code == 401


def test_there_is_an_end_to_keys(alice: Membership, monkeypatch: pytest.MonkeyPatch) -> None:
    client = sign(alice)
    body = {"name": "one more", "scopes": ["jobs:read"]}
    for live_keys_max in (1, 0):  # one more than there may be, after an update, is too many as well
        monkeypatch.setattr(api_keys, "LIVE_KEYS_MAX", live_keys_max)
        assert client.post("/api/v1/api-keys", body, format="json").json()["code"] == "too_many_keys"
    monkeypatch.setattr(api_keys, "LIVE_KEYS_MAX", 2)
    assert client.post("/api/v1/api-keys", body, format="json").status_code == 201


def test_keys_are_listed_by_cursor_and_never_with_their_secret(alice: Membership) -> None:
    client = sign(alice)
    for number in range(4):
        issue(alice, name=str(number))
    page = client.get("/api/v1/api-keys", {"page_size": 2}).json()
    assert [row["name"] for row in page["results"]] == ["3", "2"]
    assert [row["name"] for row in client.get(page["next"]).json()["results"]] == ["1", "0"]
    assert set(page["results"][0]) == {
        *["id", "name", "prefix", "scopes", "created_at", "expires_at", "revoked_at", "last_used_at"]
    }

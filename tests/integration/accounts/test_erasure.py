"""A person can be erased, and not one unit of money moves for it (P26)."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.charging import limits
from billing.models import Commitment, Settlement, Transfer
from jobs.endpoints import keys
from jobs.models import EndpointKey, Job
from marketplace.accounts import api_keys, erasure, organisations
from marketplace.accounts.errors import LastOwner
from marketplace.accounts.models import ApiKey, Invitation, Membership, Organisation, Role, User
from provider_agent.protocol import AttemptState
from tests import stage
from tests.people import PASSWORD, join, sign

pytestmark = pytest.mark.django_db(transaction=True)


def rows_that_say(text: str) -> list[str]:
    """Every table of the database that still has it somewhere."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        tables = [row[0] for row in cursor.fetchall()]
        found = []
        for table in tables:
            cursor.execute(f'SELECT count(*) FROM "{table}" t WHERE t::text ILIKE %s', [f"%{text}%"])
            if cursor.fetchone()[0]:
                found.append(table)
    return found


@pytest.fixture
def worked():
    """Erin's own organisation bought a job from Bob, and it is settled."""
    organisation = stage.organisation("erins", usd_micros=5 * stage.DOLLAR)
    stage.node("bob")
    organisation.memberships.all().delete()
    user = User.objects.create_user("erin@example.org", PASSWORD, name="Erin Example")
    Membership.objects.create(organisation=organisation, user=user, role=Role.OWNER)
    limits.set_limit(organisation.id, member_id=user.id, period="month", amount=10**9, actor=str(user.id))
    api_keys.issue(user=user, organisation=organisation, name="erin's laptop", scopes=["jobs:read"])
    keys.issue(user=user, organisation=organisation, name="program")
    organisations.invite(None, email="erin@example.org")
    job = stage.submit(organisation)
    (lease,) = stage.place(job)
    stage.send_report(lease, AttemptState.RUNNING)
    stage.see_running(lease, seconds=600)
    stage.bill(lease, ms=600_000)
    stage.finish(lease)
    return user, organisation, job


def test_p26_erasing_a_user_leaves_every_sum_and_split_as_it_was(worked):
    user, organisation, job = worked
    transfers = list(Transfer.objects.order_by("seq").values_list("id", "amount", "debit", "credit", "hash"))
    has = ledger.balance(organisation.id, AccountKind.CUSTOMER_AVAILABLE)
    erased = erasure.erase(user.id)
    assert list(Transfer.objects.order_by("seq").values_list("id", "amount", "debit", "credit", "hash")) == transfers
    assert ledger.verify().problems == []  # P1, P2, and every settlement
    assert set(ledger.trial_balance().values()) == {0}
    settled = Settlement.objects.get(job_id=job.id)
    assert settled.held == settled.paid + settled.fee + settled.refunded  # P8
    assert ledger.balance(organisation.id, AccountKind.CUSTOMER_AVAILABLE) == has
    assert Job.objects.get().submitted_by == erased
    assert Commitment.objects.get().member_id == user.id  # an id that leads to nobody


def test_no_table_says_who_they_were(worked):
    user, organisation, _ = worked
    Organisation.objects.filter(pk=organisation.pk).update(name="Erin Example Ltd")
    assert {"accounts_user", "accounts_organisation", "foundation_event"} <= set(rows_that_say("erin"))
    erasure.erase(user.id)
    for text in ("erin@example.org", "Erin Example", "erin's laptop"):
        assert rows_that_say(text) == []


def test_who_is_erased_cannot_come_back(worked):
    user, _, _ = worked
    page = Client()
    page.force_login(user)
    as_erin = sign(Membership.objects.get(user=user))
    assert as_erin.get("/api/v1/me").status_code == 200
    erased = erasure.erase(user.id)
    assert erasure.erase(user.id).email == erased.email
    assert as_erin.get("/api/v1/me").status_code == 401
    assert page.get("/api/v1/me").status_code in {401, 403}
    assert not erased.is_active and not erased.has_usable_password()
    assert not ApiKey.objects.filter(revoked_at=None).exists()
    assert not EndpointKey.objects.filter(revoked_at=None).exists()
    assert not Invitation.objects.filter(email="erin@example.org").exists()


def test_an_organisation_with_others_is_handed_over_first(worked):
    user, organisation, _ = worked
    carol = join(Membership.objects.get(user=user), "carol", "member")
    with pytest.raises(LastOwner):
        erasure.erase(user.id)
    user.refresh_from_db()
    assert user.email == "erin@example.org"
    organisations.change_role(organisation, carol.user_id, "owner")
    erasure.erase(user.id)
    assert Organisation.objects.get(pk=organisation.pk).name == "erins"


def test_an_operator_erases_in_the_admin(worked):
    user, _, _ = worked
    page = Client()
    page.force_login(User.objects.create_superuser("op@example.org", PASSWORD))
    page.post("/admin/accounts/user/", {"action": "erase", "_selected_action": [str(user.pk)]})
    user.refresh_from_db()
    assert user.email.endswith("@erased.invalid")

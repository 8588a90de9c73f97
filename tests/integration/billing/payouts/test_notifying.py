"""Bob gets a mail about each change to his payouts; also when Mallory has his login and wants none sent."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.core import mail

from billing import dispatch
from billing.models import Alert, PayoutSettings
from billing.notices import mailing
from billing.payouts import paying, preferences
from billing.payouts.preferences import DesiredSettings
from billing.payouts.running import run_payouts
from marketplace.accounts import erasure, organisations
from marketplace.accounts.models import Membership, Role, User
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage
from tests.integration.billing.payouts.scenes import choose, earn, make_due, send, usd
from tests.people import join

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(db: None) -> Membership:
    return organisations.create(User.objects.create_user("bob@example.org"), "Bob's")


def choose_as(owner: Membership, destination: str, **more: Any) -> PayoutSettings:
    """Through the API the actor is the organisation and the user."""
    provider_id = owner.organisation_id
    actor = f"{provider_id}:{owner.user_id}"
    return preferences.choose(provider_id, usd(), DesiredSettings("fake", destination, **more), actor=actor)


def new_mails() -> dict[str, Any]:
    """Who got a mail since, and its subject."""
    send()
    found = {to: message.subject for message in mail.outbox for to in message.to}
    assert all(len(message.to) == 1 for message in mail.outbox)  # nobody sees another's address
    mail.outbox.clear()
    return found


def test_every_owner_is_notified_of_another_destination_and_nobody_else(owner: Membership) -> None:
    join(owner, "barbara", Role.OWNER)
    join(owner, "dave", Role.BILLING)
    join(owner, "carol", Role.MEMBER)
    choose_as(owner, "fake:bob")
    assert set(new_mails()) == {"bob@example.org", "barbara@example.org"}
    row = choose_as(owner, "fake:mallory")
    send()
    assert {to for message in mail.outbox for to in message.to} == {"bob@example.org", "barbara@example.org"}
    body = mail.outbox[0].body
    assert "fake:mallory" in body and "fake:bob" in body and f"{row.next_from:%Y-%m-%d %H:%M} UTC" in body
    assert "pay-to" in body  # how to stop it


def test_who_removes_the_owners_cannot_keep_their_notice_from_them(owner: Membership) -> None:
    choose_as(owner, "fake:bob")
    mallory = join(owner, "mallory", Role.OWNER)
    organisations.remove(owner.organisation, owner.user_id)
    new_mails()
    choose_as(mallory, "fake:mallory")
    assert set(new_mails()) == {"bob@example.org", "mallory@example.org"}


def test_the_same_again_another_schedule_and_the_way_back_notify_nobody(owner: Membership) -> None:
    choose_as(owner, "fake:bob")
    choose_as(owner, "fake:new")
    new_mails()
    choose_as(owner, "fake:new", minimum=5)
    choose_as(owner, "fake:bob")
    choose_as(owner, "fake:bob", schedule="weekly")
    assert new_mails() == {}
    choose_as(owner, "fake:new")  # waits again, and is announced again
    assert set(new_mails()) == {"bob@example.org"}


def test_a_choice_that_is_refused_notifies_nobody(owner: Membership) -> None:
    from billing.payouts.errors import DestinationRefused

    with pytest.raises(DestinationRefused):
        choose_as(owner, "nowhere")
    assert new_mails() == {}


def test_no_address_lies_in_the_outbox_and_an_erased_owner_gets_no_mail(owner: Membership) -> None:
    choose_as(owner, "fake:bob")
    waiting = OutboxMessage.objects.filter(kind=mailing.MAIL_KIND)
    assert waiting.count() == 1
    assert not any("example.org" in str(message.payload) for message in waiting)
    erasure.erase(owner.user_id)
    assert new_mails() == {}
    assert waiting.get().state == "done"


def test_a_failed_payout_notifies_its_owners_and_the_operators_until_one_arrives(owner: Membership) -> None:
    bob: UUID = owner.organisation_id
    earn(bob)
    row = choose_as(owner, "fake:refused:bob")
    new_mails()
    for failures in range(1, paying.FAILURES_MAX + 1):
        make_due(row)
        run_payouts()
        dispatch.dispatch_due()
        send()
        [message] = mail.outbox
        mail.outbox.clear()
        assert "$10.00" in message.subject and "refuses" in message.body
        assert ("by itself" in message.body) is (failures == paying.FAILURES_MAX)
        alert = Alert.objects.open().get(kind="payout_failed")
        assert alert.severity == ("warning" if failures == paying.FAILURES_MAX else "info")
    PayoutSettings.objects.filter(pk=row.pk).update(destination="fake:bob")
    paying.pay_now(bob, usd(), actor="bob")
    send()
    assert not Alert.objects.open().filter(kind="payout_failed").exists()


def test_a_provider_that_was_erased_is_paid_and_not_notified(owner: Membership) -> None:
    """Its money is still its own: the destination that it chose gets it, and a failure stays in the books."""
    bob: UUID = owner.organisation_id
    earn(bob)
    choose(bob, "fake:bob")
    erasure.erase(owner.user_id)
    assert run_payouts() == 1
    assert new_mails() == {}
    assert PayoutSettings.objects.get(provider_id=bob).due_at > clock.now()

"""A limit holds whatever is submitted at once; what counts are caps of living jobs, and what ended ones cost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.core import mail

from billing import dispatch
from billing.charging import holds, limits, settlement
from billing.charging.settlement import LeaseCharge
from billing.errors import AmountInvalid, SpendLimitReached
from billing.models import Alert, Commitment
from billing.models.limits import Period
from marketplace.accounts import organisations
from marketplace.accounts.models import Role, User
from marketplace.foundation import clock
from tests.integration.billing.scenes import DOLLAR, fund, race
from tests.people import join

pytestmark = pytest.mark.django_db
CAROL, DAVE = uuid4(), uuid4()


def first(year, month):
    return datetime(year, month, 1, tzinfo=UTC)


def limit(owner, amount=10 * DOLLAR, *, member_id=None, period=Period.MONTH):
    return limits.set_limit(owner, member_id=member_id, period=period, amount=amount, actor="alice@example.org")


def submit(owner, amount, member_id=CAROL, job_id=None):
    return limits.commit(job_id=job_id or uuid4(), owner_id=owner, member_id=member_id, amount=amount)


def finish(commitment, charged):
    holds.place_hold(owner_id=commitment.owner_id, job_id=commitment.job_id, amount=commitment.amount)
    charges = [LeaseCharge(uuid4(), uuid4(), charged)] if charged else []
    settlement.settle_job(job_id=commitment.job_id, charges=charges, fee_bps=0)
    limits.conclude(commitment.job_id)


def test_without_a_limit_everything_passes_and_is_counted(alice):
    submit(alice, 1000 * DOLLAR)
    assert Commitment.objects.get().amount == 1000 * DOLLAR


def test_a_job_beyond_the_months_limit_is_refused_with_all_figures(alice):
    limit(alice)
    submit(alice, 7 * DOLLAR)
    with pytest.raises(SpendLimitReached) as refused:
        submit(alice, 3 * DOLLAR + 1)
    error = refused.value
    assert error.status == 402
    assert "organisation's limit of $10.00 a month is reached: $7.00 is used, $3.00 left, $3.000001" in error.message
    assert error.details["left_usd_micros"] == str(3 * DOLLAR)
    assert error.details["resets_at"].endswith("-01T00:00:00+00:00")
    submit(alice, 3 * DOLLAR)
    assert Commitment.objects.count() == 2


def test_an_ended_job_counts_with_what_it_cost(alice):
    limit(alice)
    finish(submit(alice, 8 * DOLLAR), 2 * DOLLAR)
    [standing] = limits.standings(alice, CAROL)
    assert (standing.used, standing.left) == (2 * DOLLAR, 8 * DOLLAR)


def test_a_job_that_was_never_placed_costs_nothing(alice):
    limit(alice)
    made = submit(alice, 8 * DOLLAR)
    limits.conclude(made.job_id)
    limits.conclude(made.job_id)
    assert limits.standings(alice, CAROL)[0].used == 0


def test_a_new_month_starts_with_what_still_runs(alice):
    made = limit(alice)
    finish(submit(alice, 5 * DOLLAR), 4 * DOLLAR)
    submit(alice, 3 * DOLLAR)
    next_month = limits.standing_of(made).resets_at
    assert limits.standing_of(made).used == 7 * DOLLAR
    assert limits.standing_of(made, now=next_month).used == 3 * DOLLAR
    assert limits.standing_of(made, now=next_month - timedelta(seconds=1)).used == 7 * DOLLAR


def test_a_members_limit_is_theirs_and_the_organisations_is_everybodys(alice):
    limit(alice)
    limit(alice, 4 * DOLLAR, member_id=CAROL)
    with pytest.raises(SpendLimitReached, match="member's limit"):
        submit(alice, 5 * DOLLAR)
    submit(alice, 5 * DOLLAR, DAVE)
    submit(alice, 4 * DOLLAR)
    with pytest.raises(SpendLimitReached, match="organisation's limit"):
        submit(alice, 2 * DOLLAR, DAVE)
    submit(uuid4(), 100 * DOLLAR)  # another organisation's jobs do not count


def test_one_job_may_cost_so_much(alice):
    limit(alice, 2 * DOLLAR, period=Period.JOB)
    for _ in range(3):
        submit(alice, 2 * DOLLAR)
    with pytest.raises(SpendLimitReached, match="a job"):
        submit(alice, 2 * DOLLAR + 1)


def test_a_raised_cap_counts_and_can_be_refused(alice):
    limit(alice)
    limit(alice, 8 * DOLLAR, period=Period.JOB)
    made = submit(alice, 5 * DOLLAR)
    submit(alice, 3 * DOLLAR)
    limits.enlarge(made.job_id, amount=7 * DOLLAR)
    with pytest.raises(SpendLimitReached, match="a month"):
        limits.enlarge(made.job_id, amount=7 * DOLLAR + 1)
    with pytest.raises(SpendLimitReached, match="a job"):
        limits.enlarge(made.job_id, amount=9 * DOLLAR)
    made.refresh_from_db()
    assert made.amount == 7 * DOLLAR
    limits.enlarge(uuid4(), amount=1)  # from before there were limits


def test_a_repeated_submit_counts_once(alice):
    limit(alice)
    job_id = uuid4()
    submit(alice, 6 * DOLLAR, job_id=job_id)
    submit(alice, 6 * DOLLAR, job_id=job_id)
    assert limits.standings(alice, CAROL)[0].used == 6 * DOLLAR


def test_marks_raise_one_alert_each_and_no_mail_to_operators(alice, settings):
    settings.SOUK_ALERT_EMAILS = ["op@example.org"]
    limit(alice)
    for amount in (4, 1, 1, 2, 2):
        submit(alice, amount * DOLLAR)
    texts = sorted(Alert.objects.filter(kind="spend_limit").values_list("message", flat=True))
    assert [text.split(" %")[0] for text in texts] == ["100", "50", "80"]
    assert limits.standings(alice, CAROL)[0].reached_percents == [50, 80, 100]


def test_owners_and_the_member_are_mailed_the_highest_mark_once(db):
    owner = organisations.create(User.objects.create_user("alice@example.org"), "Alice's")
    member = join(owner, "carol", Role.MEMBER)
    limits.set_limit(owner.organisation_id, member_id=member.user_id, period="month", amount=10 * DOLLAR, actor="alice")

    def spend(dollars: int) -> dict[str, str]:
        job = uuid4()
        limits.commit(job_id=job, owner_id=owner.organisation_id, member_id=member.user_id, amount=dollars * DOLLAR)
        dispatch.dispatch_due()
        subjects = {message.to[0]: str(message.subject) for message in mail.outbox}
        mail.outbox.clear()
        return subjects

    both = {owner.user.email, member.user.email}
    assert spend(4) == {}
    assert spend(5) == dict.fromkeys(both, "[Souk] 80 % of a spend limit is used")  # and not 50 % beside it
    assert spend(0) == {}
    assert spend(1) == dict.fromkeys(both, "[Souk] 100 % of a spend limit is used")


def test_setting_a_limit_again_changes_it_and_removing_it_lifts_it(alice):
    limit(alice)
    made = limit(alice, 0)
    with pytest.raises(SpendLimitReached):
        submit(alice, 1)
    assert not limits.remove_limit(uuid4(), made.pk)
    assert limits.remove_limit(alice, made.pk)
    submit(alice, 1)
    with pytest.raises(AmountInvalid):
        limit(alice, -1)


@pytest.mark.parametrize(
    ("moment", "start", "end"),
    [
        (datetime(2026, 12, 31, 23, 59, tzinfo=UTC), (2026, 12), (2027, 1)),
        (datetime(2027, 1, 1, tzinfo=UTC), (2027, 1), (2027, 2)),
        (datetime(2028, 2, 29, tzinfo=UTC), (2028, 2), (2028, 3)),
    ],
)
def test_months_are_of_the_calendar(moment, start, end):
    assert limits.month_of(moment) == (first(*start), first(*end))


@pytest.mark.django_db(transaction=True)
def test_submits_at_once_never_overrun_a_limit():
    alice = fund(uuid4())
    limit(alice)
    found = race([lambda: submit(alice, 3 * DOLLAR) for _ in range(8)])
    assert sum(isinstance(each, SpendLimitReached) for each in found) == 5
    assert not [each for each in found if isinstance(each, Exception) and not isinstance(each, SpendLimitReached)]
    assert limits.standings(alice, None, now=clock.now())[0].used == 9 * DOLLAR

"""Cancelling, giving more, doing it again: each asks first, and costs what it said."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from django.test import Client

from billing.account_kinds import AccountKind
from billing.books.balances import balance
from jobs import lifecycle, sweeps
from jobs.models import Job, Quote
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from provider_agent.protocol import Reason
from tests import stage
from tests.integration.portal.chat.conftest import sign_in

pytestmark = pytest.mark.django_db


def ended(alice: Organisation) -> Job:
    job, [lease] = stage.running_job(alice)
    stage.bill(lease, ms=1_000)
    stage.finish(lease)
    job.refresh_from_db()
    assert job.state == "completed"
    return job


def quote_on(browser: Client, job: Job) -> str:
    page = browser.post(f"/jobs/{job.pk}/repeat").content.decode()
    [quote] = re.findall(r'name="quote" value="([^"]*)"', page)
    return quote


def test_a_job_is_cancelled_once_however_often_the_button_is_pressed(browser: Client, alice: Organisation) -> None:
    job = stage.submit(alice)
    before = balance(alice.pk, AccountKind.JOB_HOLD)
    for _ in range(2):
        assert browser.post(f"/jobs/{job.pk}/cancel").headers["Location"] == f"/jobs/{job.pk}"
    job.refresh_from_db()
    assert (job.state, job.reason) == ("cancelled", Reason.CANCELLED_BY_CUSTOMER.value)
    assert balance(alice.pk, AccountKind.JOB_HOLD) <= before


def test_the_picked_jobs_are_cancelled_and_no_other(
    browser: Client, alice: Organisation, mallory: Organisation
) -> None:
    mine = [stage.submit(alice, stage.spec_of(name=f"job-{number}")) for number in range(3)]
    theirs = stage.submit(mallory)
    browser.post(f"/jobs/{mine[0].pk}/cancel")  # one has ended meanwhile
    picked = [str(job.pk) for job in (mine[0], mine[1], theirs)]
    assert browser.post("/jobs/cancel", {"job": picked}).status_code == 302
    assert stage.states_of([*mine, theirs]) == ["cancelled", "cancelled", "queued", "queued"]
    assert browser.post("/jobs/cancel", {}).status_code == 400
    assert browser.post("/jobs/cancel", {"job": ["x"]}).status_code == 400


def test_an_ended_job_is_not_cancelled(browser: Client, alice: Organisation) -> None:
    job = ended(alice)
    refused = browser.post(f"/jobs/{job.pk}/cancel")
    assert refused.status_code == 409
    assert b'role="alert"' in refused.content


def test_a_job_is_done_again_once_under_the_price_that_was_shown(browser: Client, alice: Organisation) -> None:
    job = ended(alice)
    quote = quote_on(browser, job)
    answer = browser.post(f"/jobs/{job.pk}/repeat", {"quote": quote})
    made = Job.objects.exclude(pk=job.pk).get()
    assert answer.headers["Location"] == f"/jobs/{made.pk}"
    assert (str(made.quote_id), made.spec, made.submitted_by) == (quote, job.spec, job.submitted_by)
    again = browser.post(f"/jobs/{job.pk}/repeat", {"quote": quote})
    assert again.headers["Location"] == answer.headers["Location"], "a button that is pressed twice"
    assert Job.objects.count() == 2


def test_a_price_of_somebody_else_buys_nothing(browser: Client, alice: Organisation, mallory: Organisation) -> None:
    job = ended(alice)
    theirs = stage.quote(mallory)
    assert browser.post(f"/jobs/{job.pk}/repeat", {"quote": str(theirs)}).status_code == 404
    used = stage.submit(mallory).quote_id
    assert browser.post(f"/jobs/{job.pk}/repeat", {"quote": str(used)}).status_code == 404
    assert Job.objects.of(alice).count() == 1
    assert sign_in(mallory).post(f"/jobs/{job.pk}/repeat").status_code == 404
    assert Quote.objects.filter(organisation=mallory).count() == 2


def test_a_running_job_is_not_done_again(browser: Client, alice: Organisation) -> None:
    job, _ = stage.running_job(alice)
    for form in ({}, {"quote": str(stage.quote(alice))}):
        assert browser.post(f"/jobs/{job.pk}/repeat", form).status_code == 400
    assert Job.objects.count() == 1


@pytest.mark.parametrize("cap", ["", "x", "-1", "1e9", "0", "0.0000001"])
def test_a_cap_that_is_no_money_is_refused(browser: Client, alice: Organisation, cap: str) -> None:
    job, _ = stage.running_job(alice)
    refused = browser.post(f"/jobs/{job.pk}/budget", {"max_total": cap})
    assert refused.status_code == 400
    assert b"The new cap" in refused.content


def test_a_paused_job_goes_on_under_a_higher_cap(browser: Client, alice: Organisation) -> None:
    job, [lease] = stage.running_job(alice)
    stage.see_running(lease, seconds=3590)  # two dollars last an hour
    sweeps.sweep_jobs()
    stage.bill(lease, ms=3_590_000)
    lease.refresh_from_db()
    stage.finish(lease, Reason.BUDGET_EXHAUSTED)
    job.refresh_from_db()
    assert job.state == "paused"
    assert b"Give it more" in browser.get(f"/jobs/{job.pk}").content
    cap = job.cap_usd_micros // 1_000_000 + 3
    assert browser.post(f"/jobs/{job.pk}/budget", {"max_total": str(cap)}).status_code == 302
    job.refresh_from_db()
    assert (job.state, job.cap_usd_micros) == ("queued", cap * 1_000_000)
    too_low = browser.post(f"/jobs/{job.pk}/budget", {"max_total": "0.01"})
    assert too_low.status_code == 409


def test_a_job_that_ends_meanwhile_keeps_no_other_from_being_cancelled(
    browser: Client, alice: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = ended(alice)
    jobs = [stage.submit(alice, stage.spec_of(name=f"job-{number}")) for number in range(3)]
    cancel = lifecycle.cancel
    seen: list[object] = []

    def cancel_one(job_id: UUID, **named: str) -> Job:
        seen.append(job_id)
        return cancel(done.pk if len(seen) == 1 else job_id, **named)

    monkeypatch.setattr(lifecycle, "cancel", cancel_one)
    assert browser.post("/jobs/cancel", {"job": [str(job.pk) for job in jobs]}).status_code == 302
    assert sorted(stage.states_of(jobs)) == ["cancelled", "cancelled", "queued"]


def test_a_forged_form_changes_nothing(alice: Organisation, node: Node) -> None:
    job = stage.submit(alice)
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(alice.members.get())
    paths = [f"/jobs/{job.pk}/{verb}" for verb in ("cancel", "budget", "repeat")]
    for path in [
        *paths,
        "/jobs/cancel",
        "/launch/check",
        "/launch/price",
        "/launch/now",
        "/billing/top-ups",
        "/earn/nodes",
    ]:
        assert browser.post(path, {"job": [str(job.pk)], "amount": "5"}).status_code == 403
    job.refresh_from_db()
    assert job.cancel_requested_at is None

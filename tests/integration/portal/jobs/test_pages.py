"""/jobs: what the list and the page of a job show, and to whom."""

from __future__ import annotations

import html
import re
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobs.api.job_views import show_job
from jobs.models import Job, Stream
from jobs.running.streams import append
from marketplace.accounts.models import Organisation, Role
from marketplace.accounts.scopes import ROLE_SCOPES, Scope
from marketplace.nodes.models import Node
from marketplace.portal import visitors
from marketplace.portal.amounts import dollars
from marketplace.portal.visitors import CONTENT_SECURITY_POLICY
from provider_agent.protocol import Reason
from tests import stage
from tests.integration.portal.chat.conftest import sign_in

pytestmark = pytest.mark.django_db

ATTACK = "<script>alert(1)</script>"


def text_of(browser: Client, path: str, status: int = 200) -> str:
    answer = browser.get(path)
    assert answer.status_code == status, answer.content
    assert answer.headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
    return html.unescape(answer.content.decode())


def names_in(page: str) -> list[str]:
    return re.findall(r'<a href="/jobs/[0-9a-f-]{36}">([^<]*)</a>', page)


def test_a_running_job_is_shown_with_its_node_and_its_cost_to_the_micro_dollar(
    browser: Client, alice: Organisation
) -> None:
    job, [lease] = stage.running_job(alice)
    stage.see_running(lease, seconds=100)
    stage.bill(lease, ms=90_000)
    view = show_job(job)
    assert view.cost_so_far_usd_micros > 0
    for path in (f"/jobs/{job.pk}", f"/jobs/{job.pk}/now", "/jobs"):
        page = text_of(browser, path)
        assert dollars(view.cost_so_far_usd_micros) in page
        assert dollars(view.cap_usd_micros) in page
        assert "running" in page
    page = text_of(browser, f"/jobs/{job.pk}")
    assert lease.node.name in page
    assert "NVIDIA H100" in page
    assert "hx-trigger" in page, "what changes is asked for again"


def test_an_ended_job_says_why_and_asks_for_nothing_more(browser: Client, alice: Organisation) -> None:
    job, [lease] = stage.running_job(alice)
    stage.bill(lease, ms=1_000)
    stage.finish(lease, Reason.BAD_INPUT, message=f"died {ATTACK}")
    page = browser.get(f"/jobs/{job.pk}").content.decode()
    assert ATTACK not in page
    assert "bad input" in page
    assert f"/jobs/{job.pk}/now" not in page
    assert "Cancel this job" not in page
    assert "Do it again" in page


def test_the_list_is_asked_for_by_state_kind_and_name_and_paged(browser: Client, alice: Organisation) -> None:
    for number in range(3):
        stage.submit(alice, stage.spec_of(name=f"first-{number}"))
    ended = stage.submit(alice, stage.spec_of(name="other"))
    browser.post(f"/jobs/{ended.pk}/cancel")
    assert names_in(text_of(browser, "/jobs")) == ["other", "first-2", "first-1", "first-0"]
    assert names_in(text_of(browser, "/jobs?state=unfinished&name=FIRST")) == ["first-2", "first-1", "first-0"]
    assert names_in(text_of(browser, "/jobs?state=cancelled&kind=&name=")) == ["other"]
    assert names_in(text_of(browser, "/jobs?kind=serve")) == []


def test_pages_of_the_list_hold_fifty_and_lead_on(
    browser: Client, alice: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marketplace.foundation.pagination.NewestFirst.page_size", 2)
    for number in range(5):
        stage.submit(alice, stage.spec_of(name=f"job-{number}"))
    seen, path = [], "/jobs?name=job"
    while path:
        page = text_of(browser, path)
        seen += names_in(page)
        older = re.search(r'href="(/jobs\?[^"]*)" rel="next"', page)
        path = older[1] if older else ""
    assert seen == [f"job-{number}" for number in (4, 3, 2, 1, 0)]


@pytest.mark.parametrize(
    "query", ["state=nonsense", "kind=x", "name=" + "x" * 65, "owner=1", f"state={ATTACK}", "cursor=nonsense"]
)
def test_a_question_without_an_answer_gets_a_sentence(browser: Client, query: str) -> None:
    answer = browser.get(f"/jobs?{query}")
    assert answer.status_code == 400
    assert b'role="alert"' in answer.content
    assert ATTACK not in answer.content.decode()


def test_a_job_of_somebody_else_is_not_there(alice: Organisation, mallory: Organisation, node: Node) -> None:
    job, _ = stage.running_job(alice)
    browser = sign_in(mallory)
    assert names_in(text_of(browser, "/jobs")) == []
    for path in ("", "/now", "/log", "/log.txt"):
        assert browser.get(f"/jobs/{job.pk}{path}").status_code == 404
        assert browser.get(f"/jobs/{uuid4()}{path}").status_code == 404
    for path in ("cancel", "repeat"):
        assert browser.post(f"/jobs/{job.pk}/{path}", {"quote": str(uuid4())}).status_code == 404
    assert browser.post("/jobs/cancel", {"job": [str(job.pk)]}).status_code == 302
    assert alice.name not in text_of(browser, f"/launch?like={job.pk}")
    job.refresh_from_db()
    assert job.cancel_requested_at is None


def test_a_role_that_does_not_include_it_changes_nothing(
    browser: Client, alice: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = stage.running_job(alice)
    monkeypatch.setattr(visitors, "ROLE_SCOPES", {**ROLE_SCOPES, Role.OWNER: frozenset({Scope.JOBS_READ})})
    page = text_of(browser, f"/jobs/{job.pk}")
    assert "Cancel this job" not in page
    assert 'href="/launch"' not in page
    paths = [f"/jobs/{job.pk}/{verb}" for verb in ("cancel", "budget", "repeat")]
    for path in [*paths, "/jobs/cancel", "/launch/check", "/launch/price", "/launch/now"]:
        assert browser.post(path, {"job": [str(job.pk)]}).status_code == 403
    job.refresh_from_db()
    assert job.cancel_requested_at is None


def test_what_a_node_printed_is_followed_and_downloaded(browser: Client, alice: Organisation) -> None:
    job, [lease] = stage.running_job(alice)
    append(lease, Stream.LOG, fence=lease.fence, offset=0, data=f"hello\n{ATTACK}\n".encode())
    page = browser.get(f"/jobs/{job.pk}").content.decode()
    assert "hello" in page and ATTACK not in page
    follow = html.unescape(re.findall(r'hx-get="(/jobs/[^"]*/log\?[^"]*)"', page)[0])
    assert "hello" not in browser.get(follow).content.decode()
    append(lease, Stream.LOG, fence=lease.fence, offset=len(f"hello\n{ATTACK}\n"), data=b"more\n")
    assert browser.get(follow).content.decode().startswith("more\n<span")
    whole: Any = browser.get(f"/jobs/{job.pk}/log.txt")
    assert b"".join(whole.streaming_content) == f"hello\n{ATTACK}\nmore\n".encode()
    assert "attachment" in whole.headers["Content-Disposition"]
    assert browser.get(f"/jobs/{job.pk}/log?attempt=7").status_code == 404
    assert browser.get(f"/jobs/{job.pk}/log?offset=x").status_code == 400


def test_of_a_long_log_the_end_is_shown(browser: Client, alice: Organisation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marketplace.portal.jobs.views.LOG_BYTES_SHOWN", 100)
    job, [lease] = stage.running_job(alice)
    append(lease, Stream.LOG, fence=lease.fence, offset=0, data=b"".join(b"line %d\n" % n for n in range(100)))
    page = text_of(browser, f"/jobs/{job.pk}")
    shown = page[page.index('<pre class="log"') :].partition(">")[2].partition("<span")[0].splitlines()
    assert shown[-1] == "line 99"
    assert 8 < len(shown) < 14
    assert all(re.fullmatch(r"line \d\d", line) for line in shown), "no line is cut"


def test_what_a_program_reports_cannot_break_the_page(browser: Client, alice: Organisation) -> None:
    job, _ = stage.running_job(alice)
    reported: list[dict[str, Any]] = [
        {"step": ATTACK, "steps_total": 0},
        {"step": 9, "steps_total": 3, "loss": ATTACK},
        {"loss": []},
    ]
    for progress in reported:
        Job.objects.filter(pk=job.pk).update(progress=progress)
        assert ATTACK not in browser.get(f"/jobs/{job.pk}").content.decode()


def test_a_page_takes_a_fixed_number_of_queries(browser: Client, alice: Organisation) -> None:
    def queries(path: str) -> int:
        with CaptureQueriesContext(
            connection,
        ) as seen:
            text_of(browser, path)
        return len(seen)

    job, _ = stage.running_job(alice)
    few = queries("/jobs")
    for number in range(4):
        stage.submit(alice, stage.spec_of(name=f"job-{number}"))
    assert queries("/jobs") == few
    assert queries(f"/jobs/{job.pk}") < 40


def test_strangers_are_led_to_sign_in(client: Client, alice: Organisation, node: Node) -> None:
    job = stage.submit(alice)
    for path in ("/jobs", f"/jobs/{job.pk}", "/launch"):
        sent = client.get(path)
        assert sent.status_code == 302
        assert sent.headers["Location"].startswith("/signin?next=")


def test_each_attempt_is_listed_with_its_end(browser: Client, alice: Organisation) -> None:
    job, [lease] = stage.running_job(alice)
    stage.finish(lease, Reason.DEVICE_FAILED, message="the driver is gone")
    second = stage.place(job)
    page = text_of(browser, f"/jobs/{job.pk}")
    assert "device failed" in page and "the driver is gone" in page
    assert page.index('<th scope="row">2 ') < page.index('<th scope="row">1 '), "the newest first"
    assert second[0].attempt.number == 2


def test_a_cap_that_lasts_for_ages_is_no_news(browser: Client, alice: Organisation) -> None:
    stage.node("nearly-free", price_usd_micros=1)
    job, [lease] = stage.running_job(alice)
    Job.objects.filter(pk=job.pk).update(cap_usd_micros=10**15)
    assert lease.rate_usd_micros_per_hour == 2
    assert "is used up" not in text_of(browser, f"/jobs/{job.pk}")


def test_a_page_is_loaded_anew_when_what_may_be_done_has_changed(browser: Client, alice: Organisation) -> None:
    job = stage.submit(alice)
    follow = html.unescape(
        re.findall(r'hx-get="(/jobs/[^"]*/now[^"]*)"', browser.get(f"/jobs/{job.pk}").content.decode())[0]
    )
    assert "HX-Refresh" not in browser.get(follow).headers
    stage.place(job)
    assert browser.get(follow).headers["HX-Refresh"] == "true"


def test_text_that_is_none_does_not_end_a_download(browser: Client, alice: Organisation) -> None:
    job, [lease] = stage.running_job(alice)
    data = b"a\n" + b"\x00" * (300 * 1024) + b"\nz\n"
    for begin in range(0, len(data), 100_000):
        append(lease, Stream.LOG, fence=lease.fence, offset=begin, data=data[begin : begin + 100_000])
    whole: Any = browser.get(f"/jobs/{job.pk}/log.txt")
    assert b"".join(whole.streaming_content) == b"a\n\nz\n"


def test_a_long_line_is_shown_although_it_has_no_end(browser: Client, alice: Organisation) -> None:
    job, [lease] = stage.running_job(alice)
    for begin in range(0, 200_000, 100_000):
        append(lease, Stream.LOG, fence=lease.fence, offset=begin, data=b"x" * 100_000)
    assert "x" * 1000 in text_of(browser, f"/jobs/{job.pk}")


def test_who_is_signed_out_meanwhile_loses_nothing(alice: Organisation, node: Node, client: Client) -> None:
    job = stage.submit(alice)
    part = {"HX-Request": "true", "HX-Current-URL": f"http://testserver/jobs/{job.pk}"}
    sent = client.get(f"/jobs/{job.pk}/now", headers=part)
    assert (sent.status_code, sent.headers["HX-Redirect"]) == (401, f"/signin?next=%2Fjobs%2F{job.pk}")
    stays = client.post("/launch/check", {"text": "x"}, headers={**part, "HX-Target": "mistakes"})
    assert b'<div id="mistakes" class="error" role="alert">You are signed out.' in stays.content
    assert "HX-Redirect" not in stays.headers
    elsewhere = client.post(f"/chat/{job.pk}/messages/{job.pk}/left-out", headers={**part, "HX-Target": "m-1"})
    assert (elsewhere.status_code, elsewhere.content) == (
        401,
        b'{"message": "You are signed out. Load the page again to sign in."}',
    )

"""/usage: Carol sees what she called of Alice's models, Alice what was called of hers, Mallory neither."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote_plus

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobs.endpoints import token_payments, usage, usage_views
from jobs.models import Endpoint, EndpointKey, UsageDay
from jobs.wire.usage import UsageView
from marketplace.accounts.models import Membership, Organisation, Role, User
from marketplace.accounts.scopes import ROLE_SCOPES, Scope
from marketplace.foundation import clock
from marketplace.portal import visitors
from marketplace.portal.amounts import dollars
from marketplace.portal.visitors import CONTENT_SECURITY_POLICY
from tests import stage
from tests.integration.jobs.api.api_clients import API, client_of
from tests.integration.jobs.serving import scenes
from tests.integration.portal.chat.conftest import sign_in
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)

ATTACK = "<script>alert(1)</script>"
COST = sum(seq for seq in range(1, 13) if seq % 4) * 100_001  # what failed costs nothing
GROUPS = ["day", "key", "model", "endpoint"]


class Table(HTMLParser):
    """The texts of a page's rows, cell by cell; `bars` are the lengths of its bars."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.bars: list[int] = []
        self._is_in_cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self.rows[-1].append("")
            self._is_in_cell = True
        elif tag == "rect":
            self.bars.append(int(dict(attrs)["width"] or ""))

    def handle_endtag(self, tag: str) -> None:
        self._is_in_cell = self._is_in_cell and tag not in {"td", "th"}

    def handle_data(self, data: str) -> None:
        if self._is_in_cell:
            self.rows[-1][-1] += data


@pytest.fixture
def alice(transactional_db: None) -> Organisation:
    return stage.organisation("alice", usd_micros=50 * DOLLAR)


@pytest.fixture
def carol(alice: Organisation) -> Organisation:
    return stage.organisation("carol", usd_micros=100 * DOLLAR)


@pytest.fixture
def mallory(alice: Organisation) -> Organisation:
    return stage.organisation("mallory")


@pytest.fixture
def used(alice: Organisation, carol: Organisation) -> list[EndpointKey]:
    """Three of Carol's keys called two of Alice's models on three days, at different prices; some of it is paid."""
    made = [scenes.key(carol) for _ in range(3)]
    endpoints = [scenes.endpoint(alice), scenes.endpoint(alice, model="other")]
    gateway, now = scenes.gateway(), clock.now()
    for seq in range(1, 13):
        at = now - timedelta(days=seq % 3)
        cost = {"cost_usd_micros": seq * 100_001, "cost_usd_picos": seq * 100_001 * DOLLAR}
        more = {**cost, "status": "ok" if seq % 4 else "failed", "cached_tokens": seq * 7}
        row = scenes.row(seq, made[seq % 3], endpoints[seq % 2], at_ms=int(at.timestamp() * 1000), **more)
        usage.ingest_usage(gateway, [row])
        if seq == 6:
            token_payments.pay_due()
    return made


def page_of(client: Client, query: str = "", *, status: int = 200) -> str:
    """The page's text."""
    response = client.get(f"/usage?{query}")
    assert response.status_code == status, response.content.decode()
    return response.content.decode()


def csv_of(client: Client, query: str = "") -> list[list[str]]:
    """The rows of the file."""
    response = client.get(f"/usage.csv?{query}")
    assert response.status_code == 200, response.content.decode()
    return list(csv.reader(io.StringIO(response.content.decode(), newline="")))


def api_says(organisation: Organisation, query: str) -> UsageView:
    return UsageView.model_validate(client_of(organisation).get(f"{API}/usage?{query}").json())


def written(name: str, line: Any) -> list[str]:
    """A line as the table has to write it."""
    counts = [line.requests, line.failed, line.input_tokens, line.cached_tokens, line.output_tokens]
    return [name, *(f"{count:,}" for count in counts), dollars(line.cost_usd_micros)]


def micros(text: str) -> int:
    return round(float(text.removeprefix("$")) * DOLLAR)


@pytest.mark.parametrize("group", GROUPS)
def test_every_grouping_adds_up_and_says_what_the_api_says(
    used: list[EndpointKey], carol: Organisation, group: str
) -> None:
    html = page_of(sign_in(carol), f"group={group}")
    from_api = api_says(carol, f"group={group}")
    table = Table(html)
    _, *lines, total = table.rows
    assert lines == [written(each.name, each) for each in from_api.lines]
    assert total == written("Total", from_api.total)
    for column in range(1, 6):
        assert sum(int(line[column].replace(",", "")) for line in lines) == int(total[column].replace(",", ""))
    assert sum(micros(line[6]) for line in lines) == micros(total[6]) == COST
    assert len(lines) == {"day": 3, "key": 3, "model": 2, "endpoint": 2}[group]
    assert max(table.bars) == 1_000 and len(table.bars) == len(lines)
    assert 0 < from_api.paid_usd_micros < from_api.total.cost_usd_micros
    assert (
        f"<dd>{dollars(from_api.paid_usd_micros)}</dd>" in html
        and f"<dd>{dollars(from_api.due_usd_micros)}</dd>" in html
    )


def test_the_owner_sees_what_others_called_and_her_own_calls_apart(
    used: list[EndpointKey], alice: Organisation
) -> None:
    own = scenes.row(1, scenes.key(alice), Endpoint.objects.get(model="chat"))
    usage.ingest_usage(scenes.gateway(), [own])
    browser = sign_in(alice)
    html, from_api = page_of(browser, "side=owner&group=model"), api_says(alice, "side=owner&group=model")
    assert Table(html).rows[1:-1] == [written(each.name, each) for each in from_api.lines]
    assert f"<dd>{dollars(from_api.paid_usd_micros)}</dd>" in html
    assert Table(html).rows[-1][1] == "12" and micros(Table(html).rows[-1][6]) == COST
    html = page_of(browser)
    assert Table(html).rows[-1][1:] == ["1", "0", "1,000,000", "0", "1,000,000", "$3.00"]
    assert html.count("<dd>$0.00</dd>") == 2  # neither paid nor due


def test_only_the_days_that_were_asked_for_count(used: list[EndpointKey], carol: Organisation) -> None:
    day = clock.now().date() - timedelta(days=1)
    [_, line, total] = Table(page_of(sign_in(carol), f"from={day}&to={day}")).rows
    assert line[0] == str(day) and line[1:] == total[1:] and line[1] == "4"


def test_fields_that_were_left_empty_mean_the_last_thirty_days(used: list[EndpointKey], carol: Organisation) -> None:
    html = page_of(sign_in(carol), "from=&to=&group=day&side=caller")
    today = clock.now().date()
    assert f'name="from" value="{today - timedelta(days=29)}"' in html and f'name="to" value="{today}"' in html


def test_lines_that_are_not_listed_are_one_line_that_adds_up(
    used: list[EndpointKey], carol: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = sign_in(carol)
    assert "There are more than" not in page_of(browser, "group=key")
    monkeypatch.setattr(usage_views, "LINES_MAX", 1)
    html = page_of(browser, "group=key")
    _, first, rest, total = Table(html).rows
    assert "There are more than 1 lines" in html and rest[0] == "all further"
    assert [int(first[at]) + int(rest[at]) for at in (1, 2)] == [int(total[at]) for at in (1, 2)]
    assert micros(first[6]) + micros(rest[6]) == micros(total[6])
    assert [row[1] for row in csv_of(browser, "group=key")] == ["name", first[0], "all further"]


def test_tokens_make_the_bars_where_nothing_costs(alice: Organisation) -> None:
    key, endpoint = scenes.key(alice), scenes.endpoint(alice)
    usage.ingest_usage(scenes.gateway(), [scenes.row(1, key, endpoint, cost_usd_micros=0)])
    html = page_of(sign_in(alice))
    assert "The bars show output tokens." in html and Table(html).bars == [1_000]


@pytest.mark.parametrize("path", ["/usage?group=key", "/usage.csv?group=key"])
def test_who_is_signed_out_is_sent_to_sign_in_and_back(used: list[EndpointKey], client: Client, path: str) -> None:
    sent = client.get(path)
    assert sent.status_code == 302
    assert sent.headers["Location"] == f"/signin?next={quote_plus(path)}"
    assert client.post("/usage").status_code == 405


def test_another_organisations_usage_is_never_shown(
    used: list[EndpointKey], carol: Organisation, mallory: Organisation
) -> None:
    browser = sign_in(mallory)
    for query in (f"organisation={carol.pk}", f"organisation_id={carol.pk}", f"owner_id={carol.pk}"):
        assert browser.get(f"/usage?{query}").status_code == 400
        assert browser.get(f"/usage.csv?{query}").status_code == 400
    browser.post("/chat/organisation", {"organisation": str(carol.pk)})
    session = browser.session
    session[visitors.ORGANISATION_IN_SESSION] = str(carol.pk)
    session.save()
    for group in GROUPS:
        html = page_of(browser, f"group={group}")
        assert "Nothing was used" in html and "carol" not in html and used[0].prefix not in html
        assert len(csv_of(browser, f"group={group}")) == 1


def test_who_left_the_organisation_sees_nothing_of_it(used: list[EndpointKey], carol: Organisation) -> None:
    browser = sign_in(carol)
    Membership.objects.filter(organisation=carol).delete()
    html = page_of(browser)
    assert "You belong to no organisation yet." in html and "<table" not in html
    assert browser.get("/usage.csv").status_code == 403


def test_a_role_that_does_not_include_it_sees_nothing(
    used: list[EndpointKey], carol: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the API has it: no role is without billing:read now, but one may come."""
    monkeypatch.setattr(visitors, "ROLE_SCOPES", {**ROLE_SCOPES, Role.OWNER: frozenset({Scope.JOBS_READ})})
    browser = sign_in(carol)
    for path in ("/usage", "/usage.csv"):
        refused = browser.get(path)
        assert refused.status_code == 403 and b"Your role does not include" in refused.content


def test_of_several_organisations_the_chosen_one_is_shown(
    used: list[EndpointKey], alice: Organisation, carol: Organisation
) -> None:
    user = User.objects.create_user("both@example.org")
    for organisation in (alice, carol):
        Membership.objects.create(organisation=organisation, user=user, role=Role.MEMBER)
    browser = Client()
    browser.force_login(user)
    html = page_of(browser, "group=model")
    assert "Nothing was used" in html
    [back] = re.findall(r'name="next" value="([^"]*)"', html)
    chosen = browser.post("/chat/organisation", {"organisation": str(carol.pk), "next": back.replace("&amp;", "&")})
    assert chosen.headers["Location"].startswith("/usage?group=model&side=caller&from=")
    assert [row[0] for row in Table(browser.get(chosen.headers["Location"]).content.decode()).rows[1:]] == [
        "chat",
        "other",
        "Total",
    ]
    elsewhere = browser.post("/chat/organisation", {"organisation": str(carol.pk), "next": "//evil.example"})
    assert elsewhere.headers["Location"] == "/chat"


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("from=x", "?from= has to be a day"),
        ("from=inf", "?from= has to be a day"),
        ("from=2026-02-30", "?from= has to be a day"),
        ("to=9999-12-31", "?to= has to be a day from 2000-01-01 to 2999-12-31"),
        ("to=0001-01-01", "?to= has to be a day"),
        ("from=2026-02-02&to=2026-01-01", "?from= must not lie after ?to="),
        ("from=2024-01-01&to=2026-01-01", "400 days at most"),
        ("group=nothing", "?group= has to be one of day, key, model, endpoint."),
        ("side=both", "?side= has to be one of caller, owner."),
        ("side=owner&group=key", "The keys are the callers"),
        ("from=x&to=y", "?to= has to be a day"),
        ("more=1", "and for nothing else"),
    ],
)
def test_a_question_without_an_answer_gets_a_sentence_and_the_form(
    used: list[EndpointKey], carol: Organisation, query: str, sentence: str
) -> None:
    browser = sign_in(carol)
    html = page_of(browser, query, status=400)
    assert sentence.replace("'", "&#x27;") in html and 'role="alert"' in html
    assert 'name="from"' in html and "<table" not in html and dollars(100_001) not in html
    response = browser.get(f"/usage.csv?{query}")
    assert response.status_code == 400 and response.headers["Content-Type"].startswith("text/html")


def test_names_are_shown_and_never_run(alice: Organisation, carol: Organisation) -> None:
    key, endpoint = scenes.key(carol), scenes.endpoint(alice, model=ATTACK)
    EndpointKey.objects.filter(pk=key.pk).update(name=ATTACK)
    Organisation.objects.filter(pk=carol.pk).update(name=ATTACK)
    usage.ingest_usage(scenes.gateway(), [scenes.row(1, key, endpoint)])
    browser = sign_in(carol)
    pages = [page_of(browser, f"group={group}") for group in ("key", "model", "endpoint")]
    assert all("&lt;script&gt;alert(1)" in Table(html).rows[1][0] or ATTACK in Table(html).rows[1][0] for html in pages)
    query = "from=%22%3E%3Cscript%3Ealert(2)%3C/script%3E&group=%3Cscript%3E&%3Cscript%3E=1"
    for html in [*pages, page_of(browser, query, status=400), browser.get(f"/usage.csv?{query}").content.decode()]:
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", html)) and "<script>" not in html


def test_the_page_holds_no_script_or_style_that_the_policy_would_forbid(
    used: list[EndpointKey], carol: Organisation
) -> None:
    browser = sign_in(carol)
    for path, status in (("/usage", 200), ("/usage?group=x", 400), ("/usage.csv", 200)):
        response = browser.get(path)
        text = response.content.decode()
        assert response.status_code == status
        assert response.headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
        assert "no-store" in response.headers["Cache-Control"]
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*src=)", text)
        assert re.findall(r"(?:src|href)=[\"'](?!#|/)([^\"']*)", text) == []


@pytest.mark.parametrize("group", GROUPS)
def test_the_file_says_what_the_api_says(used: list[EndpointKey], carol: Organisation, group: str) -> None:
    browser = sign_in(carol)
    [link] = re.findall(r'href="(/usage\.csv\?[^"]*)"', page_of(browser, f"group={group}"))
    response = browser.get(link.replace("&amp;", "&"))
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    today = clock.now().date()
    name = f"souk-usage-caller-by-{group}-{today - timedelta(days=29)}-{today}.csv"
    assert response.headers["Content-Disposition"] == f'attachment; filename="{name}"'
    heading, *rows = csv.reader(io.StringIO(response.content.decode(), newline=""))
    counts = ["requests", "failed", "input_tokens", "cached_tokens", "output_tokens"]
    assert heading == [group, "name", *counts, "cost_usd"]
    lines = api_says(carol, f"group={group}").lines
    assert [row[:7] for row in rows] == [
        [each.group, each.name, *(str(getattr(each, count)) for count in counts)] for each in lines
    ]
    assert [micros(row[7]) for row in rows] == [each.cost_usd_micros for each in lines]


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "＝1"])
def test_no_name_becomes_a_formula_or_another_cell(carol: Organisation, alice: Organisation, name: str) -> None:
    name += ',"quoted"\nand on'
    endpoint = scenes.endpoint(alice, model="=cmd|' /C calc'!A0")
    key = scenes.key(carol)
    EndpointKey.objects.filter(pk=key.pk).update(name=name)
    usage.ingest_usage(scenes.gateway(), [scenes.row(1, key, endpoint)])
    browser = sign_in(carol)
    [_, by_key] = csv_of(browser, "group=key")
    assert by_key[1] == f"'{name} ({key.prefix})" and len(by_key) == 8
    [_, by_model] = csv_of(browser, "group=model")
    assert by_model[:2] == ["'=cmd|' /C calc'!A0"] * 2


def test_many_lines_take_no_more_queries_than_few(used: list[EndpointKey], carol: Organisation) -> None:
    browser = sign_in(carol)
    page_of(browser)
    counts = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as queries:
            page_of(browser, "group=key")
        counts.append(len(queries))
        old = UsageDay.objects.first()
        for key in (scenes.key(carol) for _ in range(20)):
            UsageDay.objects.create(
                **{name: getattr(old, name) for name in ("day", "organisation_id", "owner_id", "endpoint_id", "model")},
                **dict.fromkeys(("requests", "failed", "input_tokens", "cached_tokens", "output_tokens"), 1),
                cost_usd_micros=1,
                key_id=key.pk,
            )
    assert counts[0] == counts[1] <= 8
    assert len(Table(page_of(browser, "group=key")).rows) == 2 + 3 + 40


def test_the_page_is_linked_from_the_front_page_and_the_chat(carol: Organisation) -> None:
    browser = sign_in(carol)
    for path in ("/", "/chat", "/chat/datasets"):
        assert '<a href="/usage">Usage</a>' in browser.get(path).content.decode()

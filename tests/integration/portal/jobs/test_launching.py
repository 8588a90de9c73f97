"""/launch: a job file becomes a job under the price that was shown, and under no other."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from django.template.loader import render_to_string
from django.test import Client
from pytest_django import Settings

from jobs.models import Job, Quote
from jobs.quoting import quotes
from jobs.spec import canonical, from_wire, parse
from jobs.spec.document import FILE_BYTES_MAX
from jobs.wire import EvaluationTerms
from marketplace.accounts.models import Organisation, User
from marketplace.foundation import signing
from marketplace.portal.jobs.launching import BEGIN
from marketplace.portal.jobs.showing import job_file_text
from tests import stage
from tests.integration.portal.chat.conftest import sign_in

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}
ATTACK = "<script>alert(1)</script>"
COMMAND = {
    "kind": "train",
    "name": "own",
    "resources": {"gpus": 1, "kind": "any"},
    "budget": {"max_total": "1.00", "deadline": "1h"},
}


def job_file(**changes: Any) -> str:
    return yaml.safe_dump({**stage.TRAIN, **changes}, sort_keys=False)


def price_of(browser: Client, text: str) -> str:
    answer = browser.post("/launch/price", {"text": text}, headers=HTMX)
    [quote] = re.findall(r'name="quote" value="([^"]*)"', answer.content.decode())
    return quote


def test_a_job_file_is_priced_and_launched(browser: Client, alice: Organisation) -> None:
    text = job_file(name="from-the-page")
    quote = price_of(browser, text)
    answer = browser.post("/launch/now", {"text": text, "quote": quote})
    job = Job.objects.get()
    assert answer.headers["Location"] == f"/jobs/{job.pk}"
    assert (job.name, str(job.quote_id), job.submitted_by) == ("from-the-page", quote, alice.members.first())
    again = browser.post("/launch/now", {"text": text, "quote": quote})
    assert again.headers["Location"] == answer.headers["Location"], "a button that is pressed twice"
    assert Job.objects.count() == 1


def test_what_begins_the_editor_is_a_job_file(browser: Client) -> None:
    assert parse(BEGIN).name == "tiny-llama"
    assert "kind: train" in browser.get("/launch").content.decode()


def test_every_mistake_is_named_with_its_line_while_it_is_written(browser: Client) -> None:
    text = "kind: train\nname: x\nresources:\n  gpu: 1\nbudget:\n  max_total: much\n"
    page = browser.post("/launch/check", {"text": text}, headers=HTMX).content.decode()
    assert "line 4: resources.gpu" in page
    assert "line 6: budget.max_total" in page
    assert Quote.objects.count() == 0
    fine = browser.post("/launch/check", {"text": job_file()}, headers=HTMX).content.decode()
    assert "No mistakes." in fine
    assert Quote.objects.count() == 0


@pytest.mark.parametrize("text", ["", "[", "a: &a [*a]", "\x01", ATTACK, f"kind: {ATTACK}", "kind: train\nname: [1]"])
@pytest.mark.parametrize("where", ["check", "price", "now"])
def test_nonsense_is_named_and_makes_nothing(browser: Client, where: str, text: str) -> None:
    answer = browser.post(f"/launch/{where}", {"text": text})
    assert answer.status_code in {200, 400, 422}
    assert b"mistake" in answer.content or answer.status_code == 400
    assert f"<li>{ATTACK}" not in answer.content.decode()
    assert ATTACK not in answer.content.decode()
    assert Job.objects.count() == Quote.objects.count() == 0


def test_a_file_that_is_too_large_is_refused(browser: Client) -> None:
    answer = browser.post("/launch/check", {"text": "#" * (FILE_BYTES_MAX + 1)})
    assert answer.status_code == 413
    part = browser.post("/launch/check", {"text": "#" * (FILE_BYTES_MAX + 1)}, headers=HTMX | {"HX-Target": "mistakes"})
    assert b'<div id="mistakes" class="error" role="alert">' in part.content


def test_another_file_than_the_priced_one_is_not_launched(browser: Client) -> None:
    quote = price_of(browser, job_file())
    answer = browser.post("/launch/now", {"text": job_file(name="another"), "quote": quote})
    assert answer.status_code == 409
    assert b'role="alert"' in answer.content
    assert Job.objects.count() == 0


def test_where_nothing_fits_the_page_says_what_would_help(browser: Client) -> None:
    resources = {**stage.TRAIN["resources"], "memory": "900GB"}
    page = browser.post("/launch/price", {"text": job_file(resources=resources)}, headers=HTMX).content.decode()
    assert "Nothing fits now." in page
    assert "resources.memory: 24000MiB" in page
    assert 'name="quote"' not in page


def test_who_has_no_money_is_told_what_is_missing(mallory: Organisation, browser: Client) -> None:
    poor = stage.organisation("poor")
    client = sign_in(poor)
    quote = price_of(client, job_file())
    answer = client.post("/launch/now", {"text": job_file(), "quote": quote})
    assert answer.status_code == 402
    assert b'role="alert"' in answer.content
    assert Job.objects.count() == 0


def test_secrets_are_asked_for_and_sealed(browser: Client) -> None:
    text = job_file(secrets=["HF_TOKEN"])
    page = browser.post("/launch/price", {"text": text}).content.decode()
    assert 'name="secret:HF_TOKEN"' in page
    quote = price_of(browser, text)
    refused = browser.post("/launch/now", {"text": text, "quote": quote})
    assert refused.status_code == 400
    assert (
        browser.post("/launch/now", {"text": text, "quote": quote, "secret:HF_TOKEN": "s3cret\r\n"}).status_code == 302
    )
    job = Job.objects.get()
    assert json.loads(signing.decrypt_secret(job.sealed_secrets)) == {"HF_TOKEN": "s3cret"}
    assert job.sealed_secrets and "s3cret" not in job.sealed_secrets
    assert "s3cret" not in browser.get(f"/jobs/{job.pk}").content.decode()


def test_a_copy_of_a_job_means_the_same(browser: Client, alice: Organisation) -> None:
    job = stage.submit(alice)
    words = [
        "python",
        "t.py",
        "1e-4",
        "12e45",
        "yes",
        "null",
        "0x1f",
        "1_000",
        "~",
        "a: b",
        "#c",
        "é",
        "two\nlines",
        "",
        " x ",
    ]
    command = from_wire({**COMMAND, "command": words, "env": {"REV": "12e45", "EMPTY": ""}})
    for spec in (job.spec, canonical(command)):
        assert canonical(parse(job_file_text(spec))) == spec
    page = browser.get(f"/launch?like={job.pk}").content.decode()
    assert f"name: {job.name}" in page


def test_who_signs_nothing_in_launches_nothing(client: Client, browser: Client) -> None:
    text = job_file()
    quote = price_of(browser, text)
    assert client.post("/launch/now", {"text": text, "quote": quote}).status_code == 302
    assert Job.objects.count() == 0


def test_a_job_file_that_names_files_is_not_launched_without_them(browser: Client, alice: Organisation) -> None:
    text = job_file(files=["a.txt"], name="with-files")
    quote = stage.quote(alice, parse(text))
    answer = browser.post("/launch/now", {"text": text, "quote": str(quote)})
    assert answer.status_code >= 400 and b'role="alert"' in answer.content
    assert "which this page cannot send yet" in browser.post("/launch/price", {"text": text}).content.decode()
    assert Job.objects.count() == 0


def test_what_is_set_aside_and_what_follows_is_said_with_its_price(alice: Organisation) -> None:
    follows = EvaluationTerms(name="tiny-evaluation", cap_usd_micros=500_000)
    plain = quotes.make_quote(stage.spec_of(), alice).model_copy(update={"cap_usd_micros": 2_000_000})
    visitor = {"organisation": alice}

    def said(**changes: Any) -> str:
        quote = plain.model_copy(update=changes)
        return render_to_string("portal/jobs/held.html", {"quote": quote, "visitor": visitor})

    assert "At most $2.00 is held from the balance of alice until the job ends" in said()
    assert "tiny-evaluation is submitted: an evaluation, for at most $0.50 more" in said(evaluation=follows)
    assert "$0.10 at a time are set aside" in said(window_usd_micros=100_000)


def test_who_has_not_verified_their_address_is_told_how(browser: Client, settings: Settings) -> None:
    settings.SOUK_EMAIL_VERIFICATION = "required"
    User.objects.update(verified_at=None)
    refused = browser.get("/launch")
    assert refused.status_code == 403 and b"/password/forgotten" in refused.content

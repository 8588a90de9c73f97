"""A job file as the body of a request: the text that the client reads, with its rules, line numbers and bound."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from rest_framework.test import APIClient

from jobs.models import Job
from jobs.spec import SpecErrors, parse
from jobs.spec.document import FILE_BYTES_MAX
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from tests.integration.jobs.api.api_clients import API, client_of, post

pytestmark = pytest.mark.django_db(transaction=True)

FILE = """\
# a job of Alice's
kind: train
name: tiny
resources: {gpus: 2}
budget: {max_total: $2.00}
command: python train.py
"""


def send(client: APIClient, path: str, text: str | bytes, media_type: str = "application/yaml") -> Any:
    headers = {"Idempotency-Key": str(uuid4())}
    data = text.encode() if isinstance(text, str) else text
    return client.generic("POST", API + path, data, content_type=media_type, headers=headers)


@pytest.mark.parametrize("media_type", ["application/yaml", "text/yaml", "text/yaml; charset=utf-8"])
def test_a_job_file_is_quoted_and_submitted_as_it_is(alice: Organisation, bob: Node, media_type: str) -> None:
    client = client_of(alice)
    quote = send(client, "/quotes", FILE, media_type)
    assert quote.status_code == 200, quote.content
    made = send(client, f"/jobs?quote_id={quote.json()['quote_id']}", FILE, media_type)
    assert made.status_code == 201, made.content
    assert (made.json()["name"], made.json()["state"]) == ("tiny", "queued")


def test_mistakes_have_the_lines_that_the_client_says(alice: Organisation, bob: Node) -> None:
    wrong = FILE.replace("gpus", "gpu").replace("kind: train", "kind: trian")
    with pytest.raises(SpecErrors) as by_client:
        parse(wrong)
    answer = send(client_of(alice), "/quotes", wrong)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_spec")
    assert answer.json()["details"] == by_client.value.details
    assert {2, 4} <= {error["line"] for error in answer.json()["details"]["errors"]}
    assert str(by_client.value) in answer.json()["message"]


@pytest.mark.parametrize("text", [b"\xff\xfe\x00", b"a: &x [*x, *x]", b"[" * 1000, b"a: !!python/object x", b"k: \x00"])
def test_nonsense_is_a_mistake_and_nothing_breaks(alice: Organisation, text: bytes) -> None:
    for path in ("/quotes", f"/jobs?quote_id={uuid4()}"):
        answer = send(client_of(alice), path, text)
        assert (answer.status_code, answer.json()["code"]) == (422, "bad_spec"), answer.content


def test_a_file_that_is_too_large_is_refused_before_it_is_read(alice: Organisation) -> None:
    answer = send(client_of(alice), "/quotes", b"#" * (FILE_BYTES_MAX + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "job_file_too_large")
    assert str(FILE_BYTES_MAX) in answer.json()["message"]


@pytest.mark.parametrize("query", ["", "?quote_id=mine", f"?quote_id={UUID(int=1)}&secrets=x"])
def test_what_stands_beside_a_job_file_is_checked(alice: Organisation, query: str) -> None:
    answer = send(client_of(alice), f"/jobs{query}", FILE)
    assert answer.status_code == 400, answer.content
    assert not Job.objects.exists()


def test_json_cannot_pretend_to_be_a_job_file(alice: Organisation) -> None:
    assert post(client_of(alice), "/quotes", {"job_file": FILE}).status_code == 400


def test_other_kinds_of_bodies_are_refused(alice: Organisation) -> None:
    assert send(client_of(alice), "/quotes", FILE, "text/plain").status_code == 415

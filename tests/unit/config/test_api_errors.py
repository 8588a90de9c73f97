"""Whatever goes wrong, the answer is {"code", "message", "details"}."""

from __future__ import annotations

import json
from typing import Any

import pydantic
import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.test import RequestFactory
from rest_framework import exceptions, serializers
from rest_framework.response import Response

from marketplace.config import api_errors
from marketplace.foundation.errors import SoukError, StateConflict


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    devices: int
    password: str = pydantic.Field(default="", max_length=4)


class SlowDown(SoukError):
    """Come back in {retry_after_seconds} s."""

    code = "slow_down"
    status = 429


def answer_to(error: Exception) -> Response:
    found = api_errors.handle(error, {})
    assert found is not None
    assert set(found.data) == {"code", "message", "details"}
    return found


def pydantic_error(**fields: Any) -> pydantic.ValidationError:
    with pytest.raises(pydantic.ValidationError) as caught:
        Order(**fields)
    return caught.value


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StateConflict(kind="job", id="j1", to="running", state="failed"), 409, "state_conflict"),
        (Http404(), 404, "not_found"),
        (exceptions.NotFound(), 404, "not_found"),
        (PermissionDenied(), 403, "forbidden"),
        (exceptions.PermissionDenied(), 403, "permission_denied"),
        (exceptions.NotAuthenticated(), 401, "not_authenticated"),
        (exceptions.AuthenticationFailed(), 401, "authentication_failed"),
        (exceptions.MethodNotAllowed("PATCH"), 405, "method_not_allowed"),
        (exceptions.ParseError(), 400, "invalid_request"),
        (exceptions.UnsupportedMediaType("text/x"), 415, "unsupported_media_type"),
        (exceptions.ValidationError({"name": ["too long"]}), 400, "invalid_request"),
        (exceptions.Throttled(wait=2.5), 429, "throttled"),
        (pydantic_error(devices="many"), 400, "invalid_request"),
    ],
)
def test_every_kind_of_error_has_its_status_and_code(error: Exception, status: int, code: str) -> None:
    found = answer_to(error)
    assert (found.status_code, found.data["code"]) == (status, code)
    assert found.data["message"]


def test_a_named_error_shows_its_message_and_details() -> None:
    body = answer_to(StateConflict(kind="job", id="j1", to="running", state="failed")).data
    assert body["message"] == "job j1 cannot go to running: it is failed."
    assert body["details"] == {"kind": "job", "id": "j1", "to": "running", "state": "failed"}


def test_every_wrong_field_is_reported_at_once() -> None:
    body = answer_to(pydantic_error(devices="many", colour="red")).data
    assert [one["at"] for one in body["details"]["errors"]] == ["devices", "colour"]
    assert body["message"].startswith("devices: ")


def test_what_was_sent_is_not_sent_back() -> None:
    text = json.dumps(answer_to(pydantic_error(devices=1, password="hunter2")).data)
    assert "hunter2" not in text


def test_the_first_wrong_field_is_named_however_deep_it_lies() -> None:
    error = serializers.ValidationError({"nodes": [{}, {"price": ["A number, please."]}]})
    assert answer_to(error).data["message"] == "nodes.price: A number, please."


def test_who_is_throttled_learns_when_to_come_back() -> None:
    assert answer_to(exceptions.Throttled(wait=2.5))["Retry-After"] == "3"
    assert answer_to(SlowDown(retry_after_seconds=0.2))["Retry-After"] == "1"


def test_who_is_not_signed_in_learns_how() -> None:
    error = exceptions.NotAuthenticated()
    error.auth_header = "Bearer"  # type: ignore[attr-defined]  # as APIView.handle_exception does
    assert answer_to(error)["WWW-Authenticate"] == "Bearer"


def test_an_error_that_nobody_foresaw_is_left_to_django() -> None:
    assert api_errors.handle(RuntimeError("a secret of ours"), {}) is None


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/artifacts/nothing"])
def test_missing_pages_of_the_api_are_answered_in_json(rf: RequestFactory, path: str) -> None:
    found = api_errors.not_found(rf.get(path), Http404())
    assert found.status_code == 404
    assert json.loads(found.content)["code"] == "not_found"  # type: ignore[attr-defined]


def test_an_unforeseen_error_of_the_api_shows_nothing_of_its_inside(rf: RequestFactory) -> None:
    found = api_errors.server_error(rf.get("/api/v1/jobs"))
    assert found.status_code == 500
    assert json.loads(found.content)["code"] == "internal_error"  # type: ignore[attr-defined]


def test_pages_for_people_stay_pages(rf: RequestFactory) -> None:
    assert api_errors.not_found(rf.get("/nothing"), Http404("x"))["Content-Type"].startswith("text/html")


def middleware() -> api_errors.NamedErrors:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    return api_errors.NamedErrors(view)


def test_plain_views_of_the_api_name_their_errors_too(rf: RequestFactory) -> None:
    found = middleware().process_exception(rf.put("/artifacts/x"), SlowDown(retry_after_seconds=1))
    assert found is not None
    assert (found.status_code, json.loads(found.content)["code"]) == (429, "slow_down")


def test_what_a_plain_view_did_not_foresee_stays_a_logged_500(rf: RequestFactory) -> None:
    assert middleware().process_exception(rf.put("/artifacts/x"), RuntimeError()) is None
    assert middleware().process_exception(rf.get("/admin/"), SlowDown(retry_after_seconds=1)) is None

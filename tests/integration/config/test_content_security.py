"""What a browser may load on our pages, and that no method breaks them."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from marketplace.accounts.models import User
from tests.people import PASSWORD

pytestmark = pytest.mark.django_db

PAGES = ["/", "/signin", "/password/forgotten", "/solvency", "/api/docs", "/api/schema", "/healthz", "/install.sh"]
NOTHING = ["/nowhere", "/api/v1/nowhere", "/admin/nowhere"]


@pytest.fixture
def operator(db: None) -> Client:
    browser = Client()
    browser.force_login(User.objects.create_superuser("operator@example.org", PASSWORD))
    return browser


@pytest.mark.parametrize("path", [*PAGES, *NOTHING, "/chat", "/admin/", "/admin/accounts/user/", "/admin/login/"])
def test_every_answer_says_what_a_browser_may_load(operator: Client, path: str) -> None:
    policy = operator.get(path).headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-eval" not in policy
    assert re.search(r"script-src 'self'(;|$)", policy)


@pytest.mark.parametrize("path", [*PAGES, "/chat", "/admin/", "/admin/accounts/user/"])
def test_no_page_needs_a_script_that_its_policy_forbids(operator: Client, path: str) -> None:
    page = b"".join(operator.get(path)).decode()
    assert not re.findall(r"<script(?![^>]*\b(?:src|type=\"application/json\"))[^>]*>", page)
    assert not re.findall(r"<[^>]+\son[a-z]+=", page)
    assert not re.findall(r"(?:src|<link[^>]*href)=\"https?://", page)


@pytest.mark.parametrize("method", ["options", "head", "post", "put", "delete", "trace"])
@pytest.mark.parametrize("path", [*PAGES, *NOTHING])
def test_no_method_breaks_a_public_page(path: str, method: str) -> None:
    client = Client(raise_request_exception=False)
    assert getattr(client, method)(path).status_code < 500 or path in {"/healthz", "/install.sh"}


@pytest.mark.parametrize("path", ["sync", "keys", "", "nowhere"])
@pytest.mark.parametrize("method", ["get", "head", "options", "post", "put", "delete"])
@pytest.mark.parametrize("token", [None, "", "Bearer", "Bearer ", "Bearer \xff", "Bearer wrong"])
def test_gateways_paths_refuse_whoever_has_no_token(path: str, method: str, token: str | None) -> None:
    client = Client(raise_request_exception=False)
    headers = {} if token is None else {"HTTP_AUTHORIZATION": token}
    assert getattr(client, method)(f"/internal/gateway/v1/{path}", **headers).status_code in {401, 404, 405}

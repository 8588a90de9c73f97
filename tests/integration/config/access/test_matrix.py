"""Every route of the web process, by method, for every caller; and the admin for those who are not staff."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests.integration.config.access.callers import GATEWAY_TOKEN, WRONG_KEYS, Callers, address_of, is_refused, may
from tests.integration.config.access.table import NEEDS, OPEN, STAFF

pytestmark = pytest.mark.django_db

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
OTHER_METHODS = ("OPTIONS", "HEAD", "TRACE", "PROPFIND")
FAILURES = {500, 502, 504}  # 503 says what is not set up here: cards, a chain, releases
ADMIN = "/admin/"
ADMIN_OPEN = {"/admin/login/", "/admin/logout/", "/admin/password_change/"}  # the last leads to /password


def patterns(found: list[Any], before: str = "/") -> Iterator[tuple[str, Any]]:
    """Route and view of everything that the resolver knows."""
    for each in found:
        route = before + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from patterns(each.url_patterns, route)
        elif isinstance(each, URLPattern):
            yield route, each.callback


ROUTES = dict(patterns(get_resolver().url_patterns))


def methods_of(view: Any) -> list[str]:
    """What a class of a view answers; a function says so only when it is called."""
    kind = getattr(view, "view_class", None) or getattr(view, "cls", None)
    return [name for name in METHODS if hasattr(kind, name.lower())] if kind else []


def test_every_route_and_method_has_a_row_and_every_row_a_route() -> None:
    own = {route: view for route, view in ROUTES.items() if not route.startswith(ADMIN)}
    assert {route for _, route in NEEDS} == set(own)
    exact = {(method, route) for route, view in own.items() for method in methods_of(view)}
    named = {(method, route) for method, route in NEEDS if methods_of(own[route])}
    assert named == exact


def test_no_two_routes_have_one_name() -> None:
    """A page would link to the other one."""

    def names(found: list[Any]) -> Iterator[str]:
        for each in found:
            if isinstance(each, URLResolver):
                yield from () if each.namespace else names(each.url_patterns)
            elif each.name:
                yield each.name

    counted = Counter(names(get_resolver().url_patterns))
    assert [name for name, count in counted.items() if count > 1] == []


@pytest.fixture
def callers(db: None, settings: Any) -> Callers:
    settings.SOUK_GATEWAY_TOKEN = GATEWAY_TOKEN
    return Callers()


@pytest.mark.parametrize(
    ("method", "route"), [(method, route) for route, method in sorted((route, method) for method, route in NEEDS)]
)
def test_each_caller_is_let_in_or_refused_as_the_row_says(callers: Callers, method: str, route: str) -> None:
    need, wrong = NEEDS[method, route], {}
    for name, call in callers.calls.items():
        answer = call(method, address_of(route))
        # A wrong key is never taken for none: also where nobody needs one it may be refused.
        is_wrong_key = name in WRONG_KEYS and answer.status_code == 401
        is_let_in = not is_refused(answer) or (need == OPEN and (answer.status_code == 302 or is_wrong_key))
        if is_let_in != may(need, callers.has[name]) or answer.status_code in FAILURES:
            wrong[name] = answer.status_code
    assert wrong == {}, f"{method} {route} needs {need}"


@pytest.mark.parametrize("route", sorted({route for _, route in NEEDS}))
def test_a_method_without_a_row_is_answered(route: str) -> None:
    failed = {}
    for method in OTHER_METHODS:
        answer = Client().generic(method, address_of(route), b"{}", content_type="application/json")
        if answer.status_code in FAILURES:
            failed[method] = answer.status_code
    assert failed == {}


ADMIN_ROUTES = sorted(route for route in ROUTES if route.startswith(ADMIN) and route not in ADMIN_OPEN)


@pytest.mark.parametrize("package", sorted({route.split("/")[2] for route in ADMIN_ROUTES}))
def test_the_admin_is_for_staff_alone(callers: Callers, package: str) -> None:
    let_in = []
    for route in ADMIN_ROUTES:
        if route.split("/")[2] != package:
            continue
        address = address_of(route).replace("<path:object_id>", "1")
        for name, call in callers.calls.items():
            if STAFF not in callers.has[name] and not is_refused(call("GET", address)):
                let_in.append((name, route))
    assert let_in == []

"""What the fuzzing of every API shares: how many cases, which, and how one is sent without a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import requests
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.transport import Response

EXAMPLES = int(os.environ.get("SOUK_FUZZ_EXAMPLES", "100"))
SERVER = "http://testserver"
OWN_HEADERS = {"Content-Type", "Content-Length"}  # Django's client makes these
FAILURES = {500, 502, 504}  # 503 says what is not set up here: cards, a chain, releases


def cases_of(operation: Any) -> st.SearchStrategy[Case]:
    """What the schema allows, and what it does not."""
    allowed = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    has_input = operation.body or any(True for _ in operation.iter_parameters())
    return allowed | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE) if has_input else allowed


def try_cases(operation: Any, check: Callable[[Case, bool], None]) -> None:
    """Call `check` with as many cases as are asked for; half are to name what exists."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=cases_of(operation), exists=st.booleans())
    def each(case: Case, exists: bool) -> None:
        check(case, exists)

    each()


def prepare(case: Case, server: str = SERVER, **headers: str) -> requests.PreparedRequest:
    """The case as it goes over the wire."""
    return requests.Request(**case.as_transport_kwargs(server, headers=headers)).prepare()


def body_of(request: requests.PreparedRequest) -> bytes:
    """Its body's bytes."""
    body = request.body or b""
    return body.encode() if isinstance(body, str) else bytes(body)


def send(client: Client, request: requests.PreparedRequest, more: Mapping[str, str] | None = None) -> Response:
    """Send it in this thread and on this test's connection."""
    headers = {**request.headers, **(more or {})}
    answer = client.generic(
        str(request.method),
        request.path_url,
        body_of(request),
        content_type=request.headers.get("Content-Type", ""),
        headers={name: str(value) for name, value in headers.items() if name not in OWN_HEADERS},
    )
    content = b"".join(getattr(answer, "streaming_content", ())) if answer.streaming else answer.content
    answered = {name.lower(): [value] for name, value in answer.headers.items()}
    return Response(answer.status_code, answered, content, request, 0.0, verify=False)

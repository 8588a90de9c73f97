"""A request as Django gets it: no header of a stranger breaks it before any handler of errors, or changes its text."""

from __future__ import annotations

from io import BytesIO
from typing import Any
from urllib.parse import quote

import pytest
from django.core.handlers.wsgi import WSGIRequest

from marketplace.config.web.bodies import Body
from marketplace.config.web.environ import environ_of

FORM = b'--B 1\r\nContent-Disposition: form-data; name="text"\r\n\r\n\\u0000\\ud800 \xc3\xa9\r\n--B 1--\r\n'
NO_TEXT = ["hex", "rot13", "base64", "zlib", "undefined", "punycode", "idna"]  # codecs of Python's that decode no text
OTHER_TEXT = ["utf-16", "utf-7", "unicode_escape", "raw_unicode_escape", "utf-32", "cp037"]
ODD_PARAMETERS = [
    "charset*=utf-8''%00",
    "x*=undefined''%ff",
    "x*=idna''%ff.%ff",
    "x*=\xe9''a",
    "x*" + "9" * 5_000 + "*=z",
    "x*0*=q; x*-1*=z",
    "boundary*=hex''%41",
    'boundary="',
    ";;=;",
]


def request(content_type: str, *, query: str = "", body: bytes = b"") -> Any:
    scope = {
        "method": "POST",
        "raw_path": b"/signin",
        "query_string": query.encode(),
        "http_version": "1.1",
        "scheme": "http",
        "headers": [(b"content-type", content_type.encode("latin-1")), (b"host", b"testserver")],
    }
    return WSGIRequest(environ_of(scope, Body(BytesIO(body), len(body))))


@pytest.mark.parametrize("charset", [*NO_TEXT, *OTHER_TEXT])
def test_no_charset_of_a_stranger_reads_the_address_or_a_form(charset: str) -> None:
    query = "next=" + quote("\\u0000\\ud800 é")
    asked = request(f'multipart/form-data; charset={charset}; boundary="B 1"', query=query, body=FORM)
    assert asked.GET["next"] == "\\u0000\\ud800 é"
    assert asked.POST["text"] == "\\u0000\\ud800 é"


@pytest.mark.parametrize("parameters", ODD_PARAMETERS)
def test_no_parameter_of_a_media_type_breaks_a_request(parameters: str) -> None:
    asked = request(f"application/json; {parameters}")
    assert asked.content_type == "application/json"
    assert asked.GET.dict() == {}


@pytest.mark.parametrize(
    ("content_type", "known", "parameters"),
    [
        ("", "", {}),
        (";", "", {}),
        ("text/plain", "text/plain", {}),
        ("Multipart/Form-Data;  Boundary=B;charset=hex", "multipart/form-data", {"boundary": "B"}),
    ],
)
def test_what_a_view_reads_of_a_media_type_stays(content_type: str, known: str, parameters: dict[str, str]) -> None:
    asked = request(content_type)
    assert (asked.content_type, asked.content_params) == (known, parameters)

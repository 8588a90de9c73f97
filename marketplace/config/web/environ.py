"""A request as Django's WSGI handler takes it (PEP 3333), from one as ASGI servers give it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from jobs.api.streams import HOLDS_POLLS
from marketplace.config.web.bodies import Body

# Of a form with files: what stands between its parts, as RFC 2046 has it.
_BOUNDARY: Final = re.compile(r"""boundary=("?)([A-Za-z0-9'()+_,./:=? -]{1,200})\1""", re.IGNORECASE | re.ASCII)


def environ_of(scope: Mapping[str, Any], body: Body) -> dict[str, Any]:
    """The environ. A header with an underscore is left out: it would take the name of one with a hyphen."""
    host, port = scope.get("server") or ("", None)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(scope["raw_path"]).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": host or "localhost",
        "SERVER_PORT": str(port or 0),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "REMOTE_ADDR": (scope.get("client") or ("",))[0],
        "CONTENT_LENGTH": str(body.size),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": body.file,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        HOLDS_POLLS: True,
    }
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if "_" in name or name == "content-length":
            continue
        if name == "content-type":
            environ["CONTENT_TYPE"] = plain_type(value)
            continue
        key = f"HTTP_{name.upper().replace('-', '_')}"
        separator = "; " if key == "HTTP_COOKIE" else ","
        environ[key] = f"{environ[key]}{separator}{value}" if key in environ else value
    return environ


def plain_type(content_type: str) -> str:
    """The media type, and the boundary of a form; no other parameter.

    Django reads the address, too, in whatever `charset` is named here, in codecs that are none of text as well; other
    parameters it may fail to read at all, before any handler of errors. Here all text is UTF-8.
    """
    media_type, _, parameters = content_type.partition(";")
    found = next(filter(None, (_BOUNDARY.fullmatch(each.strip()) for each in parameters.split(";"))), None)
    return f'{media_type.strip()}; boundary="{found[2]}"' if found else media_type.strip()

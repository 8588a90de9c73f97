"""Nonsense is a bad request, and never the end of the process that reads it."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from rest_framework.exceptions import ParseError

from marketplace.foundation.parsers import BoundedJSONParser


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b"{", b"\xff", b"NaN", b"", b'"\\ud800"'])
def test_nonsense_is_a_parse_error(body: bytes) -> None:
    with pytest.raises(ParseError):
        BoundedJSONParser().parse(io.BytesIO(body))


def test_json_is_read() -> None:
    assert BoundedJSONParser().parse(io.BytesIO(b'{"a": [1, null, 2.5, "x"]}')) == {"a": [1, None, 2.5, "x"]}


def test_no_library_lets_python_recurse_through_its_stack() -> None:
    """In a process of its own: other tests' libraries move the limit too."""
    program = (
        "import json, sys; print(sys.getrecursionlimit()); import django; django.setup(); "
        "is_loaded = 'eth_account' in sys.modules; import eth_keyfile; "
        "print(sys.getrecursionlimit(), is_loaded, eth_keyfile.create_keyfile_json); json.loads('[' * 100_000)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    before, after, is_loaded, kind, *_ = done.stdout.split()
    assert (after, is_loaded, kind) == (before, "True", "<function"), "or another got what stands in for key files"
    assert done.returncode == 1, "it died"
    assert "RecursionError" in done.stderr

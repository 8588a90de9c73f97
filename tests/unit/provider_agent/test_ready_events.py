"""The `ready` event among whatever else a program wrote into its events."""

from __future__ import annotations

import pytest

from provider_agent.lease.serving import find_ready

READY = b'{"event": "ready", "at": 1, "engine": "souk"}'


@pytest.mark.parametrize("odd", [b'{"ready"', b'["ready"]', b"[" * 100_000 + b'"ready"', b'"ready' + b"\xff", b""])
def test_an_odd_line_before_it_hides_no_ready_event(odd: bytes) -> None:
    assert find_ready(odd + b"\n" + READY + b"\n") == {"engine": "souk"}
    assert find_ready(odd) is None

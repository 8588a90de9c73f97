"""When silence is more likely our own fault."""

from __future__ import annotations

import pytest

from marketplace.nodes.watching.liveness import is_mass_silence


@pytest.mark.parametrize(
    ("silent", "total", "expected"),
    [(0, 0, False), (3, 3, False), (4, 4, True), (3, 100, False), (30, 100, False), (31, 100, True), (4, 13, True)],
)
def test_more_than_three_and_more_than_three_in_ten(silent: int, total: int, expected: bool) -> None:
    assert is_mass_silence(silent, total) is expected

"""No file name leads out of its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from provider_agent.errors import UnsafePath
from provider_agent.lease.fetch import safe_join


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "", ".", "a\\..\\x", "a\0b", "..", "a/.."])
def test_name_that_leaves_its_folder_is_refused(path: str) -> None:
    with pytest.raises(UnsafePath):
        safe_join(Path("/data"), path)


@pytest.mark.parametrize("path", ["a", "a/b", "a/.hidden", "a/..b", "./a"])
def test_name_inside_is_joined(path: str) -> None:
    assert safe_join(Path("/data"), path).is_relative_to("/data")

"""An entry says how long it took to make, and where it was found: on the node, or among those of its own job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtimes.contract import (
    CACHE_USED_NAME,
    MADE_SECONDS_NAME,
    MANIFEST_NAME,
    NEW_CACHE_NAME,
    PREPARED_KINDS,
    TOKENS_KIND,
)
from runtimes.node_cache import NodeCache

KEY = "1" * 64


@pytest.fixture
def cache(tmp_path: Path) -> NodeCache:
    (tmp_path / "work").mkdir()
    (tmp_path / "cache").mkdir()
    return NodeCache(tmp_path / "cache", tmp_path / "work")


def make(cache: NodeCache) -> Path:
    made = cache.begin(TOKENS_KIND, KEY)
    (made / "data").write_bytes(b"tokens")
    cache.complete(made, seconds=61.26, template=None)
    return made


def test_the_manifest_says_how_long_the_making_took(cache: NodeCache) -> None:
    about = json.loads((make(cache) / MANIFEST_NAME).read_text())
    assert (about[MADE_SECONDS_NAME], about["template"]) == (61.3, None)
    assert TOKENS_KIND in PREPARED_KINDS


def test_what_lies_in_the_work_folder_is_of_the_job(cache: NodeCache, tmp_path: Path) -> None:
    made = make(cache)
    found = cache.find(TOKENS_KIND, KEY)
    assert found is not None
    assert (found.folder, found.is_of_job) == (made, True)
    assert not (tmp_path / "work" / NEW_CACHE_NAME / CACHE_USED_NAME).exists(), "the agent has nothing to note"
    made.parent.rename(tmp_path / "cache" / TOKENS_KIND)
    found = cache.find(TOKENS_KIND, KEY)
    assert found is not None
    assert (found.folder.parent.parent, found.is_of_job) == (tmp_path / "cache", False)


def test_one_of_the_job_that_is_damaged_is_not_found(cache: NodeCache) -> None:
    (make(cache) / "data").write_bytes(b"others")
    assert cache.find(TOKENS_KIND, KEY) is None

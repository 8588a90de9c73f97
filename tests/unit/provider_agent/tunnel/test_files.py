"""The agent may open as many files as requests may need."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from provider_agent.tunnel.tunnels import EXCHANGES_PER_LEASE_MAX, allow_files


@pytest.fixture
def few_files() -> Iterator[int]:
    """A soft limit as systemd sets it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 1024
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_low_limit_of_open_files_is_raised_to_what_a_leases_requests_need(few_files: int) -> None:
    assert few_files < EXCHANGES_PER_LEASE_MAX
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    allow_files(EXCHANGES_PER_LEASE_MAX)

    most = EXCHANGES_PER_LEASE_MAX if hard == resource.RLIM_INFINITY else min(hard, EXCHANGES_PER_LEASE_MAX)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, hard)


def test_a_high_limit_is_never_lowered() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    allow_files(1)

    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before

"""CPU shares: cores of their own as far as they go."""

from __future__ import annotations

import os

import pytest

from provider_agent.devices.base import cores_of
from provider_agent.devices.cpu import share_cpu
from provider_agent.errors import BadConfig

CORES = sorted(os.sched_getaffinity(0))


def test_shares_are_named_after_the_nodes_key() -> None:
    assert [device.uuid for device in share_cpu(2, [], key_prefix="abc")] == ["cpu-abc-0", "cpu-abc-1"]


def test_cores_are_divided_without_overlap() -> None:
    if len(CORES) < 2:
        pytest.skip("one core")
    first, second = share_cpu(2, CORES[:2], key_prefix="k")
    assert (cores_of(first), cores_of(second)) == ([CORES[0]], [CORES[1]])


def test_more_shares_than_cores_share_them() -> None:
    assert [cores_of(device) for device in share_cpu(3, CORES[:1], key_prefix="k")] == [[CORES[0]]] * 3


def test_core_that_is_not_ours_is_named() -> None:
    with pytest.raises(BadConfig, match="4096"):
        share_cpu(1, [4096], key_prefix="k")

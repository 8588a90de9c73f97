"""The launcher: torchrun's options from the contract, and the exit code that says most."""

from __future__ import annotations

import pytest

from runtimes.contract import Env
from runtimes.launch import exit_code_of, torchrun_arguments


def test_one_node_needs_no_fixed_port() -> None:
    options = torchrun_arguments({Env.DEVICES_PER_NODE: "2", Env.MASTER_PORT: "29500"})
    assert "--nproc-per-node=2" in options
    assert "--rdzv-endpoint=127.0.0.1:0" in options
    assert not any("29500" in option for option in options)


def test_gang_meets_at_its_master() -> None:
    place: dict[str, str] = {Env.NODES: "3", Env.NODE_RANK: "1", Env.MASTER_ADDR: "10.0.0.7", Env.MASTER_PORT: "29501"}
    options = torchrun_arguments(place)
    assert {"--nnodes=3", "--node-rank=1", "--master-addr=10.0.0.7", "--master-port=29501"} <= set(options)


@pytest.mark.parametrize(
    ("codes", "exit_code"),
    [
        ([70, 77], 77),  # one rank was out of memory, the other lost its peer
        ([75, 75], 75),
        ([75, -15], 75),
        ([70, -9], 137),
        ([1, -15], 1),
        ([-15], 70),
        ([64, 64], 64),
    ],
)
def test_code_that_says_most_is_reported(codes: list[int], exit_code: int) -> None:
    assert exit_code_of(codes) == exit_code

"""What a node reports names none of its own paths; what a program said of its own files stays."""

from __future__ import annotations

import pytest

from provider_agent.protocol import Reason, without_node_paths

LEASE = "/var/lib/souk-agent/leases/0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("The supervisor did not start; see /var/lib/souk-agent/x/supervisor.log.", "see [a path on the node]"),
        (f"[Errno 2] No such file: '{LEASE}/work/output/a b'", "No such file: 'output/a b'"),
        (f"{LEASE}/disk/work/input/x is gone", "input/x is gone"),
        (f"{LEASE}/given.json is gone", "[a path on the node] is gone"),
        ("path=/home/bob/gpu/models: refused", "path=[a path on the node]: refused"),
        ("opening file:/opt/secret/place failed", "opening file:[a path on the node] failed"),
        ("https://registry.example/v2/a/b says 404", "https://registry.example/v2/a/b says 404"),
        ("ghcr.io/alice/train:1 cannot be fetched", "ghcr.io/alice/train:1 cannot be fetched"),
        ("/dev/nvidia0 and /souk/input/a are seen by all", "/dev/nvidia0 and /souk/input/a are seen by all"),
        ("3 and/or 4 GiB/s", "3 and/or 4 GiB/s"),
    ],
)
def test_a_message_of_the_node_names_no_path_of_it(message: str, shown: str) -> None:
    assert without_node_paths(message, Reason.EXECUTOR_FAILED).endswith(shown)


def test_the_words_of_a_program_keep_the_paths_that_it_sees() -> None:
    message = f"/data/train.bin is no model, {LEASE}/work/input/b and /var/lib/souk-agent/runtime/c neither"
    shown = "/data/train.bin is no model, input/b and [a path on the node] neither"
    assert without_node_paths(message, Reason.BAD_INPUT) == shown


def test_folders_of_the_agent_are_hidden_wherever_they_are() -> None:
    message = "no room in /home/bob smith/gpu/leases, 1 MiB"
    assert without_node_paths(message, Reason.EXIT_NONZERO, own=["/home/bob smith/gpu", "/"]) == (
        "no room in [a path on the node], 1 MiB"
    )

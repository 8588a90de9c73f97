"""The probe as the agent runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from provider_agent.protocol import MeasurementRequest


def probe(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "runtimes.probe", *arguments],
        cwd=Path(__file__).parents[4],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_two_processor_shares_are_measured_at_once_in_the_words_of_the_protocol() -> None:
    ended = probe("--devices", "cpu:0,cpu:1", "--seconds", "0.6", "--json")
    assert ended.returncode == 0, ended.stderr
    request = MeasurementRequest.model_validate(json.loads(ended.stdout))
    assert [device.uuid for device in request.devices] == ["cpu:0", "cpu:1"]
    for device in request.devices:
        assert set(device.flops_per_second) == {"float32", "bfloat16"}
        assert 1e8 < device.flops_per_second["float32"] < 1e13
        assert 1e7 < device.memory_bytes_per_second < 1e12
        assert device.seconds > 0.4


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--devices", "xpu:0"), 64, "devices must be at most 64 of cpu:N, cuda:N or cuda:UUID, got xpu:0"),
        (("--devices", "cpu:0", "--seconds", "0"), 64, "seconds must be above 0 and at most 600, got 0"),
    ],
)
def test_bad_arguments_get_one_clear_line(arguments: tuple[str, ...], code: int, message: str) -> None:
    ended = probe(*arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert ended.stderr == f"souk probe: {message}\n"


def test_device_that_is_not_there_is_named() -> None:
    ended = probe("--devices", "cuda:GPU-00000000-dead-beef-0000-000000000000", "--seconds", "1")
    assert ended.returncode == 70
    assert "torch sees no CUDA device here" in ended.stderr

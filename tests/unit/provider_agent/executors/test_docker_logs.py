"""What a container printed is in its lease's log, once, whatever becomes of the engine's stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests

from provider_agent.executors.base import LOG_CAP_LINE, log_path, write_preamble
from provider_agent.executors.docker.logs import LogPump

OUTPUT = b"one\ntwo\nthree\n"
BYTES_MAX = 10_000
JOIN_SECONDS_MAX = 20.0


class FakeContainer:
    """One that has ended; a stream that follows it ends after `followed` bytes."""

    def __init__(self, *, followed: int, output: bytes = OUTPUT, is_engine_there: bool = True) -> None:
        self.attrs = {"State": {"Status": "exited"}}
        self._followed, self._output, self._is_engine_there = followed, output, is_engine_there

    def reload(self) -> None:
        """The state is known already."""

    def logs(self, *, stream: bool, follow: bool) -> Any:
        if follow:
            return iter([self._output[: self._followed]])
        if not self._is_engine_there:
            raise requests.ConnectionError("the engine went away")
        return iter([self._output[:4], self._output[4:]])


def log_of(container: Any, folder: Path, *, bytes_max: int = BYTES_MAX) -> bytes:
    pump = LogPump(container, folder, bytes_max=bytes_max)
    pump.join(JOIN_SECONDS_MAX)
    pump.close()
    return log_path(folder).read_bytes()


@pytest.mark.parametrize("followed", [0, 5, len(OUTPUT)])
def test_output_that_a_stream_missed_is_read_once_the_container_ended(followed: int, tmp_path: Path) -> None:
    assert log_of(FakeContainer(followed=followed), tmp_path) == OUTPUT


def test_an_engine_that_goes_away_with_the_container_is_asked_no_more(tmp_path: Path) -> None:
    assert log_of(FakeContainer(followed=4, is_engine_there=False), tmp_path) == OUTPUT[:4]


def test_lines_of_the_agents_own_are_not_taken_for_the_containers(tmp_path: Path) -> None:
    write_preamble(tmp_path, ["pulled the image"])
    log = log_of(FakeContainer(followed=5), tmp_path)
    assert log.endswith(b"\n" + OUTPUT)
    assert log.count(b"one\n") == 1


def test_a_log_that_is_full_says_so_and_ends(tmp_path: Path) -> None:
    line = LOG_CAP_LINE.encode()
    long = b"x" * BYTES_MAX
    log = log_of(FakeContainer(followed=len(long), output=long), tmp_path)
    assert log == b"x" * (BYTES_MAX - len(line)) + line

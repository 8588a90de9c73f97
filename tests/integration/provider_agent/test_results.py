"""Where a program writes in its work folder does not decide whether its result reaches the customer."""

from __future__ import annotations

from uuid import uuid4

import pytest

from provider_agent.protocol import AttemptState, Program, Reason
from tests.integration.provider_agent.conftest import Bob, python
from tests.integration.provider_agent.endings import until_ended
from tests.integration.provider_agent.fake_server import FakeServer

pytestmark = pytest.mark.slow

BESIDE = "open('result.txt', 'w').write('42'); open('results.csv', 'w').write('1')"


@pytest.fixture
def running(bob: Bob) -> Bob:
    """Bob's node, enrolled and started."""
    bob.enrol()
    bob.start()
    return bob


def output_of(server: FakeServer) -> dict[str, bytes]:
    """The files of the one output, complete."""
    (output,) = [artifact for artifact in server.artifacts.values() if artifact.begin.kind == "output"]
    assert output.is_complete
    return {file.path: output.files[file.path] for file in output.begin.files}


def test_a_result_beside_output_arrives_and_the_log_says_so(running: Bob, server: FakeServer) -> None:
    lease = server.give(running.assignment(*python(BESIDE)))
    report = until_ended(lease)
    assert (report.state, report.reason) == (AttemptState.SUCCEEDED, Reason.COMPLETED)
    assert output_of(server) == {"result.txt": b"42", "results.csv": b"1"}
    assert lease.logs == b"[souk] collected 2 files (results.csv, result.txt) beside output/\n"


def test_patterns_of_the_job_file_name_what_is_collected(running: Bob, server: FakeServer) -> None:
    until_ended(server.give(running.assignment(*python(BESIDE), outputs=["*.csv"])))
    assert output_of(server) == {"results.csv": b"1"}


def test_an_input_comes_back_only_where_it_was_changed(running: Bob, server: FakeServer) -> None:
    files = {"same.txt": b"same", "changed.txt": b"before"}
    input_id = uuid4()
    server.downloads[input_id] = files
    code = "open('input/changed.txt', 'a').write(' and after')"
    until_ended(server.give(running.assignment(*python(code), input_artifact_id=input_id)))
    assert output_of(server) == {"input/changed.txt": b"before and after"}


def test_a_program_that_leaves_nothing_has_no_output(running: Bob, server: FakeServer) -> None:
    lease = server.give(running.assignment(program=Program(command=["true"])))
    assert until_ended(lease).state is AttemptState.SUCCEEDED
    assert server.artifacts == {}

"""Where a program writes in its work folder does not decide whether its result reaches the customer."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from provider_agent.context import AgentContext
from provider_agent.journal import LeaseEntry
from provider_agent.lease import artifact_shipper
from provider_agent.lease.endings import name_refusal
from provider_agent.protocol import AttemptState, Program, Reason
from tests.integration.provider_agent.conftest import Bob, eventually, python
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


@pytest.fixture
def running_over(running: Bob, tmp_path: Path) -> Iterator[Bob]:
    """The same; what programs leave is removed by `rm`, because pytest cannot remove folders without end."""
    yield running
    running.stop()
    subprocess.run(["rm", "-rf", str(tmp_path)], check=True)


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


def test_what_earlier_jobs_left_is_beside_the_files_and_comes_not_back(running: Bob, server: FakeServer) -> None:
    input_id, first, second = uuid4(), uuid4(), uuid4()
    server.downloads |= {input_id: {"a.txt": b"a"}, first: {"model/config.json": b"1"}, second: {"notes": b"2"}}
    code = (
        "import pathlib\n"
        "found = sorted(str(path) for path in pathlib.Path('input').rglob('*') if path.is_file())\n"
        "open('output/found', 'w').write(' '.join(found))"
    )
    inputs = {"tuned": first, "other": second}
    until_ended(server.give(running.assignment(*python(code), input_artifact_id=input_id, inputs=inputs)))
    assert output_of(server) == {"found": b"input/a.txt input/other/notes input/tuned/model/config.json"}


def test_a_program_that_leaves_nothing_has_no_output(running: Bob, server: FakeServer) -> None:
    lease = server.give(running.assignment(program=Program(command=["true"])))
    assert until_ended(lease).state is AttemptState.SUCCEEDED
    assert server.artifacts == {}


DEEP = "for _ in range(10_000):\n    os.mkdir('d'); os.chdir('d')\n"
ENDS_WELL = (AttemptState.SUCCEEDED, Reason.COMPLETED, 0)


@pytest.mark.parametrize(
    "code",
    [
        "import shutil; shutil.rmtree('output')",
        "import os; os.rmdir('output'); os.symlink('/etc', 'output')",
        "import os; os.rmdir('output'); open('output', 'w').close()",
    ],
)
def test_an_output_folder_that_is_gone_fails_no_attempt(running: Bob, server: FakeServer, code: str) -> None:
    lease = server.give(running.assignment(*python(f"open('beside', 'w').write('b'); {code}")))
    report = until_ended(lease)
    assert (report.state, report.reason, report.exit_code) == ENDS_WELL
    kept = output_of(server)
    assert kept["beside"] == b"b"
    assert b"[souk] nothing below output/ could be kept: " in lease.logs


@pytest.mark.parametrize("folder", [pytest.param("output", marks=pytest.mark.soak), "."])
def test_folders_without_end_cost_themselves_alone(running_over: Bob, server: FakeServer, folder: str) -> None:
    code = f"import os\nopen('output/kept', 'w').write('k')\nos.chdir({folder!r})\n{DEEP}"
    lease = server.give(running_over.assignment(*python(code)))
    report = until_ended(lease)
    assert (report.state, report.reason, report.exit_code) == ENDS_WELL
    assert output_of(server) == {"kept": b"k"}
    assert b"[souk] left out 1 folder (" in lease.logs


def test_folders_without_end_in_a_checkpoint_fail_no_attempt(running_over: Bob, server: FakeServer) -> None:
    made = "os.makedirs('checkpoint/step-1'); open('checkpoint/step-1/MANIFEST.json', 'w').close()"
    code = f"import os\n{made}\nos.chdir('checkpoint/step-1')\n{DEEP}"
    report = until_ended(server.give(running_over.assignment(*python(code))))
    assert (report.state, report.reason, report.exit_code) == ENDS_WELL


def test_a_lease_with_folders_without_end_is_forgotten_whole(running_over: Bob, server: FakeServer) -> None:
    lease = server.give(running_over.assignment(*python(f"import os\n{DEEP}")))
    until_ended(lease)
    server.forget_lease(lease)
    folder = running_over.folder.lease(lease.assignment.lease_id)
    eventually(lambda: not folder.exists(), "its folder is gone")


def test_a_manifest_in_a_folder_of_the_output_is_a_file_like_others(running: Bob, server: FakeServer) -> None:
    code = "import os; os.mkdir('output/deep'); open('output/deep/MANIFEST.json', 'w').write('{}')"
    until_ended(server.give(running.assignment(*python(code))))
    assert output_of(server) == {"deep/MANIFEST.json": b"{}"}


@pytest.mark.parametrize(("size", "error", "reason"), [(20, ValueError, "exit_nonzero"), (5, OSError, "upload_failed")])
def test_holes_that_cannot_be_read_in_time_are_the_customers_own_doing(
    bob: Bob,
    context: AgentContext,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    error: type[Exception],
    reason: str,
) -> None:
    monkeypatch.setattr(artifact_shipper, "OUTPUT_SECONDS_MAX", 0.0)
    monkeypatch.setattr(artifact_shipper, "HOLES_BYTES_IN_TIME", 10)
    entry = LeaseEntry(bob.assignment("true"), lease_until=datetime.now(UTC))
    context.journal.save_lease(entry)
    output = context.folder.lease(entry.lease_id) / "work" / "output"
    output.mkdir(parents=True)
    with (output / "holes").open("wb") as file:
        file.truncate(size)
    with pytest.raises(error) as caught:
        asyncio.run(artifact_shipper.ArtifactShipper(context, entry).ship_output(0))
    assert name_refusal(caught.value, 0).reason == reason

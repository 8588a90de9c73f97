"""Programs that know nothing of checkpoints lose their node and go on on another, from the path that was copied."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
import torch

from provider_agent.protocol import ATTEMPT_ENDS, AttemptState, CheckpointPolicy, Reason
from tests.integration.provider_agent.conftest import REPOSITORY, Bob, eventually, processes_of, python
from tests.integration.provider_agent.endings import until_ended
from tests.integration.provider_agent.fake_leases import Artifact, Lease
from tests.integration.provider_agent.fake_server import FakeServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS_MAX = 150.0
WRITTEN_SECONDS = 0.3
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
HF_TRAINER = REPOSITORY / "examples" / "hf_trainer.py"
TUTORIAL = Path(__file__).parent / "snapshot_tutorial.py"
LIGHTNING = Path(__file__).parent / "lightning_script.py"


@pytest.fixture
def running(bob: Bob) -> Bob:
    """Bob's node, enrolled and started."""
    bob.enrol()
    bob.start()
    return bob


def of_path(path: str) -> CheckpointPolicy:
    return CheckpointPolicy(every_seconds=1, path=path)


def give_script(bob: Bob, server: FakeServer, script: Path, command: list[str], **changes: object) -> Lease:
    """A lease whose input is one script."""
    input_id = uuid4()
    server.downloads[input_id] = {script.name: script.read_bytes()}
    return server.give(bob.assignment(*command, input_artifact_id=input_id, **changes))


def checkpoints(server: FakeServer, lease: Lease | None = None) -> list[Artifact]:
    """The complete ones, oldest first."""
    found = [each for each in server.artifacts.values() if each.is_complete and each.begin.kind == "checkpoint"]
    return [each for each in found if lease is None or each.lease_id == lease.assignment.lease_id]


def output_of(server: FakeServer, lease: Lease) -> dict[str, bytes]:
    """The files of its output."""
    (found,) = [
        each
        for each in server.artifacts.values()
        if each.begin.kind == "output" and each.lease_id == lease.assignment.lease_id
    ]
    return {file.path: found.files[file.path] for file in found.begin.files}


@contextmanager
def held_at(bob: Bob, lease: Lease, step: int) -> Iterator[None]:
    """Within it the program stands still, soon after it has saved this step: no copy comes too late, on any machine."""
    results = bob.folder.lease(lease.assignment.lease_id) / "work" / "results"
    saved = results / f"checkpoint-{step}" / "trainer_state.json"  # written last
    eventually(saved.is_file, f"step {step}", seconds=SECONDS_MAX)
    time.sleep(WRITTEN_SECONDS)  # of the two seconds until it saves again
    programs = processes_of(lease.assignment.lease_id)
    for program in programs:
        program.suspend()
    try:
        yield
    finally:
        for program in programs:
            with suppress(psutil.NoSuchProcess):
                program.resume()


def lose_node(bob: Bob, lease: Lease) -> None:
    """The agent and the program are gone at one moment, as in a power cut."""
    bob.stop(signal.SIGKILL)
    for process in processes_of(lease.assignment.lease_id):
        process.kill()


def as_resume(server: FakeServer, checkpoint: Artifact) -> dict[str, object]:
    """What lets the next attempt go on from it."""
    artifact_id = uuid4()
    server.downloads[artifact_id] = {file.path: checkpoint.files[file.path] for file in checkpoint.begin.files}
    return {"resume_artifact_id": artifact_id, "attempt_number": 2}


def run_alone(folder: Path, command: list[str]) -> Path:
    """The same program without a break, in a folder of its own."""
    (folder / "output").mkdir(parents=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=environment, timeout=300)
    return folder


@pytest.mark.soak  # minutes; the tutorial of two ranks below goes on likewise
def test_a_hugging_face_trainer_goes_on_where_its_node_was_lost(
    running: Bob, server: FakeServer, tmp_path: Path
) -> None:
    arguments = ["--steps", "900", "--save-steps", "300"]
    command = [sys.executable, "input/hf_trainer.py", *arguments]
    changes = {"checkpoint": of_path("results"), "env": {"OMP_NUM_THREADS": "1"}}
    first = give_script(running, server, HF_TRAINER, command, **changes)
    with held_at(running, first, 300):
        eventually(lambda: checkpoints(server), "a checkpoint", seconds=SECONDS_MAX)
        lose_node(running, first)
    newest = checkpoints(server)[-1]
    saved = [file.path for file in newest.begin.files if file.path.endswith("trainer_state.json")]
    assert saved
    assert all(path.startswith("content/results/checkpoint-") for path in saved)

    running.start()
    assert until_ended(first).reason is Reason.PROCESS_VANISHED
    second = give_script(running, server, HF_TRAINER, command, **changes, **as_resume(server, newest))
    with held_at(running, second, 600):
        eventually(lambda: checkpoints(server, second), "one of the second", seconds=SECONDS_MAX)
    eventually(lambda: second.report and second.report.state in ATTEMPT_ENDS, "the end", seconds=SECONDS_MAX)
    assert until_ended(second).reason is Reason.COMPLETED, second.logs[-3000:]
    assert b"resuming from results/checkpoint-300" in second.logs

    alone = run_alone(tmp_path / "alone", [sys.executable, str(HF_TRAINER), *arguments])
    output = output_of(server, second)
    assert json.loads(output["results/losses.json"]) == json.loads((alone / "results/losses.json").read_text())
    assert output["results/final/model.safetensors"] == (alone / "results/final/model.safetensors").read_bytes()
    assert checkpoints(server, second)[0].begin.step > 7, "numbers go on after the resumed one"


def test_two_ranks_of_the_tutorial_go_on_from_their_snapshot(running: Bob, server: FakeServer, tmp_path: Path) -> None:
    command = [*TORCHRUN, f"input/{TUTORIAL.name}", "5", "3"]
    first = give_script(running, server, TUTORIAL, command, checkpoint=of_path("snapshot.pt"))
    eventually(lambda: checkpoints(server), "a checkpoint", seconds=SECONDS_MAX)
    lose_node(running, first)
    newest = checkpoints(server)[-1]
    assert sorted(file.path for file in newest.begin.files) == ["MANIFEST.json", "content/snapshot.pt"]
    epochs = torch.load(io.BytesIO(newest.files["content/snapshot.pt"]))["EPOCHS_RUN"]

    running.start()
    until_ended(first)
    changes = {"checkpoint": of_path("snapshot.pt"), **as_resume(server, newest)}
    second = give_script(running, server, TUTORIAL, command, **changes)
    eventually(lambda: second.report and second.report.state in ATTEMPT_ENDS, "the end", seconds=SECONDS_MAX)
    assert until_ended(second).reason is Reason.COMPLETED, second.logs[-3000:]
    assert f"Resuming training from snapshot at Epoch {epochs}".encode() in second.logs

    alone = run_alone(tmp_path / "alone", [*TORCHRUN, str(TUTORIAL), "5", "0"])
    ours = torch.load(io.BytesIO(output_of(server, second)["model.pt"]))
    reference = torch.load(alone / "output" / "model.pt")
    assert all(torch.equal(ours[name], value) for name, value in reference.items())


@pytest.mark.soak
def test_a_lightning_trainer_goes_on_from_its_last_checkpoint(running: Bob, server: FakeServer, tmp_path: Path) -> None:
    command = [sys.executable, f"input/{LIGHTNING.name}", "48"]
    first = give_script(running, server, LIGHTNING, [*command, "0.5"], checkpoint=of_path("results"))
    eventually(lambda: checkpoints(server), "a checkpoint", seconds=SECONDS_MAX)
    lose_node(running, first)
    newest = checkpoints(server)[-1]
    assert "content/results/last.ckpt" in {file.path for file in newest.begin.files}

    running.start()
    until_ended(first)
    changes = {"checkpoint": of_path("results"), **as_resume(server, newest)}
    second = give_script(running, server, LIGHTNING, [*command, "0"], **changes)
    eventually(lambda: second.report and second.report.state in ATTEMPT_ENDS, "the end", seconds=SECONDS_MAX)
    assert until_ended(second).reason is Reason.COMPLETED, second.logs[-3000:]
    assert b"resuming from results/last.ckpt" in second.logs
    assert b"ended at step 48" in second.logs

    alone = run_alone(tmp_path / "alone", [sys.executable, str(LIGHTNING), "48", "0"])
    ours, reference = (
        torch.load(each) for each in (io.BytesIO(output_of(server, second)["model.pt"]), alone / "output" / "model.pt")
    )
    assert all(torch.equal(ours[name], value) for name, value in reference.items())


SAVES_AT_THE_END = """
import os, signal, sys, time
os.makedirs('results', exist_ok=True)
def leave(*_):
    open('results/last', 'w').write('saved at SIGTERM'); sys.exit(CODE)
signal.signal(signal.SIGTERM, leave)
print('ready', flush=True)
while True: time.sleep(0.1)
"""


@pytest.mark.parametrize(("code", "is_kept"), [(0, True), (75, True), (1, False)])
def test_what_is_saved_at_a_stop_is_copied_if_the_program_left_in_order(
    running: Bob, server: FakeServer, code: int, is_kept: bool
) -> None:
    program = python(SAVES_AT_THE_END.replace("CODE", str(code)))
    changes = {"checkpoint": CheckpointPolicy(every_seconds=300, path="results"), "stop_grace_seconds": 20}
    lease = server.give(running.assignment(*program, **changes))
    eventually(lambda: b"ready" in lease.logs, "the program")
    server.stop_lease(lease, Reason.NODE_DRAINED)
    assert until_ended(lease).reason is Reason.NODE_DRAINED
    found = [each.files["content/results/last"] for each in checkpoints(server, lease)]
    assert found == ([b"saved at SIGTERM"] if is_kept else [])
    assert is_kept or b"while it may have been writing" in lease.logs


def test_only_what_changed_is_copied_again_and_the_log_says_how_often(running: Bob, server: FakeServer) -> None:
    code = "import os, time; os.mkdir('results'); open('results/a', 'w').write('1'); time.sleep(14)"
    lease = server.give(running.assignment(*python(code), checkpoint=of_path("results")))
    assert until_ended(lease).state is AttemptState.SUCCEEDED
    assert [each.begin.step for each in checkpoints(server, lease)] == [1]
    assert b"[souk] checkpoint.path: 1 copies of results were taken\n" in lease.logs
    assert output_of(server, lease) == {"results/a": b"1"}


def test_what_is_restored_is_output_though_the_program_changed_nothing(running: Bob, server: FakeServer) -> None:
    resume_id = uuid4()
    server.downloads[resume_id] = {"MANIFEST.json": b"{}", "content/results/old": b"of before"}
    code = "import os, time; print(open('results/old').read(), os.environ['SOUK_RESUME_FROM'][-8:], os.listdir())"
    code += "; time.sleep(5)"
    changes = {"checkpoint": of_path("results"), "resume_artifact_id": resume_id}
    lease = server.give(running.assignment(*python(code), **changes))
    assert until_ended(lease).state is AttemptState.SUCCEEDED, lease.logs
    assert lease.logs.startswith(b"of before /results ")
    assert b"'resume'" not in lease.logs
    assert output_of(server, lease) == {"results/old": b"of before"}
    assert checkpoints(server) == [], "nothing was done that a copy would be paid for"


@pytest.mark.parametrize("made", ["os.symlink('/etc', 'results')", "os.mkfifo('results')", "pass"])
def test_a_path_that_is_no_folder_of_the_program_ships_nothing(running: Bob, server: FakeServer, made: str) -> None:
    code = f"import os, time; {made}; time.sleep(5)"
    lease = server.give(running.assignment(*python(code), checkpoint=of_path("results")))
    assert until_ended(lease).state is AttemptState.SUCCEEDED
    assert checkpoints(server) == []
    assert b"results was never copied" in lease.logs


def test_too_many_files_fail_no_attempt_and_the_log_says_so(running: Bob, server: FakeServer) -> None:
    made = "[open(f'results/{n}', 'w').close() for n in range(20_500)]"
    code = f"import os, time; os.mkdir('results'); {made}; time.sleep(8)"
    lease = server.give(running.assignment(*python(code), checkpoint=of_path("results"), outputs=["none"]))
    assert until_ended(lease).state is AttemptState.SUCCEEDED
    assert checkpoints(server) == []
    assert b"results has more than 19999 files; name a folder with fewer" in lease.logs


COPIES = """
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from provider_agent.lease.path_checkpoints.copying import copy_path
from provider_agent.lease.path_checkpoints.listing import list_path
work, into = Path(sys.argv[1]), Path(sys.argv[2])
copy_path(work, 'results', list_path(work, 'results'), into, step=1, is_stopped=lambda: False, seconds_max=600)
"""


def test_an_agent_killed_inside_a_copy_leaves_nothing_that_counts(tmp_path: Path) -> None:
    (tmp_path / "work" / "results").mkdir(parents=True)
    for number in range(8):
        with (tmp_path / "work" / "results" / f"shard-{number}").open("wb") as out:
            out.truncate(256 * 1024**2)
    into = tmp_path / "snapshots" / "copying"
    copying = subprocess.Popen([sys.executable, "-c", COPIES, str(tmp_path / "work"), str(into)], cwd=REPOSITORY)
    eventually((into / "content/results/shard-1").exists, "the second file")
    copying.kill()
    copying.wait()
    assert not (into / "MANIFEST.json").exists()
    assert copying.returncode == -signal.SIGKILL, "it was in the middle"

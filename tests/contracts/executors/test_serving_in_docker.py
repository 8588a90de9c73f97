"""In a container a serving program reads the shared weights, cannot change them, and is reached by its socket."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from provider_agent.protocol import AttemptState, Program
from runtimes.contract import SERVE_SOCKET
from tests.contracts.executors.engine import IMAGE
from tests.contracts.executors.providers import bob_over
from tests.integration.provider_agent.conftest import Bob, eventually

WEIGHTS = b"w" * 5000
# Mallory's program tries all that she knows on the model, then answers one caller.
CODE = """
import ctypes, os, pathlib, socket
folder = pathlib.Path(os.environ["SOUK_INPUT_DIR"])
file = folder / "model" / "model.safetensors"
attempts = {
    "write": lambda: file.open("r+b").write(b"x"),
    "chmod": lambda: file.chmod(0o666),
    "utime": lambda: os.utime(file, (1, 1)),
    "unlink": lambda: file.unlink(),
    "replace": lambda: pathlib.Path("mine").write_bytes(b"x") and os.replace("mine", file),
    "link": lambda: os.link(file, "linked"),
    "add": lambda: (folder / "more").write_bytes(b"x"),
}
held = []
for name, attempt in attempts.items():
    try:
        attempt()
    except OSError:
        held.append(name)
if ctypes.CDLL(None).mount(b"none", str(folder).encode(), b"none", 32 | 4096, 0) != 0:
    held.append("remount")
print(len(file.read_bytes()), os.getuid(), *held, flush=True)
listener = socket.socket(socket.AF_UNIX)
os.umask(0o177)
listener.bind("serve.sock")
listener.listen()
print("listening", flush=True)
caller, _ = listener.accept()
caller.sendall(b"hello")
caller.close()
"""


@pytest.fixture
def bob(engine: str, tmp_path: Path) -> Iterator[Bob]:
    """Bob's node over the engine, which serves from an image of his choice."""
    with bob_over(engine, tmp_path / "bob", serve_image=IMAGE) as made:
        yield made


@pytest.mark.docker
def test_shared_weights_withstand_a_program_that_answers_callers(bob: Bob) -> None:
    model = uuid4()
    bob.server.downloads[model] = {"model/model.safetensors": WEIGHTS, "model/config.json": b"{}"}
    program = Program(runtime="serve", command=["python3", "-c", CODE])
    lease = bob.server.give(bob.assignment(program=program, input_artifact_id=model))
    eventually(lambda: lease.logs.endswith(b"listening\n"), "the socket")
    printed = lease.logs.decode().splitlines()[-2].split()
    assert printed[0] == "5000"
    assert set(printed[2:]) == {"write", "chmod", "utime", "unlink", "replace", "link", "add", "remount"}
    shared = bob.data / "weights" / "files" / hashlib.sha256(WEIGHTS).hexdigest()
    assert shared.read_bytes() == WEIGHTS
    descriptor = os.open(bob.folder.lease(lease.assignment.lease_id) / "work" / SERVE_SOCKET, os.O_PATH | os.O_NOFOLLOW)
    with socket.socket(socket.AF_UNIX) as caller:  # as the agent does
        caller.connect(f"/proc/self/fd/{descriptor}")
        assert caller.recv(100) == b"hello"
    os.close(descriptor)
    eventually(lambda: lease.report and lease.report.state is AttemptState.SUCCEEDED, "success")

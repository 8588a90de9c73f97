"""An agent with two GPUs, of which one fails: it leaves the market with what ran on it, the other stays."""

from __future__ import annotations

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from provider_agent.devices.nvidia import NVML_LIBRARY
from provider_agent.protocol import AttemptState, NodeFacts, Reason
from tests.integration.provider_agent.conftest import LOOKS_OFTEN, REPOSITORY, Bob, eventually, python
from tests.integration.provider_agent.fake_leases import Lease
from tests.integration.provider_agent.fake_server import FakeServer

DRIVER = Path(__file__).parent / "fake_driver"
UP = "import time; print('up', flush=True); time.sleep(600)"


class Gpus:
    """What the driver will say."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.be()

    def be(self, **first: Any) -> None:
        """What is wrong with GPU-0 from now on; GPU-1 is well, and busy."""
        partial_path = self.path.with_suffix(".partial")
        partial_path.write_text(json.dumps({"GPU-0": first, "GPU-1": {"percent": 50}}))
        partial_path.rename(self.path)


@pytest.fixture
def gpus(bob: Bob, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """Bob's node has two GPUs; its agent runs."""
    found = Gpus(tmp_path / "gpus.json")
    # The agent looks for the driver's library before it loads its wrapper, which is what is faked; any library will do.
    shutil.copy(str(psutil._psutil_linux.__file__), tmp_path / NVML_LIBRARY)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("SOUK_FAKE_GPUS", str(found.path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(DRIVER), str(REPOSITORY)]))
    done = bob.run(
        "enrol",
        "--server",
        server.url,
        "--token",
        server.token,
        "--executor",
        "process",
        "--runtime-python",
        sys.executable,
    )
    assert done.returncode == 0, done.stderr
    bob.mark_measured()
    bob.start(program=[sys.executable, "-c", LOOKS_OFTEN])
    return found


def faults(server: FakeServer) -> dict[str, str]:
    facts: NodeFacts | None = next((sync.facts for sync in reversed(server.syncs) if sync.facts is not None), None)
    return {device.uuid: device.fault for device in facts.devices} if facts else {}


def is_running(lease: Lease) -> bool:
    return lease.report is not None and lease.report.state is AttemptState.RUNNING


def test_failing_device_leaves_with_what_ran_on_it_and_returns(bob: Bob, server: FakeServer, gpus: Gpus) -> None:
    first = server.give(bob.assignment(*python(UP), device_uuids=["GPU-0"]))
    second = server.give(bob.assignment(*python(UP), device_uuids=["GPU-1"]))
    for lease in (first, second):
        eventually(partial(is_running, lease), "running")
    gpus.be(lost=True)
    eventually(lambda: first.report and first.report.reason is Reason.DEVICE_FAILED, "the end of what ran on it")
    eventually(lambda: faults(server).get("GPU-0", "").startswith("fallen off the bus"), "the report")
    assert faults(server)["GPU-1"] == ""
    assert is_running(second)
    eventually(lambda: "fallen off" in json.loads(bob.run("status", "--json").stdout)["health"], "the status")
    load = next(sync.load for sync in reversed(server.syncs) if sync.load is not None and sync.load.leases)
    assert load.devices["GPU-1"]["utilization_percent"] == 50
    assert load.leases[second.assignment.lease_id]["memory_used_mib"] > 1
    gpus.be()
    eventually(lambda: faults(server) == {"GPU-0": "", "GPU-1": ""}, "healthy again")
    third = server.give(bob.assignment(*python("print(1)"), device_uuids=["GPU-0"]))
    eventually(lambda: third.report and third.report.reason is Reason.COMPLETED, "the next program on it")


def test_xid_of_an_application_takes_nothing_out_and_one_of_the_hardware_does(
    bob: Bob, server: FakeServer, gpus: Gpus
) -> None:
    gpus.be(xids=[31])
    eventually(
        lambda: any(
            sync.load and sync.load.devices.get("GPU-0", {}).get("application_xids") == 1 for sync in server.syncs
        ),
        "the count",
    )
    assert set(faults(server).values()) == {""}
    gpus.be(xids=[31, 95])
    eventually(lambda: faults(server)["GPU-0"] == "Xid 95: uncontained memory error", "the report")

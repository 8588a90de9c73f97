"""The benchmark: run as a job is, one agent of a machine after the other, reported once."""

from __future__ import annotations

import fcntl
import time

from provider_agent.journal import Journal
from tests.integration.provider_agent.conftest import Bob, eventually
from tests.integration.provider_agent.fake_server import FakeServer


def test_devices_are_measured_once_and_not_while_another_agent_measures(bob: Bob, server: FakeServer) -> None:
    shared = bob.data.parent / "machine.lock"
    bob.enrol(devices=2, cpu_cores=[0], benchmark_lock=str(shared))
    journal = Journal(bob.folder.journal)
    journal.save_fact("measured", "")
    with shared.open("w") as another_agent:
        fcntl.flock(another_agent, fcntl.LOCK_EX)
        bob.start()
        time.sleep(1)
        assert server.measurements == []
        assert list(bob.folder.leases.iterdir()) == []
    eventually(lambda: server.measurements, "the measurement", seconds=120)
    measured = server.measurements[0]
    assert [device.uuid for device in measured.devices] == bob.devices()
    for device in measured.devices:
        assert device.flops_per_second["float32"] > 1e6
        assert device.memory_bytes_per_second > 1e6
    eventually(lambda: journal.load_fact("measured") == ",".join(bob.devices()), "the note that it was reported")
    assert list(bob.folder.leases.iterdir()) == []
    bob.stop()
    bob.start()
    time.sleep(1)
    assert len(server.measurements) == 1

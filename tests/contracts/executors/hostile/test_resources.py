"""Containers that take too much: each attack succeeds within a wider bound, then fails at the node's."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import pytest

from provider_agent.executors.base import LOG_CAP_LINE, log_path
from provider_agent.executors.docker.create import ENGINE_LOG_BYTES_MIN, Protections
from provider_agent.executors.scratch import share_of_disk
from provider_agent.lease.snapshot import take_snapshot
from tests.contracts.executors.hostile.conftest import Node
from tests.integration.provider_agent.conftest import eventually

pytestmark = pytest.mark.docker

MIB = 1024**2
IS_CGROUP_1 = Path("/sys/fs/cgroup/pids").is_dir()
FORK_WITHOUT_END = (
    "import os, time\n"
    "count = 0\n"
    "try:\n"
    "    while count < 700:\n"
    "        if os.fork() == 0: time.sleep(600)\n"
    "        count += 1\n"
    "except OSError as error: print('refused', error.errno)\n"
    "print('forked', count)\n"
    "time.sleep(600)\n"
)
EAT_MEMORY = (
    "held = []\n"
    "for _ in range(40):\n"
    "    held.append(bytearray(10 * 2**20))\n"
    "    for at in range(0, len(held[-1]), 4096): held[-1][at] = 1\n"
    "print('ate', sum(map(len, held)) // 2**20)\n"
)
FILL_DISK = (
    "import os\n"
    "written = 0\n"
    "try:\n"
    "    for number in range(160):\n"
    "        with open(f'fill-{number}', 'wb') as out:\n"
    "            out.write(bytes(2**20)); out.flush(); os.fsync(out.fileno())\n"
    "        written += 1\n"
    "except OSError as error: print('refused', error.errno)\n"
    "print('wrote', written)\n"
)
FLOOD_LOG = "line = 'x' * 1023\nfor _ in range(12 * 1024): print(line)\n"


def test_fork_bomb_meets_its_limit_and_the_neighbour_goes_on(node: Node) -> None:
    wide = node.start(FORK_WITHOUT_END, Protections(pids_max=900))
    wide.says("forked 700")
    assert "refused" not in wide.log()
    wide.remove()
    narrow = node.start(FORK_WITHOUT_END, Protections(pids_max=200))
    narrow.says("forked")
    assert "refused 11" in narrow.log()
    assert int(narrow.log().split()[-1]) < 200
    node.assert_works()


def test_default_limit_on_processes_is_in_force(node: Node) -> None:
    limit = node.start(f"print(open('/sys/fs/cgroup/{'pids/' if IS_CGROUP_1 else ''}pids.max').read())")
    limit.wait()
    assert limit.log().split() == [str(Protections().pids_max)]


def test_memory_eater_is_ended_and_the_neighbour_goes_on(node: Node) -> None:
    wide = node.start(EAT_MEMORY, memory_mib_max=700)
    assert wide.wait().code == 0
    assert "ate 400" in wide.log()
    narrow = node.start(EAT_MEMORY, memory_mib_max=100)
    ended = narrow.wait()
    assert ended.out_of_memory
    assert "ate" not in narrow.log()
    node.assert_works()


def test_shared_memory_is_half_of_the_memory_or_what_the_job_names(node: Node) -> None:
    size = "import os; s = os.statvfs('/dev/shm'); print(s.f_blocks * s.f_frsize // 2**20)"
    for changes, mib in (({"memory_mib_max": 256}, 1024), ({"memory_mib_max": 4096}, 2048), ({"shm_mib": 96}, 96)):
        program = node.start(size, **changes)
        assert program.wait().code == 0
        assert program.log().split() == [str(mib)]


def test_shared_memory_counts_in_the_memory_of_its_program(node: Node) -> None:
    fill = "with open('/dev/shm/held', 'wb') as out:\n    for _ in range(200): out.write(bytes(2**20))\nprint('held')"
    wide = node.start(fill, memory_mib_max=600, shm_mib=400)
    assert wide.wait().code == 0
    assert "held" in wide.log()
    narrow = node.start(fill, memory_mib_max=100, shm_mib=400)
    assert narrow.wait().out_of_memory
    small = node.start(fill, memory_mib_max=600, shm_mib=100)
    assert small.wait().code == 1
    assert "No space left on device" in small.log()
    node.assert_works()


def test_disk_filler_meets_the_end_of_its_own_disk(node: Node) -> None:
    open_ended = node.start(FILL_DISK, Protections(limit_disk=False), disk_share=0.001)
    open_ended.wait()
    assert "wrote 160" in open_ended.log()
    share = 100.0 / _disk_mib(node)
    bounded = node.start(FILL_DISK, disk_share=share)
    bounded.wait()
    assert "refused 28" in bounded.log()
    assert int(bounded.log().split()[-1]) < 100
    neighbour = node.start("open('a', 'wb').write(bytes(10 * 2**20)); print('fits')", disk_share=share)
    neighbour.wait()
    assert "fits" in neighbour.log()
    node.assert_works()


def test_disk_of_a_lease_is_gone_with_it(node: Node) -> None:
    lease = node.start("print('up')", disk_share=100.0 / _disk_mib(node))
    lease.wait()
    assert (lease.spec.folder / "disk").is_mount()
    lease.remove()
    assert not (lease.spec.folder / "disk").is_mount()
    assert not (lease.spec.folder / "disk.ext4").exists()


def test_disk_is_there_again_after_a_restart_of_the_machine(node: Node) -> None:
    lease = node.start("open('saved', 'w').write('weights')", disk_share=100.0 / _disk_mib(node))
    lease.wait()
    subprocess.run(["umount", lease.spec.folder / "disk"], check=True)  # as a restart leaves it
    assert not (lease.work / "saved").exists()
    asyncio.run(lease.executor.adopt(lease.spec.lease_id, lease.spec.folder, lease.handle))
    assert (lease.work / "saved").read_text() == "weights"


def test_snapshots_of_checkpoints_are_links_on_the_leases_own_disk(node: Node) -> None:
    code = "import os; os.mkdir('step'); open('step/weights', 'wb').write(os.urandom(40 * 2**20))"
    lease = node.start(code, disk_share=100.0 / _disk_mib(node))
    lease.wait()
    take_snapshot(lease.work, "step", lease.spec.folder / "snapshots" / "step")
    taken = (lease.spec.folder / "snapshots" / "step" / "weights").stat()
    assert taken.st_ino == (lease.work / "step" / "weights").stat().st_ino
    assert taken.st_nlink == 2


def test_log_flood_ends_at_the_cap_and_says_so(node: Node) -> None:
    wide = node.start(FLOOD_LOG, Protections(log_bytes_max=20 * MIB))
    assert wide.wait().code == 0
    eventually(lambda: log_path(wide.spec.folder).stat().st_size == 12 * MIB, "the whole flood")
    narrow = node.start(FLOOD_LOG, Protections(log_bytes_max=1 * MIB))
    assert narrow.wait().code == 0
    eventually(lambda: narrow.log().endswith(LOG_CAP_LINE), "the last line")
    assert log_path(narrow.spec.folder).stat().st_size <= MIB
    node.assert_works()


def test_log_flood_is_bounded_in_the_engine_too(node: Node) -> None:
    flood = node.start(FLOOD_LOG, Protections(log_bytes_max=MIB))
    flood.wait()
    container = flood.executor._engine.containers.get(flood.handle["container"])
    kept = container.attrs["HostConfig"]["LogConfig"]["Config"]
    assert kept == {"max-file": "1", "max-size": str(ENGINE_LOG_BYTES_MIN)}


def test_program_that_ignores_sigterm_is_killed(node: Node) -> None:
    deaf = node.start("import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(600)")
    deaf.says("up")
    deaf.stop()
    time.sleep(1.5)
    assert deaf.poll() is None  # asking alone does not end it
    deaf.kill()
    assert deaf.wait().signal == 9
    node.assert_works()


def _disk_mib(node: Node) -> int:
    return share_of_disk(node.root, 1.0)

"""What a root agent does for containers it does with the capabilities and system calls of its unit, and no others."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from provider_agent.packaging.unit import Unit, unit_text
from provider_agent.protocol import OverlayKind, Program
from provider_agent.system.capabilities import NEEDED
from tests.contracts.executors.engine import IMAGE
from tests.contracts.executors.gangs.conftest import Gang
from tests.contracts.executors.gangs.fabric import NODE_ADDRESSES, OPEN_PORT, SWITCH_ADDRESS
from tests.contracts.executors.gangs.talking import TALK, has_ended
from tests.integration.provider_agent.conftest import eventually

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]
LAUNCHER = Path(__file__).with_name("under_unit.py")
SAVE = """
import json, os, time
from pathlib import Path
folder = Path(os.environ['SOUK_CHECKPOINT_DIR']) / 'step-00000001'
folder.mkdir(parents=True)
(folder / 'weights').write_text('learnt')
(folder / 'weights').chmod(0o600)
(folder / 'MANIFEST.json').write_text(json.dumps({'contract': 1, 'files': []}))
"""
REACH = """
import socket
for name, address in (('internet', ('{internet}', {port})), ('node', ('{node}', {open_port}))):
    try: print(name, 'reached' if socket.create_connection(address, 3) else '')
    except OSError as error: print(name, 'refused', error)
print('tried', flush=True)
"""


# Succeeds with the unit's capabilities, and does not without the one that it is named by. {folder} is the agent's.
NEEDS = {
    "CAP_CHOWN": "touch {folder}/mine && chown 10001:10001 {folder}/mine",
    "CAP_DAC_OVERRIDE": "cat {folder}/others",
    "CAP_FOWNER": "rm -r {folder}/sticky",
    "CAP_SYS_ADMIN": "mount -t tmpfs none {folder} && umount {folder}",
    "CAP_SYS_PTRACE": "readlink /proc/{process}/ns/net",
    "CAP_NET_ADMIN": "iptables -t mangle -S",
    "CAP_NET_RAW": "iptables-legacy -t mangle -S",
}


def limits(tmp_path: Path, *, without: str = "") -> list[str]:
    """The command that runs an agent, or anything, as the agent's unit would."""
    unit = tmp_path / "souk-agent.service"
    text = unit_text(Unit(Path("/bin/true"), Path("/data"), Path("/data/agent.env"), "root", "docker"))
    unit.write_text(re.sub(rf"\b{without}\b", "", text) if without else text)
    return [sys.executable, str(LAUNCHER), str(unit)]


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[int]:
    """A process of another user, and what it left in the folder."""
    (tmp_path / "sticky").mkdir()
    for name in ("others", "sticky/file"):
        (tmp_path / name).touch(mode=0o600)
    (tmp_path / "sticky").chmod(0o1777)
    for path in ("others", "sticky", "sticky/file"):
        os.chown(tmp_path / path, 10001, 10001)
    command = ["setpriv", "--reuid=10001", "--regid=10001", "--clear-groups", "sleep", "60"]
    process = subprocess.Popen(command, cwd="/")
    yield process.pid
    process.kill()
    process.wait()


def test_every_capability_of_the_unit_is_shown_to_be_needed() -> None:
    assert set(NEEDS) == set(NEEDED)


@pytest.mark.skipif(os.geteuid() != 0, reason="capabilities are root's to give away")
@pytest.mark.parametrize("capability", NEEDED)
def test_with_the_units_capabilities_it_works_and_without_this_one_it_does_not(
    tmp_path: Path, stranger: int, capability: str
) -> None:
    words = NEEDS[capability].format(folder=tmp_path, process=stranger)
    if shutil.which(words.split()[0], path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        pytest.skip(f"{words.split()[0]} is not installed")
    eventually(lambda: Path(f"/proc/{stranger}/comm").read_text() == "sleep\n", "another user's process")
    if subprocess.run(words.replace("rm -r", "ls"), shell=True, check=False, capture_output=True).returncode:
        pytest.skip(f"not even root can: {words}")
    ran = [
        subprocess.run([*limits(tmp_path, without=taken), "sh", "-c", words], check=False, capture_output=True)
        for taken in (capability, "")
    ]
    assert [done.returncode == 0 for done in ran] == [False, True], ran


@pytest.mark.parametrize("kind", ["wireguard", pytest.param("plain", marks=pytest.mark.soak)])
def test_gang_has_disks_and_its_network_and_another_agent_adopts_both(
    make_gang: Callable[..., Gang], tmp_path: Path, kind: OverlayKind
) -> None:
    gang = make_gang(kind, limits=limits(tmp_path))
    assert gang.members[0].process is not None
    status = Path(f"/proc/{gang.members[0].process.pid}/status").read_text()
    assert "CapEff:\t000000000028300b" in status, "the agent runs with the unit's capabilities, and no others"
    leases = gang.command(TALK)
    gang.says(0, "received 5 ")
    for rank in (0, 1):
        assert f"network: the gang's alone ({kind})" in gang.log(rank)
        assert "no limit" not in gang.log(rank)
        assert os.path.ismount(gang.members[rank].folder.lease(leases[rank].assignment.lease_id) / "disk")
    gang.members[0].stop(signal.SIGKILL)
    gang.members[0].restart()
    lines_before = len(gang.log(0).splitlines())
    eventually(lambda: len(gang.log(0).splitlines()) > lines_before + 5, "what is received after the adoption")
    (gang.members[1].folder.lease(leases[1].assignment.lease_id) / "work" / "enough").touch()
    for lease in leases:
        eventually(partial(has_ended, lease), "the end")
    assert [gang.left(rank) for rank in (0, 1)] == [[], []]
    member = gang.members[0]
    member.server.forget_lease(leases[0])
    eventually(lambda: not member.folder.lease(leases[0].assignment.lease_id).exists(), "the disk to go")


def test_job_saves_a_checkpoint_and_reaches_the_internet_but_not_the_node(
    make_gang: Callable[..., Gang], tmp_path: Path
) -> None:
    gang = make_gang("wireguard", limits=limits(tmp_path), egress="public")
    member = gang.members[0]
    internet = SWITCH_ADDRESS, int(member.server.url.rpartition(":")[2])
    reach = REACH.format(internet=internet[0], port=internet[1], node=NODE_ADDRESSES[0], open_port=OPEN_PORT)
    program = Program(image=IMAGE, command=["python3", "-u", "-c", SAVE + reach + "time.sleep(5)"])
    lease = member.server.give(member.assignment(program=program, network="public"))
    eventually(lambda: b"tried" in lease.logs, "both ways tried")
    assert b"internet reached" in lease.logs, lease.logs
    assert b"node refused timed out" in lease.logs, lease.logs
    assert "SOUK-EGRESS" in member.fabric.run(member.name, "iptables -t mangle -S PREROUTING")
    eventually(partial(has_ended, lease), "the end")
    saved = [artifact for artifact in member.server.artifacts.values() if artifact.begin.kind == "checkpoint"]
    assert [artifact.is_complete for artifact in saved] == [True], member.log_text()[-3000:]

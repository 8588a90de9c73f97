"""Containers that reach for the node: its files, its processes, its kernel, the agent's keys."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import docker
import pytest

from provider_agent.config import DataFolder
from provider_agent.executors.docker.create import Protections
from provider_agent.journal import Journal
from provider_agent.keys import make_keys
from provider_agent.lease.cache.intake import take_entries
from provider_agent.lease.cache.owners import keep_owner, owner_folder
from tests.contracts.executors.engine import IMAGE
from tests.contracts.executors.hostile.conftest import Node
from tests.integration.provider_agent.conftest import eventually

pytestmark = pytest.mark.docker

ENTRY = "own/" + "1" * 64
MAKE_ENTRY = (
    "import os\n"
    "for path in ('/souk-cache/mine', '/souk-cache/own'):\n"
    "    try: os.mkdir(path); print('WRITTEN')\n"
    "    except OSError as error: print('refused', error.errno)\n"
    f"os.umask(0o077); os.makedirs('.souk-cache/{ENTRY}')\n"
    f"open('.souk-cache/{ENTRY}/text', 'w').write('made')\n"
    f"os.symlink('/souk-cache', '.souk-cache/{ENTRY}/link')\n"
    f"open('.souk-cache/{ENTRY}/MANIFEST.json', 'w').write('{{}}')\n"
)
READ_ENTRY = (
    f"try: print(open('/souk-cache/{ENTRY}/text').read())\n"
    "except OSError as error: print('refused', error.errno)\n"
    f"try: open('/souk-cache/more', 'w'); print('WRITTEN')\n"
    "except OSError as error: print('refused', error.errno)\n"
)
DAEMONIZE = (
    "import os, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        while True:\n"
    "            open('beats', 'a').write('x')\n"
    "            time.sleep(0.05)\n"
    "    os._exit(0)\n"
    "while not os.path.exists('beats') or not os.path.getsize('beats'): time.sleep(0.05)\n"
    "print('detached')\n"
)
READ = (
    "import glob\n"
    "for name in ('transport.key', 'receipt.key', 'journal.sqlite3'):\n"
    "    for root in ({root!r}, '/souk/..', '/proc/1/root' + {root!r}):\n"
    "        try: print('READ', name, len(open(f'{{root}}/{{name}}', 'rb').read()))\n"
    "        except OSError as error: print('refused', error.errno)\n"
)
CALLS = {  # attack -> code that prints "done" where it succeeds
    "a socket of the kernel's cryptography (AF_ALG)": (
        "import socket; socket.socket(38, socket.SOCK_SEQPACKET); print('done')"
    ),
    "a socket to the hypervisor (AF_VSOCK)": "import socket; socket.socket(40, socket.SOCK_STREAM); print('done')",
    "a raw packet socket": "import socket; socket.socket(17, socket.SOCK_RAW); print('done')",
    "a new user namespace": "{call}; print('done' if call(272, 0x10000000) == 0 else 'refused')",
    "kernel keys": "{call}; print('done' if call(250, 0, -3, 1) >= 0 else 'refused')",
    "user faults": "{call}; print('done' if call(323, 1) >= 0 else 'refused')",
    "io_uring": "{call}; p = ctypes.create_string_buffer(120); print('done' if call(425, 4, p) >= 0 else 'refused')",
    "a performance counter": (
        "{call}; p = ctypes.create_string_buffer(128); p[0:8] = bytes([1,0,0,0,128,0,0,0]); p[40] = 0x61\n"
        "print('done' if call(298, p, 0, -1, -1, 0) >= 0 else 'refused')"
    ),
    "tracing another process": (
        "{call}; import os, time\n"
        "pid = os.fork()\n"
        "if pid == 0: time.sleep(30)\n"
        "print('done' if call(101, 16, pid, 0, 0) == 0 else 'refused'); os.kill(pid, 9)"
    ),
}
BY_NUMBER = "import ctypes; call = ctypes.CDLL(None, use_errno=True).syscall"
NEEDS_X86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls by their x86-64 numbers")


@NEEDS_X86
def test_interfaces_of_the_kernel_are_closed(node: Node) -> None:
    attacks = {name: code.replace("{call}", BY_NUMBER) for name, code in CALLS.items()}
    code = (
        "import subprocess, sys\n"
        f"for name, code in {attacks!r}.items():\n"
        "    tried = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)\n"
        "    print(name, '-> done' if 'done' in tried.stdout else '-> refused')\n"
    )
    bare = node.start(code, Protections(own_seccomp=False, drop_capabilities=False, ordinary_user=False))
    assert bare.wait().code == 0, bare.log()
    filtered = node.start(code)
    assert filtered.wait().code == 0, filtered.log()
    assert filtered.log().splitlines() == [f"{name} -> refused" for name in CALLS]
    opened = {line.removesuffix(" -> done") for line in bare.log().splitlines() if line.endswith("done")}
    assert set(CALLS) - opened <= CLOSED_BY_KERNEL, bare.log()
    assert {"a new user namespace", "kernel keys", "tracing another process", "a raw packet socket"} <= opened


# What the kernel of a machine may lack altogether; there nothing can be shown but that it stays closed.
CLOSED_BY_KERNEL = {
    "a socket of the kernel's cryptography (AF_ALG)",
    "a socket to the hypervisor (AF_VSOCK)",
    "user faults",
    "io_uring",
    "a performance counter",
}


@NEEDS_X86
def test_ordinary_programs_make_their_calls(node: Node) -> None:
    code = (
        "import os, socket, subprocess, threading, tempfile, time, select, fcntl, mmap, random\n"
        "socket.socketpair(); socket.socket().close(); socket.socket(socket.AF_INET6).close()\n"
        "thread = threading.Thread(target=time.sleep, args=(0.01,)); thread.start(); thread.join()\n"
        "assert subprocess.run(['sh', '-c', 'ls / | cat'], capture_output=True, check=True).stdout\n"
        "select.epoll().close(); mmap.mmap(-1, 4096).close(); os.memfd_create('a'); os.getrandom(8)\n"
        "os.sched_setaffinity(0, os.sched_getaffinity(0)); os.setpriority(os.PRIO_PROCESS, 0, 5)\n"
        "open('a', 'w').write('x'); os.rename('a', 'b'); os.link('b', 'c'); os.symlink('b', 'd')\n"
        "os.chmod('b', 0o600)\n"
        "os.copy_file_range(os.open('b', os.O_RDONLY), os.open('e', os.O_WRONLY | os.O_CREAT), 1)\n"
        "pid = os.posix_spawn('/bin/true', ['true'], {}); os.waitid(os.P_PIDFD, os.pidfd_open(pid), os.WEXITED)\n"
        "print('fine')\n"
    )
    ordinary = node.start(code)
    assert ordinary.wait().code == 0, ordinary.log()
    assert ordinary.log() == "fine\n"


def test_daemon_does_not_outlive_its_lease(node: Node, tmp_path: Path) -> None:
    bare = subprocess.Popen([sys.executable, "-c", DAEMONIZE], cwd=tmp_path, start_new_session=True)
    bare.wait()
    before = (tmp_path / "beats").stat().st_size
    eventually(lambda: (tmp_path / "beats").stat().st_size > before + 2, "the daemon's going on without a container")
    _end_bare_daemon(tmp_path)
    contained = node.start(DAEMONIZE)
    assert contained.wait().code == 0
    beats = contained.work / "beats"
    size = beats.stat().st_size
    assert size > 0
    node.assert_works()  # takes longer than ten beats
    assert beats.stat().st_size == size


def test_agents_keys_and_journal_cannot_be_read(node: Node, tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.mkdir(mode=0o700)
    make_keys(agent)
    Journal(agent / "journal.sqlite3").close()
    code = READ.format(root=str(agent))
    open_node = node.start(code, Protections(folders=(str(agent),), ordinary_user=False))
    open_node.wait()
    assert open_node.log().count("READ") >= 3
    closed = node.start(code)
    closed.wait()
    assert "READ" not in closed.log()
    assert closed.log().count("refused") == 9
    by_user = node.start(code, Protections(folders=(str(agent),)))  # were the folder there, the user would not do
    by_user.wait()
    assert "READ" not in by_user.log()


def test_engine_and_devices_of_the_node_are_not_there(node: Node) -> None:
    code = (
        "import os, glob\n"
        "print(glob.glob('/var/run/docker*') + glob.glob('/run/*.sock') + glob.glob('/dev/[lsvx][ood]*'))\n"
        "try: os.mknod('/tmp/disk', 0o60600, os.makedev(254, 0)); print('made')\n"
        "except OSError as error: print('refused', error.errno)\n"
    )
    as_ever = node.start(code)
    as_ever.wait()
    assert as_ever.log() == "[]\nrefused 1\n"
    weak = Protections(drop_capabilities=False, ordinary_user=False, own_seccomp=False)
    bare = node.start(code, weak)
    bare.wait()
    assert "made" in bare.log()


def test_root_of_the_container_cannot_be_written(node: Node) -> None:
    code = (
        "try: open('/etc/cron', 'w').write('x'); print('written')\n"
        "except OSError as error: print('refused', error.errno)"
    )
    bare = node.start(code, Protections(read_only_root=False, ordinary_user=False))
    bare.wait()
    assert bare.log() == "written\n"
    closed = node.start(code, Protections(ordinary_user=False))
    closed.wait()
    assert closed.log() == "refused 30\n"


def test_setuid_programs_give_nothing(node: Node) -> None:
    code = "import subprocess; print(subprocess.run(['/tmp-suid/id', '-u'], capture_output=True, text=True).stdout)"
    image = _image_with(node, "RUN mkdir /tmp-suid && cp /usr/bin/id /tmp-suid/id && chmod 4755 /tmp-suid/id")
    bare = node.start(code, Protections(no_new_privileges=False, drop_capabilities=False), image=image)
    bare.wait()
    assert bare.log().split() == ["0"]
    closed = node.start(code, image=image)
    closed.wait()
    assert closed.log().split() == ["10001"]


def test_images_loader_and_driver_variables_are_taken_away(node: Node) -> None:
    image = _image_with(node, "ENV LD_PRELOAD=/evil.so NVIDIA_VISIBLE_DEVICES=all LD_AUDIT=/evil.so KEPT=yes")
    names = {"LD_PRELOAD", "LD_AUDIT", "LD_X", "NVIDIA_VISIBLE_DEVICES", "KEPT"}
    code = f"import os; print(sorted(set(os.environ) & {names!r}))"
    bare = node.start(code, Protections(filter_environment=False), image=image, env={"LD_X": "1"})
    bare.wait()
    assert "['KEPT', 'LD_AUDIT', 'LD_PRELOAD', 'LD_X', 'NVIDIA_VISIBLE_DEVICES']" in bare.log()
    closed = node.start(code, image=image, env={"LD_X": "1"})
    closed.wait()
    assert closed.log() == "['KEPT']\n"


def test_killed_container_leaves_no_process(node: Node) -> None:
    tree = node.start("import os, time\nfor _ in range(3): os.fork()\nprint('up', flush=True)\ntime.sleep(600)")
    tree.says("up")
    tree.kill()
    assert tree.wait().signal == signal.SIGKILL
    assert asyncio.run(tree.executor.poll(tree.handle)) is not None
    marker = f"SOUK_LEASE_ID={tree.spec.lease_id}".encode()
    assert not [path for path in Path("/proc").glob("[0-9]*/environ") if marker in _read(path)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_no_program_writes_to_the_nodes_cache(node: Node, tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data")
    data.prepare()
    alice, carol = owner_folder(data, "a" * 32), owner_folder(data, "c" * 32)
    maker = node.start(MAKE_ENTRY, cache=alice)
    assert maker.wait().code == 0, maker.log()
    assert maker.log().splitlines() == ["refused 30", "refused 30"]
    keep_owner(maker.spec.folder, alice.name)
    assert "kept" in take_entries(data, maker.spec.folder, maker.work.resolve(), bytes_max=1 << 20)[0]
    reader, stranger = node.start(READ_ENTRY, cache=alice), node.start(READ_ENTRY, cache=carol)
    for each in (reader, stranger):
        each.wait()
    assert reader.log().splitlines() == ["made", "refused 30"]
    assert stranger.log().splitlines() == ["refused 2", "refused 30"]
    assert [path.name for path in alice.iterdir()] == ["own"]
    assert list(carol.iterdir()) == []


def _end_bare_daemon(folder: Path) -> None:
    """The one process whose working directory is the test's own folder."""
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            is_ours = link.readlink() == folder
        except OSError:
            continue
        if is_ours:
            os.kill(int(link.parent.name), signal.SIGKILL)


def _image_with(node: Node, line: str) -> str:
    """An image made from the test image by one line of a Dockerfile."""
    client = docker.DockerClient(base_url=node.address)
    recipe = f"FROM {IMAGE}\n{line}\n".encode()
    image, _ = client.images.build(fileobj=io.BytesIO(recipe), network_mode="host", rm=True)
    client.close()
    return str(image.id)

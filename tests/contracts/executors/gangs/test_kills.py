"""What a killed agent or a step that failed leaves behind is found by the next agent, and no other gang is harmed.

No engine is needed: the program is a process in a network namespace of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from provider_agent.errors import ExecutorFailed
from provider_agent.overlay import INTERFACE, Overlay, Overlays, rules, vxlan
from provider_agent.overlay.overlays import NAMESPACES
from provider_agent.overlay.place import PROBE_PREFIX
from provider_agent.overlay.system import Program, System
from tests.contracts.executors.gangs.bare import Node, daemons, program

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

STEPS_MAX = 200
# Makes or removes one network, and is killed before its step of the given number: a command, or a change of a name.
KILLED = """
import os, pathlib, signal, subprocess, sys
from provider_agent.overlay import Overlay, Overlays
from provider_agent.overlay.system import Program, System
import json
verb, last, folder, key, namespace, kind, pid, record = sys.argv[1:]
left = int(last)
def counted(action):
    def step(*args, **kwargs):
        global left
        if left == 0: os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return action(*args, **kwargs)
    return step
subprocess.run = counted(subprocess.run)
pathlib.Path.unlink = counted(pathlib.Path.unlink)
pathlib.Path.replace = counted(pathlib.Path.replace)
system = System(('nsenter', f'--net=/run/netns/{namespace}'))
overlays = Overlays(pathlib.Path(folder), key_path=pathlib.Path(key), kind=kind, address='203.0.113.1', system=system)
overlay = Overlay.from_dict(json.loads(record))
if verb == 'make': overlays.make(overlay, Program(int(pid), ''))
else: overlays.remove(overlay.lease_id)
"""
# Starts `sleep` with a number of our choice, as our child and not its own: clone3(2), with CLONE_PARENT and set_tid.
TAKER = """
import ctypes, os, sys
CLONE3, CLONE_PARENT = 435, 0x8000
wanted = (ctypes.c_int * 1)(int(sys.argv[1]))
# flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup
arguments = (ctypes.c_uint64 * 11)(CLONE_PARENT, 0, 0, 0, 0, 0, 0, 0, ctypes.addressof(wanted), 1, 0)
kernel = ctypes.CDLL(None, use_errno=True)
got = kernel.syscall(CLONE3, arguments, ctypes.sizeof(arguments))
if got == 0:
    os.closerange(0, 3)
    os.execvp("sleep", ["sleep", "600"])
if got < 0: sys.exit(os.strerror(ctypes.get_errno()))
"""
STEP_BY_STEP = pytest.mark.parametrize(
    "node", ["wireguard", pytest.param("plain", marks=pytest.mark.soak)], indirect=True
)  # a plain network has fewer steps


@STEP_BY_STEP
def test_whatever_a_kill_leaves_of_making_is_swept_or_made_whole(node: Node) -> None:
    other = node.overlay(29_700)
    with program() as pid, program() as others_pid:
        node.overlays.make(other, Program(others_pid, ""))
        for step in range(STEPS_MAX):
            overlay = node.overlay(29_701)
            if not killed_at(node, step, "make", overlay, pid):
                break
            if step % 2 and node.overlays.has(overlay.lease_id):
                node.overlays.keep(overlay.lease_id, Program(pid, ""), is_thorough=True)
                assert node.is_whole(overlay, pid), step
            node.overlays.sweep([other.lease_id])
            node.await_nothing(overlay, pid)
        else:
            pytest.fail("it never came to its end")
        assert step > 10
        assert node.is_whole(overlay, pid)
        assert node.is_whole(other, others_pid), "the other gang's is untouched"


@STEP_BY_STEP
def test_whatever_a_kill_leaves_of_removing_is_swept(node: Node) -> None:
    other = node.overlay(29_700)
    with program() as pid, program() as others_pid:
        node.overlays.make(other, Program(others_pid, ""))
        for step in range(STEPS_MAX):
            overlay = node.overlay(29_701)
            node.overlays.make(overlay, Program(pid, ""))
            was_killed = killed_at(node, step, "remove", overlay, pid)
            node.overlays.sweep([other.lease_id])
            node.await_nothing(overlay, pid)
            if not was_killed:
                break
        else:
            pytest.fail("it never came to its end")
        assert step > 5
        assert node.is_whole(other, others_pid), "the other gang's is untouched"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text[: len(text) // 2],
        lambda text: b"\xff\x00\xfe",
        lambda text: b"[" * 100_000,
        lambda text: b"[]",
        lambda text: text.replace(b'"gang"', b'"grown"'),
        lambda text: text.replace(b'"nodes"', b'"members_by_name"'),
        lambda text: text.replace(b'"lease_id": "', b'"lease_id": "0000').replace(b"-", b"", 1),
    ],
    ids=["empty", "cut off", "binary", "nested", "no object", "another word", "another version", "no id"],
)
def test_damaged_record_keeps_nothing_from_being_removed(node: Node, damage: Callable[[bytes], bytes]) -> None:
    other, overlay = node.overlay(29_700), node.overlay(29_701)
    with program() as pid, program() as others_pid:
        node.overlays.make(other, Program(others_pid, ""))
        node.overlays.make(overlay, Program(pid, ""))
        record = node.folder / f"{overlay.lease_id}.json"
        record.write_bytes(damage(record.read_bytes()))
        (node.folder / "notes.json").write_text("the provider's own")
        with pytest.raises(ExecutorFailed, match="cannot be read"):
            node.overlays.keep(overlay.lease_id, Program(pid, ""), is_thorough=True)
        assert node.is_whole(overlay, pid), "what works is left as it is"
        node.overlays.sweep([other.lease_id])
        node.await_nothing(overlay, pid)
        assert (node.folder / "notes.json").exists()
        assert node.is_whole(other, others_pid)


def test_record_that_names_another_lease_removes_nothing_of_it(node: Node) -> None:
    other, overlay = node.overlay(29_700), node.overlay(29_701)
    with program() as pid:
        node.overlays.make(other, Program(pid, ""))
        (node.folder / f"{overlay.lease_id}.json").write_text(json.dumps(other.as_dict()))
        node.overlays.sweep([other.lease_id])
        assert node.is_whole(other, pid)
        assert not node.overlays.has(overlay.lease_id)


def test_what_could_not_be_removed_is_remembered_and_keeps_nothing_else(node: Node, tmp_path: Path) -> None:
    first, second = node.overlay(29_701), node.overlay(29_702)
    flag, wrapper = tmp_path / "refused", tmp_path / "wrapper"
    refused = f"[ -e {flag} ] && case $* in *{rules.chain_of(first.lease_id)}*) exit 4;; esac"
    wrapper.write_text(f'#!/bin/sh\n{refused}\nexec {" ".join(node.system.prefix)} "$@"\n')
    wrapper.chmod(0o755)
    agent = Overlays(
        node.folder, key_path=node.key, kind=node.kind, address="203.0.113.1", system=System((str(wrapper),))
    )
    with program() as pid, program() as seconds_pid:
        agent.make(first, Program(pid, ""))
        agent.make(second, Program(seconds_pid, ""))
        flag.touch()
        assert agent.sweep(()) == 1
        node.await_nothing(second, seconds_pid)
        assert agent.has(first.lease_id)
        flag.unlink()
        assert agent.sweep(()) == 1
        node.await_nothing(first, pid)


def test_full_disk_begins_nothing_and_keeps_nothing_from_being_removed(node: Node) -> None:
    other, overlay = node.overlay(29_700), node.overlay(29_701)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", node.folder], check=True)
    try:
        with program() as pid, program() as others_pid:
            node.overlays.make(other, Program(others_pid, ""))
            with (node.folder / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
                while filler.write(bytes(1024)):
                    pass
            with pytest.raises(OSError, match="No space left"):
                node.overlays.make(overlay, Program(pid, ""))
            assert node.left(overlay, pid) == []
            assert node.is_whole(other, others_pid)
            node.overlays.remove(other.lease_id)
            node.await_nothing(other, others_pid)
    finally:
        subprocess.run(["umount", node.folder], check=True)


def test_agent_killed_while_it_looked_what_the_kernel_has_leaves_nothing_for_long(node: Node) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    tried = ("type", "vxlan", "id", "1", "dstport", vxlan.PROBE_PORT)
    node.system.run("ip", "link", "add", f"{PROBE_PREFIX}{ended.pid}", *tried)
    assert node.overlays.why_not() == ""
    assert PROBE_PREFIX not in node.system.run("ip", "-o", "link")


def test_node_that_may_not_make_rules_offers_no_gangs(node: Node, tmp_path: Path) -> None:
    """As a service without CAP_NET_RAW, which the older iptables needs."""
    assert node.overlays.why_not() == ""
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\ncase $1 in iptables*) exit 4;; esac\nexec {" ".join(node.system.prefix)} "$@"\n')
    wrapper.chmod(0o755)
    agent = Overlays(
        node.folder, key_path=node.key, kind=node.kind, address="203.0.113.1", system=System((str(wrapper),))
    )
    assert agent.why_not() == "iptables is refused here"


def test_agent_that_does_not_see_names_of_an_earlier_one_adopts_the_network_as_is(node: Node) -> None:
    """As an agent in a container: each has its own /run."""
    overlay = node.overlay(29_701)
    with program() as pid:
        node.overlays.make(overlay, Program(pid, ""))
        running = daemons(overlay.name)
        subprocess.run(["ip", "netns", "delete", overlay.name], check=True)
        node.overlays.keep(overlay.lease_id, Program(pid, ""), is_thorough=True)
        assert daemons(overlay.name) == running
        assert node.is_whole(overlay, pid)
        subprocess.run(["umount", NAMESPACES / overlay.name], check=True)  # a name without what it named
        node.overlays.keep(overlay.lease_id, Program(pid, ""), is_thorough=True)
        assert node.is_whole(overlay, pid)
        node.overlays.remove(overlay.lease_id)
        node.await_nothing(overlay, pid)


def test_interface_is_given_to_no_process_that_took_the_programs_number(node: Node) -> None:
    overlay = node.overlay(29_701)
    with program() as pid:
        taken: list[int] = []
        system = Racing(node.system.prefix, before=("netns", "attach"), act=lambda: taken.append(take_number(pid)))
        agent = Overlays(node.folder, key_path=node.key, kind=node.kind, address="203.0.113.1", system=system)
        try:
            with pytest.raises(ExecutorFailed, match="process numbers"):
                agent.make(overlay, Program(pid, ""))
            assert taken == [pid]
            assert not Program(pid, "").has_interface(INTERFACE)
            node.await_nothing(overlay, pid)
        finally:
            for number in taken:
                os.kill(number, signal.SIGKILL)
                os.waitpid(number, 0)


@dataclass(frozen=True)
class Racing(System):
    """Something happens right before one of its commands."""

    before: tuple[str, ...] = ()
    act: Callable[[], None] = lambda: None

    def run(self, *command: str, text: str = "", is_secret: bool = False) -> str:
        """As always, but for that."""
        if command[1:3] == self.before:
            self.act()
        return super().run(*command, text=text, is_secret=is_secret)


def take_number(pid: int) -> int:
    """End a process, and start another of the same number, in our own network; its number.

    The kernel is asked for this very number: who waits until it comes round loses it to whatever else starts here.
    """
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    done = subprocess.run([sys.executable, "-c", TAKER, str(pid)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return pid


def killed_at(node: Node, step: int, verb: Literal["make", "remove"], overlay: Overlay, pid: int) -> bool:
    """Whether the agent was killed at this step; False: it had come to its end before."""
    words = [verb, str(step), str(node.folder), str(node.key), node.fabric.nodes[0], node.kind, str(pid)]
    command = [sys.executable, "-c", KILLED, *words, json.dumps(overlay.as_dict())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode != 0

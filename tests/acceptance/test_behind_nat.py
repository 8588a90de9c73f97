"""Three nodes behind NAT, the marketplace outside: joined by one line or by SSH, trained on, cut off, healed.

No part is a fake: see tests/acceptance/world.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from examples.market import SOUK, Party, run, run_json, wait_for
from jobs.artifacts.store import PART_BYTES
from jobs.client.sdk import Souk
from jobs.wire import JobView
from tests.acceptance.customer import ENDS, TINY, launch, wait_until
from tests.acceptance.gang_records import read_training
from tests.acceptance.world import engine
from tests.acceptance.world.computer import Computer
from tests.acceptance.world.making import BY_SSH, NODES, World, alone, make_world, what_is_left
from tests.acceptance.world.network import MARKET, ROUTER_OUTSIDE, ROUTER_OUTSIDE_LATER
from tests.acceptance.world.supplies import of_pytest, why_not

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
EXECUTOR = os.environ.get("WORLD_EXECUTOR", "docker")  # or process: for looking at one without the other
TRAIN_SECONDS, RECOVER_SECONDS, HEAL_SECONDS = 480.0, 120.0, 120.0
PROBE_SECONDS, LINKS_SECONDS, DIAL_SECONDS = 60.0, 120.0, 1.0
DIALLED = (22, 80, 2375)  # SSH, the web, a container engine's listener
DEPOSIT_USD_MICROS = 5_000_000
STEPS = 400
GANG: dict[str, Any] = TINY | {
    "name": "gang",
    "resources": {"gpus": 1, "nodes": 2, "kind": "any", "isolation": "none"},
    "work": {"steps": STEPS},
    "budget": {"max_total": "2.00"},
    "checkpoint": {"every": "4s", "keep": 2},
    "train": TINY["train"] | {"log_every": 1, "log_samples": True, "sample_every": -1},
}
# `make soak` sends ten gigabytes; with less than one the output may have arrived before it is looked at.
OUTPUT_BYTES = int(os.environ.get("SOUK_LINE_BYTES", "0"))
LINE_MEGABITS, BREAKS, BREAK_SECONDS = 100, 3, 8.0
SENT_AGAIN_MAX = 1.2  # headers, and of the parts under way at each break what had been sent of them
LARGE: dict[str, Any] = {
    "kind": "command",
    "name": "large-output",
    "resources": {"gpus": 1, "kind": "any", "isolation": "none"},
    "budget": {"max_total": "2.00"},
    "command": 'python -c "'
    "import random; block = random.Random(1).randbytes(10_000_000); out = open('output/large.bin', 'wb'); "
    f'[out.write(number.to_bytes(8) + block[8:]) for number in range({OUTPUT_BYTES // 10_000_000})]"',
}
WORLD_END_SECONDS = 60.0
MAKE_WORLD = """
import json, tempfile, time
from pathlib import Path
from tests.acceptance.world import making
with making.alone():
    folder = Path(tempfile.mkdtemp(prefix=making.PREFIX, dir=making.FOLDERS))
    folder.chmod(0o711)
    world = making.draw(folder)
    making.connect(world)
    world.nodes["node-1"].start_program("/tmp/log", "sleep", "1000")
    making.open_market(world, folder)
    print(json.dumps({"folder": str(folder), "namespaces": sorted(world.namespaces)}), flush=True)
    time.sleep(1000)
"""


# In this file, and before the fixture `world`: only one world may be up at a time, and one worker runs a whole file.
@pytest.mark.soak
def test_a_killed_world_leaves_only_files_and_the_next_one_removes_them() -> None:
    if why := why_not():
        pytest.skip(why)
    own = {name: value for name, value in os.environ.items() if name not in of_pytest()} | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", MAKE_WORLD], stdout=subprocess.PIPE, text=True, env=own) as maker:
        made = json.loads(maker.stdout.readline())
        folder, namespaces = Path(made["folder"]), set(made["namespaces"])
        seen = "\n".join(what_is_left(folder, namespaces))
        assert all(f"{kind} " in seen for kind in ("process", "namespace net", "namespace pid", "interface", "route"))
        maker.send_signal(signal.SIGKILL)
    wait_for("the kernel to end it", lambda: not what_is_left(folder, namespaces), WORLD_END_SECONDS)
    assert folder.exists()
    with alone():
        assert not folder.exists()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """The world, and afterwards nothing of it."""
    if why := why_not():
        pytest.skip(why)
    with pytest.MonkeyPatch.context() as patch:
        for name in of_pytest():
            patch.delenv(name)
        with make_world() as made:
            yield made
        assert made.left == [], "everything ends with the world"


@dataclass
class Provider:
    """Bob, and what install.sh printed on each of his nodes."""

    party: Party
    outputs: dict[str, str]

    def nodes(self, world: World) -> dict[str, str]:
        """Name -> state, as the marketplace has it."""
        with Souk(world.market.server, self.party.key) as souk:
            return {node.name: node.state for node in souk.nodes()}


@pytest.fixture(scope="module")
def bob(world: World) -> Provider:
    """A provider whose three nodes are listed: two by the line, one by SSH from his own computer."""
    party = world.market.sign_up("bob")

    def join(name: str) -> str:
        install = world.install_by_ssh if name == BY_SSH else world.install_by_line
        return install(name, party, *_options(name))

    with ThreadPoolExecutor(len(NODES)) as pool:
        return Provider(party, dict(zip(NODES, pool.map(join, NODES), strict=True)))


@pytest.fixture(scope="module")
def alice(world: World) -> Party:
    """A customer with money."""
    party = world.market.sign_up("alice")
    world.market.deposit(party, "5.00")
    return party


def test_three_nodes_join_from_behind_nat_and_are_listed(world: World, bob: Provider) -> None:
    assert all("Listed: " in output for output in bob.outputs.values())
    assert bob.nodes(world) == dict.fromkeys(NODES, "online")
    with Souk(world.market.server, bob.party.key) as souk:
        offers = {offer.node_name: offer for offer in souk.offers()}
    assert set(offers) == set(NODES)
    speeds = [device.flops_per_second for offer in offers.values() for device in offer.devices]
    assert len(speeds) == 3
    assert all(speed and min(speed.values()) > 0 for speed in speeds), "each was measured"
    assert world.router.sources_of(MARKET) == {ROUTER_OUTSIDE}, "the marketplace sees the router's address alone"


def test_nobody_dials_into_a_node_from_outside(world: World, bob: Provider) -> None:
    # A node that just joined may be measuring its links to the others of its fabric, with a listener for them alone.
    wait_for("no port to be open but SSH's", lambda: set().union(*_listening(world).values()) == {22}, PROBE_SECONDS)
    assert 22 in _listening(world)[BY_SSH]
    gate = ["timeout", "5", "bash", "-c", f"exec 3<>/dev/tcp/{NODES[BY_SSH]}/22"]
    assert world.router.computer.run(*gate) == "", "the router may, since it is the way in by SSH"
    for name, address in NODES.items():
        for port in DIALLED:
            assert not _dial(address, port), f"{name}:{port}"
            assert not _dial(ROUTER_OUTSIDE, port), f"the router's {port}"


@pytest.mark.soak  # minutes; test_generations.py loses a node without containers and NAT
def test_a_gang_outlives_a_node_that_is_cut_off_and_pays_once(
    world: World, bob: Provider, alice: Party, tmp_path: Path
) -> None:
    with Souk(world.market.server, alice.key) as souk:
        wait_for("every two nodes to have measured each other", lambda: _links_are_good(world, bob), LINKS_SECONDS)
        job = launch(souk, GANG)
        saved = _wait_for_work_beyond_a_checkpoint(souk, job)
        names = {lease.node_rank: lease.node_name for lease in souk.job(job.job_id).attempts[-1].leases}
        lost, stays = names[0], names[1]  # rank zero's: whom the others meet at
        (spare,) = set(NODES) - {lost, stays}
        (container,) = _programs(world, stays)
        assert _works(world, lost)

        # 1. Cut off: the spare node takes its place within the attempt, from the last complete checkpoint.
        world.router.cut(world.nodes[lost])
        wait_for("steps with the spare node", lambda: _has_gone_on(souk, job), RECOVER_SECONDS)
        assert bob.nodes(world)[lost] == "offline"
        (attempt,) = souk.job(job.job_id).attempts
        placed = {(lease.node_rank, lease.node_name) for lease in attempt.leases}
        assert placed == {(0, lost), (0, spare), (1, stays)}
        assert _programs(world, stays) == [container], "it was never stopped"
        assert _works(world, lost), "it knows nothing of it, and goes on"

        # 2. Healed, and in the same minute the provider's line gets another address: whoever trains goes on.
        assert souk.job(job.job_id).state == "running"
        world.router.heal(world.nodes[lost])
        world.router.renumber()
        later = {ROUTER_OUTSIDE_LATER}
        wait_for("the nodes to come from there", lambda: world.router.sources_of(MARKET) == later, HEAL_SECONDS)
        # 3. What the node went on with is stopped, and it is for rent again.
        wait_for("the orphan to be stopped", lambda: not _works(world, lost), HEAL_SECONDS)
        wait_for("the node to be back", lambda: bob.nodes(world)[lost] == "online", HEAL_SECONDS)

        # 4. Finished, by the same attempt.
        ended = wait_until(souk, job, ENDS, seconds=TRAIN_SECONDS)
        assert (ended.state, len(ended.attempts)) == ("completed", 1), (ended.message, ended.attempts)
        _assert_no_step_is_missing(souk, ended, saved)
        _assert_nothing_is_billed_twice(world, souk, alice, bob, ended, lost, stays)
    run([SOUK, "download", str(job.job_id), "--into", str(tmp_path)], alice.env(world.market.server))
    assert [path.stat().st_size > 0 for path in tmp_path.rglob("model.safetensors")] == [True]
    wait_for("the nodes to be empty", lambda: not any(_works(world, name) for name in NODES), HEAL_SECONDS)
    assert bob.nodes(world) == dict.fromkeys(NODES, "online")


if OUTPUT_BYTES:  # in `make soak` alone: minutes more, on a computer that is not busy otherwise

    @pytest.mark.timeout(900 + OUTPUT_BYTES // 5_000_000)
    def test_a_large_output_arrives_over_a_line_that_breaks_three_times(
        world: World, bob: Provider, alice: Party, tmp_path: Path
    ) -> None:
        assert OUTPUT_BYTES % 10_000_000 == 0
        for name in NODES:
            world.router.limit(world.nodes[name], LINE_MEGABITS)
        seconds = 120 + 3 * OUTPUT_BYTES / (LINE_MEGABITS * 125_000)
        with Souk(world.market.server, alice.key) as souk:
            job = launch(souk, LARGE)
            running = wait_until(souk, job, {"running"})
            node = world.nodes[running.attempts[-1].leases[0].node_name]
            before, started = _bytes_sent(node), time.monotonic()
            for number in range(1, BREAKS + 1):
                due = OUTPUT_BYTES * number // (BREAKS + 1)
                wait_for("a part of it to be sent", partial(_has_sent, souk, job, node, before + due), seconds)
                print(f"break {number} after {time.monotonic() - started:.0f} s", flush=True)
                world.router.cut(node)
                time.sleep(BREAK_SECONDS)
                world.router.heal(node)
                world.router.reset()
            ended = wait_until(souk, job, ENDS, seconds=seconds)
            sent, took = _bytes_sent(node) - before, time.monotonic() - started
            assert (ended.state, len(ended.attempts)) == ("completed", 1), ended.message
            run(
                [SOUK, "download", str(job.job_id), "--into", str(tmp_path)],
                alice.env(world.market.server),
                seconds=seconds,
            )
        (arrived,) = tmp_path.rglob("large.bin")
        assert arrived.stat().st_size == OUTPUT_BYTES
        block = random.Random(1).randbytes(10_000_000)
        with arrived.open("rb") as file:
            for number in range(OUTPUT_BYTES // len(block)):
                assert file.read(len(block)) == number.to_bytes(8) + block[8:], number
        arrived.unlink()
        print(
            f"{OUTPUT_BYTES:,} bytes in {took:.0f} s with {BREAKS} breaks; {sent / OUTPUT_BYTES:.3f} of them were sent"
        )
        assert sent < OUTPUT_BYTES * SENT_AGAIN_MAX + BREAKS * 4 * PART_BYTES


def _has_sent(souk: Souk, job: JobView, node: Computer, count: int) -> bool:
    view = souk.job(job.job_id)
    assert view.state not in ENDS, view.message
    return _bytes_sent(node) > count


def _bytes_sent(node: Computer) -> int:
    """By its own line; its /sys is this computer's."""
    (line,) = (line for line in node.run("cat", "/proc/net/dev").splitlines() if line.strip().startswith("eth0:"))
    return int(line.partition(":")[2].split()[8])


def _options(name: str) -> list[str]:
    """What each node's provider chooses."""
    own = ["--price", "0.50", "--region", "rack", "--fabric", "rack", "--fabric-address", NODES[name]]
    own += ["--device-kind", "cpu"]
    if EXECUTOR == "process":
        own += ["--executor", "process", "--allow-strangers", "--runtime-python", sys.executable, "--user", "root"]
    return own


def _listening(world: World) -> dict[str, set[int]]:
    """TCP ports that are open on each node, to others than itself."""
    found = {}
    for name, node in world.nodes.items():
        places = [line.split()[3].rpartition(":") for line in node.run("ss", "-Htln").splitlines()]
        found[name] = {int(port) for address, _, port in places if not address.startswith(("127.", "[::1]"))}
    return found


def _dial(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=DIAL_SECONDS).close()
    except OSError:
        return False
    return True


def _works(world: World, name: str) -> bool:
    """Whether a program of a customer runs on a node, whatever the agent and the marketplace believe."""
    return bool(_programs(world, name))


def _programs(world: World, name: str) -> list[str]:
    """Customers' programs on a node, by the names of their containers or by their processes."""
    if EXECUTOR == "docker":
        return [container for container in engine.containers(world.nodes[name]) if container.startswith("souk-")]
    return [str(pid) for pid, words in world.nodes[name].processes().items() if "runtimes.train" in words]


def _links_are_good(world: World, bob: Provider) -> bool:
    links = run_json([SOUK, "provider", "links"], bob.party.env(world.market.server))
    return [link["condition"] for link in links] == ["good"] * (len(NODES) * (len(NODES) - 1) // 2)


def _wait_for_work_beyond_a_checkpoint(souk: Souk, job: JobView) -> int:
    """The step of a complete checkpoint, once more was done and claimed since: what nobody may be made to pay."""
    seen: dict[str, int] = {}

    def look() -> int | None:
        view = souk.job(job.job_id)
        assert view.state in {"queued", "placed", "running"}, view.message
        step = max(_checkpoints(souk, job), default=0)
        if step and seen.get("step") == step and view.cost_so_far_usd_micros > seen["cost"]:
            return step if view.progress.get("step", 0) > step else None
        if seen.get("step") != step:
            seen.update(step=step, cost=view.cost_so_far_usd_micros)
        return None

    return wait_for("a complete checkpoint and work beyond it", look, TRAIN_SECONDS)


def _checkpoints(souk: Souk, job: JobView) -> list[int]:
    found = souk.artifacts(job.job_id)
    return [each.step for each in found if each.kind == "checkpoint" and each.state == "complete" and each.step]


def _has_gone_on(souk: Souk, job: JobView) -> bool:
    """Whether the gang has another node, and has done steps since."""
    view = souk.job(job.job_id)
    assert view.state not in ENDS, view.message
    resumed = view.progress.get("resumed_from")
    return len(view.attempts[-1].leases) == len(NODES) and bool(resumed) and view.progress.get("step", 0) > resumed


def _assert_no_step_is_missing(souk: Souk, job: JobView, saved: int) -> None:
    """Every step was trained on once, but for those after the checkpoint from which it went on, which were undone."""
    training = read_training(souk, job)
    (resumed,) = training.resumed
    assert resumed >= saved
    assert training.undone > 0, "what was done since the checkpoint is done again"
    assert training.twice == []
    assert sorted(training.samples) == sorted(training.losses) == list(range(1, STEPS + 1))
    losses = [training.losses[step] for step in sorted(training.losses)]
    assert sum(losses[-20:]) < sum(losses[:20]), "it learns"


def _assert_nothing_is_billed_twice(
    world: World, souk: Souk, alice: Party, bob: Provider, job: JobView, lost: str, stays: str
) -> None:
    """The bill, the ledger and both balances say the same; the lost lease ends at the checkpoint."""
    answer = run_json([SOUK, "bill", str(job.job_id)], alice.env(world.market.server))
    bill = answer["bill"]
    assert answer["verified"] is True
    assert bill["is_final"] is True
    lines = {line["node_name"]: line for line in bill["lines"]}
    assert len({line["lease_id"] for line in bill["lines"]}) == len(bill["lines"]) == len(lines) == len(NODES)
    total, fee = bill["total_usd_micros"], bill["fee_usd_micros"]
    charges = [line["charge_usd_micros"] for line in bill["lines"]]
    assert min(charges) > 0
    assert sum(charges) == total == bill["settlement"]["charged_usd_micros"]
    assert (lines[lost]["reason"], lines[lost]["fault"]) == ("node_silent", "provider")
    assert {line["reason"] for name, line in lines.items() if name != lost} == {"completed"}
    # What was done again and the waiting for the spare are nobody's to pay.
    assert (
        sum(line["unpaid_ms"] + line["refunded_usd_micros"] for line in bill["lines"] if line["node_name"] != lost) > 0
    )
    balance = souk.balance()
    assert (balance.available_usd_micros, balance.held_usd_micros) == (DEPOSIT_USD_MICROS - total, 0)
    with Souk(world.market.server, bob.party.key) as other:
        earned = other.balance()
    assert earned.provider_pending_usd_micros + earned.provider_available_usd_micros == total - fee
    command = [SOUK, "ledger", "verify", "--data", world.market.operator["data"]]
    report = run_json(command, alice.env(world.market.server))
    assert report["is_true"], report

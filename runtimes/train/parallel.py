"""The ranks of a training: how they join their process groups, and what they exchange beside the gradients."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from runtimes.contract import EventWriter
from runtimes.train.collective_trace import record_collectives
from runtimes.train.container import Container
from runtimes.train.errors import BadConfig, BadData, TrainError
from runtimes.train.preparing import PreparingReport

T = TypeVar("T")

COLLECTIVE_TIMEOUT = timedelta(minutes=10)  # a peer that hangs longer fails the attempt
AGREE_SECONDS = 2.0  # after which ranks tell each other how a long work goes on
REPORT_SECONDS = 30.0
STALLED_SECONDS = 600
STILL_SECONDS = 900  # of computing without any advance, where the amount is known
MOVED_SECONDS = 0.5  # of a processor: less than that is no progress
SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of a network interface


class Progress:
    """How far a long work is. Whoever does the work sets these; other threads read them.

    `text`: in words, for the log: `5,000 documents`. `done` of `total`: whole numbers of `unit` (`bytes`, `documents`:
    one lower-case word). While `done` is set, only its changes are reported as moves: set it every few minutes, and
    back to None for work whose amount is unknown.
    """

    text: str = ""
    done: int | None = None
    total: int | None = None
    unit: str = ""

    def words(self) -> str:
        """`text`; without one, the amounts."""
        if self.text or self.done is None:
            return self.text
        return f"{self.done:,}" + (f" of {self.total:,}" if self.total else "") + (self.unit and f" {self.unit}")


@dataclass(frozen=True)
class Waited:
    """What a rank tells the others while it works or waits."""

    is_done: bool
    is_stalled: bool
    text: str
    result: Any
    moves: int  # how often its work has moved
    done: int | None
    total: int | None
    unit: str


@dataclass(frozen=True)
class Ranks:
    """This process among the others. `control` and `checkpoint` are gloo groups, so that neither waits for the GPU nor
    crosses the other's messages: checkpoints are written while the training continues."""

    rank: int
    world_size: int
    node_rank: int
    nodes: int
    is_leader: bool
    is_node_leader: bool
    device: torch.device
    control: dist.ProcessGroup
    checkpoint: dist.ProcessGroup
    # What each node's leader reports of its node, before the first step; nothing on the other ranks.
    node_events: EventWriter = field(default_factory=lambda: EventWriter(""))


def join_ranks(container: Container) -> Ranks:
    """Join the process group of this training; close it with `leave_ranks`."""
    device = _choose_device(container)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))
    _choose_interface(container.nodes)
    record_collectives(os.environ, container.work_dir)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if "MASTER_ADDR" in os.environ:
        dist.init_process_group(backend, timeout=COLLECTIVE_TIMEOUT)
    else:  # started without torchrun: one rank, no network
        store = dist.HashStore()  # type: ignore[attr-defined]  # public, but not exported for mypy
        dist.init_process_group(backend, timeout=COLLECTIVE_TIMEOUT, store=store, rank=0, world_size=1)
    control: Any = dist.new_group(backend="gloo", timeout=COLLECTIVE_TIMEOUT)
    checkpoint: Any = dist.new_group(backend="gloo", timeout=COLLECTIVE_TIMEOUT)
    return Ranks(
        rank=container.rank,
        world_size=container.world_size,
        node_rank=container.node_rank,
        nodes=container.nodes,
        is_leader=container.is_leader,
        is_node_leader=container.is_node_leader,
        device=device,
        control=control,
        checkpoint=checkpoint,
        node_events=EventWriter(container.events_path if container.is_node_leader else ""),
    )


def leave_ranks() -> None:
    """Leave the process group. Checkpoints must have been waited for: their threads use it."""
    dist.destroy_process_group()


def gather_results(ranks: Ranks, work: Callable[[], T]) -> list[T]:
    """Every rank's result of `work`, by rank; where one raised a TrainError, all raise it, so that none waits."""
    try:
        mine: T | TrainError = work()
    except TrainError as error:
        mine = error
    results: list[Any] = [None] * ranks.world_size
    dist.all_gather_object(results, mine, group=ranks.control)
    for result in results:
        if isinstance(result, TrainError):
            raise result
    return results


def wait_for_results(ranks: Ranks, work: Callable[[Progress], T], what: str) -> list[T]:
    """As `gather_results`, for work that takes some ranks minutes or hours: the others wait for as long as it goes on.

    `work` may say how far it is; the leader prints that now and then, and each node's leader reports it as an event
    while it moves. `what` is one of contract.PREPARING_WORKS. Where no rank that works has computed or
    advanced anything for STALLED_SECONDS, all raise TrainError: the threads stay, and end with their processes. Where
    one computes for STILL_SECONDS and its known amount stays the same, all raise BadData: the customer's chat template,
    or a record, has no end.
    """
    progress = Progress()
    running = _in_a_thread(lambda: work(progress))
    report = PreparingReport(ranks.node_events, what)
    began = reported = moved = advanced = time.monotonic()
    computed, moves, seen = 0.0, 0, progress.done
    while True:
        wait([running], timeout=AGREE_SECONDS)
        elsewhere = time.process_time() - time.thread_time()  # than in this loop
        done = progress.done
        has_computed, has_advanced = elsewhere > computed + MOVED_SECONDS, done != seen
        moves += has_computed if done is None else has_advanced  # a processor that spins does no work
        seen = done
        if has_advanced or done is None:
            advanced = time.monotonic()
        if has_computed:
            computed = elsewhere
        if has_computed or has_advanced:  # a slow disk moves the amount alone
            moved = time.monotonic()
        is_done = running.done()
        mine = Waited(
            is_done,
            is_stalled=time.monotonic() - moved > STALLED_SECONDS,
            text=progress.words(),
            result=running.result() if is_done else _stillness(what, progress, advanced),
            moves=moves,
            done=done,
            total=progress.total,
            unit=progress.unit,
        )
        told: list[Any] = [None] * ranks.world_size
        dist.all_gather_object(told, mine, group=ranks.control)
        for each in told:
            if isinstance(each.result, TrainError):
                raise each.result
        if all(each.is_done for each in told):
            return [each.result for each in told]
        # A rank may wait for another one's download, and compute nothing meanwhile.
        if all(each.is_stalled for each in told if not each.is_done):
            raise TrainError(f"{what}: nothing has moved for {STALLED_SECONDS} s")
        _report(report, told, time.monotonic() - began)
        if time.monotonic() - reported >= REPORT_SECONDS:
            reported = time.monotonic()
            texts = "; ".join(dict.fromkeys(each.text for each in told if each.text))
            print_line(ranks, f"{what}: {reported - began:.0f} s so far{texts and ', ' + texts}")


def _stillness(what: str, progress: Progress, advanced: float) -> BadData | None:
    if time.monotonic() - advanced <= STILL_SECONDS:
        return None
    return BadData(
        f"{what}: {progress.words()}, and nothing more in {STILL_SECONDS} s: a record or template has no end"
    )


def _report(report: PreparingReport, told: list[Waited], seconds: float) -> None:
    """What moves on any rank moves all; the amounts are those of the first rank that works and knows them."""
    moves = sum(each.moves for each in told)
    known = next((each for each in told if each.done is not None and not each.is_done), None)
    if known is None:
        report.update(seconds, moves=moves)
    else:
        report.update(seconds, moves=moves, done=known.done, total=known.total, unit=known.unit)


def _in_a_thread(work: Callable[[], T]) -> Future[T | TrainError]:
    running: Future[T | TrainError] = Future()

    def run() -> None:
        try:
            running.set_result(work())
        except TrainError as error:
            running.set_result(error)
        except BaseException as error:  # raised where the result is asked for
            running.set_exception(error)

    threading.Thread(target=run, name="long-work", daemon=True).start()
    return running


def sum_over_ranks(ranks: Ranks, values: list[float]) -> list[float]:
    """Sums over the ranks of a few numbers, in double precision, without touching the GPU."""
    summed = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(summed, group=ranks.control)
    return [float(value) for value in summed]


def print_line(ranks: Ranks, line: str) -> None:
    """One line of progress on the leader's standard output, visible at once."""
    if ranks.is_leader:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _choose_device(container: Container) -> torch.device:
    """This rank's device: what the agent gave, else a GPU where every rank has one."""
    count = torch.cuda.device_count()
    if container.device_kind == "cuda" and count < container.local_world_size:
        raise BadConfig([f"{container.local_world_size} ranks need a GPU each, this node shows {count}"])
    wants_cuda = container.device_kind != "cpu" and count >= container.local_world_size
    return torch.device("cuda", container.local_rank) if wants_cuda else torch.device("cpu")


def _choose_interface(nodes: int) -> None:
    """Set the network interface of gloo and NCCL: loopback on one node, else the one that leads to the master.

    Left alone, gloo takes the address that the node's own name resolves to: in a container none, or a wrong one.
    """
    if nodes == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(
            (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        )  # sends nothing: only finds the route
        address = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            if _interface_address(probe, name) == address:
                os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
                os.environ.setdefault("NCCL_SOCKET_IFNAME", name)


def _interface_address(opened: socket.socket, name: str) -> str | None:
    try:
        answer = fcntl.ioctl(opened.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
    except OSError:  # an interface without an IPv4 address
        return None
    return socket.inet_ntoa(answer[20:24])

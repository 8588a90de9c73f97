"""The processes of a gang's nodes, all on this computer: which they are, and how they are killed or made to hang."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterable
from pathlib import Path

import psutil

from examples.market import Market, kill_tree
from runtimes import spare_ranks
from runtimes.contract import Env
from tests.acceptance.kill_schedules import Blow


def programs(market: Market, names: Iterable[str]) -> dict[str, list[psutil.Process]]:
    """Launcher, torchrun and ranks of what runs on each node now."""
    below = {f"{market.agent_folder(name)}/": name for name in names}
    found: dict[str, list[psutil.Process]] = {name: [] for name in below.values()}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            work = process.environ().get(Env.WORK_DIR, "")
            for folder, name in below.items():
                if work.startswith(folder):
                    found[name].append(process)
    return found


def launchers(market: Market, names: Iterable[str]) -> dict[str, psutil.Process]:
    """Of each node the process that outlives the ranks; nodes without one are left out."""
    found: dict[str, psutil.Process] = {}
    for name, processes in programs(market, names).items():
        for process in processes:
            with contextlib.suppress(psutil.Error):
                if "runtimes.launch" in process.cmdline() and process.environ().get(Env.GENERATION):
                    found[name] = process
    return found


def ranks(market: Market, name: str) -> list[psutil.Process]:
    """The training processes of a node, and those that wait to become some."""
    found = []
    for process in programs(market, [name])[name]:
        with contextlib.suppress(psutil.Error):
            if "LOCAL_RANK" in process.environ() or process.name() == spare_ranks.NAME:
                found.append(process)
    return found


def work_folder(launcher: psutil.Process) -> Path:
    """That of the lease."""
    return Path(launcher.environ()[Env.WORK_DIR])


def last_step(launcher: psutil.Process) -> int:
    """The newest step event in the work folder of the node that writes them, rank zero's; 0 before the first."""
    try:
        lines = (work_folder(launcher) / "events.jsonl").read_text().splitlines()
    except OSError:
        return 0
    steps = [json.loads(line)["step"] for line in lines if line.startswith('{"event":"step"') and line.endswith("}")]
    return max(steps, default=0)


def strike(market: Market, name: str, blow: Blow) -> None:
    """Do it to the node of this name."""
    agent = market.agents[name]
    if blow.kind == "node":
        kill_tree(agent)
        _send(signal.SIGKILL, programs(market, [name])[name])
    elif blow.kind == "program":  # programs outlive an agent, so of one that was killed they are no children
        supervisors = [each.parent() for each in launchers(market, [name]).values()]
        _send(signal.SIGKILL, [*filter(None, supervisors), *programs(market, [name])[name]])
    elif blow.kind == "launcher":
        _send(signal.SIGKILL, launchers(market, [name]).values())
    elif blow.kind == "rank":
        _send(signal.SIGKILL, ranks(market, name))
    elif blow.kind == "hung_rank":
        _hang(ranks(market, name), blow.hung_seconds)
    elif blow.kind == "hung_node":
        tree = [psutil.Process(agent.pid), *psutil.Process(agent.pid).children(recursive=True)]
        _hang([*tree, *programs(market, [name])[name]], blow.hung_seconds)
    elif blow.kind == "agent":
        os.kill(agent.pid, signal.SIGKILL)
        agent.wait()
        market.start_agent(name)
    else:
        raise ValueError(f"nothing is called {blow.kind}")


def _hang(processes: list[psutil.Process], seconds: float) -> None:
    _send(signal.SIGSTOP, processes)
    threading.Timer(seconds, _send, (signal.SIGCONT, processes)).start()


def _send(number: signal.Signals, processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)

"""Nodes of a gang on one computer, and what their agents tell them: parts of a checkpoint, and another generation."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from runtimes.contract import GANG_FILE, Env
from tests.integration.runtimes.conftest import STEPS
from tests.integration.runtimes.programs import MICRO_CONFIG, Work

SAVED_STEP = 40


def environment(rank: int, port: int, *, nodes: int = 2) -> dict[str, str]:
    """Of a node of a gang whose launcher follows generations."""
    return {
        Env.NODES: str(nodes),
        Env.NODE_RANK: str(rank),
        Env.MASTER_ADDR: "127.0.0.1",
        Env.MASTER_PORT: str(port),
        Env.CHECKPOINT_EVERY_STEPS: "20",
        Env.CHECKPOINT_KEEP: "99",
        Env.GENERATION: "0",
    }


def node(root: Path, env: dict[str, str]) -> Work:
    """One node with the same training as every other one."""
    work = Work(root, ranks=1, env=env).write({**MICRO_CONFIG, "steps": STEPS})
    work.env[Env.CHECKPOINT_DIR] = str(work.checkpoints)
    return work


def gang(root: Path, port: int, *, nodes: int = 2) -> list[Work]:
    """All nodes of a gang, by rank; none is started."""
    return [node(root / f"node-{rank}", environment(rank, port, nodes=nodes)) for rank in range(nodes)]


def join_parts(nodes: Sequence[Work], into: Path) -> Path:
    """As the marketplace does: the parts of all nodes' checkpoint in one folder."""
    for each in nodes:
        shutil.copytree(each.checkpoints / f"step-{SAVED_STEP:08d}", into, dirs_exist_ok=True)
    return into


def announce(work: Work, resume_from: Path, port: int, *, place: tuple[int, int] | None = None) -> None:
    """As an agent does, once it has fetched the checkpoint. `place`: (rank, nodes), where the gang has another size."""
    changes = {Env.MASTER_ADDR: "127.0.0.1", Env.MASTER_PORT: str(port), Env.RESUME_FROM: str(resume_from)}
    if place is not None:
        rank, nodes = place
        changes |= {Env.NODES: str(nodes), Env.NODE_RANK: str(rank), Env.ADDRESS: ""}
    body = {"generation": 1, "resumed_step": SAVED_STEP, "environment": changes}
    partial = work.root / "gang.partial"
    partial.write_text(json.dumps(body))
    partial.rename(work.root / GANG_FILE)

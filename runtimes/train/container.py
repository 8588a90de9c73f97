"""What the agent gave this process, read from the environment of the contract. Standard library only."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runtimes.contract import Env
from runtimes.job_files import JobFiles
from runtimes.node_cache import NodeCache, open_cache


@dataclass(frozen=True)
class Container:
    """Folders, place among the ranks and checkpoint policy of this process; the same with and without an agent."""

    work_dir: Path
    input_dir: Path
    lent_dir: Path | None  # None: by hand, where no folder is shared
    output_dir: Path
    checkpoint_dir: Path
    cache: NodeCache
    config_path: Path
    events_path: str  # empty: no events
    resume_from: Path | None
    device_kind: str  # "cpu", "cuda" or "" for whatever is there
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    checkpoint_every_steps: int
    checkpoint_every_seconds: int
    mean_seconds_to_failure: int  # of this training's nodes together; 0: the interval stays as it is
    checkpoint_keep: int

    @property
    def files(self) -> JobFiles:
        """Where what the configuration names is looked for."""
        return JobFiles(self.input_dir, self.lent_dir)

    @property
    def nodes(self) -> int:
        """How many nodes take part; torchrun gives each the same number of ranks."""
        return self.world_size // self.local_world_size

    @property
    def node_rank(self) -> int:
        """This node's place among them, from 0."""
        return self.rank // self.local_world_size

    @property
    def is_leader(self) -> bool:
        """Whether this is the rank that writes events and the output."""
        return self.rank == 0

    @property
    def is_node_leader(self) -> bool:
        """Whether this is the rank that writes what its node needs once."""
        return self.local_rank == 0


def read_container(env: Mapping[str, str], *, config: str | None, output: str | None) -> Container:
    """The container that the environment describes; `config` and `output` stand in for it in bare use.

    In bare use everything lies under `output`: output/model, output/checkpoint, output/events.jsonl.
    """
    work_dir = Path(output or env.get(Env.WORK_DIR) or tempfile.mkdtemp(prefix="souk-train-")).absolute()
    bare = output is not None
    given = {} if bare else env

    def folder(name: Env, default: Path) -> Path:
        return Path(given.get(name) or default).absolute()

    resume = env.get(Env.RESUME_FROM, "")
    return Container(
        work_dir=work_dir,
        input_dir=folder(Env.INPUT_DIR, Path.cwd() if bare else work_dir / "input"),
        lent_dir=None if bare else folder(Env.LENT_DIR, work_dir / "lent"),
        output_dir=folder(Env.OUTPUT_DIR, work_dir if bare else work_dir / "output"),
        checkpoint_dir=folder(Env.CHECKPOINT_DIR, work_dir / "checkpoint"),
        cache=open_cache(given, work_dir),
        config_path=Path(config) if config else folder(Env.CONFIG, work_dir / "config.json"),
        events_path=str(work_dir / "events.jsonl") if bare else env.get(Env.EVENTS, ""),
        resume_from=Path(resume).absolute() if resume else None,
        device_kind=env.get(Env.DEVICE_KIND, ""),
        rank=int(env.get("RANK", "0")),
        world_size=int(env.get("WORLD_SIZE", "1")),
        local_rank=int(env.get("LOCAL_RANK", "0")),
        local_world_size=int(env.get("LOCAL_WORLD_SIZE", "1")),
        checkpoint_every_steps=int(env.get(Env.CHECKPOINT_EVERY_STEPS) or 0),
        checkpoint_every_seconds=int(env.get(Env.CHECKPOINT_EVERY_SECONDS) or 0),
        mean_seconds_to_failure=int(env.get(Env.MEAN_SECONDS_TO_FAILURE) or 0),
        checkpoint_keep=max(1, int(env.get(Env.CHECKPOINT_KEEP) or 2)),
    )

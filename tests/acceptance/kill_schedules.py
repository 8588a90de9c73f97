"""What is done to a gang of three while it trains, drawn from a seed: who is killed or hangs, and when.

node       the agent, the supervisor and the program are killed at once, as by a power cut
program    the supervisor and the program are killed; the agent goes on, and reports it
launcher   the process that outlives the ranks is killed
rank       the training process itself is killed
hung_node  agent and program stop moving; after `hung_seconds` they go on, and the node's place is taken by then
hung_rank  the training process alone stops moving for `hung_seconds`, less than its peers wait: nothing is lost
agent      the agent is killed and started again at once: nothing is lost
"""

from __future__ import annotations

import random
from dataclasses import dataclass

GANG_NODES = 3
LOSSES = ("node", "program", "launcher", "rank", "hung_node")
HARMLESS = ("hung_rank", "agent")
# `step`: so many steps after the first checkpoint; `save`: in the next save after that; `preparing`: so many seconds
# after the programs were started; `replacing`: so many seconds after a node took the place of the first one.
FIRST_MOMENTS = ("step", "step", "save", "save", "preparing")
SECOND_MOMENTS = ("replacing", "step")
SECOND_SHARE = 0.3
AFTER_SECONDS_MAX, AFTER_STEPS_MAX = 8.0, 15
HUNG_NODE_SECONDS = (25.0, 45.0)  # 17 without a beat, and the node is lost
HUNG_RANK_SECONDS = (5.0, 20.0)


@dataclass(frozen=True)
class Blow:
    """One thing that is done to the node of a rank: what, when, and for how long it hangs."""

    kind: str
    moment: str
    node_rank: int
    after_seconds: float
    after_steps: int
    hung_seconds: float = 0.0

    @property
    def is_loss(self) -> bool:
        """Whether the gang is without that node from then on."""
        return self.kind in LOSSES


@dataclass(frozen=True)
class Schedule:
    """What is done in one job."""

    seed: int
    blows: tuple[Blow, ...]

    @property
    def replaces_one(self) -> bool:
        """Whether a single node is lost, at a moment when others have something to go on from."""
        losses = [blow for blow in self.blows if blow.is_loss]
        return len(losses) == 1 and losses[0].moment != "preparing" and self.blows[0].moment != "preparing"


def draw_schedule(seed: int) -> Schedule:
    """The same one for the same seed."""
    dice = random.Random(seed)
    blows = [_draw_blow(dice, FIRST_MOMENTS)]
    if dice.random() < SECOND_SHARE:
        blows.append(_draw_blow(dice, SECOND_MOMENTS if blows[0].is_loss else ("step",)))
    return Schedule(seed, tuple(blows))


def _draw_blow(dice: random.Random, moments: tuple[str, ...]) -> Blow:
    kind = dice.choice((*LOSSES, *LOSSES, *HARMLESS))
    lowest, highest = HUNG_NODE_SECONDS if kind == "hung_node" else HUNG_RANK_SECONDS
    seconds = round(dice.uniform(lowest, highest), 1) if kind.startswith("hung") else 0.0
    after = round(dice.uniform(0.0, AFTER_SECONDS_MAX), 1)
    return Blow(kind, dice.choice(moments), dice.randrange(GANG_NODES), after, dice.randrange(AFTER_STEPS_MAX), seconds)

"""What an agent that was restarted must know of the copies of a lease; beside the work folder, out of its reach."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from provider_agent.system.atomic import write_atomically

STATE_NAME: Final = "path_checkpoints.json"
NOTES_MAX: Final = 20


@dataclass
class CopyState:
    """`resumed_step`: of the checkpoint that was restored; 0: none. `digest`: of what was copied last (Listing.digest).

    `taken`: how many copies there are. `notes`: what the customer's log is to say once the program has ended.
    """

    resumed_step: int = 0
    digest: str = ""
    taken: int = 0
    notes: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, lease_folder: Path) -> CopyState:
        """As it was saved; as of a first attempt where it was not, or cannot be read."""
        try:
            return cls(**json.loads((lease_folder / STATE_NAME).read_text()))
        except (OSError, ValueError, TypeError):
            return cls()

    def save(self, lease_folder: Path) -> None:
        """Write it whole; raises OSError."""
        write_atomically(lease_folder / STATE_NAME, json.dumps(asdict(self)).encode())

    def note(self, line: str) -> bool:
        """Remember a line for the log, once; whether it is new."""
        is_new = line not in self.notes and len(self.notes) < NOTES_MAX
        if is_new:
            self.notes.append(line)
        return is_new

"""What this node has written down of its gangs' networks: a file a lease, there before anything is made of it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from uuid import UUID

from provider_agent.errors import ExecutorFailed
from provider_agent.overlay.place import Overlay
from provider_agent.system.atomic import write_atomically

PARTIAL = ".*.json.*.partial"  # what write_atomically leaves when it is killed

log = logging.getLogger(__name__)


class Records:
    """The files of one folder, which is the agent's alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, overlay: Overlay) -> None:
        """Raises OSError, and then there is none."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(self._path(overlay.lease_id), json.dumps(overlay.as_dict()).encode(), mode=0o600)

    def read(self, lease_id: UUID) -> Overlay | None:
        """None where there is none; raises ExecutorFailed for one that is damaged, or an agent of another version's."""
        try:
            overlay = Overlay.from_dict(json.loads(self._path(lease_id).read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ExecutorFailed(f"The record of a gang's network cannot be read: {type(error).__name__}.") from error
        if overlay.lease_id != lease_id:
            raise ExecutorFailed("The record of a gang's network is another lease's.")
        return overlay

    def has(self, lease_id: UUID) -> bool:
        """Whether there is one, readable or not."""
        return self._path(lease_id).exists()

    def delete(self, lease_id: UUID) -> None:
        """Repeating it changes nothing."""
        self._path(lease_id).unlink(missing_ok=True)

    def lease_ids(self) -> list[UUID]:
        """Of all records, readable or not; other files are left alone."""
        found = []
        for path in self._folder.glob("*.json"):
            try:
                found.append(UUID(path.stem))
            except ValueError:
                log.warning("%s is no record of a gang's network, and is left alone.", path)
        return found

    def delete_partial(self) -> None:
        """Delete what an agent was killed over while it wrote; only for the agent that is about to start."""
        for path in self._folder.glob(PARTIAL):
            path.unlink(missing_ok=True)

    def _path(self, lease_id: UUID) -> Path:
        return self._folder / f"{lease_id}.json"

"""The result of the node's last self-test, as it is kept in the data folder."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from typing import Any

from provider_agent.config import DataFolder
from provider_agent.system.atomic import write_atomically

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SelfTestResult:
    """Whether the node is faulty, why, and what fixes it."""

    at: str
    is_faulty: bool
    summary: str
    fixes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For the file, and --json."""
        return asdict(self)


def save_self_test(folder: DataFolder, result: SelfTestResult) -> None:
    """Keep the result for `souk-agent status` and `doctor`; on a full disk it is only logged."""
    try:
        write_atomically(folder.self_test, json.dumps(result.as_dict()).encode(), mode=0o600)
    except OSError as error:
        log.error("The result of the self-test could not be written: %s", error)


def load_self_test(folder: DataFolder) -> SelfTestResult | None:
    """The result of the newest self-test, if there was one since the last resume."""
    try:
        return SelfTestResult(**json.loads(folder.self_test.read_text()))
    except (OSError, ValueError, TypeError):
        return None

"""What the engine reports of an ended container, as our exit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provider_agent.executors.base import Exit

SIGNAL_CODE_BASE = 128


def exit_of(state: Mapping[str, Any]) -> Exit:
    """How a container ended, from the engine's `State`."""
    code = int(state["ExitCode"])
    is_oom = bool(state.get("OOMKilled"))
    is_signal = code > SIGNAL_CODE_BASE
    return Exit(
        code=None if is_signal else code,
        signal=code - SIGNAL_CODE_BASE if is_signal else None,
        out_of_memory=is_oom and code != 0,
        message="the container used more memory than it may" if is_oom else state.get("Error", ""),
    )

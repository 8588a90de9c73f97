"""No file name leads out of its folder; bytes that are not what was promised have a cause with a name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from provider_agent.errors import ArtifactDamaged, CheckpointDamaged, UnsafePath
from provider_agent.lease import preparation
from provider_agent.lease.endings import name_error
from provider_agent.lease.fetch import safe_join
from provider_agent.protocol import Reason
from runtimes.contract import ExitCode


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "", ".", "a\\..\\x", "a\0b", "..", "a/.."])
def test_name_that_leaves_its_folder_is_refused(path: str) -> None:
    with pytest.raises(UnsafePath):
        safe_join(Path("/data"), path)


@pytest.mark.parametrize("path", ["a", "a/b", "a/.hidden", "a/..b", "./a"])
def test_name_inside_is_joined(path: str) -> None:
    assert safe_join(Path("/data"), path).is_relative_to("/data")


@pytest.mark.parametrize(
    ("command", "reason", "code"),
    [(None, Reason.BAD_CHECKPOINT, ExitCode.BAD_CHECKPOINT), (["true"], Reason.INPUT_UNAVAILABLE, None)],
    ids=["our runtime", "a command"],
)
def test_a_damaged_checkpoint_of_our_runtime_is_a_bad_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str] | None, reason: Reason, code: ExitCode | None
) -> None:
    """Its uploader may put other bytes into a store that compares none; else no resume would ever end well."""

    async def fetch(*_: object) -> None:
        raise ExceptionGroup("of four files", [ArtifactDamaged("__0_0.distcp does not match its SHA-256.")])

    monkeypatch.setattr(preparation, "fetch_artifact", fetch)
    program = SimpleNamespace(command=command)
    assignment: Any = SimpleNamespace(lease_id=uuid4(), resume_artifact_id=uuid4(), program=program)
    context: Any = SimpleNamespace(client=None)
    with pytest.raises((CheckpointDamaged, ExceptionGroup)) as caught:
        asyncio.run(preparation._fetch_checkpoint(context, assignment, tmp_path))
    ending = name_error(caught.value, has_started=False)
    assert (ending.reason, ending.exit_code) == (reason, code)
    assert "__0_0.distcp" in ending.message

"""`souk chain` at the operator's: what it prints, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from marketplace.config.commands.chain import app

RUNNER = CliRunner()


def souk(*words: str, status: int = 0) -> Any:
    """What `souk chain ... --json` printed."""
    result = RUNNER.invoke(app, [*words, "--json"])
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def refused(*words: str) -> str:
    """What a command that was refused said."""
    result = RUNNER.invoke(app, list(words))
    assert result.exit_code == 1, result.output
    return str(result.output)

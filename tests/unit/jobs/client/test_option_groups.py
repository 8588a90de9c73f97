"""Options that are written once appear in every command, and reach it as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from jobs.client.commands import escrow
from jobs.client.commands.option_groups import with_groups


@dataclass(frozen=True, kw_only=True)
class Base:
    url: Annotated[str, typer.Option("--url")]
    yes: Annotated[bool, typer.Option("--yes", "-y")] = False


@dataclass(frozen=True, kw_only=True)
class Way(Base):
    depth: Annotated[int, typer.Option("--depth", min=1)] = 3


@pytest.fixture
def calls() -> list[Any]:
    return []


@pytest.fixture
def app(calls: list[Any]) -> typer.Typer:
    app = typer.Typer()

    def look(job: Annotated[str, typer.Argument()], *, own: Annotated[int, typer.Option()] = 1, way: Way) -> None:
        """Look."""
        calls.append((job, own, way))

    app.command()(with_groups(look))
    return app


def test_a_group_is_its_options_with_their_defaults(app: typer.Typer, calls: list[Any]) -> None:
    assert CliRunner().invoke(app, ["a", "--url", "u"]).exit_code == 0
    assert CliRunner().invoke(app, ["b", "--url", "u", "-y", "--depth", "5", "--own", "2"]).exit_code == 0
    assert calls == [("a", 1, Way(url="u")), ("b", 2, Way(url="u", yes=True, depth=5))]


def test_what_a_group_requires_or_bounds_is_refused(app: typer.Typer, calls: list[Any]) -> None:
    for words in (["a"], ["a", "--url", "u", "--depth", "0"], ["a", "--url", "u", "--way", "x"]):
        assert CliRunner().invoke(app, words).exit_code == 2, words
    assert calls == []


def test_every_command_of_escrow_has_the_shared_options() -> None:
    from jobs.client import cli

    assert cli.app
    group: Any = typer.main.get_command(escrow.escrow)
    sending = {"--wallet-key-file", "--max-fee", "--yes"}
    shared = {"--asset", "--contract", "--chain-id", "--rpc-url", "--server", "--json"}
    reading = {"balance", "show"}
    assert len(group.commands) == 11
    for name, command in group.commands.items():
        has = {option for parameter in command.params for option in parameter.opts}
        assert shared <= has, name
        assert (sending <= has) is (name not in reading), name

"""Every command shows an example, and its parser takes every example that it shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer.main
from typer import rich_utils

from jobs.client.cli import ENTRY_POINTS, SERVER_COMMANDS
from jobs.client.cli import app as souk
from marketplace.config.commands.chain import app as chain
from marketplace.config.commands.gateway import app as gateway
from marketplace.config.commands.ledger import app as ledger
from marketplace.config.commands.up import app as up
from provider_agent.cli import app as souk_agent

SERVERS = {"up": up, "gateway": gateway, "ledger": ledger, "chain": chain}
PROGRAMS: dict[tuple[str, ...], typer.Typer] = {("souk",): souk, ("souk-agent",): souk_agent}
PROGRAMS |= {("souk", name): app for name, app in SERVERS.items()}
SHORT_ID = re.compile(r"\b([0-9a-f]{8})-\.\.\.")  # of a UUID, an example shows the beginning
COLUMNS = 1_000  # so that nothing is wrapped within a word
SHELL = ("||", "<", ">", "|")  # what follows is the shell's


def commands(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below one, by the words that call it."""
    names = getattr(command, "commands", {})
    if not names:
        yield words, command
    for name, found in names.items():
        yield from commands((*words, name), found)


ALL = [each for words, app in PROGRAMS.items() for each in commands(words, typer.main.get_command(app))]


def examples(text: str) -> Iterator[list[str]]:
    """The words of each command line in a help text; environment and shell around it are left out."""
    for paragraph in re.split(r"\n\s*\n", text):
        found = re.match(r"\s*Examples?[^:]*: (.*)", " ".join(paragraph.split()))
        for line in re.split(r"; (?=souk)", found.group(1)) if found else ():
            words = shlex.split(SHORT_ID.sub(r"\1-0000-4000-8000-000000000000", line))
            while "=" in words[0]:
                words = words[1:]
            yield words[: next((index for index, word in enumerate(words) if word in SHELL), len(words))]


@pytest.mark.parametrize(("words", "command"), ALL, ids=[" ".join(words) for words, _ in ALL])
def test_help_has_examples_and_each_is_one_that_the_parser_takes(
    words: tuple[str, ...], command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    shown = list(examples(command.help or ""))
    assert shown, "no example"
    for example in shown:
        assert tuple(example[: len(words)]) == words
        command.make_context(words[-1], example[len(words) :])


def test_every_command_of_the_server_is_tested_here_and_listed_in_the_clients_help() -> None:
    named = {entry.name for entry in entry_points(group=ENTRY_POINTS)}
    assert set(SERVERS) == set(SERVER_COMMANDS) == named


def help_texts(command: Any) -> Iterator[str]:
    """Each text that its help has to show."""
    yield from (paragraph for paragraph in re.split(r"\n\s*\n", command.help or ""))
    yield from (parameter.help for parameter in command.params if getattr(parameter, "help", None))


def rendered(words: tuple[str, ...], command: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """What --help prints, its lines and columns joined again."""
    with pytest.raises(SystemExit):
        command.main(args=["--help"], prog_name=" ".join(words), max_content_width=COLUMNS, terminal_width=COLUMNS)
    return " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().out).split())


@pytest.mark.parametrize(("words", "command"), ALL, ids=[" ".join(words) for words, _ in ALL])
def test_help_loses_no_word_where_it_is_rendered(
    words: tuple[str, ...], command: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rich_utils, "MAX_WIDTH", COLUMNS)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    shown = rendered(words, command, capsys)
    assert [text for text in help_texts(command) if " ".join(text.split()) not in shown] == []


def test_a_word_that_markup_swallows_would_be_found(capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer(rich_markup_mode="rich", add_completion=False)

    @app.command()
    def sell(price: Annotated[str, typer.Option(help="In dollars [default: by the market].")] = "") -> None:
        """Sell."""

    command = typer.main.get_command(app)
    assert list(help_texts(command))[1] not in rendered(("sell",), command, capsys)


def test_an_example_with_a_mistake_would_be_found() -> None:
    words, command = ALL[-1]
    with pytest.raises(Exception, match="No such option"):
        command.make_context(words[-1], ["--no-such-option"])

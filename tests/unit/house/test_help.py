"""Every command shows an example, and its parser takes every example that it shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from jobs.client.cli import app as souk
from marketplace.config.commands.ledger import app as ledger
from marketplace.config.commands.up import app as up
from provider_agent.cli import app as souk_agent

PROGRAMS = {("souk",): souk, ("souk", "up"): up, ("souk", "ledger"): ledger, ("souk-agent",): souk_agent}
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
            words = shlex.split(line)
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


def test_an_example_with_a_mistake_would_be_found() -> None:
    words, command = ALL[-1]
    with pytest.raises(Exception, match="No such option"):
        command.make_context(words[-1], ["--no-such-option"])

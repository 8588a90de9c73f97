"""Ctrl-C at an operator's verb reverts nothing: it shows what continues, and a repeat sends nothing twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from billing.chain_following import waiting
from billing.models import ChainTransaction
from billing.states.chain import TransactionState
from marketplace.config.commands.chain import app
from tests.integration.billing.chain.town import Town

RUNNER = CliRunner()


def test_an_interrupted_pause_goes_on_and_the_same_command_prints_its_end(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.0)
    wait = waiting.wait

    def interrupted(one: ChainTransaction, **more: Any) -> str:
        wait(one, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(waiting, "wait", interrupted)
        ended = RUNNER.invoke(app, ["pause", "TUSD"])
    [sent] = ChainTransaction.objects.filter(purpose="pause")
    assert (ended.exit_code, f"pause goes on by itself in transaction {sent.hash}" in ended.output) == (130, True)
    assert sent.state in {TransactionState.MINED, TransactionState.FINAL}
    assert town.view("paused") is True
    again = RUNNER.invoke(app, ["pause", "TUSD"])
    assert (again.exit_code, "paused already" in again.output) == (1, True)
    assert ChainTransaction.objects.filter(purpose="pause").count() == 1


def test_an_interruption_before_anything_was_sent_says_so_by_its_state(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(one: ChainTransaction, **more: Any) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(waiting, "wait", interrupted)
        ended = RUNNER.invoke(app, ["pause", "TUSD"])
    assert (ended.exit_code, "and is planned now" in ended.output) == (130, True), ended.output
    done = json.loads(RUNNER.invoke(app, ["pause", "TUSD", "--json"]).stdout)
    assert done["state"] in {"mined", "final"}
    assert ChainTransaction.objects.filter(purpose="pause").count() == 1

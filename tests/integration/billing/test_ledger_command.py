"""`souk ledger` reports to an operator, and to a script, whether the money is right."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from typer.testing import CliRunner

from billing.models import Transfer
from marketplace.config.commands.ledger import app
from tests.integration.billing.scenes import past_the_triggers

RUNNER = CliRunner()


def test_a_true_ledger_is_reported_as_true(alice: UUID) -> None:
    assert "1 transfers sealed" in RUNNER.invoke(app, ["seal"]).output
    result = RUNNER.invoke(app, ["verify"])
    assert (result.exit_code, "The ledger is true." in result.output) == (0, True)
    report = json.loads(RUNNER.invoke(app, ["verify", "--json"]).output)
    assert (report["is_true"], report["transfers"], report["sealed"], report["problems"]) == (True, 1, 1, [])
    assert report["sums"] == {"USD": "0"}


def test_a_false_ledger_is_reported_as_false_by_row_and_status(alice: UUID) -> None:
    RUNNER.invoke(app, ["seal"])
    transfer = Transfer.objects.get()
    with past_the_triggers("billing_transfer") as cursor:
        cursor.execute("UPDATE billing_transfer SET amount = amount + 1 WHERE id = %s", [transfer.pk])
    result = RUNNER.invoke(app, ["verify"])
    assert result.exit_code == 1
    assert str(transfer.pk) in result.output
    report = json.loads(RUNNER.invoke(app, ["verify", "--json"]).output)
    assert (report["is_true"], {problem["check"] for problem in report["problems"]}) == (
        False,
        {"deposit", "hash_chain", "sums"},
    )


def test_balances_by_kind_add_up_to_zero(alice: UUID) -> None:
    output = RUNNER.invoke(app, ["show"]).output
    assert "customer_available" in output and "$10.00" in output and "-$10.00" in output
    rows = json.loads(RUNNER.invoke(app, ["show", "--json"]).output)
    assert sum(int(row["balance"]) for row in rows) == 0


@pytest.mark.parametrize("command", [["--help"], ["verify", "--help"]])
def test_help_needs_no_database(command: list[str]) -> None:
    assert RUNNER.invoke(app, command).exit_code == 0

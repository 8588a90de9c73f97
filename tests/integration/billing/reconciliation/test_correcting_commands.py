"""`souk ledger correct` and `approve` ask for all that signing in does, and count what is wrong like it."""

from __future__ import annotations

import pytest
from django.test import Client
from pytest_django import Settings
from typer.testing import CliRunner

from billing.models import LedgerCorrection
from marketplace.accounts import second_factor, signin_limits
from marketplace.accounts.models import User
from marketplace.config.commands.ledger import app
from marketplace.foundation import clock, totp
from tests.integration.billing.reconciliation.differences import WHY, move
from tests.people import PASSWORD

pytestmark = pytest.mark.django_db
RUNNER = CliRunner()


def correct(by: User, *answers: str) -> tuple[int, str]:
    words = ["correct", "txn_1", "--against", "chargeback_loss", "--why", WHY, "--by", by.email]
    result = RUNNER.invoke(app, words, input="".join(f"{answer}\n" for answer in answers))
    return result.exit_code, result.output


def test_the_commands_and_the_admin_do_it_whole(olga: User, otto: User, client: Client) -> None:
    move()
    assert correct(olga, "wrong")[0] == 1 and not LedgerCorrection.objects.exists()
    assert correct(olga, PASSWORD)[0] == 0
    proposed = LedgerCorrection.objects.get()
    shown = RUNNER.invoke(app, ["corrections"]).output
    assert all(text in shown for text in (str(proposed.pk), WHY, olga.email, "$5.00"))
    own = RUNNER.invoke(app, ["approve", str(proposed.pk), "--by", olga.email], input=f"{PASSWORD}\n")
    assert (own.exit_code, "another operator" in own.output) == (1, True)
    client.force_login(otto)
    chosen = {"action": "approve", "_selected_action": [str(proposed.pk)]}
    client.post("/admin/billing/ledgercorrection/", chosen, headers={"host": "localhost"})
    proposed.refresh_from_db()
    assert (proposed.state, proposed.decided_by) == ("approved", otto.email)
    assert RUNNER.invoke(app, ["reconcile"]).exit_code == 0


def test_a_code_is_asked_for_where_there_is_a_second_factor(olga: User) -> None:
    move()
    secret, step = totp.make_secret(), totp.step_of(clock.now().timestamp())
    second_factor.enable(olga, secret, totp.code_at(secret, step - 1))
    for code in ("", "000000", totp.code_at(secret, step - 1)):
        assert correct(olga, PASSWORD, code)[0] == 1
    assert not LedgerCorrection.objects.exists()
    assert correct(olga, PASSWORD, totp.code_at(secret, step))[0] == 0
    assert LedgerCorrection.objects.get().proposed_by == olga.email


def test_an_operator_without_the_factor_that_operators_need_is_refused(olga: User, settings: Settings) -> None:
    settings.SOUK_STAFF_SECOND_FACTOR = second_factor.REQUIRED
    move()
    code, output = correct(olga, PASSWORD)
    assert (code, "set it up in the browser" in output, LedgerCorrection.objects.count()) == (1, True, 0)


def test_wrong_passwords_lock_the_account_here_as_anywhere(olga: User) -> None:
    move()
    for _ in range(signin_limits.LIMITS["account"].failures_max):
        assert correct(olga, "wrong")[0] == 1
    code, output = correct(olga, PASSWORD)
    assert (code, "too many attempts" in output, LedgerCorrection.objects.count()) == (1, True, 0)

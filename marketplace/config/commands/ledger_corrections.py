"""`souk ledger correct, corrections, approve, reject`: what reconciliation found is booked, by two people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from marketplace.config.commands.ledger_setup import Data, Json, fail, set_up

if TYPE_CHECKING:
    from marketplace.accounts.models import User

SHOWN_MAX = 100
THIS_COMPUTER = "127.0.0.1"  # the address that attempts are counted under

app = typer.Typer()

By = Annotated[str, typer.Option(help="Your e-mail address here; password and code are asked for.")]
Id = Annotated[UUID, typer.Argument(help="Of `souk ledger corrections`.")]


@app.command("correct")
def propose_correction(
    ref: Annotated[str, typer.Argument(help="The reference of the difference; '' for a sum that has none.")],
    *,
    against: Annotated[str, typer.Option(help="Where it came from or went: operator_cash, chargeback_loss, ...")],
    why: Annotated[str, typer.Option(help="The reason, which is kept for good.")],
    by: By,
    owner: Annotated[UUID | None, typer.Option(help="Of customer_available or provider_available.")] = None,
    mirror: Annotated[str, typer.Option(help="Tells differences of one reference apart.")] = "",
    rail: Annotated[str, typer.Option(help="The same.")] = "",
    data: Data = None,
) -> None:
    """Propose to book what the outside moved and the ledger lacks; another person approves it. Reconciles first.

    Example: souk ledger correct txn_1Abc --against operator_cash --why "a test payment" --by alice@example.org
    """
    set_up(data)
    from billing.reconciliation import correcting
    from billing.reconciliation.reconciling import reconcile
    from marketplace.foundation.errors import SoukError

    person = _person(by)
    reconcile(reason="by hand")
    try:
        made = correcting.propose(ref, against=against, why=why, by=person, owner_id=owner, mirror=mirror, rail=rail)
    except SoukError as error:
        fail(error.message)
    typer.echo(
        f"{made.pk}: {made.asset.show(int(made.amount))} of {made.mirror} against {made.against}. Not booked yet:"
    )
    typer.echo(f"somebody else runs `souk ledger approve {made.pk} --by THEIR-ADDRESS`, or approves it in the admin.")


@app.command("corrections")
def list_corrections(as_json: Json = False, data: Data = None) -> None:
    """The newest corrections, with who proposed and who decided them.

    Example: souk ledger corrections
    """
    set_up(data)
    from billing.models import LedgerCorrection

    rows = list(LedgerCorrection.objects.select_related("asset").order_by("-proposed_at")[:SHOWN_MAX])
    names = ("id", "state", "rail", "mirror", "ref", "against", "why", "proposed_by", "decided_by")
    if as_json:
        shown = [{name: str(getattr(row, name)) for name in names} | {"amount": str(row.amount)} for row in rows]
        typer.echo(json.dumps(shown, indent=2))
        return
    for row in rows:
        amount = row.asset.show(int(row.amount))
        typer.echo(f"{row.pk} {row.state:9} {amount} of {row.mirror} {row.ref} against {row.against}")
        typer.echo(
            f"    {row.proposed_by}: {row.why}" + (f" ({row.state} by {row.decided_by})" if row.decided_by else "")
        )


@app.command("approve")
def approve_correction(correction_id: Id, by: By, data: Data = None) -> None:
    """Book what somebody else proposed, if the difference still stands. Reconciles first.

    Example: souk ledger approve 0199a1b2-... --by bob@example.org
    """
    _decide(correction_id, by, data, is_approved=True)


@app.command("reject")
def reject_correction(correction_id: Id, by: By, data: Data = None) -> None:
    """Book nothing; the row stays.

    Example: souk ledger reject 0199a1b2-... --by bob@example.org
    """
    _decide(correction_id, by, data, is_approved=False)


def _decide(correction_id: UUID, by: str, data: Data, *, is_approved: bool) -> None:
    set_up(data)
    from billing import breaker
    from billing.reconciliation import correcting
    from billing.reconciliation.reconciling import reconcile
    from marketplace.foundation.errors import SoukError

    person = _person(by)
    try:
        if is_approved:
            reconcile(reason="by hand")
            correcting.approve(correction_id, by=person)
        else:
            correcting.reject(correction_id, by=person)
    except SoukError as error:
        fail(error.message)
    typer.echo("Booked." if is_approved else "Rejected: nothing was booked.")
    if is_approved and breaker.is_open():
        typer.echo("Payouts are still stopped: reconcile, then close the breaker in the admin, with a note.")


def _person(by: str) -> User:
    """Who types, with everything that signing in asks for, and counted like it.

    Password and code are asked for, and never options, which every process of the machine could read.
    """
    from marketplace.accounts import second_factor, signin_limits
    from marketplace.accounts.signin import check_password
    from marketplace.foundation.errors import SoukError

    try:
        signin_limits.take(by, THIS_COMPUTER)
        user = check_password(by, typer.prompt("Password", hide_input=True, err=True))
        signin_limits.forgive(user, THIS_COMPUTER)
        code = ""
        if user.second_factor_at is not None:
            signin_limits.take_code(user.email)
            code = typer.prompt("Code of your second factor", hide_input=True, err=True)
        second_factor.check_sign_in(user, code)
        signin_limits.forgive_code(user.email)
    except SoukError as error:
        fail(error.message)
    return user

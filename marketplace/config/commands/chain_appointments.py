"""`souk chain`, who has the contract's roles, and the holds that a stolen settler would close.

A role is taken away at once and given only after the contract's delay, within which it can be vetoed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from jobs.client.commands.option_groups import with_groups
from marketplace.config.commands.chain_calls import CallOptions, exit_on_error, make_call
from marketplace.config.commands.chain_setup import contract_named, fail, set_up

if TYPE_CHECKING:
    from billing.chain.keys import Role
    from billing.chain.operating import Call
    from billing.models import EscrowContract

app = typer.Typer()

Code = Annotated[str, typer.Argument(help="The token's code.")]
RoleName = Annotated[str, typer.Argument(metavar="ROLE", help="settler, publisher, arbiter, slasher or pauser.")]
Wallet = Annotated[str, typer.Argument(help="Whose role it is.")]


@app.command("propose-role")
@with_groups
def propose_role(code: Code, role: RoleName, wallet: Wallet, *, options: CallOptions) -> None:
    """Announce, as the contract's admin, that a wallet is to have a role; it can be granted 48 hours later.

    Example: souk chain propose-role USDC settler 0xA1b2...
    """
    from billing.chain import operating

    _make(operating.propose_role, (code, role, wallet), options, is_held=False)


@app.command("grant-role")
@with_groups
def grant_role(code: Code, role: RoleName, wallet: Wallet, *, options: CallOptions) -> None:
    """Grant, as the admin, a role that was proposed at least 48 hours and at most 16 days ago.

    Example: souk chain grant-role USDC settler 0xA1b2...
    """
    from billing.chain import operating

    _make(operating.grant_role, (code, role, wallet), options, is_held=False)


@app.command("veto-role")
@with_groups
def veto_role(code: Code, role: RoleName, wallet: Wallet, *, options: CallOptions) -> None:
    """Drop a proposed role before it is granted, as the arbiter, the pauser or the admin.

    Example: souk chain veto-role USDC settler 0xA1b2...
    """
    from billing.chain import operating

    _make(operating.veto_role, (code, role, wallet), options)


@app.command("revoke-role")
@with_groups
def revoke_role(code: Code, role: RoleName, wallet: Wallet, *, options: CallOptions) -> None:
    """Take a role away at once, as the admin: the first thing to do about a stolen key.

    Example: souk chain revoke-role USDC settler 0xA1b2...
    """
    from billing.chain import operating

    _make(operating.revoke_role, (code, role, wallet), options, is_held=True)


@app.command("reopen-hold")
@with_groups
def reopen_hold(
    job: Annotated[UUID, typer.Argument(help="The job whose hold is being closed.")],
    customer: Annotated[str, typer.Option(help="Wallet whose hold it is. Default: the job's.")] = "",
    code: Annotated[str, typer.Option(help="The token's code, with --customer.")] = "",
    *,
    options: CallOptions,
) -> None:
    """Stop, as the arbiter or the pauser, the close of a hold that was not meant; its deadline stays.

    Where the settler's key is stolen, take its role away first: whoever has it closes the hold again.

    Example: souk chain reopen-hold 0198c7f2-...
    """
    set_up(options.data)
    from billing.chain import operating
    from billing.models import EscrowHold

    if customer and not code:
        fail("Say with --code, too, which token's contract has the hold of --customer.")
    if customer:
        contract, wallet = contract_named(code), _wallet(customer)
    else:
        hold = EscrowHold.objects.select_related("contract__asset").filter(pk=job).first()
        if hold is None:
            fail(f"No hold of the job {job} is known. Of a hold that is not ours: --code USDC --customer 0x...")
        contract, wallet = hold.contract, hold.customer
    make_call(exit_on_error(lambda: operating.reopen_hold(contract, customer=wallet, job_id=job)), options)


def _make(
    verb: Callable[[EscrowContract, Role, str], Call],
    words: tuple[str, str, str],
    options: CallOptions,
    *,
    is_held: bool | None = None,
) -> None:
    """Make the call about this role; refuse it where the wallet has the role already, or has not (`is_held`)."""
    set_up(options.data)
    from billing.chain import operating
    from billing.chain.keys import Role

    code, name, wallet = words
    names = [role.value for role in Role if role is not Role.ADMIN]
    if name not in names:
        why = " The admin's role changes hands in the contract's own two steps." if name == Role.ADMIN else ""
        fail(f"{name} is no role that can be given: {', '.join(names)}.{why}")
    contract, role, holder = contract_named(code), Role(name), _wallet(wallet)
    if is_held is not None and exit_on_error(lambda: operating.has_role(contract, role, holder)) != is_held:
        fail(f"{holder} {'is not' if is_held else 'is already'} {name} of the contract for {code}.")
    make_call(exit_on_error(lambda: verb(contract, role, holder)), options)


def _wallet(text: str) -> str:
    from billing.chain.wallets import checksummed

    try:
        return checksummed(text)
    except ValueError as error:
        fail(str(error))

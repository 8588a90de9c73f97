"""escrow: balance, deposit, withdraw, show. Your own wallet and the contract; the marketplace is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from jobs.client.commands.escrow_options import Amount, Customer, FromBlock, Job, Reading, Sending
from jobs.client.commands.escrow_session import ALL, EscrowSession, find_job_id, open_session, require_address
from jobs.client.commands.option_groups import with_groups
from jobs.client.errors import ChainFailed, UsageMistake

if TYPE_CHECKING:
    from jobs.client.wallet.escrow_contract import HoldAccount, LeaseAccount

PANEL = "Account"
TIME = "%Y-%m-%d %H:%M:%S"
EPILOG = (
    "Give --asset CODE, whose contract your marketplace names, or --contract ADDRESS, which needs no marketplace."
    " Every command takes an endpoint of the chain with --rpc-url or SOUK_RPC_URL. See docs/escrow.md."
)

escrow = typer.Typer(
    no_args_is_help=True,
    epilog=EPILOG,
    help="Call the escrow contract with your own wallet: pay in, withdraw, contest; also without the marketplace.",
)


def register(app: typer.Typer) -> None:
    """Add the group with this module's commands."""
    for command in (balance, deposit, withdraw, show):
        escrow.command()(with_groups(command))
    app.add_typer(escrow, name="escrow", rich_help_panel=PANEL)


def balance(
    *,
    wallet: Annotated[str, typer.Option("--wallet", help="The wallet's address; reading needs no key.")],
    from_block: FromBlock = 0,
    options: Reading,
) -> None:
    """Show what a wallet has in the contract: available, held by job, earned, staked; and its tokens outside.

    Example: souk escrow balance --asset USDC --rpc-url https://rpc.example --wallet 0x1234...
    """
    from jobs.client.output import console, notice, print_json
    from jobs.client.wallet.escrow_contract import at

    address = require_address(wallet)
    with open_session(options) as session:
        leaving, leaving_at = session.contract.unstaking(address)
        found: dict[str, int | None] = {
            "available": session.contract.available(address),
            "held": None,
            "pending": None,
            "staked": session.contract.staked(address),
            "unstaking": leaving,
            "in_wallet": session.contract.token_balance(address),
        }
        open_holds: list[tuple[UUID, HoldAccount]] = []
        try:
            holds = session.contract.holds_of_customer(address, first_block=from_block)
            leases = session.contract.leases_of_provider(address, first_block=from_block)
            found["held"] = sum(hold.remaining for _, hold in holds)
            open_holds = [(job_id, hold) for job_id, hold in holds if not hold.is_closed]
            found["pending"] = sum(lease.pending for lease in leases)
        except ChainFailed as failed:  # the rest is known all the same
            notice(f"What is held and earned could not be added up. {failed.message}")
        about = {"asset": session.code, "scale": session.scale, "wallet": address, "contract": session.contract.address}
        if options.as_json:
            amounts = {name: None if units is None else str(units) for name, units in found.items()}
            about |= {"chain_id": session.chain.chain_id, "unstaking_at": leaving_at or None}
            held = [{"job_id": str(job_id), **_hold_json(session, hold)} for job_id, hold in open_holds]
            print_json({**about, **amounts, "open_holds": held})
            return
        words = {
            "available": "available",
            "held": "held for jobs",
            "pending": "earned, pending",
            "staked": "staked",
            "unstaking": f"of it leaving ({at(leaving_at):{TIME}} UTC)" if leaving else "",
            "in_wallet": "in the wallet itself",
        }
        for name, text in words.items():
            units = found[name]
            if text:
                console().print(f"{text:<24} {'unknown' if units is None else session.show(units)}", markup=False)
        for job_id, hold in open_holds:
            until = f"{at(hold.refundable_after(session.contract.terms)):{TIME}}"
            console().print(
                f"  job {job_id}: {session.show(hold.remaining)}; refundable after {until} UTC", markup=False
            )


def deposit(
    amount: Amount,
    *,
    options: Sending,
) -> None:
    """Pay tokens into the contract as your wallet's own balance there, for jobs with `payment.mode: escrow`.

    What was interrupted is finished by the next call, before anything new is sent. (`souk deposit` buys credit of your
    organisation instead.)

    Example: souk escrow deposit 25 --asset USDC --rpc-url https://rpc.example --wallet-key-file ~/wallet.key
    """
    with open_session(options) as session:
        units = session.parse(amount)
        what = f"Pay {session.show(units)} in"
        done = session.pay_in(units, "deposit(uint256)", what=what)
        have = session.contract.available(session.wallet)
        hint = f"Available to {session.wallet}: {session.show(have)}."
        session.report(done, more={"available": str(have)}, hint=hint)


def withdraw(
    amount: Annotated[str, typer.Argument(metavar="AMOUNT|all", help="Such as 25 or 2.50, in the token; or all.")],
    *,
    options: Sending,
) -> None:
    """Withdraw your available balance from the contract to your wallet. Nobody can stop it.

    Examples: souk escrow withdraw all --asset USDC --rpc-url URL --wallet-key-file ~/wallet.key

    souk escrow withdraw 2.50 --contract 0x1234... --rpc-url URL --wallet-key-file ~/wallet.key
    """
    signature = "withdraw(uint256)"
    with open_session(options) as session:
        done = session.finish(signature)
        if done is None:
            units = session.contract.available(session.wallet) if amount == ALL else session.parse(amount)
            if not units:
                raise UsageMistake(f"Nothing is available to {session.wallet} in the contract.")
            what = f"Withdraw {session.show(units)} to the wallet"
            done = session.call(signature, [units], what=what)
        left = session.contract.available(session.wallet)
        session.report(done, more={"available": str(left)}, hint=f"Left in the contract: {session.show(left)}.")


def show(
    job: Job,
    *,
    customer: Customer = "",
    from_block: FromBlock = 0,
    options: Reading,
) -> None:
    """Show a job's hold and its leases as the contract has them, without asking the marketplace. Needs no key.

    Example: souk escrow show 0192f3c1-... --contract 0x1234... --rpc-url https://rpc.example
    """
    from jobs.client.output import console, print_json

    job_id = find_job_id(job, options)
    with open_session(options) as session:
        hold = session.find_hold(job_id, customer, first_block=from_block)
        leases = session.contract.leases_of_job(hold.customer, job_id, first_block=from_block) if hold else []
        if options.as_json:
            about: dict[str, Any] = {"job_id": str(job_id), "asset": session.code, "scale": session.scale}
            about |= {"chain_id": session.chain.chain_id, "contract": session.contract.address}
            held = _hold_json(session, hold) if hold else None
            print_json({**about, "hold": held, "leases": [_lease_json(session, lease) for lease in leases]})
            return
        if hold is None:
            console().print(f"No hold was opened for {job_id} in {session.contract.address}.", markup=False)
            return
        lines = _hold_lines(session, hold)
        for lease in leases:
            lines += _lease_lines(session, lease)
        console().print("\n".join(lines), markup=False)


def _hold_lines(session: EscrowSession, hold: HoldAccount) -> list[str]:
    from jobs.client.wallet.escrow_contract import at

    refundable = hold.refundable_after(session.contract.terms)
    state = "closed" if hold.is_closed else "open"
    if hold.closes_at and not hold.is_closed:
        state = "closing: the job has ended"
    if not hold.is_closed and session.chain.time() > refundable:
        state = "open, and past its end: `souk escrow refund` gives the rest back"
    return [
        f"hold       {state}",
        f"customer   {hold.customer}",
        f"left       {session.show(hold.remaining)}",
        f"at most    {session.show(hold.rate_ceiling_per_hour)} an hour of a lease, {hold.parallel_leases} at a time",
        f"providers  {'those that the customer named' if hold.names_providers else 'any'}",
        f"deadline   {at(hold.deadline):{TIME}} UTC; anybody may refund it from {at(refundable):{TIME}} UTC on",
    ]


def _lease_lines(session: EscrowSession, lease: LeaseAccount) -> list[str]:
    from jobs.client.wallet.escrow_contract import at

    lines = [
        "",
        f"lease      {lease.lease_id}",
        f"provider   {lease.provider}",
        f"ran        {lease.billable_ms / 1000:.3f} s, by receipt {lease.seq}",
        f"settled    {session.show(lease.settled)}",
    ]
    if lease.pending:
        due = f"{at(lease.due_at(session.contract.terms)):{TIME}} UTC"
        text = f"contested; undecided by {due}, it is paid" if lease.is_challenged else f"until {due}"
        lines.append(f"pending    {session.show(lease.pending)} {text}")
    return lines


def _hold_json(session: EscrowSession, hold: HoldAccount) -> dict[str, Any]:
    return {
        "customer": hold.customer,
        "is_closed": hold.is_closed,
        "remaining": str(hold.remaining),
        "rate_ceiling_per_hour": str(hold.rate_ceiling_per_hour),
        "providers_root": hold.providers_root,
        "deadline": hold.deadline,
        "parallel_leases": hold.parallel_leases,
        "opened_at": hold.opened_at,
        "closes_at": hold.closes_at or None,
        "refundable_after": hold.refundable_after(session.contract.terms),
    }


def _lease_json(session: EscrowSession, lease: LeaseAccount) -> dict[str, Any]:
    return {
        "lease_id": str(lease.lease_id),
        "provider": lease.provider,
        "seq": lease.seq,
        "billable_ms": lease.billable_ms,
        "settled": str(lease.settled),
        "pending": str(lease.pending),
        "is_challenged": lease.is_challenged,
        "release_at": lease.release_at,
        "due_at": lease.due_at(session.contract.terms),
    }

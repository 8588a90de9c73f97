"""escrow: balance, deposit, withdraw, show. Your own wallet and the contract; the marketplace is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from jobs.client.errors import ChainFailed, UsageMistake
from jobs.client.escrow_desk import ALL, Desk, find_job_id, open_desk, require_address
from jobs.client.escrow_options import Amount, FromBlock, Job, Reading, Sending
from jobs.client.option_groups import with_groups

if TYPE_CHECKING:
    from jobs.client.escrow_contract import HoldAccount, LeaseAccount

PANEL = "Account"
TIME = "%Y-%m-%d %H:%M:%S"
EPILOG = (
    "Give --asset CODE, whose contract your marketplace names, or --contract ADDRESS, which needs no marketplace."
    " Every command takes an endpoint of the chain with --rpc-url or SOUK_RPC_URL. See docs/escrow.md."
)

escrow = typer.Typer(
    no_args_is_help=True,
    epilog=EPILOG,
    help="Speak to the escrow contract with your own wallet: pay in, take out, contest, and get back without us.",
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
    way: Reading,
) -> None:
    """Show what a wallet has in the contract: available, held and for which jobs, earned, staked; and beside it.

    Example: souk escrow balance --asset USDC --rpc-url https://rpc.example --wallet 0x1234...
    """
    from jobs.client.escrow_contract import at
    from jobs.client.output import console, notice, print_json

    address = require_address(wallet)
    with open_desk(way) as desk:
        leaving, leaving_at = desk.contract.unstaking(address)
        found: dict[str, int | None] = {
            "available": desk.contract.available(address),
            "held": None,
            "pending": None,
            "staked": desk.contract.staked(address),
            "unstaking": leaving,
            "in_wallet": desk.contract.token_balance(address),
        }
        open_holds: list[tuple[UUID, HoldAccount]] = []
        try:
            holds = desk.contract.holds_of_customer(address, first_block=from_block)
            leases = desk.contract.leases_of_provider(address, first_block=from_block)
            found["held"] = sum(hold.remaining for _, hold in holds)
            open_holds = [(job_id, hold) for job_id, hold in holds if not hold.is_closed]
            found["pending"] = sum(lease.pending for lease in leases)
        except ChainFailed as failed:  # the rest is known all the same
            notice(f"What is held and earned could not be added up. {failed.message}")
        about = {"asset": desk.code, "scale": desk.scale, "wallet": address, "contract": desk.contract.address}
        if way.as_json:
            amounts = {name: None if units is None else str(units) for name, units in found.items()}
            about |= {"chain_id": desk.chain.chain_id, "unstaking_at": leaving_at or None}
            held = [{"job_id": str(job_id), **_hold_json(desk, hold)} for job_id, hold in open_holds]
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
                console().print(f"{text:<24} {'unknown' if units is None else desk.show(units)}", markup=False)
        for job_id, hold in open_holds:
            until = f"{at(hold.deadline + desk.contract.terms.grace_seconds):{TIME}}"
            console().print(f"  job {job_id}: {desk.show(hold.remaining)}; refundable after {until} UTC", markup=False)


def deposit(
    amount: Amount,
    *,
    way: Sending,
) -> None:
    """Pay tokens into the contract as your wallet's own balance there, for jobs with `payment.mode: escrow`.

    What was interrupted is finished by the next call, before anything new is sent. (`souk deposit` buys credit of your
    organisation instead.)

    Example: souk escrow deposit 25 --asset USDC --rpc-url https://rpc.example --wallet-key-file ~/wallet.key
    """
    with open_desk(way) as desk:
        units = desk.parse(amount)
        what = f"Pay {desk.show(units)} in"
        done = desk.pay_in(units, "deposit(uint256)", what=what)
        have = desk.contract.available(desk.wallet)
        hint = f"Available to {desk.wallet}: {desk.show(have)}."
        desk.tell(done, more={"available": str(have)}, hint=hint)


def withdraw(
    amount: Annotated[str, typer.Argument(metavar="AMOUNT|all", help="Such as 25 or 2.50, in the token; or all.")],
    *,
    way: Sending,
) -> None:
    """Take what is available to your wallet in the contract out, into the wallet. Nobody can stop it.

    Examples: souk escrow withdraw all --asset USDC --rpc-url URL --wallet-key-file ~/wallet.key

    souk escrow withdraw 2.50 --contract 0x1234... --rpc-url URL --wallet-key-file ~/wallet.key
    """
    signature = "withdraw(uint256)"
    with open_desk(way) as desk:
        done = desk.finish(signature)
        if done is None:
            units = desk.contract.available(desk.wallet) if amount == ALL else desk.parse(amount)
            if not units:
                raise UsageMistake(f"Nothing is available to {desk.wallet} in the contract.")
            what = f"Withdraw {desk.show(units)} to the wallet"
            done = desk.call(signature, [units], what=what)
        left = desk.contract.available(desk.wallet)
        desk.tell(done, more={"available": str(left)}, hint=f"Left in the contract: {desk.show(left)}.")


def show(
    job: Job,
    *,
    from_block: FromBlock = 0,
    way: Reading,
) -> None:
    """Show a job's hold and its leases as the contract has them, whatever anybody says of them. Needs no key.

    Example: souk escrow show 0192f3c1-... --contract 0x1234... --rpc-url https://rpc.example
    """
    from jobs.client.output import console, print_json

    job_id = find_job_id(job, way)
    with open_desk(way) as desk:
        hold = desk.contract.hold(job_id)
        leases = desk.contract.leases_of_job(job_id, first_block=from_block) if hold else []
        if way.as_json:
            about: dict[str, Any] = {"job_id": str(job_id), "asset": desk.code, "scale": desk.scale}
            about |= {"chain_id": desk.chain.chain_id, "contract": desk.contract.address}
            held = _hold_json(desk, hold) if hold else None
            print_json({**about, "hold": held, "leases": [_lease_json(desk, lease) for lease in leases]})
            return
        if hold is None:
            console().print(f"No hold was opened for {job_id} in {desk.contract.address}.", markup=False)
            return
        lines = _hold_lines(desk, hold)
        for lease in leases:
            lines += _lease_lines(desk, lease)
        console().print("\n".join(lines), markup=False)


def _hold_lines(desk: Desk, hold: HoldAccount) -> list[str]:
    from jobs.client.escrow_contract import at

    refundable = hold.deadline + desk.contract.terms.grace_seconds
    state = "closed" if hold.is_closed else "open"
    if not hold.is_closed and desk.chain.time() > refundable:
        state = "open, and past its end: `souk escrow refund` gives the rest back"
    return [
        f"hold       {state}",
        f"customer   {hold.customer}",
        f"left       {desk.show(hold.remaining)}",
        f"at most    {desk.show(hold.rate_ceiling_per_hour)} an hour of a lease",
        f"providers  {'those that the customer named' if hold.names_providers else 'any'}",
        f"deadline   {at(hold.deadline):{TIME}} UTC; anybody may refund it from {at(refundable):{TIME}} UTC on",
    ]


def _lease_lines(desk: Desk, lease: LeaseAccount) -> list[str]:
    from jobs.client.escrow_contract import at

    lines = [
        "",
        f"lease      {lease.lease_id}",
        f"provider   {lease.provider}",
        f"ran        {lease.billable_ms / 1000:.3f} s, by receipt {lease.seq}",
        f"settled    {desk.show(lease.settled)}",
    ]
    if lease.pending:
        due = f"{at(lease.due_at(desk.contract.terms)):{TIME}} UTC"
        text = f"contested; undecided by {due}, it is paid" if lease.is_challenged else f"until {due}"
        lines.append(f"pending    {desk.show(lease.pending)} {text}")
    return lines


def _hold_json(desk: Desk, hold: HoldAccount) -> dict[str, Any]:
    return {
        "customer": hold.customer,
        "is_closed": hold.is_closed,
        "remaining": str(hold.remaining),
        "rate_ceiling_per_hour": str(hold.rate_ceiling_per_hour),
        "providers_root": hold.providers_root,
        "deadline": hold.deadline,
        "refundable_after": hold.deadline + desk.contract.terms.grace_seconds,
    }


def _lease_json(desk: Desk, lease: LeaseAccount) -> dict[str, Any]:
    return {
        "lease_id": str(lease.lease_id),
        "provider": lease.provider,
        "seq": lease.seq,
        "billable_ms": lease.billable_ms,
        "settled": str(lease.settled),
        "pending": str(lease.pending),
        "is_challenged": lease.is_challenged,
        "release_at": lease.release_at,
        "due_at": lease.due_at(desk.contract.terms),
    }

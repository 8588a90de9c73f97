"""escrow: challenge, finalize, refund, give-up. What becomes of a job's money, without asking anybody."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from jobs.client.commands.escrow_options import Customer, FromBlock, Job, Lease, Sending
from jobs.client.commands.escrow_session import add_when, find_job_id, open_session, require_address
from jobs.client.commands.option_groups import with_groups
from jobs.client.errors import ChainFailed, UsageMistake

EVIDENCE_BYTES_MAX = 1 << 30
CHUNK_BYTES = 1 << 20


def register(escrow: typer.Typer) -> None:
    """Add this module's commands to the group."""
    for name, command in (("challenge", challenge), ("finalize", finalize), ("refund", refund), ("give-up", give_up)):
        escrow.command(name)(with_groups(command))


def challenge(
    lease: Lease,
    *,
    evidence: Annotated[
        Path,
        typer.Option("--evidence", help="A file that proves it; the contract gets its SHA-256, the arbiter the file."),
    ],
    options: Sending,
) -> None:
    """Contest a lease's pending pay in its challenge window: the arbiter divides it. Only the job's wallet may.

    Keep the file as it is: what is on the chain is its SHA-256, and only this very file fits to it.

    Example: souk escrow challenge 0192f3c1-7e4b-7000-8000-2c963f66afa6 --evidence log.txt --asset USDC --rpc-url URL
    --wallet-key-file ~/wallet.key
    """
    from jobs.client.wallet.escrow_contract import at
    from provider_agent.protocol import id_bytes32

    digest = _digest(evidence)
    with open_session(options) as session:
        found = session.contract.lease(session.wallet, lease)
        waits = f"the {session.show(found.pending)} that wait" if found else "what waits"
        call = ("challenge(bytes32,bytes32)", [id_bytes32(lease), digest])
        done = session.call(*call, what=f"Contest {waits} on lease {lease}")
        after = session.contract.lease(session.wallet, lease)
        until = after.due_at(session.contract.terms) if after else 0
        more = {"lease_id": str(lease), "evidence_sha256": digest.hex(), "decided_until": until}
        hint = (
            f"Evidence: SHA-256 {digest.hex()}. Give {evidence} to the arbiter; undecided by {at(until):%Y-%m-%d %H:%M}"
            " UTC, the provider is paid."
        )
        session.report(done, more=more, hint=hint)


def finalize(
    lease: Lease,
    *,
    customer: Customer = "",
    from_block: FromBlock = 0,
    options: Sending,
) -> None:
    """Pay a lease's provider after the challenge window. Anybody may; the money always goes to the provider.

    Example: souk escrow finalize 0192f3c1-7e4b-7000-8000-2c963f66afa6 --asset USDC --rpc-url URL
    --wallet-key-file ~/wallet.key
    """
    from jobs.client.wallet.escrow_contract import at
    from provider_agent.protocol import id_bytes32

    with open_session(options) as session:
        found = session.find_lease(lease, customer, first_block=from_block)
        waits = f"{session.show(found.pending)} (less the fee) to {found.provider}" if found else "what waits"
        try:
            payer = found.customer if found else require_address(customer) if customer else session.wallet
            call = ("finalize(address,bytes32)", [payer, id_bytes32(lease)])
            done = session.call(*call, what=f"Pay {waits} for lease {lease}")
        except ChainFailed as refused:
            if found:
                moment = at(found.due_at(session.contract.terms))
                add_when(refused, "TooEarly", moment, "It can be finalized from")
                add_when(refused, "Disputed", moment, "If nobody decides, it can be finalized from")
            raise
        session.report(done, more={"lease_id": str(lease)}, hint="`souk escrow withdraw all` takes it out.")


def refund(
    job: Job,
    *,
    customer: Customer = "",
    from_block: FromBlock = 0,
    options: Sending,
) -> None:
    """Return the rest of a hold to its customer, after its deadline and the grace. Works without the marketplace.

    Anybody may send it, from any wallet with coins for gas: the money goes to the customer's balance in the contract.

    Example: souk escrow refund 0192f3c1-... --contract 0x1234... --rpc-url URL --wallet-key-file ~/wallet.key
    """
    from jobs.client.wallet.escrow_contract import at
    from provider_agent.protocol import id_bytes32

    job_id = find_job_id(job, options)
    with open_session(options) as session:
        hold = session.find_hold(job_id, customer, first_block=from_block)
        rest = f"{session.show(hold.remaining)} to {hold.customer}" if hold else "the rest"
        try:
            payer = hold.customer if hold else require_address(customer) if customer else session.wallet
            call = ("refundExpired(address,bytes32)", [payer, id_bytes32(job_id)])
            done = session.call(*call, what=f"Give back {rest}")
        except ChainFailed as refused:
            if hold:
                moment = at(hold.refundable_after(session.contract.terms))
                add_when(refused, "TooEarly", moment, "It can be refunded after")
            raise
        session.report(done, more={"job_id": str(job_id)}, hint="`souk escrow withdraw all` takes it out.")


def give_up(
    job: Job,
    *,
    options: Sending,
) -> None:
    """Revoke what your wallet signed for a job, while no hold was opened by it: as after a launch that failed.

    What `souk launch` signed on this computer is kept in ~/.config/souk/holds. Once the hold is open it is too late;
    then it is closed with the job, or refunded after its deadline.

    Example: souk escrow give-up 0192f3c1-7e4b-7000-8000-2c963f66afa6 --asset USDC --rpc-url URL
    --wallet-key-file ~/wallet.key
    """
    from jobs.client.wallet.authorizing import read_kept

    job_id = find_job_id(job, options)
    signed, domain = read_kept(job_id)
    with open_session(options) as session:
        authorization = signed.authorization
        if authorization.customer.lower() != session.wallet.lower():
            raise UsageMistake(f"It was signed by {authorization.customer}, and this key is that of {session.wallet}.")
        its_contract, its_chain = domain.verifying_contract, domain.chain_id
        if (its_chain, its_contract.lower()) != (session.chain.chain_id, session.contract.address.lower()):
            raise UsageMistake(f"It was signed for the contract {its_contract} on chain {its_chain}.")
        call = ("cancelNonce(uint256)", [authorization.nonce])
        what = f"Give up the signature for {session.show(authorization.max_amount)} for job {job_id}"
        done = session.call(*call, what=what)
        session.report(done, more={"job_id": str(job_id)})


def _digest(path: Path) -> bytes:
    """SHA-256 of the file, which must be one that can be shown later: there, and not empty."""
    sum_, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as opened:
            while piece := opened.read(CHUNK_BYTES):
                sum_.update(piece)
                size += len(piece)
                if size > EVIDENCE_BYTES_MAX:
                    raise UsageMistake(f"{path} has more than {EVIDENCE_BYTES_MAX} bytes.")
    except OSError as error:
        raise UsageMistake(f"{path} cannot be read: {error.strerror}") from error
    if not size:
        raise UsageMistake(f"{path} is empty: that shows nothing.")
    return sum_.digest()

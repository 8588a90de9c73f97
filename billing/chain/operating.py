"""What an operator may do with a contract, role by role: each is a call, which our key sends or a multisig does.

    resolve     arbiter          divide what a customer challenged
    veto        arbiter, pauser  drop a proposed root before it opens
    pause       pauser           and unpause
    slash       slasher          take stake for an offence (billing/chain/stakes.py has the amount)
    compensate  arbiter          from the slash pool to the customer
    sweep       admin            what belongs to nobody
    reopen      arbiter, pauser  a hold that is being closed and should not be
    appoint     admin            propose a role, grant it after the contract's delay, take it away at once
    veto        any of these     a role that is proposed

Whether a key of ours may is read from the contract. A call is planned once per business key; one that failed for
good may be made again, under the next number.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from django.db import transaction

from billing.chain import keys
from billing.chain.errors import (
    HoldNotClosing,
    RoleNotDue,
    RoleNotProposed,
    RootNotProposed,
    SignerMissing,
    TriedTooOften,
)
from billing.chain.keys import Role
from billing.chain.reading import builds
from billing.chain.reading.client import client_of
from billing.chain.transactions import planning
from billing.models import ChainTransaction, EscrowContract, EscrowLease
from billing.states.chain import TransactionState
from provider_agent.protocol import id_bytes32

TRIES_MAX: Final = 20  # of one business key
HOLD_CLOSES_AT: Final = 1  # places in the contract's Hold
HOLD_IS_CLOSED: Final = 4


@dataclass(frozen=True)
class Call:
    """One call of the contract, and which roles may make it."""

    contract: EscrowContract
    roles: tuple[Role, ...]
    function: str
    arguments: tuple[Any, ...]
    business_key: str
    is_repeatable: bool = False  # what was done may be undone, and then done again

    @property
    def to(self) -> str:
        return self.contract.address

    @property
    def data(self) -> str:
        """The 0x-hex data of the transaction: what a multisig is given."""
        return builds.encode(builds.ESCROW, self.function, list(self.arguments))


def resolve(lease: EscrowLease, *, to_provider: int) -> Call:
    """Give the provider so much of what waits (the fee comes out of it), and the customer the rest."""
    rest = lease.pending - to_provider
    arguments = (lease.hold.customer, id_bytes32(lease.pk), to_provider, rest)
    key = f"resolve:{lease.pk}:{lease.seq}"
    return Call(lease.hold.contract, (Role.ARBITER,), "resolve", arguments, key)


def veto(contract: EscrowContract, root: str) -> Call:
    """Drop this root; raises RootNotProposed when it is not the one that waits, for the contract drops whichever does.

    It is looked at in the newest block: a root that opened meanwhile makes the call revert.
    """
    found, _, active_at = _view(contract, "proposedRoot")
    if "0x" + found.hex() != root.lower():
        raise RootNotProposed(root=root, proposed="0x" + found.hex() if any(found) else "none")
    return Call(contract, (Role.ARBITER, Role.PAUSER), "vetoRoot", (), f"veto:{contract.pk}:{active_at}:{root.lower()}")


def pause(contract: EscrowContract) -> Call:
    """Stop money from coming in."""
    return Call(contract, (Role.PAUSER,), "pause", (), f"pause:{contract.pk}", is_repeatable=True)


def unpause(contract: EscrowContract) -> Call:
    """Let money in again."""
    return Call(contract, (Role.PAUSER,), "unpause", (), f"unpause:{contract.pk}", is_repeatable=True)


def slash(contract: EscrowContract, *, offence_id: UUID, wallet: str, amount: int, evidence_hash: str) -> Call:
    """Take stake, once per offence: the offence's id here is its id in the contract."""
    arguments = (wallet, amount, id_bytes32(offence_id), evidence_hash)
    return Call(contract, (Role.SLASHER,), "slash", arguments, f"slash:{contract.pk}:{offence_id}")


def compensate(contract: EscrowContract, *, offence_id: UUID, wallet: str, amount: int) -> Call:
    """Give a customer what an offence cost it, from the pool; once per offence, to one wallet."""
    arguments = (wallet, amount, id_bytes32(offence_id))
    return Call(contract, (Role.ARBITER,), "compensate", arguments, f"compensate:{contract.pk}:{offence_id}")


def sweep_surplus(contract: EscrowContract, *, to: str) -> Call:
    """Send away what was given to the contract and is owed to nobody."""
    return Call(contract, (Role.ADMIN,), "sweepSurplus", (to,), f"sweep:{contract.pk}:{to}", is_repeatable=True)


def reopen_hold(contract: EscrowContract, *, customer: str, job_id: UUID) -> Call:
    """Stop the close of a hold; raises HoldNotClosing where the newest block has none that closes."""
    hold = _view(contract, "holds", customer, id_bytes32(job_id))
    if not hold[HOLD_CLOSES_AT] or hold[HOLD_IS_CLOSED]:
        raise HoldNotClosing(job_id=str(job_id), customer=customer)
    key = f"reopen:{contract.pk}:{customer.lower()}:{job_id}:{hold[HOLD_CLOSES_AT]}"
    return Call(contract, (Role.ARBITER, Role.PAUSER), "reopenHold", (customer, id_bytes32(job_id)), key)


def propose_role(contract: EscrowContract, role: Role, wallet: str) -> Call:
    """Announce that a wallet is to have a role; a repeat waits the contract's delay anew."""
    return _appointment(contract, (Role.ADMIN,), "proposeRole", role, wallet)


def grant_role(contract: EscrowContract, role: Role, wallet: str) -> Call:
    """Give a wallet the role that was proposed for it; raises RoleNotProposed, or RoleNotDue before its time."""
    active_at = proposed_at(contract, role, wallet)
    client = client_of(contract.chain_id)
    if client.header(client.head()).timestamp < active_at:
        raise RoleNotDue(role=role.value, wallet=wallet, at=f"{datetime.fromtimestamp(active_at, UTC):%F %T}")
    return _appointment(contract, (Role.ADMIN,), "grantRole", role, wallet)


def veto_role(contract: EscrowContract, role: Role, wallet: str) -> Call:
    """Drop a proposed role; raises RoleNotProposed."""
    proposed_at(contract, role, wallet)
    return _appointment(contract, (Role.ARBITER, Role.PAUSER, Role.ADMIN), "vetoRole", role, wallet)


def revoke_role(contract: EscrowContract, role: Role, wallet: str) -> Call:
    """Take a role away, at once."""
    return _appointment(contract, (Role.ADMIN,), "revokeRole", role, wallet)


def proposed_at(contract: EscrowContract, role: Role, wallet: str) -> int:
    """From when on the proposed role can be granted, in unix seconds; raises RoleNotProposed."""
    found = int(_view(contract, "proposedRoles", role.id, wallet))
    if not found:
        raise RoleNotProposed(role=role.value, wallet=wallet)
    return found


def has_role(contract: EscrowContract, role: Role, wallet: str) -> bool:
    """Whether the wallet has the role in the newest block."""
    return bool(_view(contract, "hasRole", role.id, wallet))


def _appointment(contract: EscrowContract, by: tuple[Role, ...], function: str, role: Role, wallet: str) -> Call:
    key = f"{function}:{contract.pk}:{role}:{wallet.lower()}"
    return Call(contract, by, function, (role.id, wallet), key, is_repeatable=True)


def is_paused(contract: EscrowContract) -> bool:
    """Whether the contract is paused in the newest block."""
    return bool(_view(contract, "paused"))


def role_for(call: Call) -> Role:
    """The first of the call's roles that a key of ours has, by the contract; raises SignerMissing, ChainError.

    A key that was used elsewhere signs nothing: what it has to stop may be its own thief, and would wait for it.
    """
    chain_id, stopped = call.contract.chain_id, ""
    for role in call.roles:
        try:
            address = keys.key_for(role).address
        except SignerMissing:
            continue
        if not _view(call.contract, "hasRole", role.id, address):
            continue
        if not planning.is_used_elsewhere(chain_id, address):
            return role
        stopped = f" ({address} is used elsewhere, and signs nothing)"
    names = " or ".join(call.roles)
    raise SignerMissing(role=f"{names} of {call.contract.address}{stopped}")


def submit(call: Call) -> ChainTransaction:
    """Plan the call, if the contract would take it now; a repeat returns what was planned first.

    Raises CallReverted with the contract's reason, SignerMissing, OutboxConflict when the key stands for other
    arguments that may still be sent, TriedTooOften.
    """
    role = role_for(call)
    key, planned = _next_key(call)
    if planned is None:
        message = {"from": keys.key_for(role).address, "to": call.to, "data": call.data}
        client_of(call.contract.chain_id).estimate(message, purpose=call.function)
    with transaction.atomic():
        return planning.plan(
            chain_id=call.contract.chain_id,
            role=role,
            purpose=call.function,
            to=call.to,
            data=call.data,
            business_key=key,
        )


def _next_key(call: Call) -> tuple[str, ChainTransaction | None]:
    """The key of the newest try, and its transaction if that may still be mined, or was and counts."""
    for number in range(1, TRIES_MAX + 1):
        key = call.business_key if number == 1 else f"{call.business_key}#{number}"
        one = ChainTransaction.objects.filter(business_key=key).first()
        if one is None:
            return key, None
        is_over = planning.outcome_of(one).state == TransactionState.FINAL and call.is_repeatable
        if not (is_over or planning.has_failed(one)):
            return key, one
    raise TriedTooOften(purpose=call.function, tries=TRIES_MAX)


def _view(contract: EscrowContract, function: str, *arguments: Any) -> Any:
    client = client_of(contract.chain_id)
    abi = builds.load(builds.ESCROW).abi
    return client.read(contract.address, abi, function, *arguments, at=client.head())

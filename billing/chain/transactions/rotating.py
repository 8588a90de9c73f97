"""What an old key had planned is signed by its role's key now: a change of keys strands nothing.

Only what has no nonce yet: what was signed continues under its own key, or waits for it. And only where the new key has
the role in the contract, so that a key that was forgotten in the environment has nothing given up for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from billing.chain import keys
from billing.chain.errors import SignerMissing
from billing.chain.keys import Role
from billing.chain.reading import builds
from billing.chain.reading.client import client_of
from billing.models import ChainTransaction, EscrowContract
from billing.states.chain import TransactionState as State
from marketplace.foundation import clock

SIGNERS_PER_RUN_MAX: Final = 20  # old keys, of one chain

# Who may call each function that is planned; what anybody may call is the settler's.
MAY_CALL: Final[Mapping[str, tuple[Role, ...]]] = {
    "openHold": (Role.SETTLER,),
    "settleLease": (Role.SETTLER,),
    "closeHold": (Role.SETTLER,),
    "refundExpired": (Role.SETTLER,),
    "finalize": (Role.SETTLER,),
    "registerReceiptKey": (Role.SETTLER,),
    "proposeRoot": (Role.PUBLISHER,),
    "resolve": (Role.ARBITER,),
    "compensate": (Role.ARBITER,),
    "vetoRoot": (Role.ARBITER, Role.PAUSER),
    "reopenHold": (Role.ARBITER, Role.PAUSER),
    "pause": (Role.PAUSER,),
    "unpause": (Role.PAUSER,),
    "slash": (Role.SLASHER,),
    "sweepSurplus": (Role.ADMIN,),
    "proposeRole": (Role.ADMIN,),
    "grantRole": (Role.ADMIN,),
    "revokeRole": (Role.ADMIN,),
    "vetoRole": (Role.ADMIN, Role.ARBITER, Role.PAUSER),
}

log = logging.getLogger(__name__)


def signers_gone(chain_id: int) -> list[str]:
    """Whose planned transactions no key of ours can sign any more."""
    planned = ChainTransaction.objects.filter(chain_id=chain_id, state=State.PLANNED)
    return sorted(set(planned.values_list("signer", flat=True)) - _ours())[:SIGNERS_PER_RUN_MAX]


def hand_over(chain_id: int, signer: str) -> int:
    """Give what this old key had planned to the keys that may call it now; how many. Hold the old signer's lock.

    The tries that the contract refused the old key for do not count against the new one. Raises ChainError.
    """
    mine = ChainTransaction.objects.filter(chain_id=chain_id, signer=signer, state=State.PLANNED)
    moved = 0
    for to, purpose in sorted(set(mine.values_list("to", "purpose"))):
        heir = _heir(chain_id, to, purpose)
        if heir is not None:
            given = mine.filter(to=to, purpose=purpose).update(signer=heir, attempts=0, next_at=clock.now())
            log.warning("What an old key had planned got a new signer. count=%s of=%s to=%s", given, signer, heir)
            moved += given
    return moved


def _heir(chain_id: int, contract: str, purpose: str) -> str | None:
    """The address of the key of ours that the contract lets call the function; None: there is none."""
    if not EscrowContract.objects.filter(chain_id=chain_id, address=contract).exists():
        return None
    client = client_of(chain_id)
    abi = builds.load(builds.ESCROW).abi
    for role in MAY_CALL.get(purpose, ()):
        try:
            address = keys.key_for(role).address
        except SignerMissing:
            continue
        if client.read(contract, abi, "hasRole", role.id, address, at=client.head()):
            return address
    return None


def _ours() -> set[str]:
    found: set[str] = set()
    for role in Role:
        try:
            found.add(keys.key_for(role).address)
        except SignerMissing:
            continue
    return found

"""The tree of a payout root: one leaf a wallet, with all that it was ever promised."""

from __future__ import annotations

from collections.abc import Mapping

from billing.proofs import merkle


def leaf(*, chain_id: int, contract: str, token: str, wallet: str, cumulative: int) -> bytes:
    """keccak256(bytes.concat(keccak256(abi.encode(chain, contract, token, wallet, cumulative)))), as claim() has it."""
    return merkle.leaf_hash(chain_id, contract, token, wallet, cumulative)


def tree(totals: Mapping[str, int], *, chain_id: int, contract: str, token: str) -> merkle.MerkleTree:
    """The tree over wallet -> cumulative total."""
    return merkle.build_tree(
        [
            leaf(chain_id=chain_id, contract=contract, token=token, wallet=wallet, cumulative=cumulative)
            for wallet, cumulative in totals.items()
        ]
    )

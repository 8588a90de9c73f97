"""What wallets sign for the contract, and the trees that it checks."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from eth_account import Account
from hypothesis import given
from hypothesis import strategies as st

from billing.proofs import merkle
from billing.proofs.escrow import (
    HoldAuthorization,
    ReceiptKeyDelegation,
    authorization_digest,
    delegation_digest,
    is_signed_by_customer,
    is_signed_by_provider,
    provider_proof,
    providers_tree,
    sign_authorization,
    sign_delegation,
)
from provider_agent.protocol import ReceiptDomain

ALICE = "0x" + "a1" * 32
BOB = "0x" + "b0" * 32
MALLORY = "0x" + "66" * 32
DOMAIN = ReceiptDomain(chain_id=31337, verifying_contract="0x" + "c0" * 20)


def address(key: str) -> str:
    return str(Account.from_key(key).address)


def hold(**changes: Any) -> HoldAuthorization:
    fields: dict[str, Any] = {
        "job_id": UUID(int=7),
        "customer": address(ALICE),
        "asset": "0x" + "70" * 20,
        "max_amount": 2**256 - 1,
        "rate_ceiling_per_hour": 3_600_000,
        "deadline": 1_900_000_000,
        "nonce": 5,
    }
    return HoldAuthorization(**(fields | changes))


def delegation(**changes: Any) -> ReceiptKeyDelegation:
    fields = {"provider": address(BOB), "receipt_key": "0x" + "11" * 20, "not_after": 1_900_000_000, "nonce": 0}
    return ReceiptKeyDelegation(**(fields | changes))


def test_a_wallet_signs_a_hold_and_a_delegation():
    assert is_signed_by_customer(sign_authorization(ALICE, hold(), DOMAIN), DOMAIN)
    assert is_signed_by_provider(sign_delegation(BOB, delegation(), DOMAIN), DOMAIN)


def test_nobody_else_signs_for_it():
    assert not is_signed_by_customer(sign_authorization(MALLORY, hold(), DOMAIN), DOMAIN)
    assert not is_signed_by_provider(sign_delegation(MALLORY, delegation(), DOMAIN), DOMAIN)


@pytest.mark.parametrize(
    "domain",
    [
        ReceiptDomain(chain_id=1, verifying_contract=DOMAIN.verifying_contract),
        ReceiptDomain(chain_id=31337, verifying_contract="0x" + "c1" * 20),
        ReceiptDomain(),
    ],
)
def test_a_signature_is_for_one_contract_on_one_chain(domain):
    assert not is_signed_by_customer(sign_authorization(ALICE, hold(), DOMAIN), domain)
    assert not is_signed_by_provider(sign_delegation(BOB, delegation(), DOMAIN), domain)


@pytest.mark.parametrize(
    "changes",
    [
        {"job_id": UUID(int=8)},
        {"asset": "0x" + "71" * 20},
        {"max_amount": 1},
        {"rate_ceiling_per_hour": 1},
        {"providers_root": "0x" + "01" * 32},
        {"deadline": 1},
        {"nonce": 6},
    ],
)
def test_every_field_of_a_hold_is_signed(changes):
    signed = sign_authorization(ALICE, hold(), DOMAIN)
    assert not is_signed_by_customer(signed.model_copy(update={"authorization": hold(**changes)}), DOMAIN)


@pytest.mark.parametrize("changes", [{"receipt_key": "0x" + "12" * 20}, {"not_after": 1}, {"nonce": 1}])
def test_every_field_of_a_delegation_is_signed(changes):
    signed = sign_delegation(BOB, delegation(), DOMAIN)
    assert not is_signed_by_provider(signed.model_copy(update={"delegation": delegation(**changes)}), DOMAIN)


def test_digests_are_those_that_the_standard_gives():
    """Computed by hand from EIP-712: keccak(0x1901 || domain separator || struct hash)."""
    from eth_utils.crypto import keccak

    def word(value: int | str) -> bytes:
        return value.to_bytes(32, "big") if isinstance(value, int) else bytes.fromhex(value[2:]).rjust(32, b"\0")

    separator = keccak(
        keccak(b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)")
        + keccak(b"Souk")
        + keccak(b"1")
        + word(31337)
        + word(DOMAIN.verifying_contract)
    )
    one, other = hold(), delegation()
    struct = keccak(
        keccak(
            b"HoldAuthorization(bytes32 jobId,address customer,address asset,uint256 maxAmount,"
            b"uint256 rateCeilingPerHour,uint32 parallelLeases,bytes32 providersRoot,uint64 deadline,uint256 nonce)"
        )
        + word(one.job_id.int)
        + word(one.customer)
        + word(one.asset)
        + word(one.max_amount)
        + word(one.rate_ceiling_per_hour)
        + word(one.parallel_leases)
        + word(one.providers_root)
        + word(one.deadline)
        + word(one.nonce)
    )
    assert authorization_digest(one, DOMAIN) == "0x" + keccak(b"\x19\x01" + separator + struct).hex()
    struct = keccak(
        keccak(b"ReceiptKeyDelegation(address provider,address receiptKey,uint64 notAfter,uint256 nonce)")
        + word(other.provider)
        + word(other.receipt_key)
        + word(other.not_after)
        + word(other.nonce)
    )
    assert delegation_digest(other, DOMAIN) == "0x" + keccak(b"\x19\x01" + separator + struct).hex()


@pytest.mark.parametrize("amount", [0, -1, 2**256])
def test_amounts_that_no_contract_holds_are_refused(amount):
    with pytest.raises(ValueError, match="max_amount"):
        hold(max_amount=amount)


def test_the_tree_is_openzeppelins():
    """The example of their README."""
    leaves = [
        merkle.leaf_hash("0x" + "11" * 20, 5_000_000_000_000_000_000),
        merkle.leaf_hash("0x" + "22" * 20, 2_500_000_000_000_000_000),
    ]
    root = merkle.build_tree(leaves).root
    assert root.hex() == "d4dee0beab2d53f2cc83e567171bd2820e49898130a22622b10ead383e90bd77"


@given(count=st.integers(1, 70), foreign=st.integers(0, 69))
def test_each_leaf_is_proven_and_no_other(count, foreign):
    leaves = [merkle.leaf_hash(number) for number in range(count)]
    tree = merkle.build_tree(leaves)
    for leaf in leaves:
        assert merkle.is_proven(leaf, tree.proof(leaf), tree.root)
    stranger = merkle.leaf_hash(1000 + foreign)
    assert not merkle.is_proven(stranger, tree.proof(leaves[foreign % count]), tree.root)
    with pytest.raises(KeyError):
        tree.proof(stranger)


def test_a_node_of_the_tree_is_no_leaf():
    tree = merkle.build_tree([merkle.leaf_hash(number) for number in range(8)])
    with pytest.raises(KeyError):
        tree.proof(tree.nodes[1])


def test_a_hold_names_its_providers():
    wallets = [address(BOB), address(MALLORY), "0x" + "33" * 20]
    tree = providers_tree(wallets)
    proof = [bytes.fromhex(node[2:]) for node in provider_proof(tree, address(BOB))]
    assert merkle.is_proven(merkle.leaf_hash(address(BOB)), proof, tree.root)
    assert not merkle.is_proven(merkle.leaf_hash(address(ALICE)), proof, tree.root)


@pytest.mark.parametrize("providers", [[], [address(BOB)] * 2])
def test_a_tree_of_nobody_or_of_one_twice_is_refused(providers):
    with pytest.raises(ValueError):
        providers_tree(providers)

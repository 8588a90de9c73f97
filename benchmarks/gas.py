"""What the escrow costs in gas: payouts to 1, 100 and 10,000 providers, holds, settlements; beside the design's.

Gas is counted by py-evm and depends on nothing but the contract's bytes, so that it is the same on every machine.

    python -m benchmarks.gas [--write]
"""

from __future__ import annotations

from typing import Any

from eth_account import Account
from web3 import Web3

from benchmarks.record import publish
from tests.unit.billing.contract import merkle
from tests.unit.billing.contract.chain import Chain, address
from tests.unit.billing.contract.scene import DAY, HOLDERS, HOUR, HOUR_MS, Scene, id32

PROVIDERS = (1, 100, 10_000)
EACH = 10_000  # base units a provider and epoch
# money.md 2.9: another contract, in Vyper 0.4.3, on anvil 1.7.1
DESIGN = {
    "transfer_new_holder": 49_160,
    "transfer_holder": 32_060,
    "push_batch_of_200_per_payout_new_holder": 23_992,
    "push_batch_of_200_per_payout_holder": 6_892,
    "root_first": 43_796,
    "root_later": 26_696,
    "claim_new_holder": 86_145,
    "claim_later": 51_937,
    "hold": 102_543,
    "settle": 61_457,
}


def main() -> None:
    """Count and publish."""
    chain = Chain()
    figures: dict[str, Any] = {"payouts": {}, "design": DESIGN}
    for providers in PROVIDERS:
        figures["payouts"][str(providers)] = count_payouts(chain, providers)
    figures["job"] = count_job(chain)
    publish("gas", figures)


def count_payouts(chain: Chain, providers: int) -> dict[str, float]:
    """Three epochs of cumulative roots over so many providers, of whom one claims each time."""
    scene = Scene.make(chain, root_daily_cap=2**255)
    accounts = [Account.from_key(Web3.keccak(text=f"provider {i}")).address for i in range(providers)]
    claimant = providers // 2
    scene.buy_credits(4 * EACH * providers)
    roots, claims, proof_length = [], [], 0
    for epoch in (1, 2, 3):
        leaves = [
            merkle.payout_leaf(chain.chain_id, scene.escrow.address, scene.token.address, account, epoch * EACH)
            for account in accounts
        ]
        tree = merkle.levels(leaves)
        roots.append(chain.gas(scene.escrow, "publisher", "proposeRoot", tree[-1][0], epoch * EACH * providers))
        chain.at(scene.now() + DAY)
        proof = merkle.path(tree, leaves[claimant])
        proof_length = len(proof)
        claims.append(chain.gas(scene.escrow, "mallory", "claim", accounts[claimant], epoch * EACH, proof))
    return {
        "proof_length": proof_length,
        "root_first": roots[0],
        "root_later": roots[2],
        "root_later_per_payout": round(roots[2] / providers, 1),
        "claim_new_holder": claims[0],
        "claim_later": claims[2],
        "all_later_per_payout": round(roots[2] / providers + claims[2], 1),
    }


def count_job(chain: Chain) -> dict[str, int]:
    """Each transaction of a job in the trust-minimised mode, and of money in and out."""
    figures = {"deploy": _deployment(chain)}
    scene = Scene.make(chain)

    def count(name: str, who: str, function: str, *args: Any) -> None:
        figures[name] = chain.gas(scene.escrow, who, function, *args)

    count("deposit_first", "alice", "deposit", 50_000)
    count("deposit_later", "alice", "deposit", 50_000)
    count("buy_credits", "alice", "buyCredits", id32("organisation"), 50_000)
    count("register_receipt_key", "settler", "registerReceiptKey", *scene.delegate())
    count("hold_first_of_256_nonces", "settler", "openHold", *scene.authorize(job="job", nonce=1))
    count("hold_later", "settler", "openHold", *scene.authorize(job="job 2", nonce=2))
    leaves = [merkle.provider_leaf(address(name)) for name in ("bob", "ben")]
    bound = scene.authorize(job="job 3", nonce=3, providersRoot=merkle.root(leaves))
    count("hold_of_named_providers", "settler", "openHold", *bound)
    scene.pass_hours(2)
    count("settle_first", "settler", "settleLease", *scene.receipt(cumulative_amount=500), [])
    count("settle_later", "settler", "settleLease", *scene.receipt(seq=2, cumulative_amount=900), [])
    proof = merkle.proof(leaves, leaves[0])
    count("settle_named_provider", "settler", "settleLease", *scene.receipt("job 3", "lease 3"), proof)
    chain.at(scene.now() + scene.terms.challenge_seconds)
    count("finalize", "mallory", "finalize", address("alice"), id32("lease"))
    count("settle_and_pay_what_was_due", "settler", "settleLease", *_third(scene), [])
    count("close_hold", "settler", "closeHold", address("alice"), id32("job"))
    count("withdraw", "alice", "withdraw", 10_000)
    return figures | _slow_close(chain)


def _slow_close(chain: Chain) -> dict[str, int]:
    """A hold's end in a contract that leaves time to stop a false one, as `souk chain deploy` sets it."""
    scene = Scene.make(chain, close_seconds=HOUR)
    scene.open_hold()
    job = (address("alice"), id32("job"))
    begun = chain.gas(scene.escrow, "settler", "closeHold", *job)
    chain.at(scene.now() + HOUR + 1)
    return {"begin_close": begun, "refund_closed": chain.gas(scene.escrow, "settler", "refundExpired", *job)}


def _third(scene: Scene) -> Any:
    scene.settle(seq=3, cumulative_amount=950)
    scene.chain.at(scene.now() + scene.terms.challenge_seconds)
    return scene.receipt(seq=4, cumulative_amount=1_900, billable_ms=2 * HOUR_MS)


def _deployment(chain: Chain) -> int:
    scene = Scene.make(chain)
    chain.deploy("GpuEscrow", tuple(scene.terms), HOLDERS)
    return int(chain.gas_used)


if __name__ == "__main__":
    main()

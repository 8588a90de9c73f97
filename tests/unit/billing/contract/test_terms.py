"""What an escrow is made with: checked when it is made, readable for ever."""

from __future__ import annotations

import pytest
from web3 import Web3

from tests.unit.billing.contract.chain import ROLES, Chain, Refused, address, build
from tests.unit.billing.contract.scene import DAY, HOLDERS, TERMS, ZERO, Scene

SIZE_LIMIT = 24_576  # EIP-170


@pytest.mark.parametrize(
    ("error", "change"),
    [
        ("WrongAsset", {"token": address("alice")}),
        ("WrongAsset", {"token": ZERO}),
        ("NotAllowed", {"fee_recipient": ZERO}),
        ("FeeTooHigh", {"fee_bps": 2_001}),
        ("AccessControlInvalidDefaultAdmin", {"admin": ZERO}),
        ("PeriodTooLong", {"challenge_seconds": 366 * DAY + 1}),
        ("PeriodTooLong", {"grace_seconds": 366 * DAY + 1}),
        ("PeriodTooLong", {"dispute_seconds": 366 * DAY + 1}),
        ("PeriodTooLong", {"close_seconds": 366 * DAY + 1}),
        ("PeriodTooLong", {"root_delay_seconds": 2**64 - 1}),
        ("PeriodTooLong", {"unstake_seconds": 366 * DAY + 1}),
    ],
    ids=str,
)
def test_terms_that_nobody_could_live_with_are_refused(scene: Scene, error: str, change: dict[str, object]) -> None:
    with pytest.raises(Refused, match=f"^{error}$"):
        scene.chain.deploy("GpuEscrow", tuple(scene.terms._replace(**change)), HOLDERS)


def test_terms_at_their_bounds_are_taken(chain: Chain) -> None:
    scene = Scene.make(chain, fee_bps=2_000, challenge_seconds=366 * DAY, grace_seconds=0)
    assert scene.view("feeBps") == scene.view("MAX_FEE_BPS") == 2_000


def test_terms_can_be_read(scene: Scene) -> None:
    read = {
        "token": scene.token.address,
        "feeRecipient": address("fee"),
        "feeBps": TERMS.fee_bps,
        "challengeSeconds": TERMS.challenge_seconds,
        "graceSeconds": TERMS.grace_seconds,
        "disputeSeconds": TERMS.dispute_seconds,
        "closeSeconds": TERMS.close_seconds,
        "rootDelaySeconds": TERMS.root_delay_seconds,
        "rootDailyCap": TERMS.root_daily_cap,
        "unstakeSeconds": TERMS.unstake_seconds,
        "slashCapPerOffence": TERMS.slash_cap_per_offence,
        "slashDailyCap": TERMS.slash_daily_cap,
        "defaultAdmin": address("admin"),
        "defaultAdminDelay": 2 * DAY,
        "MAX_PERIOD_SECONDS": 366 * DAY,
        "ROLE_DELAY_SECONDS": 2 * DAY,
        "ROLE_WINDOW_SECONDS": 14 * DAY,
    }
    assert {name: scene.view(name) for name in read} == read
    assert scene.view("eip712Domain")[1:5] == ["Souk", "1", scene.chain.chain_id, scene.escrow.address]
    for role in ROLES:
        assert scene.view(role.upper()) == Web3.keccak(text=role.upper())
        assert scene.view("hasRole", scene.view(role.upper()), address(role))


def test_the_contract_fits_every_chain() -> None:
    assert len(build("GpuEscrow")["deployed_bytecode"]) // 2 - 1 < SIZE_LIMIT


def test_it_takes_no_ether(scene: Scene) -> None:
    payable = [each for each in build("GpuEscrow")["abi"] if each.get("stateMutability") == "payable"]
    assert payable == []
    with pytest.raises(Exception, match="execution reverted"):
        scene.chain.w3.eth.call(
            {"from": address("alice"), "to": scene.escrow.address, "value": Web3.to_wei(1, "wei")}, "pending"
        )

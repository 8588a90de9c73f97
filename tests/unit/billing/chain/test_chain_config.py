"""The chains of a marketplace as its settings name them."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from billing.chain import config
from billing.chain.errors import ChainMisconfigured, ChainUnknown


def entry(chain_id: int = 31337, **changes: Any) -> dict[str, Any]:
    return {
        "chain_id": chain_id,
        "name": "local",
        "rpc_urls": ["http://127.0.0.1:8545"],
        "is_development": True,
        "confirmations": 1,
        "max_fee_gwei": "1.5",
    } | changes


def test_a_chain_is_found_by_its_id_and_another_is_unknown(settings: Settings) -> None:
    settings.SOUK_CHAINS = [entry()]
    assert config.chain_of(31337).chain_id == 31337
    with pytest.raises(ChainUnknown):
        config.chain_of(1)


def test_two_chains_of_one_id_are_refused(settings: Settings) -> None:
    settings.SOUK_CHAINS = [entry(), entry(name="other")]
    with pytest.raises(ChainMisconfigured, match="two entries have one chain_id"):
        config.chains()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"is_development": False}, "two endpoints are needed"),
        ({"is_development": False, "finality": "depth", "confirmations": 0}, "finality by depth needs confirmations"),
        ({"rpc_urls": ["http://127.0.0.1:1"] * 2}, "an endpoint is there twice"),
        ({"rpc_urls": ["http://192.0.2.1:8545"]}, "a development chain is on this computer"),
        ({"rpc_urls": ["http://chain.example"]}, "a development chain is on this computer"),
        ({"rpc_urls": ["/no/host"]}, "a development chain is on this computer"),
    ],
)
def test_a_chain_that_could_not_be_believed_is_refused(settings: Settings, changes: dict[str, Any], why: str) -> None:
    settings.SOUK_CHAINS = [entry(**changes)]
    with pytest.raises(ChainMisconfigured, match=why):
        config.chains()


@pytest.mark.parametrize(("gwei", "fee"), [("1.5", 1_500_000_000), ("50", 50 * config.GWEI), ("0.000000001", 1)])
def test_the_limit_of_a_fee_is_exact(settings: Settings, gwei: str, fee: int) -> None:
    settings.SOUK_CHAINS = [entry(max_fee_gwei=gwei, rpc_urls=["http://localhost:8545"])]
    assert config.chain_of(31337).max_fee == fee


def test_an_unknown_field_of_a_chain_is_refused(settings: Settings) -> None:
    settings.SOUK_CHAINS = [entry(invented=1)]
    with pytest.raises(ChainMisconfigured, match="invented"):
        config.chains()

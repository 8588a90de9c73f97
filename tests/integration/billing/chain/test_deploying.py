"""Deploying: interrupted anywhere and repeated, it ends with one contract with the requested terms and roles."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from billing.chain.contract import deploy, periods
from billing.chain.devchain import development
from billing.chain.devchain.chain import CHAIN_ID, DEVELOPMENT_KEYS
from billing.chain.errors import ContractRefused, KeyInUse
from billing.chain.keys import Role, SigningKey, key_for
from billing.chain.payout_rail import ChainPayouts
from billing.chain.reading.client import Receipt
from billing.models import Alert, ContractTerms, EscrowContract, Signer
from jobs.pricing import assets
from provider_agent.protocol import ethereum
from tests.integration.billing.chain.town import Town


class Killed(BaseException):
    """As SIGKILL: nothing of ours catches it."""


def asked(town: Town) -> tuple[SigningKey, deploy.Terms, dict[str, str]]:
    key = town.key("Operator")
    terms = dataclasses.replace(development.terms(town.token, key.address), fee_bps=500)
    return key, terms, {role: key_for(Role.SETTLER).address for role in deploy.ROLES}


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("seam", [0])
def test_a_deployment_that_was_cut_off_goes_on_where_it_was(
    town: Town, monkeypatch: pytest.MonkeyPatch, seam: int, is_before: bool
) -> None:
    key, terms, roles = asked(town)
    send = deploy.send
    sent: list[Receipt] = []

    def dying(*given: Any, **named: Any) -> Any:
        if is_before and len(sent) == seam:
            raise Killed
        sent.append(send(*given, **named))
        if len(sent) == seam + 1:
            raise Killed
        return sent[-1]

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(deploy, "send", dying)
        deploy.deploy_escrow(CHAIN_ID, key, terms, roles)
    receipt = deploy.deploy_escrow(CHAIN_ID, key, terms, roles)
    assert deploy.verify_escrow(CHAIN_ID, receipt.contract, terms, roles) == []
    if sent:
        assert (receipt.contract, receipt.block_number) == (sent[0].contract, sent[0].block_number)
    assert town.client.nonce(key.address) == 1


def test_other_terms_are_another_contract(town: Town) -> None:
    key, terms, roles = asked(town)
    one = deploy.deploy_escrow(CHAIN_ID, key, terms, roles)
    two = deploy.deploy_escrow(CHAIN_ID, key, dataclasses.replace(terms, fee_bps=600), roles)
    assert one.contract != two.contract


def test_no_wallet_is_asked_to_sign_for_a_contract_of_another_build(town: Town) -> None:
    """It takes other calls for holds: each would be refused after the customer signed. All else goes on there."""
    ours, asset = town.contract.address, town.contract.asset
    assert assets.modes_of(asset) == ["credits"]  # until it was read
    EscrowContract.objects.update(address=town.token)
    with pytest.raises(ContractRefused, match="its code is not that of this version"):
        town.follow()
    assert assets.modes_of(asset) == ["credits"]
    assert "no job is paid from wallets there" in Alert.objects.open().get(kind="chain_tending").message
    EscrowContract.objects.update(address=ours)
    town.follow()
    assert assets.modes_of(asset) == ["credits", "escrow"]
    assert not Alert.objects.open().exists()
    assert ContractTerms.objects.get() == periods.terms_of(asset.pk)


def test_terms_that_an_earlier_version_wrote_are_looked_at_again(town: Town) -> None:
    """While an update goes from process to process, one of the version before writes those of any build."""
    asset = town.contract.asset
    town.follow()
    assert ContractTerms.objects.get().close_seconds == 0  # as the version before leaves it
    EscrowContract.objects.update(address=town.token)
    with pytest.raises(ContractRefused, match="its code is not that of this version"):
        town.follow()
    assert assets.modes_of(asset) == ["credits"]


def test_the_marketplaces_own_key_deploys_nothing(town: Town) -> None:
    """Its nonces are counted: what it sent beside them would look like a stolen key, and stop everything."""
    key = SigningKey(ethereum.address_of(DEVELOPMENT_KEYS[0]), DEVELOPMENT_KEYS[0])
    Signer.objects.create(address=key.address, chain_id=CHAIN_ID, next_nonce=0)
    _, terms, roles = asked(town)
    with pytest.raises(KeyInUse, match="deploy with another"):
        deploy.deploy_escrow(CHAIN_ID, key, dataclasses.replace(terms, admin=key.address), roles)


def test_what_is_paid_out_goes_to_no_contract_of_ours(town: Town) -> None:
    """The escrow would keep it, and tokens such as USDC refuse to be sent to themselves: the claim fails for ever."""
    for address in (town.contract.address, town.token, town.token.lower()):
        with pytest.raises(ValueError, match="no wallet of yours"):
            ChainPayouts().check_destination(address)
    bob = town.key("Bob").address
    assert ChainPayouts().check_destination(f" {bob} ") == bob

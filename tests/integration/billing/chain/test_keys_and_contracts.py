"""Keys, tokens, contracts and the API: what each lets in, and what it never lets out."""

from __future__ import annotations

import logging
import pickle
from typing import Any
from uuid import uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.chain import payout_roots, positions
from billing.chain.config import chain_of
from billing.chain.contract import deploy, registry
from billing.chain.devchain import development
from billing.chain.devchain.chain import CHAIN_ID, DEVELOPMENT_KEYS
from billing.chain.errors import AssetCodeTaken, ChainUnknown, ContractRefused, SignerMissing, TokenRefused
from billing.chain.keys import Role, key_for
from billing.chain.payout_rail import ChainPayouts
from billing.chain.reading import builds
from billing.chain.wallets import checksummed
from billing.models import Alert, Asset, Payout, PayoutEntry, PayoutRoot
from billing.states.chain import RootState
from provider_agent.protocol import id_bytes32
from tests.integration.billing.chain.earning import earn, reserve, send
from tests.integration.billing.chain.town import TOKEN, Town
from tests.integration.billing.clients import organisation_with_client


def test_a_key_shows_itself_to_nobody(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.SOUK_CHAIN_KEY = DEVELOPMENT_KEYS[0]
    settings.SOUK_CHAIN_SETTLER_KEY = ""
    key = key_for(Role.SETTLER)
    secret = DEVELOPMENT_KEYS[0][2:]
    logging.getLogger("billing").warning("signing with %s %r", key, key)
    assert secret not in caplog.text + repr(key) + str(key) + f"{key}"
    with pytest.raises(TypeError):
        pickle.dumps(key)


def test_nothing_of_a_whole_day_on_the_chain_logs_a_key(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    town.buy_credits("Alice", uuid4(), TOKEN)
    town.follow(2)
    for key in DEVELOPMENT_KEYS:
        assert key[2:] not in caplog.text


@pytest.mark.parametrize("secret", ["", "0x12", "zz" * 32])
def test_a_role_without_a_key_is_named(settings: Any, secret: str) -> None:
    settings.SOUK_CHAIN_KEY = settings.SOUK_CHAIN_SETTLER_KEY = secret
    with pytest.raises(SignerMissing, match="settler") as raised:
        key_for(Role.SETTLER)
    assert not secret or secret not in str(raised.value)


def test_a_role_may_have_a_key_of_its_own(settings: Any) -> None:
    settings.SOUK_CHAIN_KEY, settings.SOUK_CHAIN_PUBLISHER_KEY = DEVELOPMENT_KEYS[:2]
    settings.SOUK_CHAIN_SETTLER_KEY = ""
    assert key_for(Role.SETTLER).address != key_for(Role.PUBLISHER).address


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("0x12", "not an address"),
        ("f39Fd6e51aad88F6F4ce6aB8827279cffFb92266", "not an address"),
        ("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92267", "checksum"),
        ("0x" + "0" * 40, "nobody"),
    ],
)
def test_a_destination_that_was_mistyped_is_refused(db: None, address: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ChainPayouts().check_destination(address)
    assert checksummed("0x" + "ab" * 20) == ChainPayouts().check_destination("0x" + "ab" * 20)


def test_tokens_are_read_from_the_chain_and_codes_are_unique(town: Town) -> None:
    assert registry.register_token("TUSD", CHAIN_ID, town.token).pk == town.asset_id
    assert town.contract.asset.scale == 6
    with pytest.raises(AssetCodeTaken):
        registry.register_token("OTHER", CHAIN_ID, town.token)
    key = town.key("Mallory")
    fine = deploy.deploy_dev_token(CHAIN_ID, key, name="Fine", symbol="FINE", decimals=36).contract
    deep = deploy.deploy_dev_token(CHAIN_ID, key, name="Deep", symbol="DEEP", decimals=37).contract
    assert registry.register_token("FINE", CHAIN_ID, fine).scale == 36
    for code, token, error in (
        ("TUSD", deep, TokenRefused),
        ("DEEP", deep, TokenRefused),
        ("usd", deep, TokenRefused),
        ("NONE", "0x" + "77" * 20, TokenRefused),
        ("SELF", town.contract.address, TokenRefused),
    ):
        with pytest.raises(error):
            registry.register_token(code, CHAIN_ID, token)
    with pytest.raises(AssetCodeTaken):
        registry.register_token(
            "TUSD", CHAIN_ID, deploy.deploy_dev_token(CHAIN_ID, key, name="T", symbol="T", decimals=6).contract
        )
    with pytest.raises(ChainUnknown):
        chain_of(1)


def test_a_contract_that_is_not_our_build_is_refused(town: Town) -> None:
    with pytest.raises(ContractRefused, match="not that of GpuEscrow"):
        registry.register_escrow(town.contract.asset, town.token, deployed_block=1)
    _, hers, block = development.build_town(CHAIN_ID)
    with pytest.raises(ContractRefused, match="holds the token"):
        registry.register_escrow(town.contract.asset, hers, deployed_block=block)


def test_what_was_deployed_is_what_was_asked_for(town: Town) -> None:
    key = deploy_key()
    terms = development.terms(town.token, key.address)
    assert (
        deploy.verify_escrow(CHAIN_ID, town.contract.address, terms, {"SETTLER": key_for(Role.SETTLER).address}) == []
    )
    mallory = town.key("Mallory").address
    other = development.terms(town.token, mallory)
    problems = deploy.verify_escrow(CHAIN_ID, town.contract.address, other, {"SETTLER": mallory})
    assert len(problems) == 2
    build = builds.load(builds.ESCROW)
    code = bytearray(town.client.code(town.contract.address))
    assert build.is_deployed_as(bytes(code))
    code[100] ^= 1
    assert not build.is_deployed_as(bytes(code))


def deploy_key() -> Any:
    from billing.chain.keys import SigningKey
    from provider_agent.protocol import ethereum

    return SigningKey(ethereum.address_of(DEVELOPMENT_KEYS[3]), DEVELOPMENT_KEYS[3])


def test_a_strangers_coin_in_the_contract_is_no_difference(town: Town) -> None:
    town.buy_credits("Alice", uuid4(), 5 * TOKEN)
    town.mint("Mallory", TOKEN)
    gift = builds.encode(builds.DEV_TOKEN, "transfer", [town.contract.address, TOKEN])
    deploy.send(town.client, town.key("Mallory"), data=gift, to=town.token, purpose="transfer")
    town.follow()
    assert positions.positions() == {(AccountKind.CHAIN_ESCROW, town.asset_id): 5 * TOKEN}
    [movement] = positions.movements(town.contract.registered_at.replace(year=2020))
    assert movement.amount == 5 * TOKEN


def test_a_root_that_is_not_ours_is_reported_at_once(town: Town) -> None:
    town.buy_credits("Alice", uuid4(), 5 * TOKEN)
    town.wallets["thief"] = key_for(Role.PUBLISHER)
    town.call("thief", "proposeRoot", b"\x66" * 32, 5 * TOKEN)
    town.follow()
    assert Alert.objects.get(kind="chain_root").severity == "critical"


def test_a_vetoed_root_is_not_replaced_before_an_operator_has_looked(town: Town) -> None:
    alice, bob = uuid4(), uuid4()
    town.buy_credits("Alice", alice, 10 * TOKEN)
    town.follow()
    earn(town, alice, bob, 5 * TOKEN)
    payout = reserve(town, bob, town.key("Bob").address, 5 * TOKEN)
    payout_roots.include(town.contract, [payout])
    row = payout_roots.publish(town.contract)
    assert row is not None
    assert payout_roots.publish(town.contract) is None
    PayoutRoot.objects.filter(pk=row.pk).update(state=RootState.PROPOSED)
    PayoutRoot.objects.filter(pk=row.pk).update(state=RootState.VETOED)
    assert payout_roots.publish(town.contract) is None
    assert Alert.objects.filter(kind="chain_root").count() == 1
    assert payout_roots.retry(town.contract) is not None


def test_a_payout_is_included_once_however_often_it_is_submitted(town: Town) -> None:
    alice, bob = uuid4(), uuid4()
    town.buy_credits("Alice", alice, 10 * TOKEN)
    town.follow()
    earn(town, alice, bob, 5 * TOKEN)
    payout = reserve(town, bob, town.key("Bob").address, 5 * TOKEN)
    for _ in range(3):
        ChainPayouts().submit([payout])
    assert PayoutEntry.objects.count() == PayoutRoot.objects.count() == 1


def test_a_payout_in_a_token_without_a_contract_fails_with_its_cause(town: Town) -> None:
    other = Asset.objects.create(pk=99, code="NONE", scale=6, kind="erc20", chain_id=CHAIN_ID, contract="0x" + "9" * 40)
    payout = Payout.objects.create(
        provider_id=uuid4(), rail="chain", asset=other, amount=1, destination="0x" + "1" * 40
    )
    outcome = ChainPayouts().submit([payout])[str(payout.pk)]
    assert outcome.fate == "failed"
    assert "no escrow contract for NONE" in outcome.message


def test_the_api_shows_where_tokens_go_in_and_how_a_payout_comes_out(town: Town) -> None:
    (alice, as_alice), (bob, as_bob) = organisation_with_client("alice"), organisation_with_client("bob")
    [answer] = as_alice.get("/api/v1/escrow").json()
    assert answer["contract"] == town.contract.address
    assert answer["account"] == "0x" + id_bytes32(alice.pk).hex()
    town.buy_credits("Alice", alice.pk, 10 * TOKEN)
    town.follow()
    assert not Alert.objects.filter(kind="chain_credits").exists()
    earn(town, alice.pk, bob.pk, 5 * TOKEN)
    payout = reserve(town, bob.pk, town.key("Bob").address, 5 * TOKEN)
    path = f"/api/v1/payouts/{payout.pk}/proof"
    assert as_bob.get(path).status_code == 404
    send(payout)
    assert as_bob.get(path).json()["code"] == "proof_not_ready"
    town.follow(3)
    assert as_alice.get(path).status_code == 404
    proof = as_bob.get(path).json()
    deploy.send(town.client, town.key("Bob"), data=proof["call_data"], to=proof["contract"], purpose="claim")
    assert town.tokens_of(town.key("Bob").address) == 5 * TOKEN
    town.follow()
    town.assert_books_match()

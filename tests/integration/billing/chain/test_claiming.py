"""`souk provider claim` on a real chain: made of the proof, whatever call the marketplace would like to have signed."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from billing.chain import payout_roots
from jobs.client.commands.payouts import _require_known
from jobs.client.errors import ChainFailed, SendingInterrupted, TermsRefused, UsageMistake
from jobs.client.settings import settings_path
from jobs.client.wallet.chain_wallet import ChainWallet, encode_call
from jobs.client.wallet.claiming import claim, claim_call
from jobs.client.wallet.key_file import FEE_MAX, Wallet
from jobs.wire import AssetView, ProofView
from tests.integration.billing.chain.earning import earn, reserve, send
from tests.integration.billing.chain.town import TOKEN, Town


@pytest.fixture
def proof(town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProofView:
    """Of five tokens for Bob, by a root that is open."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    alice, bob = uuid4(), uuid4()
    town.buy_credits("Alice", alice, 10 * TOKEN)
    town.follow()
    earn(town, alice, bob, 5 * TOKEN)
    payout = reserve(town, bob, town.key("Bob").address, 5 * TOKEN)
    send(payout)
    town.follow(3)
    found = payout_roots.prove(payout.pk)
    return ProofView(
        chain_id=found.chain_id,
        contract=found.contract,
        token=found.token,
        wallet=found.wallet,
        cumulative=found.cumulative,
        merkle_root=found.root,
        proof=found.proof,
        call_data=found.call_data,
    )


def take(town: Town, proof: ProofView, who: str = "Bob") -> Any:
    wallet = Wallet(town.key(who).address, town.secret(who))
    return claim(proof, town.client.config.rpc_urls[0], wallet, fee_max=FEE_MAX, notify=lambda _: None)


def test_anybody_claims_for_the_wallet_and_what_is_signed_is_made_here(town: Town, proof: ProofView) -> None:
    assert "0x" + claim_call(proof).hex() == proof.call_data
    steal = encode_call("approve(address,uint256)", [town.key("Mallory").address, 2**256 - 1])
    lying = proof.model_copy(update={"call_data": "0x" + steal.hex()})
    _, is_earlier = take(town, lying, who="Alice")
    assert not is_earlier
    assert town.tokens_of(town.key("Bob").address) == 5 * TOKEN
    with pytest.raises(ChainFailed, match="claimed already"):
        take(town, proof)
    town.follow()
    town.assert_books_match()


def test_an_interrupted_claim_is_finished_and_not_sent_again(
    town: Town, proof: ProofView, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ChainWallet, "wait", interrupted)
        with pytest.raises(SendingInterrupted) as raised:
            take(town, proof)
    mined, is_earlier = take(town, proof)
    assert (is_earlier, mined.tx_hash) == (True, raised.value.details["tx_hash"])
    assert town.tokens_of(town.key("Bob").address) == 5 * TOKEN


def test_a_proof_that_is_none_is_refused_and_nothing_signed(town: Town, proof: ProofView) -> None:
    for changes in (
        {"proof": ["0x12"]},
        {"proof": ["0x" + "11" * 32] * 65},
        {"proof": ["x" * 66]},
        {"wallet": "0x12"},
        {"wallet": "nobody"},
        {"cumulative": -1},
        {"cumulative": 2**256},
    ):
        with pytest.raises(TermsRefused):
            take(town, proof.model_copy(update=changes))
    with pytest.raises(ChainFailed, match="no escrow"):
        take(town, proof.model_copy(update={"contract": town.token}))
    assert not list(settings_path().parent.glob("transactions/*.json"))


def test_a_proof_for_another_contract_than_the_tokens_is_refused(town: Town, proof: ProofView) -> None:
    class Market:
        """What it says of the token."""

        def __init__(self, contract: str) -> None:
            self.contract = contract
            self.transport: Any = type("Transport", (), {"server": "https://souk.example"})

        def assets(self) -> list[AssetView]:
            about = {"code": "TUSD", "scale": 6, "chain_id": 31337, "token": town.token, "contract": self.contract}
            return [AssetView.model_validate(about | {"usd_micros_per_token": None, "modes": []})]

    other = "0x" + "77" * 20
    honest: Any = Market(town.contract.address)
    _require_known(honest, "TUSD", proof)
    for code, market, message in (
        ("TUSD", honest, proof.model_copy(update={"contract": other})),
        ("TUSD", honest, proof.model_copy(update={"chain_id": 1})),
        ("NONE", honest, proof),
    ):
        with pytest.raises(TermsRefused):
            _require_known(market, code, message)
    swapped: Any = Market(other)
    with pytest.raises(UsageMistake, match="until now it was"):
        _require_known(swapped, "TUSD", proof.model_copy(update={"contract": other}))

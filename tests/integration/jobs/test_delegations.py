"""A payout wallet speaks for a node's receipt key: signed elsewhere, checked here, named in every later receipt."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account as EthereumAccount

from billing import prices
from billing.books import deposits
from billing.models import Asset, EscrowContract
from billing.proofs.escrow import (
    ReceiptKeyDelegation,
    SignedDelegation,
    is_signed_by_provider,
    sign_delegation,
)
from billing.rails.registry import source_of
from jobs.client import cli
from jobs.client.sdk import Souk
from jobs.errors import DelegationRefused
from jobs.escrow import delegations
from jobs.models import Lease, ReceiptDelegation
from jobs.pricing import assets
from marketplace.accounts import api_keys
from marketplace.accounts.scopes import Scope
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from provider_agent.protocol import ZERO_ADDRESS, ReceiptDomain
from tests import stage
from tests.integration.billing.scenes import race
from tests.integration.jobs.api.api_clients import API, client_of
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)

WALLET, MALLORY = EthereumAccount.create(), EthereumAccount.create()
CONTRACT = "0x" + "5e" * 20
DOMAIN = ReceiptDomain(chain_id=31337, verifying_contract=CONTRACT)


@pytest.fixture
def tusd(transactional_db: None) -> Asset:
    asset = Asset.objects.create(id=7, code="TUSD", scale=6, kind="erc20", chain_id=31337, contract="0x" + "ab" * 20)
    prices.set_price(asset.pk, DOLLAR, actor="operator")
    EscrowContract.objects.create(
        asset=asset,
        chain_id=31337,
        address=CONTRACT,
        deployed_block=1,
        scanned_block=1,
        code_hash="0x" + "0" * 64,
        fee_recipient=CONTRACT,
    )
    return asset


@pytest.fixture
def bob(tusd: Asset) -> Node:
    bob = stage.node("bobs-node")
    Node.objects.filter(pk=bob.pk).update(facts={"has_token_receipts": True})
    return bob


def signed(bob: Node, *, key: Any = WALLET, domain: ReceiptDomain = DOMAIN, **changes: Any) -> SignedDelegation:
    fields = {
        "provider": WALLET.address,
        "receipt_key": bob.receipt_address,
        "not_after": int(time.time()) + 100 * 86_400,
        "nonce": 1,
    }
    return sign_delegation(key.key.hex(), ReceiptKeyDelegation(**(fields | changes)), domain)


def delegate(bob: Node, tusd: Asset, word: SignedDelegation) -> ReceiptDelegation:
    return delegations.delegate(bob, tusd, word, domain=DOMAIN, actor="bob")


def test_receipts_name_the_wallet_that_had_delegated_when_the_lease_was_made(bob: Node, tusd: Asset) -> None:
    delegate(bob, tusd, signed(bob))
    alice = stage.organisation("alice")
    deposits.credit(
        alice.id, 10 * DOLLAR, reference="31337:1:0", actor="chain", source=source_of("chain"), asset_id=tusd.pk
    )
    _, (lease,) = stage.running_job(alice, payment={"asset": "TUSD"})
    assert lease.payment_terms is not None
    assert (lease.payment_terms.provider, lease.payment_terms.contract) == (WALLET.address, CONTRACT)
    delegations.revoke(ReceiptDelegation.objects.get().pk, organisation_id=bob.provider.organisation_id)
    stage.see_running(lease, seconds=100)
    stage.bill(lease, ms=90_000)  # what runs keeps the wallet that it was made with
    stage.finish(lease)
    assert int(Lease.objects.get(pk=lease.pk).charge_units or 0) == 50_000
    assert delegations.wallet_of(bob, tusd) == ZERO_ADDRESS


def test_what_was_kept_proves_itself(bob: Node, tusd: Asset) -> None:
    row = delegate(bob, tusd, signed(bob))
    delegation = ReceiptKeyDelegation(
        provider=row.wallet,
        receipt_key=row.receipt_address,
        not_after=int(row.not_after.timestamp()),
        nonce=row.nonce,
    )
    domain = ReceiptDomain(chain_id=row.chain_id, verifying_contract=row.contract)
    assert is_signed_by_provider(SignedDelegation(delegation=delegation, signature=row.signature), domain)


LIES: dict[str, Any] = {
    "another node's key": lambda bob: signed(bob, receipt_key=MALLORY.address),
    "Mallory's signature": lambda bob: signed(bob, key=MALLORY),
    "another chain": lambda bob: signed(bob, domain=ReceiptDomain(chain_id=1, verifying_contract=CONTRACT)),
    "another contract": lambda bob: signed(bob, domain=ReceiptDomain(chain_id=31337)),
    "already over": lambda bob: signed(bob, not_after=int(time.time()) - 1),
    "for ever": lambda bob: signed(bob, not_after=2**64 - 1),
    "no signature": lambda bob: signed(bob).model_copy(update={"signature": "0x" + "0" * 130}),
    "something else signed": lambda bob: signed(bob).model_copy(update={"delegation": signed(bob, nonce=2).delegation}),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_and_not_kept(bob: Node, tusd: Asset, lie: str) -> None:
    with pytest.raises(DelegationRefused):
        delegate(bob, tusd, LIES[lie](bob))
    assert not ReceiptDelegation.objects.exists()


def test_a_newer_word_takes_the_place_of_an_older_and_a_nonce_counts_once(bob: Node, tusd: Asset) -> None:
    word = signed(bob)
    first = delegate(bob, tusd, word)
    assert delegate(bob, tusd, word).pk == first.pk
    second = delegate(bob, tusd, signed(bob, nonce=2))
    first.refresh_from_db()
    assert first.revoked_at is not None and second.revoked_at is None
    with pytest.raises(DelegationRefused, match="nonce 1"):
        delegate(bob, tusd, signed(bob))
    assert delegations.wallet_of(bob, tusd) == WALLET.address


def test_two_words_at_once_leave_one(bob: Node, tusd: Asset) -> None:
    words = [signed(bob, nonce=nonce) for nonce in range(1, 7)]
    made = race([lambda word=word: delegate(bob, tusd, word) for word in words])  # type: ignore[misc]
    assert all(isinstance(each, ReceiptDelegation) for each in made), made
    assert ReceiptDelegation.objects.filter(revoked_at=None).count() == 1


def test_a_word_that_ends_within_a_lease_is_not_named(bob: Node, tusd: Asset) -> None:
    delegate(bob, tusd, signed(bob, not_after=int((clock.now() + timedelta(days=20)).timestamp())))
    assert delegations.wallet_of(bob, tusd) == ZERO_ADDRESS


def test_a_token_without_a_contract_needs_no_wallet(tusd: Asset, bob: Node) -> None:
    EscrowContract.objects.all().delete()
    assert assets.contract_of(tusd) == ZERO_ADDRESS
    client = client_of(bob.provider.organisation)
    body = {"node_id": str(bob.pk), "asset": "TUSD", "signed": signed(bob).model_dump(mode="json")}
    answer = client.post(f"{API}/provider/delegations", body, format="json")
    assert (answer.status_code, answer.json()["code"]) == (400, "delegation_refused")


def test_nobody_delegates_for_anothers_node_or_sees_its_wallets(tusd: Asset, bob: Node) -> None:
    body = {"node_id": str(bob.pk), "asset": "TUSD", "signed": signed(bob).model_dump(mode="json")}
    mallory = client_of(stage.organisation("mallory"))
    assert mallory.post(f"{API}/provider/delegations", body, format="json").status_code == 404
    reader = client_of(bob.provider.organisation, [Scope.BILLING_READ])
    assert reader.post(f"{API}/provider/delegations", body, format="json").status_code == 403
    row = delegate(bob, tusd, signed(bob))
    assert mallory.delete(f"{API}/provider/delegations/{row.pk}").status_code == 404
    assert mallory.get(f"{API}/provider/delegations").json()["results"] == []
    assert len(reader.get(f"{API}/provider/delegations").json()["results"]) == 1


def test_the_command_signs_here_and_sends_no_key(
    tusd: Asset,
    bob: Node,
    live_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    organisation = bob.provider.organisation
    user = organisation.members.first()
    assert user is not None

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, err

    _, key = api_keys.issue(user=user, organisation=organisation, name="test", scopes=tuple(Scope))
    monkeypatch.setenv("SOUK_SERVER", live_server.url)
    monkeypatch.setenv("SOUK_API_KEY", key)
    file = tmp_path / "payout.key"
    file.write_text(WALLET.key.hex() + "\n")
    arguments = ("provider", "delegate", "--asset", "TUSD", "--wallet-key-file", file, "--node", "bobs-node")
    file.chmod(0o644)
    assert "can be read by others" in run(*arguments)[2]
    file.chmod(0o600)
    status, out, err = run(*arguments, "--json")
    assert status == 0, err
    assert WALLET.key.hex().removeprefix("0x") not in out + err
    assert ReceiptDelegation.objects.get().wallet == WALLET.address
    with Souk(live_server.url, key) as souk:
        assert [each.wallet for each in souk.delegations()] == [WALLET.address]
        assert [each.code for each in souk.assets()] == ["USD", "TUSD"]
    assert "no token" in run("provider", "delegate", "--asset", "TUSB", "--wallet-key-file", file)[2]
    file.write_text("0" * 64)
    assert "no private key" in run(*arguments)[2]

"""`souk deposit` on a real chain, with a real server: the wallet signs, the escrow takes it, the balance has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.chain.devchain.chain import DEVELOPMENT_KEYS
from billing.models import Asset, Deposit
from jobs.client import cli
from jobs.client.sdk import Souk
from jobs.client.settings import settings_path
from jobs.client.wallet.chain_wallet import ChainWallet
from marketplace.accounts import api_keys
from marketplace.accounts.models import Membership, Organisation, Role, User
from marketplace.accounts.scopes import Scope
from provider_agent.protocol import ethereum
from tests.integration.billing.chain.town import TOKEN, Town, devchain_town
from tests.integration.billing.scenes import assert_ledger_is_true

WALLET = ethereum.address_of(DEVELOPMENT_KEYS[1])
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def town(transactional_db: None, settings: Any) -> Iterator[Town]:
    settings.SOUK_TOKEN_PRICES = {"TUSD": "1.00"}
    with devchain_town(settings) as made:
        yield made


@dataclass
class Shell:
    """Alice at her own computer."""

    town: Town
    organisation: Organisation
    url: str
    key: str
    wallet_file: Path
    capsys: pytest.CaptureFixture[str]

    def deposit(self, amount: str, *more: str, wallet: Path | None = None) -> tuple[int, Any, str]:
        """Status, the JSON that it printed, and what it wrote to standard error."""
        words = ["deposit", amount, "--asset", "TUSD", "--rpc-url", self.town.client.config.rpc_urls[0]]
        words += ["--wallet-key-file", str(wallet or self.wallet_file), "--yes", "--no-wait", "--json", *more]
        with pytest.raises(SystemExit) as left:
            cli.main(words)
        out, err = self.capsys.readouterr()
        return int(left.value.code or 0), json.loads(out) if out else None, err

    def credit(self) -> int:
        """What the marketplace says she has, after it has followed the chain."""
        self.town.follow(3)
        return ledger.balance(self.organisation.pk, AccountKind.CUSTOMER_AVAILABLE, asset_id=self.town.asset_id)


@pytest.fixture
def alice(
    town: Town, live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    user = User.objects.create_user("alice@example.org")
    organisation = Organisation.objects.create(name="Alice")
    Membership.objects.create(user=user, organisation=organisation, role=Role.OWNER)
    _, key = api_keys.issue(user=user, organisation=organisation, name="test", scopes=tuple(Scope))
    monkeypatch.setenv("SOUK_SERVER", live_server.url)
    monkeypatch.setenv("SOUK_API_KEY", key)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "wallet.key"
    file.write_text(DEVELOPMENT_KEYS[1])
    file.chmod(0o600)
    return Shell(town, organisation, live_server.url, key, file, capsys)


def test_tokens_of_a_wallet_become_credit(alice: Shell) -> None:
    status, paid, output = alice.deposit("2.5")
    assert (status, paid["is_earlier"]) == (0, False), output
    assert alice.credit() == 2_500_000
    with Souk(alice.url, alice.key) as souk:
        [deposit] = souk.deposits()
        assert deposit.reference.startswith(f"{paid['chain_id']}:{paid['tx_hash']}:")
        assert souk.balance().of("TUSD").available == 2_500_000
        assert [(each.code, each.asset, each.change) for each in souk.transfers()] == [("deposit", "TUSD", 2_500_000)]
    assert DEVELOPMENT_KEYS[1].removeprefix("0x") not in output
    alice.town.assert_books_match()
    assert_ledger_is_true()


@pytest.mark.parametrize("seam", ["before it is sent", "after it is sent"])
def test_an_interrupted_deposit_is_finished_and_never_paid_twice(
    alice: Shell, monkeypatch: pytest.MonkeyPatch, seam: str
) -> None:
    send = ChainWallet.send

    def interrupted(wallet: ChainWallet, signed: Any) -> None:
        if "allow" not in next((settings_path().parent / "transactions").glob("*.json")).read_text():
            if seam == "after it is sent":
                send(wallet, signed)
            raise KeyboardInterrupt
        send(wallet, signed)

    with monkeypatch.context() as patch:
        patch.setattr(ChainWallet, "send", interrupted)
        assert alice.deposit("3")[0] == 130
    status, paid, _ = alice.deposit("3")
    assert (status, paid["is_earlier"]) == (0, True)
    assert alice.credit() == 3 * TOKEN
    assert Deposit.objects.count() == 1
    assert alice.deposit("1")[1]["is_earlier"] is False, "nothing is left to finish"
    assert alice.credit() == 4 * TOKEN


@pytest.mark.parametrize("amount", ["0", "1.0000001", "1e3", "many", str(2**256)])
def test_what_is_no_amount_is_refused_before_anything_is_signed(alice: Shell, amount: str) -> None:
    before = alice.town.client.nonce(WALLET)
    status, answer, _ = alice.deposit(amount)
    assert status in {2, 6}, answer
    assert alice.town.client.nonce(WALLET) == before
    assert alice.credit() == 0


def test_a_wallet_with_too_little_and_a_wrong_chain_are_distinguished(alice: Shell, tmp_path: Path) -> None:
    poor = tmp_path / "poor.key"
    poor.write_text("0x" + "11" * 32)
    poor.chmod(0o600)
    status, answer, _ = alice.deposit("1", wallet=poor)
    assert (status, answer["error"]["code"]) == (6, "chain_failed")
    assert "has 0 TUSD" in answer["error"]["message"]
    Asset.objects.filter(pk=alice.town.asset_id).update(chain_id=5)
    swapped = alice.deposit("1")[1]["error"]["message"]
    assert "names the contract" in swapped and "until now it was" in swapped
    settings_path().with_name("contracts.json").unlink()
    assert "is chain 31337, and the token is on chain 5" in alice.deposit("1")[1]["error"]["message"]

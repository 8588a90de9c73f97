"""People at their own computers, with `souk escrow` and a wallet each. No marketplace runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from billing.chain import escrow
from billing.chain.devchain import development
from billing.proofs.escrow import HoldAuthorization, ReceiptKeyDelegation, sign_authorization, sign_delegation
from jobs.client import cli
from marketplace.foundation import clock
from provider_agent.protocol import UsageReceipt, charge, sign_receipt
from tests.integration.billing.chain.town import TOKEN, Town, devchain_town

NOWHERE = "http://127.0.0.1:1"
RATE = 36 * TOKEN  # an hour: 10,000 base units a second
WINDOW = 3600


@dataclass
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def refusal(self) -> str:
        return str(self.json["error"]["message"])


@dataclass
class Shells:
    """Everybody's; each call says whose."""

    town: Town
    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def rpc_url(self) -> str:
        return self.town.client.config.rpc_urls[0]

    def key_file(self, who: str) -> Path:
        file = self.folder / f"{who}.key"
        file.write_text(self.town.secret(who))
        file.chmod(0o600)
        return file

    def run(self, *words: object) -> Ended:
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main([str(word) for word in words])
        out, err = self.capsys.readouterr()
        for secret in (self.town.secret(name) for name in self.town.wallets):
            assert secret.removeprefix("0x") not in out + err
        return Ended(int(left.value.code or 0), out, err)

    def escrow(self, who: str, *words: object, as_json: bool = True) -> Ended:
        """`souk escrow ...` with the wallet of somebody, by the contract's address alone."""
        more: list[object] = ["--contract", self.town.contract.address, "--rpc-url", self.rpc_url]
        more += ["--wallet-key-file", self.key_file(who), "--yes", *(["--json"] if as_json else [])]
        return self.run("escrow", *words, *more)

    def look(self, *words: object, as_json: bool = True) -> Ended:
        """A command that needs no key."""
        more = ["--contract", self.town.contract.address, "--rpc-url", self.rpc_url]
        return self.run("escrow", *words, *more, *(["--json"] if as_json else []))

    def balance(self, who: str) -> dict[str, int]:
        found = self.look("balance", "--wallet", self.town.key(who).address).json
        names = ("available", "held", "pending", "staked", "unstaking", "in_wallet")
        return {name: int(found[name]) for name in names if int(found[name])}

    def give_tokens(self, who: str, amount: int) -> None:
        """Tokens in the wallet; the contract may not take them yet."""
        from billing.chain.contract import deploy
        from billing.chain.reading import builds

        key = self.town.key(who)
        mint = builds.encode(builds.DEV_TOKEN, "mint", [key.address, amount])
        deploy.send(self.town.client, key, data=mint, to=self.town.token, purpose="mint")

    def open_hold(self, amount: int = 10 * TOKEN, *, seconds: int = 7200) -> UUID:
        """Alice's own hold for a new job, opened by her own wallet."""
        one = HoldAuthorization(
            job_id=uuid4(),
            customer=self.town.key("Alice").address,
            asset=self.town.token,
            max_amount=amount,
            rate_ceiling_per_hour=RATE,
            deadline=int(clock.now().timestamp()) + seconds,
            nonce=uuid4().int,
        )
        signed = sign_authorization(self.town.secret("Alice"), one, escrow.domain_of(self.town.contract))
        self.town.call("Alice", "openHold", escrow._struct(one), signed.signature)
        self.town.pass_seconds(200)
        return one.job_id

    def settle(self, job_id: UUID, *, ms: int = 100_000) -> UUID:
        """A lease of Bob's node is settled for so much time; the marketplace's indexer knows of it."""
        domain = escrow.domain_of(self.town.contract)
        bob, node = self.town.key("Bob").address, self.town.key("Bob's node").address
        until = int(clock.now().timestamp()) + 86_400
        delegation = ReceiptKeyDelegation(provider=bob, receipt_key=node, not_after=until, nonce=uuid4().int)
        escrow.register_receipt_key(self.town.asset_id, sign_delegation(self.town.secret("Bob"), delegation, domain))
        one = UsageReceipt(
            job_id=job_id,
            lease_id=uuid4(),
            provider=bob,
            customer=self.town.key("Alice").address,
            asset=self.town.token,
            seq=1,
            billable_ms=ms,
            cumulative_amount=charge(RATE, ms),
        )
        self.town.follow()
        escrow.settle_lease(sign_receipt(self.town.secret("Bob's node"), one, domain))
        self.town.follow(2)
        return one.lease_id

    def pass_time(self, seconds: int) -> None:
        """So much and a minute: every block takes a second of its own, so the chain is ahead of the clock."""
        assert self.town.chain is not None
        self.town.chain.ahead_seconds += seconds + 60
        self.town.chain.mine_empty()


@contextmanager
def windowed_town(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    """A chain whose escrow has a challenge window and a wait for stakes, of an hour each."""
    terms = development.terms

    def longer(*given: str) -> Any:
        return dataclasses.replace(terms(*given), challenge_seconds=WINDOW, unstake_seconds=WINDOW)

    monkeypatch.setattr(development, "terms", longer)
    with devchain_town(settings) as town:
        yield town

"""A development chain with an escrow, and people with wallets on it."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from eth_account import Account as EthereumAccount

from billing.account_kinds import AccountKind
from billing.books.ledger import balance
from billing.chain.contract import deploy
from billing.chain.devchain import development
from billing.chain.devchain.chain import CHAIN_ID, DEVELOPMENT_KEYS, DevChain
from billing.chain.devchain.rpc import serve
from billing.chain.keys import SigningKey
from billing.chain.reading import builds
from billing.chain.reading.client import ChainClient, Receipt, client_of
from billing.chain.wallets import wallet_owner
from billing.chain_following.chains import follow_chain
from billing.models import EscrowContract
from provider_agent.protocol import id_bytes32

TOKEN = 10**6


@dataclass
class Town:
    """What a test needs of the chain; `chain` is the devchain itself."""

    contract: EscrowContract
    chain: DevChain | None = None
    wallets: dict[str, SigningKey] = field(default_factory=dict)

    @property
    def client(self) -> ChainClient:
        return client_of(self.contract.chain_id)

    @property
    def asset_id(self) -> int:
        return self.contract.asset_id

    @property
    def token(self) -> str:
        return self.contract.asset.contract

    def key(self, name: str) -> SigningKey:
        """The wallet of somebody, with coins for gas."""
        if name not in self.wallets:
            account = EthereumAccount.create(name)
            self.wallets[name] = SigningKey(account.address, "0x" + account.key.hex().removeprefix("0x"))
            give_coins(self.client, account.address)
        return self.wallets[name]

    def secret(self, name: str) -> str:
        return self.key(name)._secret

    def mint(self, name: str, amount: int) -> None:
        """Tokens, and the escrow may take them."""
        key = self.key(name)
        mint = builds.encode(builds.DEV_TOKEN, "mint", [key.address, amount])
        deploy.send(self.client, key, data=mint, to=self.token, purpose="mint")
        approve = builds.encode(builds.DEV_TOKEN, "approve", [self.contract.address, amount])
        deploy.send(self.client, key, data=approve, to=self.token, purpose="approve")

    def call(self, name: str, function: str, *arguments: Any) -> Receipt:
        """Somebody calls the escrow and waits for the block."""
        data = builds.encode(builds.ESCROW, function, list(arguments))
        return deploy.send(self.client, self.key(name), data=data, to=self.contract.address, purpose=function)

    def buy_credits(self, name: str, owner: UUID, amount: int) -> Receipt:
        self.mint(name, amount)
        return self.call(name, "buyCredits", id_bytes32(owner), amount)

    def deposit(self, name: str, amount: int) -> Receipt:
        self.mint(name, amount)
        return self.call(name, "deposit", amount)

    def pass_seconds(self, seconds: int) -> None:
        """The chain's clock goes on, ahead of ours: as much can be billed to a hold that is open."""
        if self.chain is not None:
            self.chain.ahead_seconds += seconds
            self.chain.mine_empty()

    def follow(self, times: int = 1) -> int:
        return sum(follow_chain(self.contract.chain_id) for _ in range(times))

    def view(self, function: str, *arguments: Any) -> Any:
        abi = builds.load(builds.ESCROW).abi
        return self.client.read(self.contract.address, abi, function, *arguments, at=self.client.head())

    def tokens_of(self, address: str) -> int:
        return int(self.client.read(self.token, builds.ERC20_ABI, "balanceOf", address, at=self.client.head()))

    def owed(self, kind: AccountKind, name: str, job: UUID | None = None) -> int:
        """What the ledger says of a wallet."""
        return balance(wallet_owner(self.key(name).address), kind, asset_id=self.asset_id)

    def assert_books_match(self) -> None:
        """P20: what the ledger says of the contract is what the token says of it."""
        mirrored = -balance(None, AccountKind.CHAIN_ESCROW, asset_id=self.asset_id)
        assert mirrored == self.tokens_of(self.contract.address) == self.view("totalLiabilities")


@contextmanager
def devchain_town(settings: Any) -> Iterator[Town]:
    settings.SOUK_CHAIN_KEY = DEVELOPMENT_KEYS[0]
    settings.SOUK_CHAIN_SETTLER_KEY = settings.SOUK_CHAIN_PUBLISHER_KEY = ""
    kind = repr((development.terms("", ""), development.holders()))
    kept = _built.get(kind)
    chain = DevChain(_journal(kept.journal if kept else b""))
    server = serve(chain)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    settings.SOUK_CHAINS = [
        {
            "chain_id": CHAIN_ID,
            "name": "devchain",
            "rpc_urls": [f"http://127.0.0.1:{server.server_port}"],
            "is_development": True,
        }
    ]
    try:
        if kept is None:
            deployment = development.build_town(CHAIN_ID)
            assert chain.journal is not None
            kept = _Built(deployment, chain.journal.read_bytes())
            _built[kind] = kept
        contract = development.register(CHAIN_ID, *kept.deployment)
        yield Town(EscrowContract.objects.select_related("asset").get(pk=contract.pk), chain)
    finally:
        server.shutdown()
        server.server_close()
        assert chain.journal is not None
        chain.journal.unlink()


@dataclass(frozen=True)
class _Built:
    """A chain with its contracts as it is first built: the next tests replay it, which is much faster."""

    deployment: tuple[str, str, int]
    journal: bytes


_built: dict[str, _Built] = {}


def _journal(content: bytes) -> Path:
    handle, name = tempfile.mkstemp(prefix="devchain")
    os.write(handle, content)
    os.close(handle)
    return Path(name)


def give_coins(client: ChainClient, address: str, amount: int = 10**18) -> None:
    rich = EthereumAccount.from_key(DEVELOPMENT_KEYS[1])
    base_fee, tip = client.fee_now()
    signed = rich.sign_transaction(
        {
            "type": 2,
            "chainId": client.config.chain_id,
            "nonce": client.nonce(rich.address),
            "to": address,
            "value": amount,
            "gas": 21_000,
            "maxFeePerGas": 2 * base_fee + tip,
            "maxPriorityFeePerGas": tip,
            "data": b"",
        }
    )
    client.broadcast("0x" + bytes(signed.raw_transaction).hex())

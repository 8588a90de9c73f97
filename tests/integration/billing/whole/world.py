"""What the state machine uses: one clock, a Stripe, a chain that forks, a database; new for each sequence.

The chain is built once. A sequence begins by resetting it to that state, and ends by rolling the database back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from unittest import mock
from uuid import UUID, uuid4

from django.db import connection, transaction
from eth_account import Account as EthereumAccount
from web3 import Web3

from billing.chain import escrow
from billing.chain.contract import deploy
from billing.chain.devchain import development
from billing.chain.devchain.chain import CHAIN_ID, DEVELOPMENT_KEYS
from billing.chain.keys import Role, SigningKey, key_for
from billing.chain.reading import builds, transport
from billing.chain.reading.client import Log
from billing.models import EscrowContract
from billing.proofs.escrow import ReceiptKeyDelegation, sign_delegation
from marketplace.accounts.models import Membership, Organisation, User
from marketplace.accounts.models import Role as Place
from marketplace.foundation import clock
from provider_agent.protocol import ethereum, id_bytes32
from tests.fakes.stripe import FakeStripe
from tests.integration.billing.chain.town import TOKEN, Town, give_coins
from tests.integration.billing.whole.forking import Clock, Dice, Direct, ForkingChain

CONFIRMATIONS: Final = 2  # how deep a reorganisation may be, and how long nothing is believed
CHALLENGE_SECONDS: Final = 3_600
DAY: Final = 86_400
PURSE: Final = 100_000 * TOKEN  # what everybody has in tokens to begin with
SPENT_AT_FIRST: Final = 50 * TOKEN
CUSTOMERS: Final = ("Alice", "Anna")
PROVIDERS: Final = ("Bob", "Ben")
WALLETS: Final = (*CUSTOMERS, *PROVIDERS, "Mallory")
NODES: Final = {"Bob": "Bob's node", "Ben": "Ben's node"}


@dataclass
class World:
    """Everything outside of the database; `settings` is pytest's."""

    settings: Any
    time: Clock
    dice: Dice
    chain: ForkingChain
    town: Town
    base: int
    server: FakeStripe  # only its listener: each sequence has its own Stripe behind it
    owners: dict[str, UUID]
    users: dict[str, UUID]
    stripe: FakeStripe = field(init=False)

    def begin(self) -> None:
        """A new sequence: nothing that was done since is there."""
        self._frame = transaction.atomic()
        self._frame.__enter__()
        self._servers = _transactions_of_servers(len(connection.atomic_blocks))
        self._servers.__enter__()
        self.time.reset()
        self.chain.rewind(self.base)
        self.stripe = FakeStripe()
        self.stripe._server.server_close()
        self.stripe._server = self.server._server
        self.server._server.stripe = self.stripe
        self.stripe.silence_seconds = 0.02
        self.stripe.clock.move_to(int(self.time.seconds()))
        self.settings.SOUK_STRIPE_KEY = self.stripe.secret_key
        self.settings.SOUK_STRIPE_API_BASE = self.server.url
        self.settings.SOUK_STRIPE_WEBHOOK_SECRETS = [self.stripe.webhook_secret]

    def end(self) -> None:
        self._servers.__exit__(None, None, None)
        transaction.set_rollback(True)
        self._frame.__exit__(None, None, None)

    def advance(self, seconds: float) -> None:
        self.time.advance(seconds)
        self.set_stripe_clock()

    def set_stripe_clock(self) -> None:
        if int(self.time.seconds()) > self.stripe.clock.now():
            self.stripe.clock.move_to(int(self.time.seconds()))

    def view(self, function: str, *arguments: Any) -> list[int]:
        """What the contract answers now, word by word; straight from the EVM, for there are many questions."""
        data = builds.encode(builds.ESCROW, function, list(arguments))
        message = {
            "from": b"\0" * 20,
            "to": bytes.fromhex(self.town.contract.address[2:]),
            "data": bytes.fromhex(data.removeprefix("0x")),
        }
        answer = self.chain.call(message)
        return [int.from_bytes(answer[at : at + 32], "big") for at in range(0, len(answer), 32)]

    def confirm(self) -> None:
        """So many blocks that what is mined is final."""
        for _ in range(CONFIRMATIONS):
            self.chain.mine_empty()


@contextmanager
def _transactions_of_servers(depth: int) -> Iterator[None]:
    """What is a transaction of its own in a server is a savepoint here, even if it asks for none as bulk_create does.

    Else whoever dies in it leaves the whole sequence to be rolled back. `depth`: of atomic blocks around a sequence.
    """
    real = transaction.Atomic.__enter__

    def enter(block: transaction.Atomic) -> None:
        wanted = block.savepoint
        block.savepoint = wanted or len(connection.atomic_blocks) == depth
        try:
            real(block)
        finally:
            block.savepoint = wanted  # of a decorator there is one object for all calls

    with mock.patch.object(transaction.Atomic, "__enter__", enter):
        yield


@contextmanager
def make_world(settings: Any) -> Iterator[World]:
    """Built in the caller's transaction, which the sequences leave as it is."""
    machine_time, dice = Clock(), Dice()
    chain = ForkingChain(clock=machine_time)
    web3 = Web3(Direct(chain))
    url = f"http://127.0.0.1:1/{id(chain)}"  # nobody listens there, and a client is kept by its address
    settings.SOUK_CHAINS = [
        {
            "chain_id": CHAIN_ID,
            "name": "whole",
            "rpc_urls": [url],
            "is_development": True,
            "finality": "depth",
            "confirmations": CONFIRMATIONS,
        }
    ]
    settings.SOUK_CHAIN_KEY = DEVELOPMENT_KEYS[0]
    settings.SOUK_CHAIN_SETTLER_KEY = settings.SOUK_CHAIN_PUBLISHER_KEY = ""
    settings.SOUK_CHALLENGE_SECONDS = 86_400
    settings.SOUK_PAYOUT_RAILS = ["stripe", "chain"]
    settings.SOUK_TOP_UP_USD_DAY_MAX = settings.SOUK_TOP_UP_NEW_USD_DAY_MAX = 10_000_000
    settings.SOUK_TOP_UP_NEW_USD_AT_ONCE_MAX = 100
    server = FakeStripe()
    server.start()
    try:
        with machine_time.rules(), dice.rules(), mock.patch.object(transport, "connect", lambda *_: web3):
            town = _build(chain)
            owners, users = _people()
            for name in CUSTOMERS:
                town.call(name, "buyCredits", id_bytes32(owners[name]), SPENT_AT_FIRST)
                town.call(name, "deposit", SPENT_AT_FIRST)
            for _ in range(CONFIRMATIONS + 1):
                chain.mine_empty()
            town.follow()
            machine_time.start = machine_time.seconds()
            yield World(settings, machine_time, dice, chain, town, chain.head, server, owners, users)
    finally:
        server.close()


def _build(chain: ForkingChain) -> Town:
    """Token and escrow with windows long enough to be looked into; everybody has tokens, and the escrow may take them.

    The arbiter's key is its own: ours only sends what was planned.
    """
    deployer = SigningKey(ethereum.address_of(DEVELOPMENT_KEYS[3]), DEVELOPMENT_KEYS[3])
    arbiter = EthereumAccount.create("arbiter")
    token = deploy.deploy_dev_token(CHAIN_ID, deployer, name="dollar", symbol="TUSD", decimals=6).contract
    terms = dataclasses.replace(
        development.terms(token, deployer.address),
        challenge_seconds=CHALLENGE_SECONDS,
        grace_seconds=DAY,
        dispute_seconds=2 * DAY,
    )
    ours = {"SETTLER": key_for(Role.SETTLER).address, "PUBLISHER": key_for(Role.PUBLISHER).address}
    roles = ours | dict.fromkeys(("ARBITER", "SLASHER", "PAUSER"), arbiter.address)
    made = deploy.deploy_escrow(CHAIN_ID, deployer, terms, roles)
    contract = development.register(CHAIN_ID, token, made.contract, made.block_number)
    town = Town(EscrowContract.objects.select_related("asset").get(pk=contract.pk), chain)
    for name in WALLETS:
        town.mint(name, PURSE)
    for provider, node in NODES.items():
        _delegate(town, provider, node)
    town.key("arbiter")  # coins for one of this name; the contract knows the other
    town.wallets["arbiter"] = SigningKey(arbiter.address, "0x" + arbiter.key.hex().removeprefix("0x"))
    give_coins(town.client, arbiter.address)
    return town


def _people() -> tuple[dict[str, UUID], dict[str, UUID]]:
    """Organisations and their owners, by name."""
    owners, users = {}, {}
    for name in (*CUSTOMERS, *PROVIDERS):
        organisation = Organisation.objects.create(name=name)
        user = User.objects.create_user(f"{name.lower()}@example.org")
        Membership.objects.create(organisation=organisation, user=user, role=Place.OWNER)
        owners[name], users[name] = organisation.pk, user.pk
    return owners, users


def _delegate(town: Town, provider: str, node: str) -> None:
    """The provider's node may sign receipts for the whole of every sequence."""
    one = ReceiptKeyDelegation(
        provider=town.key(provider).address,
        receipt_key=town.key(node).address,
        not_after=int(clock.now().timestamp()) + 360 * DAY,
        nonce=uuid4().int,
    )
    signed = sign_delegation(town.secret(provider), one, escrow.domain_of(town.contract))
    struct = (one.provider, one.receipt_key, one.not_after, one.nonce)
    town.call(provider, "registerReceiptKey", struct, signed.signature)


def facts(chain: ForkingChain, town: Town) -> dict[str, tuple[str, dict[str, Any], int]]:
    """What the chain itself says of the contract, read past the client: reference -> event, arguments, block."""
    found: dict[str, tuple[str, dict[str, Any], int]] = {}
    for number, block in enumerate(chain.blocks):
        key = bytes(block.header["hash"])
        if key not in _decoded:
            _decoded[key] = _decode(block, town)
        found |= {ref: (name, arguments, number) for ref, name, arguments in _decoded[key]}
    return found


_decoded: dict[bytes, list[tuple[str, str, dict[str, Any]]]] = {}


def _decode(block: Any, town: Town) -> list[tuple[str, str, dict[str, Any]]]:
    made = []
    for receipt in block.receipts:
        for index, log in enumerate(receipt["logs"]):  # a block has one transaction
            if log["address"] != bytes.fromhex(town.contract.address[2:]):
                continue
            tx_hash = "0x" + bytes(receipt["transaction_hash"]).hex()
            one = Log(
                address=town.contract.address,
                block_number=int(block.header["number"]),
                block_hash="0x" + bytes(block.header["hash"]).hex(),
                tx_hash=tx_hash,
                tx_index=0,
                log_index=index,
                topics=tuple(bytes(topic) for topic in log["topics"]),
                data=bytes(log["data"]),
            )
            known = builds.decode_log(builds.ESCROW, one)
            if known is not None:
                made.append((f"{CHAIN_ID}:{tx_hash}:{one.log_index}", known[0], known[1]))
    return made

"""P22, P23 and C18 for a whole job: what the chain reverts before it is final, nobody runs or is paid for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from billing import prices
from billing.account_kinds import AccountKind
from billing.chain.devchain import development
from billing.chain.devchain.chain import CHAIN_ID, DEVELOPMENT_KEYS, DevChain, Refused
from billing.chain.devchain.rpc import serve
from billing.models import ChainEvent, ChainTransaction, EscrowHold, EscrowLease
from billing.states.chain import EscrowHoldState, TransactionState
from jobs.bills.bill import make_bill
from jobs.states import JobState
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from provider_agent.protocol import charge
from tests import stage
from tests.integration.billing.chain.town import Town
from tests.integration.billing.scenes import assert_ledger_is_true
from tests.integration.jobs.escrow import scenes
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)

CONFIRMATIONS = 3


class ForkingChain(DevChain):
    """A development chain whose newest blocks can be reverted."""

    def __post_init__(self) -> None:
        self.raws: list[bytes | None] = []
        super().__post_init__()

    def _mine(self, raw: bytes | None, at: int) -> None:
        super()._mine(raw, at)
        self.raws.append(raw)

    def reorganise(self, depth: int, *, is_lost: bool) -> None:
        """Other blocks take the place of the newest; their transactions come again, or no node remembers them."""
        with self._lock:
            height = self.head
            raws = [raw for raw in self.raws[-depth:] if raw]
            kept = height - depth
            self._backend.revert_to_snapshot(bytes(self.blocks[kept].header["hash"]))
            del self.blocks[kept + 1 :], self.raws[kept:]
            self._places = {tx: place for tx, place in self._places.items() if place[0] <= kept}
            self._by_hash = {one: at for one, at in self._by_hash.items() if at <= kept}
            self._queued.clear()
            self.ahead_seconds += 1  # or the same blocks would come again
            self.mine_empty()
            for raw in [] if is_lost else raws:
                try:
                    self.send(raw)
                except Refused:
                    continue
            while self.head <= height:
                self.mine_empty()


@pytest.fixture
def chain() -> ForkingChain:
    return ForkingChain()


@pytest.fixture
def town(transactional_db: None, settings: Any, chain: ForkingChain) -> Iterator[Town]:
    server = serve(chain)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    plain = {"chain_id": CHAIN_ID, "name": "devchain", "rpc_urls": [url], "is_development": True}
    settings.SOUK_CHAINS = [plain]
    settings.SOUK_CHAIN_KEY = DEVELOPMENT_KEYS[0]
    settings.SOUK_CHAIN_SETTLER_KEY = settings.SOUK_CHAIN_PUBLISHER_KEY = ""
    try:
        made = Town(development.register(CHAIN_ID, *development.build_town(CHAIN_ID)), chain)
        made.follow()
        prices.set_price(made.asset_id, DOLLAR, actor="operator")
        settings.SOUK_CHAINS = [plain | {"finality": "depth", "confirmations": CONFIRMATIONS}]
        yield made
    finally:
        server.shutdown()
        server.server_close()


def confirm(town: Town, chain: ForkingChain) -> None:
    """What is mined becomes final, and is read."""
    for _ in range(CONFIRMATIONS):
        chain.mine_empty()
    town.follow(2)


@pytest.fixture
def bob(town: Town, chain: ForkingChain) -> Node:
    bob = scenes.node("bobs-node")
    scenes.delegate(town, bob)
    town.follow()
    confirm(town, chain)
    return bob


@pytest.fixture
def alice(town: Town, chain: ForkingChain) -> Organisation:
    town.deposit("Alice", 10 * DOLLAR)
    confirm(town, chain)
    return stage.organisation("alice")


def is_mined(purpose: str) -> bool:
    return ChainTransaction.objects.filter(purpose=purpose, state=TransactionState.MINED).exists()


def assert_nonces() -> None:
    """P22: no gap, and each final once."""
    sent = ChainTransaction.objects.exclude(nonce=None)
    nonces = list(sent.filter(state=TransactionState.FINAL).order_by("nonce").values_list("nonce", flat=True))
    assert len(nonces) >= 5 and nonces == list(range(nonces[0], nonces[0] + len(nonces)))
    assert not sent.exclude(state__in=[TransactionState.FINAL, TransactionState.REPLACED]).exists()


@pytest.mark.parametrize("is_lost", [False, True], ids=["mined again", "forgotten by all nodes"])
def test_p23_a_job_whose_every_step_is_reorganised_once_is_paid_once(
    town: Town, chain: ForkingChain, alice: Organisation, bob: Node, is_lost: bool
) -> None:
    def mine_and_reorganise(purpose: str) -> None:
        town.follow(2)
        assert is_mined(purpose)
        chain.reorganise(2, is_lost=is_lost)
        town.follow()

    # 1. The hold: nothing runs on one that is mined, nor on one that is gone.
    job = scenes.submit(town, alice)
    mine_and_reorganise("openHold")
    assert stage.place(job) == []
    assert EscrowHold.objects.get(pk=job.pk).state == EscrowHoldState.REQUESTED
    assert town.owed(AccountKind.WALLET_HELD, "Alice", job.pk) == 0
    town.follow(2)
    town.pass_seconds(scenes.SECONDS_HELD)
    confirm(town, chain)
    [lease] = scenes.start(job)
    scenes.use(lease, seconds=1800, ms=1_700_000)
    stage.finish(lease)
    job.refresh_from_db()
    assert job.state == JobState.COMPLETED
    # 2. The settlement: the hold is not closed over it, and nothing is owed to Bob yet.
    mine_and_reorganise("settleLease")
    assert not EscrowLease.objects.exists()
    assert not ChainTransaction.objects.filter(purpose="closeHold", state=TransactionState.MINED).exists()
    assert not make_bill(job).is_final
    town.follow(2)
    confirm(town, chain)
    # 3. Pay and rest, which go on their way together.
    mine_and_reorganise("finalize")
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Bob") == 0
    for _ in range(3):
        town.follow(2)
        confirm(town, chain)
    due = charge(2 * DOLLAR, 1_700_000)
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Bob") == due - due // 10
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 10 * DOLLAR - due
    assert EscrowHold.objects.get(pk=job.pk).state == EscrowHoldState.CLOSED
    assert make_bill(job).is_final
    booked = ChainEvent.objects.exclude(processed_at=None)
    assert booked.filter(name="LeaseSettled").count() == booked.filter(name="HoldClosed").count() == 1
    assert ChainEvent.objects.filter(block__state="orphaned").exists()  # it did see what was reverted
    scenes.assert_split(job)
    assert_nonces()
    town.assert_books_match()
    assert_ledger_is_true()


def test_c18_a_hold_that_its_customer_reorganises_away_runs_nothing(
    town: Town, chain: ForkingChain, alice: Organisation, bob: Node
) -> None:
    """Mallory mines: the block with her hold goes, and in its place she takes her money out."""
    job = scenes.submit(town, alice)
    town.follow(2)
    assert is_mined("openHold")
    chain.reorganise(2, is_lost=True)
    town.call("Alice", "withdraw", 9 * DOLLAR)
    town.follow(2)
    confirm(town, chain)
    assert stage.place(job) == []
    scenes.rebroadcast(town)
    confirm(town, chain)
    scenes.rebroadcast(town)
    assert stage.place(job) == []
    assert EscrowHold.objects.get(pk=job.pk).state != EscrowHoldState.OPEN
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == DOLLAR
    town.assert_books_match()

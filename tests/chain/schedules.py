"""R12: a schedule of reorganisations drawn from a seed, through every step of deposit, hold, settlement and payout.

A reorganisation here is a real one: up to DEPTH_MAX blocks fall away, and what was in them comes back shuffled, later,
or never (the mempool forgot it), by the seed. What is ours goes out again by itself. At the end P20, P22 and P23
must hold: the books are the contract's, nonces are gapless and final once, and each event that is credited is of a
block that is on the chain.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID, uuid4

from billing.account_kinds import AccountKind
from billing.books.chart_of_accounts import AccountName
from billing.chain import escrow, payout_roots
from billing.chain.reading import builds
from billing.chain.transactions import planning
from billing.models import ChainBlock, ChainEvent, ChainTransaction, Payout, Signer, Transfer
from billing.states import PayoutState
from billing.states.chain import TransactionState as State
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock
from tests.chain.conftest import Anvil
from tests.chain.sending import age
from tests.integration.billing.chain.earning import earn, reserve, send
from tests.integration.billing.chain.escrows import authorize, receipt_of
from tests.integration.billing.chain.town import TOKEN

DEPTH_MAX: Final = 12
CONFIRMATIONS: Final = DEPTH_MAX  # what is final lies below every reorganisation
STEPS: Final = 14
ROUNDS_TO_SETTLE_MAX: Final = 12
RECEIPTS_MAX, RECEIPT_MS = 3, 30_000  # a lease's, and how much each adds
BILLED_SECONDS_MAX: Final = RECEIPTS_MAX * RECEIPT_MS // 1000


@dataclass
class Schedule:
    """One seed's town: who did what, and which raw transactions of users a reorganisation may have dropped."""

    anvil: Anvil
    seed: int
    treasury: UUID  # an organisation whose credits are final
    chance: random.Random = field(init=False)
    alice: UUID = field(default_factory=uuid4)
    bob: UUID = field(default_factory=uuid4)
    jobs: list[UUID] = field(default_factory=list)
    leases: dict[UUID, tuple[UUID, int]] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    first_event: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        newest = ChainEvent.objects.order_by("-pk").first()
        self.first_event = newest.pk + 1 if newest else 0

    def play(self) -> None:
        """STEPS steps with reorganisations between them, then quiet, then everything must be true."""
        verbs: list[Callable[[], None]] = [
            self.hold, self.settle, self.settle,
            self.deposit, self.buy_credits, self.hold, self.settle, self.close, self.pay, self.claim, self.withdraw,
        ]  # fmt: skip
        for _ in range(STEPS):
            verb = self.chance.choice(verbs)
            self.history.append(verb.__name__)
            verb()
            if self.chance.random() < 0.3:
                self.rebroadcast_dropped()
                age(self.chance.choice([40, 3600]))  # rebroadcast, or replaced by fee
            if self.chance.random() < 0.6:
                self.anvil.follow()
            self.anvil.mine(self.chance.randint(1, 6))
            if self.chance.random() < 0.7:
                self.reorganise(self.chance.randint(1, DEPTH_MAX))
            if self.chance.random() < 0.6:
                self.anvil.follow()
        self.settle_down()
        self.check()

    def deposit(self) -> None:
        self._user("Alice", "deposit", 10 * TOKEN)

    def buy_credits(self) -> None:
        self._user("Alice", "buyCredits", self.alice.bytes.rjust(32, b"\0"), 5 * TOKEN)

    def hold(self) -> None:
        job_id = uuid4()
        chain_now = int(self.anvil.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
        signed = authorize(self.anvil, job_id, 2 * TOKEN, deadline=chain_now + 7200)
        escrow.open_hold(self.anvil.asset_id, signed)
        self.jobs.append(job_id)

    def settle(self) -> None:
        ready = [job_id for job_id in self.jobs if escrow.is_open(job_id)]
        if ready:
            job_id = self.chance.choice(ready)
            lease_id, seq = self.leases.get(job_id, (uuid4(), 0))
            if seq < RECEIPTS_MAX:
                self.leases[job_id] = lease_id, seq + 1
                escrow.settle_lease(receipt_of(self.anvil, job_id, lease_id, seq + 1, RECEIPT_MS * (seq + 1)))

    def close(self) -> None:
        ready = [job_id for job_id in self.jobs if escrow.is_open(job_id)]
        if ready:
            job_id = self.chance.choice(ready)
            self.jobs.remove(job_id)
            escrow.close_hold(job_id)

    def pay(self) -> None:
        """Bob earns a token and is paid it by the next root."""
        if Payout.objects.filter(provider_id=self.bob, state=PayoutState.SUBMITTED).exists():
            return  # one at a time
        earn(self.anvil, self.treasury, self.bob, TOKEN)
        send(reserve(self.anvil, self.bob, self.anvil.key("Bob").address, TOKEN))

    def claim(self) -> None:
        payout = Payout.objects.filter(provider_id=self.bob, state=PayoutState.CONFIRMED).order_by("created_at").last()
        if payout is not None:
            proof = payout_roots.prove(payout.pk)
            self._user("Mallory", "claim", proof.wallet, proof.cumulative, proof.proof)

    def withdraw(self) -> None:
        self._user("Alice", "withdraw", TOKEN)

    def reorganise(self, depth: int) -> None:
        """The newest blocks are others now; what users had in them comes back in another place, or waits."""
        head = int(self.anvil.rpc("eth_blockNumber"), 16)
        lost: list[str] = []
        for number in range(head - depth + 1, head + 1):
            for tx_hash in self.anvil.rpc("eth_getBlockByNumber", hex(number), False)["transactions"]:
                lost.append(self.anvil.rpc("eth_getRawTransactionByHash", tx_hash))
        back = [raw for raw in lost if self.chance.random() < 0.7]
        self.dropped += [raw for raw in lost if raw not in back]
        pairs = [[raw, self.chance.randrange(depth)] for raw in back]
        self.history.append(f"reorg {depth}: {len(lost)} lost, {len(back)} back")
        try:
            self.anvil.rpc("anvil_reorg", depth, sorted(pairs, key=lambda pair: (pair[1], lost.index(pair[0]))))
        except AssertionError:  # anvil takes none that no longer fits, such as one whose nonce waits for another
            self.dropped = [raw for raw in self.dropped if raw not in lost] + lost
            self.anvil.reorg(depth)

    def rebroadcast_dropped(self) -> None:
        """Wallets send again what they miss; what is mined already, or does not fit yet, is refused."""
        for raw in self.dropped:
            self._send_raw(raw)

    def settle_down(self) -> None:
        """Users send again what was dropped, the chain goes on, and we follow until nothing of ours is under way."""
        live = ChainTransaction.objects.filter(state__in=[State.PLANNED, State.NONCED, *planning.SENT])
        waiting = ChainEvent.objects.filter(processed_at=None, block__state=ChainBlock.State.FINAL)
        self.anvil.rpc("evm_increaseTime", BILLED_SECONDS_MAX)  # blocks bear the clock's time, and this took seconds
        for _ in range(ROUNDS_TO_SETTLE_MAX):
            self.rebroadcast_dropped()
            live.filter(state=State.PLANNED).update(next_at=clock.now())
            age(40)  # nodes receive again what they forgot
            self.anvil.follow()
            self.anvil.mine(CONFIRMATIONS + 1)
            self.anvil.follow()
            if not live.exists() and not waiting.exists():
                return
        raise AssertionError(f"not settled: {[str(one) for one in (*live, *waiting)]}")

    def check(self) -> None:
        """P20, P22, P23."""
        self.anvil.assert_books_match()
        for signer in Signer.objects.all():
            closed = ChainTransaction.objects.filter(
                signer=signer.address, state__in=[State.FINAL, State.REVERTED]
            ).order_by("nonce")
            nonces = list(closed.values_list("nonce", flat=True))
            assert nonces == list(range(signer.next_nonce - len(nonces), signer.next_nonce))
            assert signer.next_nonce == self.anvil.client.nonce(signer.address)
        booked = ChainEvent.objects.filter(pk__gte=self.first_event).exclude(processed_at=None).select_related("block")
        for event in booked:
            assert self.anvil.client.header(event.block.number).hash == event.block.hash, event
        owner = AccountName(AccountKind.CUSTOMER_AVAILABLE, self.alice, asset_id=self.anvil.asset_id).id
        deposits = Transfer.objects.filter(credit_id=owner, code=TransferCode.DEPOSIT)
        credited = set(booked.filter(name="CreditsBought").values_list("tx_hash", flat=True))
        assert deposits.count() == booked.filter(name="CreditsBought").count() == len(credited)

    def _user(self, name: str, function: str, *arguments: Any) -> None:
        """Somebody's transaction, which may revert: that is theirs."""
        key = self.anvil.key(name)
        self._send_raw(
            key.sign(
                {
                    "type": 2,
                    "chainId": self.anvil.contract.chain_id,
                    "nonce": int(self.anvil.rpc("eth_getTransactionCount", key.address, "latest"), 16),
                    "to": self.anvil.contract.address,
                    "value": 0,
                    "gas": 500_000,
                    "maxFeePerGas": 20 * 10**9,
                    "maxPriorityFeePerGas": 10**9,
                    "data": builds.encode(builds.ESCROW, function, list(arguments)),
                }
            )[0]
        )

    def _send_raw(self, raw: str) -> None:
        body = {"jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransaction", "params": [raw]}
        self.anvil.proxy.ask.post(self.anvil.url, json=body)

"""Rules of the chain: credits, wallets' own holds, stakes, claims, blocks that come and go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from hypothesis import strategies as st
from hypothesis.stateful import rule

from billing.chain import escrow
from billing.chain.errors import AuthorizationRefused, CallReverted
from billing.errors import HoldConflict
from billing.models import ChainEvent
from billing.proofs.escrow import HoldAuthorization, SignedHoldAuthorization, sign_authorization
from provider_agent.protocol import UsageReceipt, charge, id_bytes32, sign_receipt
from tests.integration.billing.chain.town import TOKEN
from tests.integration.billing.whole.machine import BillingMachine, amounts, customers, providers, taken, which
from tests.integration.billing.whole.world import CONFIRMATIONS, DAY, NODES

RATE = 3_600 * TOKEN
EVIDENCE = b"\x05" * 32
LEASE_CHALLENGED, LEASE_PENDING = 3, 7  # words of the contract's struct


@dataclass
class Hold:
    """A job that is paid out of a wallet's own balance."""

    job: UUID
    customer: str
    provider: str
    amount: int
    signed: SignedHoldAuthorization
    lease: UUID
    seq: int = 0
    ms: int = 0
    is_closing: bool = False


class Escrowing(BillingMachine):
    """What wallets, the settler and the arbiter do on the chain; the books follow when it is final."""

    def __init__(self) -> None:
        super().__init__()
        self.holds: list[Hold] = []

    def calls(self, what: str, name: str, function: str, *arguments: Any) -> bool:
        """A wallet's own transaction; what the contract refuses is counted."""
        try:
            self.world.town.call(name, function, *arguments)
        except CallReverted:
            taken[f"{what} refused by the contract"] += 1
            return False
        self.did(what)
        return True

    @rule(who=customers, amount=amounts)
    def buy_credits(self, who: str, amount: int) -> None:
        self.calls("buy_credits", who, "buyCredits", id_bytes32(self.owners[who]), amount)

    @rule(who=customers, amount=amounts)
    def deposit(self, who: str, amount: int) -> None:
        self.calls("deposit", who, "deposit", amount)

    @rule(who=st.sampled_from(["Alice", "Anna", "Bob", "Ben", "Mallory"]), share=st.integers(1, 4))
    def withdraw(self, who: str, share: int) -> None:
        has = self.world.view("available", self.world.town.key(who).address)[0]
        self.calls("withdraw", who, "withdraw", has * share // 4)

    @rule(who=customers, provider=providers, share=st.integers(1, 4), mood=st.integers(0, 5))
    def open_hold(self, who: str, provider: str, share: int, mood: int) -> None:
        """The wallet signs, the settler's key sends it when it is followed; Mallory's signature opens nothing."""
        town = self.world.town
        has = self.world.view("available", town.key(who).address)[0]
        if mood and not has:
            self.deposit(who, 5_000_000)
            return
        job, amount = uuid4(), max(1, has * share // 4)
        one = HoldAuthorization(
            job_id=job,
            customer=town.key(who).address,
            asset=town.token,
            max_amount=amount,
            rate_ceiling_per_hour=RATE,
            deadline=int(self.now().timestamp()) + 10 * DAY,
            nonce=uuid4().int,
        )
        domain = escrow.domain_of(town.contract)
        forged = sign_authorization(town.secret("Mallory"), one, domain)
        self.tries("forged hold", lambda: escrow.open_hold(town.asset_id, forged), AuthorizationRefused)
        assert not taken["forged hold"]
        signed = sign_authorization(town.secret(who), one, domain)
        escrow.open_hold(town.asset_id, signed)
        escrow.open_hold(town.asset_id, signed)  # a repeat returns the first
        self.holds.append(Hold(job, who, provider, amount, signed, uuid4()))
        self.did("open_hold")
        other = one.model_copy(update={"max_amount": amount + 1})
        again = sign_authorization(town.secret(who), other, domain)
        self.tries("second hold", lambda: escrow.open_hold(town.asset_id, again), HoldConflict)
        assert not taken["second hold"]

    @rule(number=which, share=st.integers(1, 4))
    def settle_lease(self, number: int, share: int) -> None:
        hold = self.pick([h for h in self.holds if escrow.is_open(h.job) and not h.is_closing], number)
        if hold is not None:
            self.claim_for(hold, share)
            self.did("settle_lease")

    @rule(number=which, share=st.integers(1, 4))
    def settle_late(self, number: int, share: int) -> None:
        """A receipt that comes when the hold is closed, or was refunded: the contract has nothing left for it."""
        hold = self.pick([h for h in self.holds if h.is_closing], number)
        if hold is not None:
            self.claim_for(hold, share)
            self.did("settle_late")

    def claim_for(self, hold: Hold, share: int) -> None:
        town = self.world.town
        hold.seq += 1
        hold.ms += (hold.amount - charge(RATE, hold.ms)) * share // 4 // (RATE // 3_600_000)
        receipt = UsageReceipt(
            job_id=hold.job,
            lease_id=hold.lease,
            provider=town.key(hold.provider).address,
            customer=town.key(hold.customer).address,
            asset=town.token,
            seq=hold.seq,
            billable_ms=hold.ms,
            cumulative_amount=charge(RATE, hold.ms),
        )
        signed = sign_receipt(town.secret(NODES[hold.provider]), receipt, escrow.domain_of(town.contract))
        escrow.settle_lease(signed)

    @rule(who=customers, provider=providers, share=st.integers(1, 4))
    def lease_on_chain(self, who: str, provider: str, share: int) -> None:
        """From the authorization to a settled lease inside its window, in one step."""
        self.open_hold(who, provider, share, 1)
        self.follow()
        if self.holds and escrow.is_open(self.holds[-1].job) and not self.holds[-1].seq:
            last = [h for h in self.holds if escrow.is_open(h.job) and not h.is_closing].index(self.holds[-1])
            self.settle_lease(last, share)
            self.follow()
            self.did("lease_on_chain")

    @rule(number=which)
    def challenge(self, number: int) -> None:
        """Mostly of what waits; the contract refuses the rest."""
        waiting = [
            h
            for h in self.holds
            if h.seq
            and self.world.view("leases", self.world.town.key(h.customer).address, id_bytes32(h.lease))[LEASE_PENDING]
        ]
        hold = self.pick(waiting if number % 4 else [h for h in self.holds if h.seq], number)
        if hold is not None:
            self.calls("challenge", hold.customer, "challenge", id_bytes32(hold.lease), EVIDENCE)

    @rule(number=which, share=st.integers(0, 4))
    def resolve(self, number: int, share: int) -> None:
        known = {
            hold.lease: self.world.view("leases", self.world.town.key(hold.customer).address, id_bytes32(hold.lease))
            for hold in self.holds
            if hold.seq
        }
        lease = self.pick([lease for lease, row in known.items() if row[LEASE_CHALLENGED]], number)
        if lease is None:
            return
        customer = self.world.town.key(next(hold.customer for hold in self.holds if hold.lease == lease)).address
        pending = known[lease][LEASE_PENDING]
        to_provider = pending * share // 4
        self.calls("resolve", "arbiter", "resolve", customer, id_bytes32(lease), to_provider, pending - to_provider)

    @rule()
    def wait_on_chain(self) -> None:
        """The window of what was settled passes, and whoever looks finalizes it."""
        self.world.advance(3_700)
        self.follow()
        self.did("wait_on_chain")

    @rule(number=which)
    def close_hold(self, number: int) -> None:
        hold = self.pick([h for h in self.holds if escrow.is_open(h.job) and not h.is_closing], number)
        if hold is not None:
            hold.is_closing = True
            escrow.close_hold(hold.job)
            self.did("close_hold")

    @rule(number=which)
    def take_back_expired(self, number: int) -> None:
        """The escape hatch: it needs nobody of ours."""
        hold = self.pick([h for h in self.holds if escrow.is_open(h.job) and not h.is_closing], number)
        if hold is None:
            return
        if not number % 4:
            self.let_pass(12 * DAY)
        if self.calls(
            "take_back_expired",
            "Mallory",
            "refundExpired",
            self.world.town.key(hold.customer).address,
            id_bytes32(hold.job),
        ):
            hold.is_closing = True

    @rule(who=providers, amount=amounts)
    def stake(self, who: str, amount: int) -> None:
        self.calls("stake", who, "stake", amount)

    @rule(who=providers, amount=amounts)
    def unstake(self, who: str, amount: int) -> None:
        has = self.world.view("staked", self.world.town.key(who).address)[0]
        self.calls("request_unstake", who, "requestUnstake", amount % has + 1 if has else amount)
        self.calls("unstake", who, "unstake")

    @rule(who=providers, amount=amounts, customer=customers)
    def slash(self, who: str, amount: int, customer: str) -> None:
        town, offence = self.world.town, uuid4().bytes * 2
        has = self.world.view("staked", town.key(who).address)[0]
        amount = amount % has + 1 if has else amount
        if self.calls("slash", "arbiter", "slash", town.key(who).address, amount, offence, EVIDENCE):
            self.calls("compensate", "arbiter", "compensate", town.key(customer).address, amount, offence)

    # --- blocks

    @rule()
    def follow_chain(self) -> None:
        if self.follow():
            self.did("follow_chain")

    @rule(depth=st.integers(1, CONFIRMATIONS), is_kept=st.booleans(), is_seen=st.booleans())
    def reorganise(self, depth: int, is_kept: bool, is_seen: bool) -> None:
        """Blocks that were not final, seen or not, are replaced; their transactions come again, or do not."""
        if self.world.chain.head - depth < self.world.base + 1:
            return
        if is_seen:
            self.world.town.follow()
        lost = sum(raw is not None for raw in self.world.chain.raws[-depth:])
        self.world.chain.fork(depth, is_kept=is_kept)
        self.world.town.follow()
        self.did("reorganise" if lost else "reorganise empty blocks")

    def follow(self) -> int:
        """Look, let blocks pass, look again."""
        booked = self.world.town.follow()
        self.world.confirm()
        return booked + self.world.town.follow()

    def unbooked(self) -> int:
        return ChainEvent.objects.filter(processed_at=None).exclude(block__state="orphaned").count()

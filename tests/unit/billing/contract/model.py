"""The escrow in Python, by names instead of addresses: what each call does, or why it is refused, in the same order."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from provider_agent.protocol.money.receipts import charge
from tests.unit.billing.contract.chain import ROLES, Event, Refused, address
from tests.unit.billing.contract.scene import DAY, EVIDENCE, FUNDS, Terms, id32, role_id

RICH = ("alice", "anna", "bob", "ben", "mallory")
PERIOD_MAX = 366 * DAY
ROLE_DELAY, ROLE_WINDOW = 2 * DAY, 14 * DAY


@dataclass
class Hold:
    """As the contract's."""

    customer: str
    deadline: int
    remaining: int
    rate: int
    allowed: tuple[str, ...]
    parallel: int
    opened_at: int = 0
    billed_ms: int = 0
    closes_at: int = 0
    closed: bool = False


@dataclass
class Lease:
    """As the contract's."""

    customer: str
    job: str
    provider: str
    seq: int = 0
    ms: int = 0
    settled: int = 0
    pending: int = 0
    release_at: int = 0
    challenged: bool = False


@dataclass
class Stake:
    """As the contract's."""

    active: int = 0
    leaving: int = 0
    available_at: int = 0


@dataclass
class Model:
    """Every book of the escrow; a method raises Refused before it changes anything, else returns the events."""

    terms: Terms
    now: int = 0
    paused: bool = False
    tokens: dict[str, int] = field(default_factory=lambda: defaultdict(int, dict.fromkeys(RICH, FUNDS)))
    gifts: int = 0
    available: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    nonces: set[tuple[str, int]] = field(default_factory=set)
    keys: dict[str, int] = field(default_factory=dict)
    holds: dict[tuple[str, str], Hold] = field(default_factory=dict)  # by customer and job
    leases: dict[tuple[str, str], Lease] = field(default_factory=dict)  # by customer and lease
    roles: dict[str, set[str]] = field(default_factory=lambda: {role: {role} for role in (*ROLES, "admin")})
    proposed_roles: dict[tuple[str, str], int] = field(default_factory=dict)
    stakes: dict[str, Stake] = field(default_factory=lambda: defaultdict(Stake))
    slash_pool: int = 0
    slashed: tuple[int, int] = (0, 0)  # day, amount
    offences: set[str] = field(default_factory=set)
    credit_pool: int = 0
    claimed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    active: tuple[dict[str, int], int] = field(default_factory=lambda: ({}, 0))
    proposed: tuple[dict[str, int], int, int] | None = None
    growth: tuple[int, int] = (0, 0)

    # --- totals

    def totals(self) -> list[int]:
        """Available, held, pending, staked, slash pool, credit pool, claimed so far, all that is owed, all there is."""
        parts = [
            sum(self.available.values()),
            sum(hold.remaining for hold in self.holds.values()),
            sum(lease.pending for lease in self.leases.values()),
            sum(stake.active + stake.leaving for stake in self.stakes.values()),
            self.slash_pool,
            self.credit_pool,
        ]
        return [*parts, sum(self.claimed.values()), sum(parts), sum(parts) + self.gifts]

    def row(self, who: str) -> list[int]:
        """Available, staked, claimed, tokens of one account."""
        stake = self.stakes[who]
        return [self.available[who], stake.active + stake.leaving, self.claimed[who], self.tokens[who]]

    # --- funds

    def deposit(self, who: str, amount: int) -> list[Event]:
        self._open_for_money()
        _refuse_unless(amount > 0, "ZeroAmount")
        self._take(who, amount)
        self.available[who] += amount
        return [Event("Deposited", {"beneficiary": address(who), "payer": address(who), "amount": amount})]

    def withdraw(self, who: str, amount: int) -> list[Event]:
        _refuse_unless(amount > 0, "ZeroAmount")
        _refuse_unless(self.available[who] >= amount, "InsufficientAvailable")
        self.available[who] -= amount
        self.tokens[who] += amount
        return [Event("Withdrawn", {"account": address(who), "to": address(who), "amount": amount})]

    def give(self, who: str, amount: int) -> list[Event]:
        self.tokens[who] -= amount
        self.gifts += amount
        return []

    def sweep(self, who: str, to: str) -> list[Event]:
        self._role(who, "admin")
        _refuse_unless(self.gifts > 0, "ZeroAmount")
        swept, self.gifts = self.gifts, 0
        self.tokens[to] += swept
        return [Event("SurplusSwept", {"to": address(to), "amount": swept})]

    def cancel_nonce(self, who: str, nonce: int) -> list[Event]:
        self._use_nonce(who, nonce)
        return [Event("NonceCancelled", {"account": address(who), "nonce": nonce})]

    def pause(self, who: str, is_on: bool) -> list[Event]:
        self._role(who, "pauser")
        _refuse_unless(self.paused != is_on, "EnforcedPause" if is_on else "ExpectedPause")
        self.paused = is_on
        return [Event("Paused" if is_on else "Unpaused", {"account": address(who)})]

    # --- jobs

    def open_hold(self, who: str, job: str, hold: Hold, nonce: int, is_signed: bool) -> list[Event]:
        self._open_for_money()
        _refuse_unless(who == hold.customer or who in self.roles["settler"], "NotAllowed")
        _refuse_unless(hold.remaining > 0 and hold.parallel > 0, "ZeroAmount")
        _refuse_unless(self.now <= hold.deadline, "TooLate")
        _refuse_unless(hold.deadline - self.now <= PERIOD_MAX, "PeriodTooLong")
        _refuse_unless((hold.customer, job) not in self.holds, "HoldExists")
        _refuse_unless((hold.customer, nonce) not in self.nonces, "NonceUsed")
        _refuse_unless(is_signed, "BadSignature")
        _refuse_unless(self.available[hold.customer] >= hold.remaining, "InsufficientAvailable")
        self._use_nonce(hold.customer, nonce)
        self.available[hold.customer] -= hold.remaining
        hold.opened_at = self.now
        self.holds[hold.customer, job] = hold
        fields = {"jobId": id32(job), "customer": address(hold.customer), "parallelLeases": hold.parallel}
        return [Event("HoldOpened", fields | {"amount": hold.remaining})]

    def register(self, provider: str, not_after: int, nonce: int, is_signed: bool) -> list[Event]:
        _refuse_unless(self.now <= not_after, "TooLate")
        _refuse_unless((provider, nonce) not in self.nonces, "NonceUsed")
        _refuse_unless(is_signed, "BadSignature")
        self._use_nonce(provider, nonce)
        self.keys[provider] = not_after
        return [Event("ReceiptKeyRegistered", {"provider": address(provider), "notAfter": not_after})]

    def revoke(self, provider: str) -> list[Event]:
        _refuse_unless(provider in self.keys, "NotAllowed")
        del self.keys[provider]
        return [Event("ReceiptKeyRevoked", {"provider": address(provider)})]

    def settle(self, who: str, name: str, made: Lease, is_signed: bool) -> list[Event]:
        """`made` is the receipt: customer, job, provider, and the cumulative seq, ms and amount."""
        self._role(who, "settler")
        hold = self._hold(made.customer, made.job)
        _refuse_unless(self.now <= self.refundable_after(hold), "TooLate")
        _refuse_unless(not hold.allowed or made.provider in hold.allowed, "BadProof")
        _refuse_unless(is_signed and made.provider in self.keys, "BadSignature")
        _refuse_unless(self.now <= self.keys[made.provider], "TooLate")
        lease = self.leases.get((made.customer, name)) or Lease(made.customer, made.job, made.provider)
        _refuse_unless(lease.job == made.job, "UnknownLease")
        _refuse_unless(lease.provider == made.provider, "WrongProvider")
        is_newer = made.seq > lease.seq and made.ms >= lease.ms and made.settled >= lease.settled
        _refuse_unless(is_newer, "StaleReceipt")
        amount = made.settled - lease.settled
        _refuse_unless(amount > 0, "ZeroAmount")
        elapsed_ms, billed_ms = (self.now - hold.opened_at) * 1_000, hold.billed_ms - lease.ms + made.ms
        _refuse_unless(made.ms <= elapsed_ms and billed_ms <= elapsed_ms * hold.parallel, "ExceedsTime")
        _refuse_unless(made.settled <= charge(hold.rate, made.ms), "ExceedsRate")
        _refuse_unless(amount <= hold.remaining, "ExceedsHold")
        events = self._finalized(name, lease) if lease.pending and self.now >= self.due_at(lease) else []
        lease.seq, lease.ms, lease.settled = made.seq, made.ms, made.settled
        lease.pending += amount
        lease.release_at = self.now + self.terms.challenge_seconds
        hold.remaining -= amount
        hold.billed_ms = billed_ms
        self.leases[made.customer, name] = lease
        fields = self._fields(name, lease) | {"seq": made.seq, "amount": amount, "releaseAt": lease.release_at}
        return [*events, Event("LeaseSettled", fields)]

    def challenge(self, who: str, name: str) -> list[Event]:
        lease = self._lease(who, name)
        _refuse_unless(not lease.challenged, "Disputed")
        _refuse_unless(lease.pending > 0, "ZeroAmount")
        _refuse_unless(self.now < lease.release_at, "TooLate")
        lease.challenged = True
        fields = {"jobId": id32(lease.job), "leaseId": id32(name), "customer": address(who), "amount": lease.pending}
        return [Event("LeaseChallenged", fields | {"evidenceHash": EVIDENCE})]

    def resolve(self, who: str, customer: str, name: str, to_provider: int, to_customer: int) -> list[Event]:
        self._role(who, "arbiter")
        lease = self._lease(customer, name)
        _refuse_unless(lease.challenged, "NotDisputed")
        _refuse_unless(self.now < self.due_at(lease), "TooLate")
        _refuse_unless(to_provider + to_customer == lease.pending, "SumMismatch")
        fields = self._release(name, lease, to_provider)
        self.available[customer] += to_customer
        return [Event("DisputeResolved", {**fields, "refunded": to_customer})]

    def finalize(self, customer: str, name: str) -> list[Event]:
        lease = self._lease(customer, name)
        _refuse_unless(lease.pending > 0, "ZeroAmount")
        _refuse_unless(self.now >= lease.release_at, "TooEarly")
        _refuse_unless(self.now >= self.due_at(lease), "Disputed")
        return self._finalized(name, lease)

    def close_hold(self, who: str, customer: str, job: str) -> list[Event]:
        self._role(who, "settler")
        hold = self._hold(customer, job)
        if not self.terms.close_seconds:
            return self._closed(job, hold, False)
        _refuse_unless(not hold.closes_at, "HoldIsClosing")
        hold.closes_at = self.now + self.terms.close_seconds
        fields = {"jobId": id32(job), "customer": address(customer), "closesAt": hold.closes_at}
        return [Event("HoldClosing", fields)]

    def reopen_hold(self, who: str, customer: str, job: str) -> list[Event]:
        _refuse_unless(who in self.roles["arbiter"] | self.roles["pauser"], "NotAllowed")
        hold = self._hold(customer, job)
        _refuse_unless(hold.closes_at > 0, "NotAllowed")
        _refuse_unless(self.now <= self.refundable_after(hold), "TooLate")
        hold.closes_at = 0
        return [Event("HoldReopened", {"jobId": id32(job), "customer": address(customer)})]

    def refund_expired(self, customer: str, job: str) -> list[Event]:
        hold = self._hold(customer, job)
        _refuse_unless(self.now > self.refundable_after(hold), "TooEarly")
        return self._closed(job, hold, not hold.closes_at)

    # --- roles

    def propose_role(self, who: str, role: str, account: str) -> list[Event]:
        self._role(who, "admin")
        self.proposed_roles[role, account] = self.now + ROLE_DELAY
        fields = {"role": role_id(role), "account": address(account), "activeAt": self.now + ROLE_DELAY}
        return [Event("RoleProposed", fields)]

    def veto_role(self, who: str, role: str, account: str) -> list[Event]:
        _refuse_unless(who in self.roles["admin"] | self.roles["arbiter"] | self.roles["pauser"], "NotAllowed")
        _refuse_unless((role, account) in self.proposed_roles, "NotAllowed")
        del self.proposed_roles[role, account]
        return [Event("RoleVetoed", {"role": role_id(role), "account": address(account)})]

    def grant_role(self, who: str, role: str, account: str) -> list[Event]:
        self._role(who, "admin")
        active_at = self.proposed_roles.get((role, account))
        _refuse_unless(active_at is not None, "NotAllowed")
        assert active_at is not None
        _refuse_unless(self.now >= active_at, "TooEarly")
        _refuse_unless(self.now <= active_at + ROLE_WINDOW, "TooLate")
        del self.proposed_roles[role, account]
        if account in self.roles[role]:
            return []
        self.roles[role].add(account)
        return [Event("RoleGranted", {"role": role_id(role), "account": address(account), "sender": address(who)})]

    def revoke_role(self, who: str, role: str, account: str) -> list[Event]:
        self._role(who, "admin")
        if account not in self.roles[role]:
            return []
        self.roles[role].remove(account)
        return [Event("RoleRevoked", {"role": role_id(role), "account": address(account), "sender": address(who)})]

    # --- credits

    def buy_credits(self, who: str, amount: int) -> list[Event]:
        self._open_for_money()
        _refuse_unless(amount > 0, "ZeroAmount")
        self._take(who, amount)
        self.credit_pool += amount
        return [Event("CreditsBought", {"payer": address(who), "amount": amount})]

    def propose(self, who: str, promised: dict[str, int], total: int) -> list[Event]:
        self._open_for_money()
        self._role(who, "publisher")
        _refuse_unless(self.proposed is None or self.now >= self.proposed[2], "RootPending")
        active = self.open_root()
        _refuse_unless(total >= active[1], "SumMismatch")
        day = self.now // DAY
        used = self.growth[1] if self.growth[0] == day else 0
        _refuse_unless(used + total - active[1] <= self.terms.root_daily_cap, "ExceedsDailyCap")
        _refuse_unless(total - sum(self.claimed.values()) <= self.credit_pool, "ExceedsCredits")
        self.active = active
        self.growth = (day, used + total - active[1])
        self.proposed = (promised, total, self.now + self.terms.root_delay_seconds)
        return [Event("RootProposed", {"total": total, "activeAt": self.proposed[2]})]

    def veto(self, who: str) -> list[Event]:
        _refuse_unless(who in self.roles["arbiter"] | self.roles["pauser"], "NotAllowed")
        _refuse_unless(self.proposed is not None and self.now < self.proposed[2], "TooLate")
        assert self.proposed
        self.growth = (self.growth[0], self.growth[1] - (self.proposed[1] - self.active[1]))
        self.proposed = None
        return [Event("RootVetoed", {})]

    def claim(self, account: str, cumulative: int) -> list[Event]:
        promised, total = self.open_root()
        _refuse_unless(promised.get(account) == cumulative, "BadProof")
        amount = cumulative - self.claimed[account]
        _refuse_unless(amount > 0, "NothingToClaim")
        _refuse_unless(amount <= total - sum(self.claimed.values()), "ExceedsCredits")
        self.claimed[account] = cumulative
        self.credit_pool -= amount
        self.tokens[account] += amount
        return [Event("Claimed", {"account": address(account), "amount": amount, "cumulative": cumulative})]

    # --- stakes

    def stake(self, who: str, amount: int) -> list[Event]:
        self._open_for_money()
        _refuse_unless(amount > 0, "ZeroAmount")
        self._take(who, amount)
        self.stakes[who].active += amount
        return [Event("Staked", {"provider": address(who), "amount": amount})]

    def request_unstake(self, who: str, amount: int) -> list[Event]:
        stake = self.stakes[who]
        _refuse_unless(amount > 0, "ZeroAmount")
        _refuse_unless(amount <= stake.active, "ExceedsStake")
        stake.active -= amount
        stake.leaving += amount
        stake.available_at = self.now + self.terms.unstake_seconds
        fields = {"provider": address(who), "amount": amount, "availableAt": stake.available_at}
        return [Event("UnstakeRequested", fields)]

    def unstake(self, who: str) -> list[Event]:
        stake = self.stakes[who]
        _refuse_unless(stake.leaving > 0, "ZeroAmount")
        _refuse_unless(self.now >= stake.available_at, "TooEarly")
        amount, stake.leaving = stake.leaving, 0
        self.tokens[who] += amount
        return [Event("Unstaked", {"provider": address(who), "amount": amount})]

    def slash(self, who: str, provider: str, amount: int, offence: str) -> list[Event]:
        self._role(who, "slasher")
        _refuse_unless(amount > 0, "ZeroAmount")
        _refuse_unless(offence not in self.offences, "OffenceKnown")
        _refuse_unless(amount <= self.terms.slash_cap_per_offence, "ExceedsCap")
        day = self.now // DAY
        used = self.slashed[1] if self.slashed[0] == day else 0
        _refuse_unless(used + amount <= self.terms.slash_daily_cap, "ExceedsDailyCap")
        stake = self.stakes[provider]
        _refuse_unless(amount <= stake.active + stake.leaving, "ExceedsStake")
        from_active = min(amount, stake.active)
        stake.active -= from_active
        stake.leaving -= amount - from_active
        self.offences.add(offence)
        self.slashed = (day, used + amount)
        self.slash_pool += amount
        return [Event("Slashed", {"provider": address(provider), "amount": amount, "offenceId": id32(offence)})]

    def compensate(self, who: str, customer: str, amount: int, offence: str) -> list[Event]:
        self._role(who, "arbiter")
        _refuse_unless(amount > 0, "ZeroAmount")
        _refuse_unless(offence in self.offences, "NotAllowed")
        _refuse_unless(amount <= self.slash_pool, "InsufficientAvailable")
        self.slash_pool -= amount
        self.available[customer] += amount
        return [Event("Compensated", {"customer": address(customer), "amount": amount, "offenceId": id32(offence)})]

    def is_settleable(self) -> bool:
        """Whether any hold has money left."""
        return any(hold.remaining for hold in self.holds.values())

    # --- parts of the above

    def _open_for_money(self) -> None:
        _refuse_unless(not self.paused, "EnforcedPause")

    def _role(self, who: str, role: str) -> None:
        _refuse_unless(who in self.roles[role], "AccessControlUnauthorizedAccount")

    def _use_nonce(self, who: str, nonce: int) -> None:
        _refuse_unless((who, nonce) not in self.nonces, "NonceUsed")
        self.nonces.add((who, nonce))

    def _take(self, who: str, amount: int) -> None:
        _refuse_unless(self.tokens[who] >= amount, "ERC20InsufficientBalance")
        self.tokens[who] -= amount

    def _hold(self, customer: str, job: str) -> Hold:
        _refuse_unless((customer, job) in self.holds, "UnknownHold")
        _refuse_unless(not self.holds[customer, job].closed, "HoldIsClosed")
        return self.holds[customer, job]

    def _lease(self, customer: str, name: str) -> Lease:
        _refuse_unless((customer, name) in self.leases, "UnknownLease")
        return self.leases[customer, name]

    def due_at(self, lease: Lease) -> int:
        """From when on what waits on a lease is the provider's."""
        return lease.release_at + (self.terms.dispute_seconds if lease.challenged else 0)

    def refundable_after(self, hold: Hold) -> int:
        """Until when receipts are settled; from the next second on anybody refunds."""
        expires_at = hold.deadline + self.terms.grace_seconds
        return min(expires_at, hold.closes_at) if hold.closes_at else expires_at

    def _fields(self, name: str, lease: Lease) -> dict[str, Any]:
        who = {"provider": address(lease.provider), "customer": address(lease.customer)}
        return {"jobId": id32(lease.job), "leaseId": id32(name)} | who

    def _release(self, name: str, lease: Lease, to_provider: int) -> dict[str, Any]:
        fee = to_provider * self.terms.fee_bps // 10_000
        lease.pending, lease.challenged = 0, False
        self.available[lease.provider] += to_provider - fee
        self.available["fee"] += fee
        return self._fields(name, lease) | {"paid": to_provider - fee, "fee": fee}

    def _finalized(self, name: str, lease: Lease) -> list[Event]:
        return [Event("LeaseFinalized", self._release(name, lease, lease.pending))]

    def _closed(self, job: str, hold: Hold, is_expired: bool) -> list[Event]:
        rest, hold.remaining, hold.closed = hold.remaining, 0, True
        self.available[hold.customer] += rest
        fields = {"jobId": id32(job), "customer": address(hold.customer), "refunded": rest, "expired": is_expired}
        return [Event("HoldClosed", fields)]

    def open_root(self) -> tuple[dict[str, int], int]:
        """What the root that is open now promises to whom, and its total."""
        if self.proposed and self.now >= self.proposed[2]:
            return self.proposed[0], self.proposed[1]
        return self.active


def _refuse_unless(is_allowed: bool, error: str) -> None:
    if not is_allowed:
        raise Refused(error)

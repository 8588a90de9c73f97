"""Naive books of what the rules did by themselves; what comes from outside is added from the outside's own books.

Everything here is a plain number that a rule adds to. What waits for Stripe or the chain is not here: at the end of a
sequence, the values here and theirs have to be equal to the ledger's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from billing.models.ledger import USD_ASSET_ID
from tests.integration.billing.scenes import Meter

BPS = 10_000
FEE_BPS = 1_000


@dataclass
class Gift:
    """Given credit of one owner."""

    owner: UUID
    left: int
    expires_at: datetime


@dataclass
class Job:
    """One job paid out of the ledger's own balance."""

    id: UUID
    owner: UUID
    asset: int
    meter: Meter
    provider: UUID
    held: int = 0
    state: str = "open"  # settled, released
    draws: list[tuple[Gift, int]] = field(default_factory=list)  # what it took of which gift, and has not given back
    shares: list[Share] = field(default_factory=list)
    to_customer: int = 0  # by disputes and fines

    def give_back(self, spent: int) -> int:
        """What it drew and did not spend is a gift again, the last first; how much."""
        left = max(0, sum(amount for _, amount in self.draws) - spent)
        back = 0
        kept: list[tuple[Gift, int]] = []
        for gift, amount in reversed(self.draws):
            part = min(amount, left - back)
            gift.left += part
            back += part
            if amount - part:
                kept.insert(0, (gift, amount - part))
        self.draws = kept
        return back


@dataclass
class Share:
    """What one lease paid one provider."""

    job: Job
    lease: UUID
    provider: UUID
    charged: int
    fee: int
    paid: int
    until: datetime
    taken: int = 0  # by offences
    state: str = "pending"  # disputed, released, decided
    was_contested: bool = False
    dispute: UUID | None = None
    frozen: int = 0
    decided: int | None = None  # what a decision gave the provider

    @property
    def kept(self) -> int:
        """What the provider has of it, or will have."""
        if self.state == "disputed":
            return 0
        return min(self.paid - self.taken, self.decided if self.decided is not None else self.paid)


@dataclass
class Model:
    """Numbers by (owner, asset), or by asset."""

    spend: Counter[tuple[UUID, int]] = field(default_factory=Counter)  # changes of what a customer may spend
    earned: Counter[tuple[UUID, int]] = field(default_factory=Counter)  # changes of what a provider may be paid
    stake: Counter[UUID] = field(default_factory=Counter)
    fees: Counter[int] = field(default_factory=Counter)
    liquidity: Counter[int] = field(default_factory=Counter)
    rounding: Counter[int] = field(default_factory=Counter)
    pool: int = 0
    promo_expense: int = 0
    jobs: list[Job] = field(default_factory=list)
    gifts: list[Gift] = field(default_factory=list)

    @property
    def shares(self) -> list[Share]:
        return [share for job in self.jobs for share in job.shares]

    def draw(self, job: Job, amount: int, now: datetime) -> int:
        """Gifts first, those that expire first; what was drawn counts as spendable money."""
        usable = [g for g in self.gifts if g.owner == job.owner and g.left and g.expires_at > now]
        drawn = 0
        for gift in sorted(usable, key=lambda gift: gift.expires_at) if job.asset == USD_ASSET_ID else []:
            part = min(gift.left, amount - drawn)
            if part > 0:
                gift.left -= part
                job.draws.append((gift, part))
                drawn += part
        self.spend[job.owner, job.asset] += drawn
        return drawn

    def settle(self, job: Job, lease: UUID, charged: int, until: datetime) -> Share | None:
        """The hold is split: fee, provider, rest."""
        fee = charged * FEE_BPS // BPS
        self.fees[job.asset] += fee
        self.spend[job.owner, job.asset] += job.held - charged
        job.held, job.state = 0, "settled"
        self.spend[job.owner, job.asset] -= job.give_back(charged)
        job.shares.append(Share(job, lease, job.provider, charged, fee, charged - fee, until))
        return job.shares[-1]

    def window_passes(self, now: datetime) -> None:
        """Whatever is due and not contested is the provider's."""
        for share in self.shares:
            if share.state == "pending" and share.until <= now:
                share.state = "released"
                self.earned[share.provider, share.job.asset] += share.paid - share.taken

    def decide(self, share: Share, customer: int, provider: int, platform: int) -> None:
        """What was frozen is split."""
        job = share.job
        self.spend[job.owner, job.asset] += customer
        self.earned[share.provider, job.asset] += provider
        self.fees[job.asset] += platform
        share.state, share.frozen, share.decided = "decided", 0, provider
        self.refund(job, customer)

    def compensate(self, job: Job, amount: int) -> None:
        """Whose job it was gets what a provider is fined."""
        self.spend[job.owner, USD_ASSET_ID] += amount
        self.refund(job, amount)

    def refund(self, job: Job, amount: int) -> None:
        """Of what came back, that which was paid with gifts is a gift again, after what was paid with money."""
        job.to_customer += amount
        spent = max(0, sum(each.charged for each in job.shares) - job.to_customer)
        self.spend[job.owner, job.asset] -= job.give_back(spent)

    def pending(self, provider: UUID, asset: int) -> int:
        return sum(
            share.paid - share.taken
            for share in self.shares
            if (share.provider, share.job.asset, share.state) == (provider, asset, "pending")
        )

    def held(self, owner: UUID, asset: int) -> int:
        return sum(job.held for job in self.jobs if (job.owner, job.asset) == (owner, asset))

    def disputed(self, asset: int) -> int:
        return sum(share.frozen for share in self.shares if share.job.asset == asset)

    def given(self, owner: UUID) -> int:
        return sum(gift.left for gift in self.gifts if gift.owner == owner)

"""A second set of books: every transfer added up again by other code, and held against the outside one by one."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db import connection

from billing.books.escrow_flows import INWARD, OUTWARD
from billing.models import Account, Transfer
from billing.models.ledger import USD_ASSET_ID
from billing.money import MICROS_PER_CENT
from tests.integration.billing.whole.world import CONFIRMATIONS, World, facts

Sums = list[int]  # debits pending, debits posted, credits pending, credits posted
DPEND, DPOST, CPEND, CPOST = range(4)
# What a frozen balance gives out all the same: what was taken from us for it, and what was never its owner's.
FROM_FROZEN: Final = frozenset({"chargeback_recovery", "deposit_refund", "promotion"})
BY_SOURCE: Final = frozenset({"transfer", "transfer_refund", "transfer_cancel", "transfer_failure"})


@dataclass(frozen=True)
class Name:
    """What one account is for."""

    kind: str
    owner: UUID | None
    job: UUID | None
    asset: int


@dataclass
class Books:
    """The ledger, recomputed transfer by transfer as they come."""

    world: World
    seq: int = 0
    sums: dict[UUID, Sums] = field(default_factory=dict)
    pendings: dict[UUID, int] = field(default_factory=dict)
    names: dict[UUID, Name] = field(default_factory=dict)
    refs: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))  # of each mirror
    frozen: set[UUID] = field(default_factory=set)  # when last looked at

    def read(self) -> bool:
        """Take in what was posted since; whether there was anything."""
        fields = ("seq", "id", "debit_id", "credit_id", "amount", "mode", "pending_id", "external_ref", "code")
        fresh = list(Transfer.objects.filter(seq__gt=self.seq).order_by("seq").values_list(*fields))
        if fresh:
            rows = Account.objects.values_list("id", "kind", "owner_id", "job_id", "asset_id")
            self.names = {row[0]: Name(*row[1:]) for row in rows}
        frozen = set(Account.objects.filter(is_frozen=True).values_list("id", flat=True))
        for *row, code in fresh:
            self._add(*row)
            _, _, debit, _, _, mode, *_ = row
            if debit in self.frozen & frozen:
                is_right = mode in {"post", "void"} or (mode == "single" and code in FROM_FROZEN)
                assert is_right, f"{self.names[debit]} is frozen and gave something out as {code}"
        self.frozen = frozen
        return bool(fresh)

    def _add(
        self, seq: int, id: UUID, debit: UUID, credit: UUID, amount: int, mode: str, pending: UUID | None, ref: str
    ) -> None:
        out, into = (self.sums.setdefault(one, [0, 0, 0, 0]) for one in (debit, credit))
        amount = int(amount)
        if mode == "pending":
            self.pendings[id] = amount
            out[DPEND] += amount
            into[CPEND] += amount
        if mode in {"post", "void"}:
            assert pending is not None
            reserved = self.pendings.pop(pending, None)
            assert reserved is not None, "P4: resolved twice, or never reserved"
            assert amount <= reserved, "P4: more was posted than was reserved"
            out[DPEND] -= reserved
            into[CPEND] -= reserved
        if mode in {"single", "post"}:
            out[DPOST] += amount
            into[CPOST] += amount
            for account, sign in ((debit, 1), (credit, -1)):
                if self.names[account].owner is None:
                    self.refs[self.names[account].kind][ref] += sign * amount
        self.seq = seq

    def check(self) -> None:
        """P1, P2, P3: the four sums of every account are those of its transfers, nobody is below zero, all balances."""
        totals: dict[int, Sums] = defaultdict(lambda: [0, 0, 0, 0])
        fields = ("debits_pending", "debits_posted", "credits_pending", "credits_posted", "is_nonnegative", "is_summed")
        for account, *stored, is_nonnegative, is_summed in Account.objects.values_list("id", *fields):
            mine = self.sums.get(account, [0, 0, 0, 0])
            name = self.names.get(account)
            assert not is_summed or [int(each) for each in stored] == mine, f"P2: {name} says {stored}, not {mine}"
            assert not is_nonnegative or mine[CPOST] - mine[DPOST] - mine[DPEND] >= 0, f"P3: {name} is overdrawn"
            for place, each in enumerate(mine):
                totals[name.asset if name else 0][place] += each
        for asset, (dpend, dpost, cpend, cpost) in totals.items():
            assert (dpend, dpost) == (cpend, cpost), f"P1: asset {asset} is not balanced"

    def balance(self, kind: str, owner: UUID | None = None, asset: int = USD_ASSET_ID) -> int:
        """What may be debited of all accounts of this kind and owner; without an owner, of all owners."""
        return sum(
            mine[CPOST] - mine[DPOST] - mine[DPEND]
            for account, mine in self.sums.items()
            if (found := self.names[account]).kind == kind
            and found.asset == asset
            and (owner is None or found.owner == owner)
        )

    def posted(self, kind: str, asset: int) -> int:
        """The same without what is pending."""
        return sum(
            mine[CPOST] - mine[DPOST]
            for account, mine in self.sums.items()
            if (found := self.names[account]).kind == kind and found.asset == asset
        )

    def of_job(self, job: UUID) -> list[int]:
        """What lies in the accounts of one job."""
        return [mine[CPOST] - mine[DPOST] for account, mine in self.sums.items() if self.names[account].job == job]

    def check_stripe(self, *, is_settled: bool = False) -> None:
        """P20 for Stripe: each of its bookings is in the ledger whole and once, or (while in flight) not at all."""
        outside = self.stripe_refs()
        for ref, amount in self.refs["stripe_balance"].items():
            assert outside.get(ref) == amount, f"P20: {ref} is {amount} in the ledger, {outside.get(ref)} at Stripe"
        if is_settled:
            missing = {ref: each for ref, each in outside.items() if each != self.refs["stripe_balance"][ref]}
            assert not missing, f"P20: Stripe moved what the ledger does not know: {missing}"
            has = sum(self.world.stripe.balance.get("usd", (0, 0))) * MICROS_PER_CENT
            assert -self.posted("stripe_balance", USD_ASSET_ID) == has, "P20: the sums differ"

    def stripe_refs(self) -> dict[str, int]:
        """What Stripe's own books say of our account, by what the ledger calls each change; signed, micro-USD."""
        found: dict[str, int] = {}
        for row in self.world.stripe.store.all("balance_transaction"):
            ref = row["source"] if row["type"] in BY_SOURCE else row["id"]
            for name, cents in ((ref, row["amount"]), (f"{ref}:fee", -row["fee"])):
                if cents:
                    found[name] = found.get(name, 0) + cents * MICROS_PER_CENT
        return found

    def check_chain(self, *, is_settled: bool = False) -> None:
        """P20 and P23 for the contract: what is booked is final on the chain as it is now, whole and once."""
        world = self.world
        known = facts(world.chain, world.town)
        final = world.chain.head - CONFIRMATIONS
        for ref, amount in self.refs["chain_escrow"].items():
            name, arguments, number = known.get(ref, ("", {}, 0))
            sign = 1 if name in INWARD else -1
            assert name in INWARD | OUTWARD, f"P23: {ref} was booked and is not on the chain"
            assert number <= final, f"P23: {ref} was booked before it was final"
            assert amount == sign * int(arguments["amount"]), f"P20: {ref} was booked as {amount}"
        if is_settled:
            town = world.town
            owed = -self.posted("chain_escrow", town.asset_id)
            assert owed == town.tokens_of(town.contract.address) == world.view("totalLiabilities")[0], (
                "P20: sums differ"
            )


def fire_deferred_rules() -> None:
    """What the database would refuse at a commit, it refuses now."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


def select(sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())

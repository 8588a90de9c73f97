"""What all rules share: who is there, what is counted, and what has to hold after every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from billing.models import Account, Hold, Payout, Settlement
from billing.models.ledger import USD_ASSET_ID
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage
from tests.integration.billing.whole.books import Books, fire_deferred_rules
from tests.integration.billing.whole.model import Model
from tests.integration.billing.whole.world import CUSTOMERS, PROVIDERS, World

T = TypeVar("T")

DEAF_SECONDS_MAX = 86_400

customers = st.sampled_from(CUSTOMERS)
providers = st.sampled_from(PROVIDERS)
which = st.integers(0, 999)  # of several: one of them, whatever there is
amounts = st.integers(1, 20_000_000)
taken: Counter[str] = Counter()  # what was done and what was refused, over all sequences of this process


class BillingMachine(RuleBasedStateMachine):
    """Alice and Anna buy, Bob and Ben provide, Mallory lies, Stripe and the chain have moods."""

    world: ClassVar[World]

    def __init__(self) -> None:
        super().__init__()
        self.world.begin()
        self.model, self.books = Model(), Books(self.world)
        self.owners, self.users = self.world.owners, self.world.users
        self.steps = -1  # that the people come is none

    def teardown(self) -> None:
        self.world.end()

    @initialize(dice=st.integers(0, 2**32))
    def people_come(self, dice: int) -> None:
        """They have paid in once."""
        self.world.dice.seed(dice)
        self.books.read()
        self.begin()

    def begin(self) -> None:
        """What a sequence starts with."""

    def listen(self) -> None:
        """Read what happened outside."""

    # --- what rules need

    @property
    def token(self) -> int:
        return int(self.world.town.asset_id)

    @property
    def assets(self) -> tuple[int, int]:
        return (USD_ASSET_ID, self.token)

    def now(self) -> datetime:
        return clock.now()

    def let_pass(self, seconds: float) -> None:
        """Time passes; nobody is deaf for more than a day, which reconciliation takes for a difference."""
        if seconds >= DEAF_SECONDS_MAX:
            self.listen()
        self.world.advance(seconds)

    def did(self, what: str) -> None:
        taken[what] += 1

    def pick(self, rows: list[T], number: int) -> T | None:
        return rows[number % len(rows)] if rows else None

    def tries(self, what: str, verb: Callable[[], T], *errors: type[Exception]) -> T | None:
        """Done and counted, or refused and counted; as in a request of its own."""
        try:
            with transaction.atomic():
                done = verb()
        except errors as error:
            taken[f"{what} refused: {type(error).__name__}"] += 1
            return None
        self.did(what)
        return done

    def thaw(self, *owners: UUID) -> None:
        """An operator lets what these have go."""
        Account.objects.filter(owner_id__in=owners, is_frozen=True).update(is_frozen=False)
        self.books.read()

    def fingerprint(self) -> dict[Any, Any]:
        """All balances."""
        self.books.read()
        return {self.books.names[account]: tuple(sums) for account, sums in self.books.sums.items() if any(sums)}

    # --- what holds after every step

    @invariant()
    def everything_adds_up(self) -> None:
        self.steps += 1
        taken["steps"] += self.steps > 0
        self.check_all()

    def check_all(self) -> None:
        self.world.set_stripe_clock()
        fire_deferred_rules()
        if self.books.read():
            self.books.check()
            self.books.check_stripe()
            self.books.check_chain()
            self.check_jobs()
            self.check_payouts()
        self.check_model()
        self.check_effects()

    def check_jobs(self) -> None:
        """P7 and P8: what is over holds nothing, and its parts are its hold."""
        live = set(Hold.objects.open().values_list("job_id", flat=True))
        for account, sums in self.books.sums.items():
            name = self.books.names[account]
            if name.kind == "job_hold" and name.job not in live:
                assert sums[0] == sums[2] == 0 and sums[1] == sums[3], f"P7: {name} of an ended job has money"
        for row in Settlement.objects.values_list("held", "paid", "fee", "refunded"):
            assert row[0] == row[1] + row[2] + row[3], "P8"

    def check_payouts(self) -> None:
        """P21: what is on its way is set aside, what arrived has left, and what failed is where it was."""
        under_way: Counter[tuple[UUID, int]] = Counter()
        arrived: Counter[tuple[UUID, int]] = Counter()
        rows = Payout.objects.values_list("provider_id", "asset_id", "state", "amount")
        for provider, asset, state, amount in rows:
            under_way[provider, asset] += int(amount) * (state in {"reserved", "submitted"})
            arrived[provider, asset] += int(amount) * (state in {"confirmed", "returned"})
        for account, (_, out, coming, into) in self.books.sums.items():
            name = self.books.names[account]
            if name.kind == "payout_clearing" and name.owner is not None:
                owner = name.owner, name.asset
                assert (coming, into) == (under_way[owner], arrived[owner]), f"P21: {name}"
                assert out == into or name.asset != USD_ASSET_ID, f"P21: {name} keeps {into - out}"

    def check_model(self) -> None:
        """What nothing outside moves is as in the naive books, to the unit."""
        says, model = self.books.balance, self.model
        for asset in self.assets:
            assert says("fee_revenue", None, asset) == model.fees[asset], "fees"
            assert says("disputed", None, asset) == model.disputed(asset), "disputed"
            assert says("liquidity", None, asset) == model.liquidity[asset], "liquidity"
            assert says("rounding", None, asset) == model.rounding[asset], "rounding"
            for name in PROVIDERS:
                owner = self.owners[name]
                assert says("provider_pending", owner, asset) == model.pending(owner, asset), f"pending of {name}"
        for job in model.jobs:
            assert sum(self.books.of_job(job.id)) == job.held, "the hold of a job"
        for name in CUSTOMERS:
            assert says("customer_promotion", self.owners[name]) == model.given(self.owners[name]), f"gifts of {name}"
        for name in PROVIDERS:
            assert says("provider_stake", self.owners[name]) == model.stake[self.owners[name]], f"stake of {name}"
        assert says("promo_expense") == model.promo_expense, "promotions"
        assert says("slash_pool") == model.pool, "slash pool"

    def check_effects(self) -> None:
        """P19: nothing that was requested once was done twice."""
        asked = set(OutboxMessage.objects.values_list("pk", flat=True)) | set(
            Payout.objects.values_list("pk", flat=True)
        )
        names = {str(each) for each in asked}
        marks = Counter((e.noun, mark) for e in self.world.stripe.effect_log for mark in e.marks & names)
        for (noun, mark), count in marks.items():
            assert count == 1, f"P19: {count} x {noun} for {mark}"
